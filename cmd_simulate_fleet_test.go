package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/bench/sim"
)

// steadyTrace is n requests of 100 prompt and 50 answer tokens, gap apart.
func steadyTrace(t *testing.T, n int, gap time.Duration) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 100, "output_length": 50, "hash_ids": []}`+"\n", gap.Milliseconds()*int64(i))
	}
	return writeFile(t, "trace.jsonl", b.String())
}

const configuredGateway = `
[gateway]
source = "us"
state_dir = "/nonexistent"
[listen]
tls_cert = "gone.crt"
tls_key = "gone.key"
[network]
rtt_ms = { us = { us = 2, eu = 80 }, eu = { us = 80, eu = 2 } }
[[engine]]
name = "a1"
url = "http://10.0.0.1:8000"
key_file = "/nonexistent"
profile = { base_ms = 100, slope_ms = 400, limit = 20 }
[[engine]]
name = "b1"
url = "http://10.0.0.2:8000"
cluster = "eu"
profile = { points = [[0, 500], [10, 700], [20, 1500]] }
[[engine]]
name = "c1"
url = "http://10.0.0.3:8000"
cluster = "eu"
capacity = 7
[[engine]]
name = "spare"
url = "http://10.0.0.4:8000"
cluster = "ap"
capacity = 0
`

// The fleet of a simulation may be a gateway's configuration, and what --json
// prints has a row for each policy.
func TestSimulateTakesAConfiguration(t *testing.T) {
	path := writeFile(t, "penstock.toml", configuredGateway)
	args := []string{"simulate", "--trace", steadyTrace(t, 60, 3*time.Second), "--fleet", path, "--policy", "nearest,round-robin", "--seed", "7", "--until", "10m", "--json"}
	code, stdout, stderr := penstock(t, args...)
	type spread struct{ Mean, P50, P95, P99 *float64 }
	var out struct {
		Policies []struct {
			Name     string
			Requests int
			TTFT     spread `json:"ttft_ms"`
			E2E      spread `json:"e2e_ms"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || code != exitDone || stderr != "" {
		t.Fatalf("exit %d, %v, %q", code, err, stderr)
	}
	if len(out.Policies) != 2 || out.Policies[0].Name != "nearest" || out.Policies[1].Name != "round-robin" {
		t.Fatalf("policies %+v", out.Policies)
	}
	for _, p := range out.Policies {
		for _, s := range []spread{p.TTFT, p.E2E} {
			if p.Requests != 60 || s.Mean == nil || s.P50 == nil || s.P95 == nil || s.P99 == nil || !(*s.Mean > 0) {
				t.Errorf("%+v", p)
			}
		}
	}
	// Nothing else to do, next door: 500 ms, as both profiles say.
	if mean := *out.Policies[0].E2E.Mean; math.Abs(mean-502) > 30 {
		t.Errorf("requests on idle engines take %.0f ms, want 502", mean)
	}
	if _, again, _ := penstock(t, args...); again != stdout {
		t.Error("the same input and seed give another result")
	}
}

// An engine carries what its profile or its capacity says.
func TestConfiguredEnginesCarryTheirCapacity(t *testing.T) {
	fleet, err := readFleet(writeFile(t, "penstock.toml", configuredGateway))
	if err != nil {
		t.Fatal(err)
	}
	var notes bytes.Buffer
	load := sim.Load{Rate: 1, Prompt: 300, Output: 120}
	fleet.complete(load, &notes)
	each, _ := fleet.Capacities(load)
	for i, want := range []float64{20, 20, 7} {
		if e := fleet.Engines[i]; math.Abs(each[i]/want-1) > 0.1 {
			t.Errorf("%s carries %.1f/s, want %.0f: %+v", e.Name, each[i], want, e)
		}
	}
	if len(fleet.Engines) != 3 || len(fleet.Regions) != 2 || notes.Len() > 0 {
		t.Errorf("%d engines, %d regions, %q", len(fleet.Engines), len(fleet.Regions), notes.String())
	}
}

func TestSimulateRefusesAConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"[[engine]]\nname = \"a\"\nurl = \"http://h\"\ncapacity = -1\n":           "f.toml:4: engine.capacity = -1",
		"[[engine]]\nname = \"a\"\nurl = \"http://h\"\ncapactiy = 1\n":            "f.toml:4: engine.capactiy = 1: unknown key; the nearest is engine.capacity",
		"[[engine]]\nname = \"a\"\nurl = \"http://h\"\ncapacity = 0\n":            "no engine in it has a capacity above 0",
		"[[engine]]\nname = \"a\"\nurl = \"http://h\"\ncluster = \"moon\"\n":      "no round trip from local to moon",
		"[[engine]]\nname = \"a\"\nurl = \"http://h\"\n[listen]\naddress = \"8\n": "f.toml:5: strings cannot contain newlines",
	} {
		code, stdout, stderr := penstock(t, "simulate", "--fleet", writeFile(t, "f.toml", text), "--requests", "10")
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %q on stdout, %q on stderr; want %q", text, code, stdout, stderr, want)
		}
	}
	path := writeFile(t, "plain.toml", "[[engine]]\nname = \"a\"\nurl = \"http://h\"\n")
	if code, _, stderr := penstock(t, "simulate", "--fleet", path, "--requests", "10", "--policy", "nearest"); code != exitDone || !strings.Contains(stderr, "note: a: neither profile nor capacity") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, _, stderr := penstock(t, "simulate", "--experiment", "a3", "--fleet", path); code != exitUsage || !strings.Contains(stderr, "wants --trace") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
