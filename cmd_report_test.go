package main

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/bench/report"
)

// resultsFile has two targets in three rounds.
func resultsFile(t *testing.T, path string) {
	t.Helper()
	r := report.Results{Version: report.Version, Tool: "bench", Title: "two servers"}
	for seed := range uint64(3) {
		for i, name := range []string{"slow", "fast"} {
			run := report.Run{Name: name, Scenario: "chat", Seed: seed, Seconds: 10, Requests: 10, OK: 10, E2E: &report.Histogram{}, TTFT: &report.Histogram{}}
			for k := range 10 {
				run.E2E.RecordMS(float64(1000 - 400*i + 10*k + 5*int(seed)*(1+i)))
				run.TTFT.RecordMS(float64(100 - 40*i + k))
			}
			r.Runs = append(r.Runs, run)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := filepath.Join(dir, "r.json")
	resultsFile(t, in)
	page, md, charts := filepath.Join(dir, "r.html"), filepath.Join(dir, "r.md"), filepath.Join(dir, "charts")
	code, stdout, stderr := penstock(t, "report", in, "-o", page, "--markdown", md, "--png", charts, "--svg", charts)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "chat: fast wins") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(text, []byte("<h1>two servers</h1>")) || !bytes.Contains(text, []byte("fast wins")) {
		t.Errorf("%v: %.300s", err, text)
	}
	if text, err = os.ReadFile(md); err != nil || !bytes.Contains(text, []byte("| fast | 3 | 30 |")) {
		t.Errorf("%v: %s", err, text)
	}
	for _, name := range []string{"differences", "heatmap", "e2e", "ttft"} {
		image, err := os.ReadFile(filepath.Join(charts, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := png.Decode(bytes.NewReader(image)); err != nil {
			t.Errorf("%s.png: %v", name, err)
		}
		if image, err = os.ReadFile(filepath.Join(charts, name+".svg")); err != nil || !bytes.HasPrefix(image, []byte("<svg ")) {
			t.Errorf("%s.svg: %v, %.60s", name, err, image)
		}
	}
	// Without a place for anything the tables are the result.
	if code, stdout, _ = penstock(t, "report", in); code != 0 || !strings.HasPrefix(stdout, "## chat\n\nfast wins") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// Where there is no latency nobody has won, and no figure is made up.
func TestReportOfNoAnswers(t *testing.T) {
	run := func(name string, seed uint64, ok int) report.Run {
		r := report.Run{Name: name, Scenario: "s", Seed: seed, Seconds: 1, Requests: 5, OK: ok, Errors: 5 - ok}
		if ok > 0 {
			r.E2E = &report.Histogram{}
			r.E2E.RecordMS(10)
		}
		return r
	}
	for want, runs := range map[string][]report.Run{
		"nobody has a whole answer":       {run("a", 1, 0), run("b", 1, 0)},
		"b has whole answers, a has none": {run("a", 1, 0), run("b", 1, 1)},
		"a and b have no seed in common":  {run("a", 1, 1), run("b", 2, 1)},
		"and b have the same mean":        {run("a", 1, 1), run("b", 1, 1)},
	} {
		text, err := json.Marshal(report.Results{Version: report.Version, Tool: "bench", Runs: runs})
		if err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := penstock(t, "report", writeFile(t, "r.json", string(text)))
		if code != exitDone || !strings.Contains(stdout, want) || strings.Contains(stdout, "NaN") {
			t.Errorf("want %q: exit %d, %s%s", want, code, stdout, stderr)
		}
	}
}

func TestReportFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, bad := filepath.Join(dir, "r.json"), filepath.Join(dir, "bad.json")
	resultsFile(t, in)
	if err := os.WriteFile(bad, []byte("{\n\"version\": 3}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "want result files"},
		{[]string{filepath.Join(dir, "none.json")}, 1, "no such file"},
		{[]string{bad}, 1, bad + ": line 2: version is a number: want string"},
		{[]string{writeFile(t, "list.json", "[]")}, 1, "the document is no object"},
		{[]string{in, in}, 1, "two runs of the same"},
		{[]string{in, "-o", filepath.Join(dir, "none", "r.html")}, 1, "writing the page"},
	} {
		code, stdout, stderr := penstock(t, append([]string{"report"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, %q, %q; want %d and %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
}
