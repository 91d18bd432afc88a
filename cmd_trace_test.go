package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTraceCommand(t *testing.T) {
	code, stdout, stderr := penstock(t, "trace", "bench/trace/testdata/mooncake.jsonl.gz", "--json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var s struct {
		Format   string
		Requests int
		Prompt   struct{ Max int } `json:"prompt_tokens"`
		Prefix   float64           `json:"prefix_share"`
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err)
	}
	if s.Format != "mooncake" || s.Requests != 40 || s.Prompt.Max == 0 || s.Prefix <= 0 || s.Prefix >= 1 {
		t.Errorf("%s", stdout)
	}
	code, stdout, _ = penstock(t, "trace", "bench/trace/testdata/access.jsonl")
	if code != 0 || !strings.Contains(stdout, "21 (another line of the log)") || !strings.Contains(stdout, "conversations  4;") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// TestTraceFaults: a bad file has its line on stderr, exit 1, and no result.
func TestTraceFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(path, []byte("arrival_s,input_tokens,output_tokens\n0,10,1\n1,-4,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{path}, 1, path + ":3: input_tokens = -4: want a whole number, 0 or more"},
		{[]string{path + "x"}, 1, "no such file"},
		{[]string{path, "--format", "mooncake"}, 1, path + ":1: "},
		{[]string{path, "--format", "vidur"}, 2, "want auto, mooncake"},
		{[]string{path, "--scale", "0"}, 2, "--scale 0: want more than 0"},
		{nil, 2, "want a trace file"},
	} {
		code, stdout, stderr := penstock(t, append([]string{"trace"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, %q, %q; want %d and %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
}
