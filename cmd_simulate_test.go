package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/bench/report"
	"penstock/bench/sim"
)

const traceLines = `{"timestamp": 0, "input_length": 600, "output_length": 40, "hash_ids": [1, 2]}
{"timestamp": 900, "input_length": 1100, "output_length": 60, "hash_ids": [1, 2, 3]}
{"timestamp": 2500, "input_length": 300, "output_length": 20, "hash_ids": [9]}
{"timestamp": 9000, "input_length": 1500, "output_length": 30, "hash_ids": [1, 2, 3]}
`

func TestSimulateTellsEveryPolicyOfEveryScenario(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(traceLines), 0o644); err != nil {
		t.Fatal(err)
	}
	code, text, stderr := penstock(t, "simulate", "--trace", path, "--policy", "optimal,cache-aware", "--what-if", "lose us-east-1 at 1s", "--what-if", "add:2:eu-west-1",
		"--what-if", "demand x 1.5", "--what-if", "bind eu-west-1")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"as it is: 9 engines", "lose us-east-1 at 1s: 9 engines", "add:2:eu-west-1: 11 engines", "demand x 1.5: 9 engines", "bind eu-west-1: 9 engines", "KV HIT", "E2E CHANGE", "cache-aware"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	code, text, stderr = penstock(t, "simulate", "--trace", path, "--policy", "optimal,cache-aware", "--what-if", "demand:2", "--json", "--seeds", "2")
	r, err := report.Parse([]byte(text))
	if err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, stderr)
	}
	if len(r.Runs) != 2*2*2 {
		t.Fatalf("%d runs", len(r.Runs))
	}
	for _, p := range r.Runs {
		if p.Requests != 4 || p.OK+p.Shed+p.Errors != 4 || p.OK > 0 && !(p.E2E.Mean() > 0) {
			t.Errorf("%s, %s: %d requests, %d ok, %d shed, %d failed, %v ms", p.Scenario, p.Name, p.Requests, p.OK, p.Shed, p.Errors, p.E2E.Mean())
		}
	}
	if again, _ := json.Marshal(r); len(again) == 0 {
		t.Error("it does not write again")
	}
}

// What is wrong is said with its place, and there is no result beside it.
func TestSimulateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken.jsonl", traceLines+`{"timestamp": 9500, "input_length": "many", "output_length": 30, "hash_ids": []}`+"\n")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--trace " + broken, 1, "broken.jsonl:5: input_length"},
		{"--trace " + filepath.Join(dir, "none"), 1, "none"},
		{"--fleet " + write("key.toml", "[[region]]\nname = \"a\"\nsharee = 1\n"), 1, "key.toml:3: region.sharee: no such key"},
		{"--fleet " + write("syntax.toml", "[[region]]\nname = \n"), 1, "syntax.toml:2: "},
		{"--fleet " + write("region.toml", "[[region]]\nname = \"us-east-1\"\n\n[[engine]]\nname = \"e\"\nregion = \"moon\"\nstep_ms = 1.0\n"), 1, `region.toml:4: engine 1: region "moon" has no [[region]]`},
		{"--fleet " + write("profile.toml", "[[region]]\nname = \"us-east-1\"\n[[engine]]\nname = \"e\"\nregion = \"us-east-1\"\nprofile = \"x\"\n"), 1, `profile "x" is not one that is shipped`},
		{"--fleet " + write("far.toml", "[[region]]\nname = \"moon\"\n[[region]]\nname = \"mars\"\n[[engine]]\nname = \"e\"\nregion = \"mars\"\nstep_ms = 1.0\n"), 1, "no round trip from moon to mars"},
		{"--policy fastest", 2, `policy "fastest"`},
		{"--what-if win", 2, "too short"},
		{"--trace " + write("short.jsonl", traceLines) + " --what-if lose:moon", 1, "neither an engine nor a region is called moon"},
		{"--speed 2 --utilisation 0.5", 2, "either --speed or --utilisation"},
		{"--speed nan", 2, "--speed NaN: want up to 1e+06"},
		{"--speed inf", 2, "--speed +Inf: want up to 1e+06"},
		{"--utilisation nan", 2, "--utilisation NaN: want up to"},
		{"--what-if demand:1e300", 2, "want a factor up to 1e+06"},
		{"--policy nearest,nearest", 2, "--policy: nearest is named twice"},
		{"--requests 0", 2, "--requests 0: want 1 or more"},
		{"--until -1s", 2, "--until -1s: want"},
		{"--slo-ttft -1s", 2, "--slo-ttft -1s: want"},
		{"--requests 10 --policy nearest --warm-up 10h", 1, "no request comes after --warm-up 10h0m0s"},
		{"--utilisation 0.5 --trace " + write("once.jsonl", traceLines[:strings.IndexByte(traceLines, '\n')+1]), 1, "come all at once"},
		{"--experiment=", 2, "want one of a1, a2"},
		{"--experiment a99", 2, "want one of a1, a2"},
		{"--experiment a1 --trace x", 2, "a3 alone"},
		{"--short", 2, "--short is for --experiment"},
		{"--seeds 0", 2, "want 1 or more"},
	} {
		code, stdout, stderr := penstock(t, append([]string{"simulate"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" && !strings.Contains(c.args, "what-if lose") {
			t.Errorf("%s: exit %d, %q on stderr, %d bytes on stdout; want exit %d and %q", c.args, code, stderr, len(stdout), c.code, c.want)
		}
	}
}

func TestSimulateExampleFleetIsOne(t *testing.T) {
	t.Parallel()
	code, text, _ := penstock(t, "simulate", "--example-fleet")
	if f, err := sim.ParseFleet(text, "example"); code != 0 || err != nil || len(f.Engines) != 9 {
		t.Errorf("exit %d, %v", code, err)
	}
}

func TestSimulateRunsExperiments(t *testing.T) {
	t.Parallel()
	if code, text, stderr := penstock(t, "simulate", "--experiment", "A1", "--short"); code != 0 || !strings.Contains(text, "A1 meets its aims") {
		t.Errorf("exit %d, %s %s", code, text, stderr)
	}
}
