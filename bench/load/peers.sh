#!/bin/sh
# Two engines of unequal speed behind Penstock (nothing configured but names and
# URLs), nginx (round robin) and HAProxy (leastconn, and by a hash of
# X-Session-Id), under the same conversations in turn: penstock bench, then
# penstock report. Balancers that are not installed are left out, with a line.
#
#   bench/load/peers.sh [OUTPUT-DIRECTORY] [further arguments of penstock bench]
#
# Everything listens on loopback, ports 18700 to 18709, and ends with the script.
set -eu
out=${1:-bench-peers}
[ $# -gt 0 ] && shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
pids=
finish() {
	for p in $pids; do kill "$p" 2>/dev/null || :; done
	wait 2>/dev/null || :
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

(cd "$here" && go build -o "$work/penstock" .)
p=$work/penstock
start() { "$@" 2>>"$work/log" >&2 & pids="$pids $!"; }

start "$p" sim --listen 127.0.0.1:18700 --name a1 --model m --slots 24 --ttft 30ms --tbot 10ms
start "$p" sim --listen 127.0.0.1:18701 --name b1 --model m --slots 24 --ttft 60ms --tbot 20ms

cat >"$work/penstock.toml" <<END
[listen]
address = "127.0.0.1:18702"
[admin]
address = "127.0.0.1:18703"
[[engine]]
name = "a1"
url = "http://127.0.0.1:18700"
[[engine]]
name = "b1"
url = "http://127.0.0.1:18701"
END
start "$p" serve --config "$work/penstock.toml"
targets="--target penstock=http://127.0.0.1:18702"

if command -v nginx >/dev/null; then
	cat >"$work/nginx.conf" <<END
daemon off; worker_processes 1; pid nginx.pid; error_log stderr error;
$([ "$(id -u)" = 0 ] && echo 'user root;')
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  client_max_body_size 64m; client_body_buffer_size 2m;
  upstream engines { server 127.0.0.1:18700; server 127.0.0.1:18701; keepalive 1024; }
  server {
    listen 127.0.0.1:18704;
    location / { proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 120s; }
  }
}
END
	start nginx -p "$work" -e stderr -c "$work/nginx.conf"
	targets="$targets --target nginx=http://127.0.0.1:18704"
else
	echo "nginx is left out: it is not installed (Debian package nginx)" >&2
fi

if command -v haproxy >/dev/null; then
	cat >"$work/haproxy.cfg" <<END
global
  maxconn 4096
  nbthread 1
defaults
  mode http
  option abortonclose
  option http-no-delay
  timeout connect 1s
  timeout client 120s
  timeout server 120s
listen leastconn
  bind 127.0.0.1:18705
  balance leastconn
  server a1 127.0.0.1:18700 check
  server b1 127.0.0.1:18701 check
listen hash
  bind 127.0.0.1:18706
  balance hdr(X-Session-Id)
  hash-type consistent
  server a1 127.0.0.1:18700 check
  server b1 127.0.0.1:18701 check
END
	start haproxy -db -f "$work/haproxy.cfg"
	targets="$targets --target haproxy-leastconn=http://127.0.0.1:18705 --target haproxy-hash=http://127.0.0.1:18706"
else
	echo "HAProxy is left out: it is not installed (Debian package haproxy)" >&2
fi

sleep 2
# shellcheck disable=SC2086 # targets are words
"$p" bench $targets --rate 15 --turns 4 --think 1s --shared 200 --prompt lognormal:400:0.8 --later lognormal:80:0.6 --answer lognormal:80:0.5 \
	--for 30s --warm 12s --rounds 5 --slo-ttft 500ms --slo-tbot 40ms --title "two engines, one of half the speed" \
	--output "$out/results.json" "$@"
"$p" report "$out/results.json" -o "$out/report.html" --markdown "$out/report.md" >/dev/null
echo "$out/report.html" >&2
