package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files anew")

const goldenFile = "testdata/report.golden"

// goldenReport is a small fleet that loses an engine, then a run at twice what
// its engines carry, in numbers rounded to what people read.
func goldenReport(t *testing.T) string {
	f := threeRegions(t)
	f.Faults = []Fault{{At: Duration(20400 * time.Millisecond), For: Duration(10 * time.Second), Engine: "eu-1", Kind: "down"}}
	if err := f.Complete(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range []string{"optimal", "bounded-hash", "waterfall"} {
		s := runOf(t, f, name, chat(1200, 25, 1), 7)
		fmt.Fprintf(&b, "%-12s ttft %.2f %.2f %.2f e2e %.2f %.2f %.2f tbot %.3f good %.4f hit %.4f moved %.4f spill %.4f remote %.4f attempts %.4f failed %v\n", name,
			s.TTFT.Mean, s.TTFT.P50, s.TTFT.P99, s.E2E.Mean, s.E2E.P50, s.E2E.P99, s.TBOT.Mean, s.Goodput, s.KVHit, s.Moved, s.Spill, s.Remote, s.Dispatches, s.Failed)
	}
	o := &Overload{Times: 2, For: time.Minute, After: time.Minute, Seed: 1}
	r, err := o.Play("optimal")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "overload     goodput %.4f settled %.4f success %.4f ttft p99 %.1f recovery %.0f attempts %.4f\n", r.Goodput, r.Settled, r.Success, r.TTFT99, r.Recovery, r.Dispatches)
	return b.String()
}

func TestGoldenReport(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round a multiplication with an addition once, and chance multiplies it")
	}
	got := goldenReport(t)
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the report is another one; -update writes it anew\ngot:\n%s\nwant:\n%s", got, want)
	}
}

// The simulator runs the gateway's own code: with one constant of it changed the
// report above is another one.
func TestReportFollowsTheGatewaysConstants(t *testing.T) {
	if testing.Short() || runtime.GOARCH != "amd64" {
		t.Skip("builds the package three times")
	}
	for _, c := range []struct{ file, was, is string }{
		{"selector/rules.go", "const overMean = 1.25", "const overMean = 1.5"},
		{"balancer/observe_rate.go", "rateMemory = 20 * time.Second", "rateMemory = 60 * time.Second"},
		{"protect/pace.go", "shortWait  = 16", "shortWait  = 4"},
	} {
		t.Run(filepath.Dir(c.file), func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("../..", c.file))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), c.was, c.is, 1)
			if changed == string(text) {
				t.Fatalf("%s has no %q any more: name another constant", c.file, c.was)
			}
			other := filepath.Join(t.TempDir(), filepath.Base(path))
			if err := os.WriteFile(other, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: other}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(list, overlay, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-run", "^TestGoldenReport$", ".").CombinedOutput()
			if err == nil {
				t.Errorf("%s: with %q the report is the same", c.file, c.is)
			} else if !bytes.Contains(out, []byte("the report is another one")) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
