package engine

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func valid() Config {
	capacity := 40.0
	return Config{
		Name: "a1", URL: "http://10.0.0.1:8000", Cluster: "us-east", Dialect: "auto", Models: []string{"m", "org/b:7b v2"},
		Labels:       map[string][]string{"residency": {"us", "eu"}},
		Capabilities: []string{"tools", "vision"}, Capacity: &capacity, MaxInFlight: 64,
	}
}

func TestValidateAccepts(t *testing.T) {
	zero := 0.0
	for name, edit := range map[string]func(*Config){
		"all keys":         func(*Config) {},
		"name and url":     func(c *Config) { *c = Config{Name: "A.b_c-9", URL: "http://engine.example"} },
		"trailing slash":   func(c *Config) { c.URL = "http://engine.example:80/" },
		"a path":           func(c *Config) { c.URL = "http://engine.example/team/a" },
		"v1 within a name": func(c *Config) { c.URL = "http://engine.example/model-v1" },
		"ipv6":             func(c *Config) { c.URL = "http://[::1]:8000" },
		"takes no load":    func(c *Config) { c.Capacity = &zero },
		"no capability":    func(c *Config) { c.Capabilities = []string{} },
		"every dialect":    func(c *Config) { c.Dialect = "llamacpp" },
	} {
		c := valid()
		edit(&c)
		if faults := c.Validate(); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	cases := []struct {
		edit             func(*Config)
		key, value, want string // want: a part of it
	}{
		{func(c *Config) { c.Name = "" }, "name", `""`, "1 to 63"},
		{func(c *Config) { c.Name = "a b" }, "name", `"a b"`, "A-Z"},
		{func(c *Config) { c.Name = strings.Repeat("a", 64) }, "name", strings.Repeat("a", 64), "1 to 63"},
		{func(c *Config) { c.Name = "a1\n" }, "name", `"a1\n"`, "1 to 63"},
		{func(c *Config) { c.URL = "" }, "url", `""`, "absolute"},
		{func(c *Config) { c.URL = "10.0.0.1:8000" }, "url", "10.0.0.1:8000", "absolute"},
		{func(c *Config) { c.URL = "localhost:8000" }, "url", "localhost:8000", "absolute"},
		{func(c *Config) { c.URL = "/v1" }, "url", "/v1", "absolute"},
		{func(c *Config) { c.URL = "ftp://h" }, "url", "ftp://h", "absolute"},
		{func(c *Config) { c.URL = "http://" }, "url", "http:", "a host"},
		{func(c *Config) { c.URL = "http://:8000" }, "url", "http://:8000", "a host"},
		{func(c *Config) { c.URL, c.CAFile = "https://h:8000", "/nonexistent/ca.pem" }, "ca_file", "/nonexistent/ca.pem", "no such file"},
		{func(c *Config) { c.URL, c.CAFile = "https://h:8000", "validate_test.go" }, "ca_file", "validate_test.go", "no certificate in it"},
		{func(c *Config) { c.URL, c.TLSServerName = "https://h:8000", "a:443" }, "tls_server_name", "a:443", "without a port"},
		{func(c *Config) { c.URL, c.TLSServerName = "https://h:8000", "a b" }, "tls_server_name", "a b", "a host name"},
		{func(c *Config) { c.TLSServerName = "a.internal" }, "tls_server_name", "a.internal", "beside an http:// url"},
		{func(c *Config) { c.URL = "http://h:0" }, "url", "http://h:0", "1 to 65535"},
		{func(c *Config) { c.URL = "http://h:70000" }, "url", "http://h:70000", "1 to 65535"},
		{func(c *Config) { c.URL = "http://h:" }, "url", "http://h:", "1 to 65535"},
		{func(c *Config) { c.URL = "http://u:secret@h" }, "url", "xxxxx@h", "no user"},
		{func(c *Config) { c.URL = "http://h?x=1" }, "url", "h?x=1", "no query"},
		{func(c *Config) { c.URL = "http://h#f" }, "url", "h#f", "no fragment"},
		{func(c *Config) { c.URL = "http://h/v1" }, "url", "h/v1", "root, without /v1"},
		{func(c *Config) { c.URL = "http://h/team/v1/" }, "url", "/v1/", "root, without /v1"},
		{func(c *Config) { c.URL = "http://169.254.169.254" }, "url", "169.254", "not link-local"},
		{func(c *Config) { c.URL = "http://[fe80::1]:80" }, "url", "fe80", "not link-local"},
		{func(c *Config) { c.URL = "http://h\n/" }, "url", `\n`, "absolute"},
		{func(c *Config) { c.Cluster = "a,b" }, "cluster", "a,b", "without"},
		{func(c *Config) { c.Dialect = "ollama" }, "dialect", "ollama", "one of auto, vllm, sglang, tgi, llamacpp, trtllm, triton, lmdeploy, nim, openai"},
		{func(c *Config) { c.Capacity = number(-1) }, "capacity", "-1", "0 or more"},
		{func(c *Config) { c.Capacity = number(math.NaN()) }, "capacity", "NaN", "finite"},
		{func(c *Config) { c.Capacity = number(math.Inf(1)) }, "capacity", "+Inf", "finite"},
		{func(c *Config) { c.MaxInFlight = -1 }, "max_in_flight", "-1", "1 or more"},
		{func(c *Config) { c.Models = []string{"m", ""} }, "models", `""`, "a model's name"},
		{func(c *Config) { c.Models = []string{"m", "m"} }, "models", `"m"`, "once"},
		{func(c *Config) { c.Models = []string{} }, "models", "[]", "at least one"},
		{func(c *Config) { c.Capabilities = []string{"tool"} }, "capabilities", "tool", "tools, vision"},
		{func(c *Config) { c.Labels = map[string][]string{"": {"x"}} }, "labels", `""`, "1 to 128"},
		{func(c *Config) { c.Labels = map[string][]string{"a=b": {"x"}} }, "labels", "a=b", "without"},
		{func(c *Config) { c.Labels = map[string][]string{"gpu": {""}} }, "labels.gpu", `""`, "1 to 128"},
		{func(c *Config) { c.Labels = map[string][]string{"gpu": {"a,b"}} }, "labels.gpu", "a,b", "without"},
		{func(c *Config) { c.Labels = map[string][]string{"gpu": {"a\x00"}} }, "labels.gpu", `\x00`, "control"},
		{func(c *Config) { c.Labels = map[string][]string{"gpu": {strings.Repeat("x", 129)}} }, "labels.gpu", "xxx", "128"},
		{func(c *Config) { c.Labels = map[string][]string{"gpu": {}} }, "labels.gpu", "[]", "at least one"},
	}
	for _, tc := range cases {
		c := valid()
		tc.edit(&c)
		faults := c.Validate()
		if len(faults) != 1 {
			t.Errorf("%s %s: got %d faults, want one: %v", tc.key, tc.value, len(faults), faults)
			continue
		}
		f := faults[0]
		if f.Key != tc.key || !strings.Contains(f.Value, tc.value) || !strings.Contains(f.Want, tc.want) {
			t.Errorf("got %v, want key %s, value %s, want %s", f, tc.key, tc.value, tc.want)
		}
	}
}

func TestValidateReportsAllFaultsAtOnce(t *testing.T) {
	c := Config{Name: "a b", URL: "https://u:hunter2@h/v1?q", Dialect: "x", MaxInFlight: -2, Models: []string{""},
		Capabilities: []string{"sing"}, Labels: map[string][]string{"b": {"="}, "a": {","}}}
	var keys []string
	for _, f := range c.Validate() {
		keys = append(keys, f.Key)
		if strings.Contains(f.String(), "hunter2") {
			t.Errorf("password shown: %s", f)
		}
	}
	want := []string{"name", "url", "url", "url", "dialect", "max_in_flight", "models", "capabilities", "labels.a", "labels.b"}
	if !slices.Equal(keys, want) {
		t.Errorf("got %v, want %v", keys, want)
	}
	broken := Config{Name: "a", URL: "http://u:hunter2@h:x"}
	for _, f := range broken.Validate() {
		if strings.Contains(f.String(), "hunter2") {
			t.Errorf("password shown: %s", f)
		}
	}
}
