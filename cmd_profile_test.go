package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/config"
	"penstock/engine/enginetest"
)

// simulated runs an engine on a free port and returns its URL.
func simulated(t *testing.T, c enginetest.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sim := enginetest.New(c)
	done := make(chan struct{})
	ctx := t.Context()
	go func() { _ = sim.Serve(ctx, ln); close(done) }()
	t.Cleanup(func() { <-done })
	return "http://" + ln.Addr().String()
}

func TestProfileMeasuresAnEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := simulated(t, enginetest.Config{Models: []string{"m7"}, Slots: 16, TTFT: 40 * time.Millisecond, TBOT: 5 * time.Millisecond})
	out, csv := filepath.Join(dir, "a1.toml"), filepath.Join(dir, "a1.csv")
	code, stdout, stderr := penstock(t, "profile", "--engine", url, "--for", "4s", "--most", "8", "--answer", "16", "--output", out, "--csv", csv, "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var r struct {
		Model   string
		Profile struct {
			Step   float64 `json:"step_ms"`
			PerSeq float64 `json:"per_seq_ms"`
		}
		MAPE  float64
		Rungs []struct {
			Streams, Requests int
			Load, Latency_ms  float64
		}
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	// The machine that runs the test may be slow; the figures are only to make
	// sense, those of the profile where it says that it fits.
	if p := r.Profile; r.Model != "m7" || len(r.Rungs) < 2 || p.Step < 0 || p.PerSeq < 0 || r.MAPE < 0.2 && (p.Step+p.PerSeq < 3 || p.Step > 50) {
		t.Errorf("%s", stdout)
	}
	for _, g := range r.Rungs {
		if g.Requests == 0 || g.Load <= 0 || g.Latency_ms < 16*3 {
			t.Errorf("%+v", g)
		}
	}
	toml := "[[engine]]\nname = \"a\"\nurl = \"http://h:1\"\nprofile = \"a1.toml\"\n"
	f, err := config.Parse(filepath.Join(dir, "penstock.toml"), []byte(toml), os.LookupEnv)
	if err != nil || !f.Engines[0].Profile.Steps() {
		text, _ := os.ReadFile(out)
		t.Errorf("%v: %s", err, text)
	}
	if text, err := os.ReadFile(csv); err != nil || strings.Count(string(text), "\n") != 1+len(r.Rungs) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestProfileFaults(t *testing.T) {
	t.Parallel()
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"data": []}`))
			return
		}
		http.Error(w, "no room", http.StatusServiceUnavailable)
	}))
	defer full.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "profile needs an engine"},
		{[]string{"--engine", "127.0.0.1:8001"}, 2, "want an absolute URL"},
		{[]string{"--engine", full.URL, "--for", "1ms"}, 2, "want 1s to 24h"},
		{[]string{"--engine", full.URL, "--most", "0"}, 2, "whole number from 1"},
		{[]string{"--engine", full.URL, "--output", "a.json"}, 2, "ends in .toml"},
		{[]string{"--engine", full.URL}, 1, "name one with --model"},
		{[]string{"--engine", full.URL, "--model", "m"}, 1, "no room"},
		{[]string{"--engine", gone.URL}, 1, "refused"},
		{[]string{"--engine", full.URL, "--csv", "/nowhere/a.csv", "--model", "m"}, 1, "the result could not be written: open /nowhere/a.csv"},
		{[]string{"--engine", full.URL, "--key-file", "/nowhere"}, 1, "no such file"},
	} {
		code, stdout, stderr := penstock(t, append([]string{"profile"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
