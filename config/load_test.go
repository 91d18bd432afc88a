package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"penstock/balancer"
)

func TestEveryKey(t *testing.T) {
	const text = `
gateway = { name = "gw-1", source = "us-east", replicas = 3 }
network.rtt_ms = { us-east = { us-east = 0.5, "eu-west" = 82 }, ap = { us-east = 200 } }
listen.address = "[::]:8080"
listen.max_streams = 1_000
admin.address = "[::1]:8081"
[routing]
hash_key = "${KEY}-${UNSET:-x}-${EMPTY:-y}-$${KEY}-$5"
policy = "capacity"
period = "250ms"
[limits]
body = "512KiB"
first_content = "1h30m"
stall = "${STALL:-250ms}"
body_read = "1.5s"
write = "1ms"
idle = "24h"
[log]
level = "debug"
[[engine]]
name = "a1"
url = "http://${HOST}:8001"
cluster = "eu-west"
dialect = "vllm"
models = ["m", "${MODEL}"]
labels = { residency = "eu", gpu = ["h100", "${GPU:-h200}"] }
capabilities = []
capacity = 40
max_in_flight = 64
replicas = 2
[[engine]]
name = "b1"
url = "http://h:8002"
capacity = 0.0
[engine.labels]
residency = "us"
[discovery]
dns = ["${HOST}.svc:8000", "_http._tcp.h"]
file_sd = ["engines/*.json"]
engine = { dialect = "vllm", labels = { gpu = "h100" }, max_in_flight = 9 }
`
	got, err := Parse("p.toml", []byte(text), env("KEY", "k", "EMPTY", "", "HOST", "h", "MODEL", "n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Gateway = Gateway{Name: "gw-1", Source: "us-east", Replicas: 3}
	want.Network.RTT = map[string]map[string]float64{"us-east": {"us-east": 0.5, "eu-west": 82}, "ap": {"us-east": 200}}
	want.Listen = Listen{Address: "[::]:8080", MaxStreams: 1000}
	want.Admin.Address = "[::1]:8081"
	want.Routing.HashKey, want.Routing.Policy, want.Routing.Period = "k-x-y-${KEY}-$5", balancer.Capacity, 250*time.Millisecond
	want.Limits.Body, want.Limits.FirstContent, want.Limits.Stall = 512<<10, 90*time.Minute, 250*time.Millisecond
	want.Limits.BodyRead, want.Limits.Write, want.Limits.Idle = 1500*time.Millisecond, time.Millisecond, 24*time.Hour
	if err := want.Log.Level.UnmarshalText([]byte("debug")); err != nil {
		t.Fatal(err)
	}
	want.Engines = slices.Grow(want.Engines, 2)[:2]
	a, b := &want.Engines[0], &want.Engines[1]
	forty, zero := 40.0, 0.0
	a.Name, a.URL, a.Cluster, a.Dialect, a.Models = "a1", "http://h:8001", "eu-west", "vllm", []string{"m", "n"}
	a.Labels = map[string][]string{"residency": {"eu"}, "gpu": {"h100", "h200"}}
	a.Capabilities, a.Capacity, a.MaxInFlight = []string{}, &forty, 64
	a.Replicas = 2
	b.Name, b.URL, b.Cluster, b.Capacity = "b1", "http://h:8002", "us-east", &zero
	b.Labels = map[string][]string{"residency": {"us"}}
	want.Discovery.DNS, want.Discovery.FileSD = []string{"h.svc:8000", "_http._tcp.h"}, []string{"engines/*.json"}
	want.Discovery.Engine.Dialect, want.Discovery.Engine.MaxInFlight = "vllm", 9
	want.Discovery.Engine.Labels = map[string][]string{"gpu": {"h100"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAbsentIsNotEmpty(t *testing.T) {
	f, err := Parse("p.toml", []byte(anEngine), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	e := f.Engines[0]
	if e.Capacity != nil || e.Capabilities != nil || e.Models != nil || e.MaxInFlight != 0 {
		t.Errorf("keys that the file does not have are set: %+v", e)
	}
	if e.Cluster != "local" {
		t.Errorf("cluster %q, want the gateway's source", e.Cluster)
	}
	f.Engines = nil
	if !reflect.DeepEqual(f, Default()) {
		t.Errorf("got %+v, want the defaults", f)
	}
}

func TestHashKeyFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"key": " a b \r\n", "empty": "\n", "big": strings.Repeat("x", maxSecret+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "p.toml")
	for _, key := range []string{"key", "${DIR}/key", "empty", "big"} {
		text := "routing.hash_key_file = \"" + key + "\"" + anEngine
		f, err := Parse(path, []byte(text), env("DIR", dir))
		if bad := key == "empty" || key == "big"; bad != (err != nil) {
			t.Errorf("%s: error %v", key, err)
		} else if !bad && string(f.Routing.HashKey) != " a b " {
			t.Errorf("%s: read %q", key, string(f.Routing.HashKey))
		}
	}
}

func TestSecretPrintsHidden(t *testing.T) {
	f := Default()
	f.Routing.HashKey = "s3cret"
	for _, text := range []string{fmt.Sprint(f.Routing), fmt.Sprintf("%+v %#v %s %q", f, f.Routing.HashKey, f.Routing.HashKey, f.Routing.HashKey)} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("shown in %s", text)
		}
	}
	if json, err := f.Routing.HashKey.MarshalJSON(); err != nil || strings.Contains(string(json), "s3cret") {
		t.Errorf("JSON %s (%v)", json, err)
	}
}

// C44: each bad version of the file is refused whole and with a reason that
// names the place, and the file that follows it is read as if nothing had been.
func TestC44_BadVersionsLeaveNothingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(anEngine)
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"[[engine\n", anEngine + "capacity = -1\n", "[limits]\nstall = \"1s\"\nidle = \"x\"\n" + anEngine, ""} {
		write(bad)
		if f, err := Load(path); err == nil || f != nil {
			t.Errorf("%q: file %v, error %v", bad, f, err)
		} else if !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%q: %v names no line", bad, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a file that is gone is no error")
	}
	write(anEngine)
	if again, err := Load(path); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("restored: %+v, %v", again, err)
	}
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.WriteFile(next, []byte(anEngine+strings.Replace(anEngine, "a1", "b1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	if grown, err := Load(path); err != nil || len(grown.Engines) != 2 {
		t.Errorf("extended by renaming: %+v, %v", grown, err)
	}
}

func TestNeedsRestart(t *testing.T) {
	old, next := Default(), Default()
	next.Log.Level++
	next.Limits.Body++
	next.Routing.HashKey = "x"
	if got := old.NeedsRestart(next); got != nil {
		t.Errorf("a change that is taken over asks for a restart of %q", got)
	}
	next.Listen.MaxStreams++
	next.Admin.Address = "127.0.0.1:1"
	next.Limits.Idle++
	if got, want := old.NeedsRestart(next), []string{"listen.max_streams", "admin.address", "limits.idle"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzParse: no text makes Parse panic; what is refused is refused with places
// in the file; what is read can be written and reads as the same again; and
// the line index knows every key of what is TOML.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"../config.toml.example", "testdata/every_key.toml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		// Comments only slow the fuzzer down.
		f.Add(regexp.MustCompile(`(?m)^#.*\n|^\n| +#.*$`).ReplaceAllString(string(text), ""))
	}
	f.Add(anEngine)
	f.Add("a = [[1, {b = '''\n'''}], \"x\\\"\"]\n[[c]]\n[c.\"d.e\"]\nf.g = 1 # [h]\n[[c]]\n[[c.i]]\nj = { k = \"}\", l = [\n#,\n{m = 1}] }\n")
	f.Add("gateway.name = \"${X:-a}\"\r\n\"\\u0061\".b = 1" + anEngine)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("p.toml", []byte(text), env("X", "x"))
		if err != nil {
			lines := strings.Count(text, "\n") + 1
			for _, fault := range err.(Faults) {
				if fault.Line < 1 || fault.Line > lines || fault.Reason == "" || strings.Contains(fault.String(), "\n") {
					t.Fatalf("%q: fault %+v", text, fault)
				}
			}
		} else {
			rereads(t, file)
		}
		knowsEveryKey(t, text)
	})
}

// rereads writes file as TOML and wants the same file from it.
func rereads(t *testing.T, file *File) {
	var out strings.Builder
	written := *file
	written.Tenants = slices.Clone(file.Tenants)
	for i := range written.Tenants {
		if written.Tenants[i].Key.Path != "" {
			written.Tenants[i].KeyHash = nil // made from the file's key
		}
	}
	if err := toml.NewEncoder(&out).Encode(written); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^( *)key = ""\n`).ReplaceAllString(out.String(), "")
	text = regexp.MustCompile(`(?m)^( *)key = `).ReplaceAllString(text, "${1}key_file = ")
	if file.Routing.HashKey == "" {
		text = strings.Replace(text, "hash_key = \"\"\n", "", 1)
	}
	for _, absent := range []string{"dialect = \"\"\n", "max_in_flight = 0\n", "replicas = 0\n", "cluster = \"\"\n", "priority = \"\"\n",
		"tls_cert = \"\"\n", "tls_key = \"\"\n", "metrics_address = \"\"\n"} {
		text = strings.ReplaceAll(text, absent, "")
	}
	again, err := Parse("written.toml", []byte(strings.ReplaceAll(text, "${", "$${")), noEnv)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if !reflect.DeepEqual(again, file) {
		t.Fatalf("got  %+v\nwant %+v\nfrom\n%s", again, file, text)
	}
}

func knowsEveryKey(t *testing.T, text string) {
	lines := indexLines(text)
	var doc map[string]any
	if lines.tooDeep > 0 {
		return
	}
	if _, err := toml.Decode(text, &doc); err != nil {
		return
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if path != "" {
			if n := lines.at[path]; n < 1 || n > strings.Count(text, "\n")+1 {
				t.Fatalf("%q: %s on line %d", text, path, n)
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for key, e := range v {
				walk(member(path, key), e)
			}
		case []any:
			for i, e := range v {
				walk(element(path, i), e)
			}
		case []map[string]any:
			for i, e := range v {
				walk(element(path, i), e)
			}
		}
	}
	walk("", doc)
}
