package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/bench/load"
	"penstock/bench/report"
	"penstock/engine/enginetest"
)

// TestBench compares two engines, one of them slower, by what their clients see.
func TestBench(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fast := simulated(t, enginetest.Config{Models: []string{"m"}, Slots: 32, TTFT: 5 * time.Millisecond, TBOT: time.Millisecond})
	slow := simulated(t, enginetest.Config{Models: []string{"m"}, Slots: 32, TTFT: 150 * time.Millisecond, TBOT: 20 * time.Millisecond})
	out, raw := filepath.Join(dir, "r.json"), filepath.Join(dir, "raw.jsonl")
	code, stdout, stderr := penstock(t, "bench", "--target", "slow="+slow, "--target", "fast="+fast, "--rate", "20", "--turns", "2", "--think", "50ms",
		"--prompt", "40", "--later", "10", "--answer", "12", "--for", "1500ms", "--warm", "200ms", "--pause", "0s", "--rounds", "2", "--output", out, "--raw", raw)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if !strings.Contains(stdout, "fast: the lowest mean") && !strings.Contains(stdout, "fast wins") {
		t.Errorf("%s", stdout)
	}
	results, err := report.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(results.Runs) != 4 || results.Tool != "bench" || results.Machine == nil {
		t.Fatalf("%+v", results)
	}
	n := 0
	for _, run := range results.Runs {
		n += run.Requests
		if run.OK == 0 || run.OK != run.Requests || run.TTFT.Count() != int64(run.OK) || run.Seconds != 1.3 {
			t.Errorf("%s: %d of %d whole, %d first tokens, %g s", run.Name, run.OK, run.Requests, run.TTFT.Count(), run.Seconds)
		}
	}
	f, err := os.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for scan := bufio.NewScanner(f); scan.Scan(); lines++ {
		var r load.Result
		if err := json.Unmarshal(scan.Bytes(), &r); err != nil || r.Outcome != "ok" || r.E2E < r.TTFT || r.TTFT <= 0 {
			t.Errorf("%s: %v", scan.Text(), err)
		}
	}
	if lines != n {
		t.Errorf("%d raw lines for %d requests", lines, n)
	}
}

// TestBenchReplaysATrace: every request of the file is asked for, and no fault of
// the file is found in mid-run.
func TestBenchReplaysATrace(t *testing.T) {
	t.Parallel()
	url := simulated(t, enginetest.Config{Models: []string{"m"}, Slots: 64, KVTokens: 1 << 20})
	code, stdout, stderr := penstock(t, "bench", "--target", url, "--trace", "bench/trace/testdata/azure.csv", "--speed", "40", "--for", "1s", "--warm", "0s", "--rounds", "1", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	r, err := report.Parse([]byte(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if run := r.Runs[0]; run.Requests != 40 || run.OK != 40 || run.PromptTokens < 20_000 {
		t.Errorf("%d requests, %d whole, %d prompt tokens", run.Requests, run.OK, run.PromptTokens)
	}
	path := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(path, []byte("arrival_s,input_tokens,output_tokens\n0,10,1\n1,x,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = penstock(t, "bench", "--target", url, "--trace", path)
	if code != 1 || stdout != "" || !strings.Contains(stderr, path+":3: input_tokens = x") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestBenchFaults(t *testing.T) {
	t.Parallel()
	url := simulated(t, enginetest.Config{Models: []string{"m"}})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "bench needs a server"},
		{[]string{"--target", "127.0.0.1:80"}, 2, "want [NAME=]http://HOST:PORT"},
		{[]string{"--target", url, "--target", url}, 2, "two targets are called"},
		{[]string{"--target", url, "--rate", "0"}, 2, "--rate 0: want"},
		{[]string{"--target", url, "--arrivals", "often"}, 2, `--arrivals "often": want poisson`},
		{[]string{"--target", url, "--prompt", "long"}, 2, `--prompt "long": want a number`},
		{[]string{"--target", url, "--warm", "1m", "--for", "1m"}, 2, "--warm 1m0s: want less than --for"},
		{[]string{"--target", url, "--header", "x"}, 2, "want NAME: VALUE"},
		{[]string{"--target", "http://127.0.0.1:1"}, 1, "target 127.0.0.1:1: "},
		{[]string{"--target", url, "--key-file", "/nowhere"}, 1, "/nowhere"},
		{[]string{"--target", url, "--output", "/nowhere/r.json", "--for", "24h"}, 1, "the result could not be written: open /nowhere/r.json"},
		{[]string{"--target", url, "--model", "none", "--for", "300ms", "--warm", "0s", "--rounds", "1", "--rate", "50"}, 1, "not one whole answer of"},
	} {
		code, _, stderr := penstock(t, append([]string{"bench"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, %q; want %d and %q", c.args, code, stderr, c.code, c.want)
		}
	}
}
