package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// demoDocument is what scripts read of demo --json.
type demoDocument struct {
	Requests int
	Errors   *int
	Engines  []struct {
		Name     string
		Requests int
	}
	TTFT     struct{ P50, P95, P99 float64 } `json:"ttft_ms"`
	Policies []demoPolicyReport
}

func demoDocumentOf(t *testing.T, stdout string) (d demoDocument) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(stdout))
	if err := dec.Decode(&d); err != nil || d.Errors == nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("more than one document: %q", stdout)
	}
	return d
}

// checkPolicies is what holds for every run, however short.
func checkPolicies(t *testing.T, d *demoDocument, used bool) {
	t.Helper()
	names, sum := "", 0
	for _, p := range d.Policies {
		names += p.Name + " "
		sum += p.Requests
		if used && !(p.Requests > 0 && p.MeanMS > 0 && p.P99MS >= p.MeanMS && p.MaxUtilisation > 0) || p.Errors != 0 {
			t.Errorf("policy %+v", p)
		}
		if len(p.Weights) < len(demoWorld.clusters) {
			t.Errorf("%s has weights of %d clusters", p.Name, len(p.Weights))
		}
		for source, weights := range p.Weights {
			whole := 0.0
			for _, w := range weights {
				whole += w
			}
			if math.Abs(whole-1) > 0.01 {
				t.Errorf("%s, %s: weights %v", p.Name, source, weights)
			}
		}
	}
	var want string
	for _, c := range contestants {
		want += c.name + " "
	}
	if names != want || sum != d.Requests {
		t.Errorf("policies %swith %d requests, want %swith %d", names, sum, want, d.Requests)
	}
}

func TestDemoEndsByItselfWithOneDocument(t *testing.T) {
	_, restore := signal.NotifyContext(t.Context(), syscall.SIGTERM) // os/signal keeps a goroutine from its first use on
	restore()
	before := runtime.NumGoroutine()
	for _, length := range []string{"2s", "1s", "1ms"} {
		code, stdout, stderr := penstock(t, "demo", "--for", length, "--json")
		if code != exitDone || !strings.Contains(stderr, "operators at http://127.0.0.1:") || strings.Contains(stderr, `"msg"`) {
			t.Errorf("--for %s: exit %d, stderr %q", length, code, stderr)
		}
		d := demoDocumentOf(t, stdout)
		sum := 0
		for _, e := range d.Engines {
			if sum += e.Requests; e.Requests == 0 {
				t.Errorf("--for %s: engine %s was not used", length, e.Name)
			}
		}
		if len(d.Engines) != len(demoWorld.clusters) || d.Requests == 0 || d.Requests != sum || *d.Errors != 0 {
			t.Errorf("--for %s: %s", length, stdout)
		}
		checkPolicies(t, &d, length != "1ms")
		if f := d.TTFT; !(f.P50 > 0 && f.P50 <= f.P95 && f.P95 <= f.P99) {
			t.Errorf("--for %s: ttft %+v", length, f)
		}
	}
	awaitCond(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// An answer that is cut is an error of the run, wherever it was cut.
func TestDemoFailsWhereAnAnswerIsNotWhole(t *testing.T) {
	t.Parallel()
	w := demoWorld
	w.clusters = slices.Clone(w.clusters)
	for i := range w.clusters {
		w.clusters[i].engine.Faults = []enginetest.Fault{{Kind: enginetest.CutAfter, N: 3, P: 0.5}}
	}
	var errs logBook
	d := &demo{world: w, length: time.Second, logs: io.Discard, errs: &errs}
	report, err := d.run(t.Context())
	if err == nil || report == nil || report.Errors == 0 || report.Errors > report.Requests {
		t.Errorf("error %v, report %+v", err, report)
	}
	if n := strings.Count(errs.String(), "penstock: demo: request "); n == 0 || n > errorsShown*len(contestants) {
		t.Errorf("%d failures shown:\n%s", n, &errs)
	}
}

func TestDemoShowsWhatHappens(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs logBook
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"demo", "--log", t.TempDir() + "/gateway.log"}, &out, &errs) }()
	for end := time.Now().Add(90 * time.Second); strings.Count(out.String(), " mean ") < 1; {
		if time.Now().After(end) {
			t.Fatalf("the show does not get to its end:\n%s%s", &out, &errs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	tryPrintedCommands(t, out.String())
	interrupt()
	select {
	case code := <-ended:
		if code != exitDone || errs.String() != "" {
			t.Errorf("exit %d, stderr %q", code, &errs)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the demo does not end when it is interrupted")
	}
	text := out.String()
	at := 0
	for _, phrase := range []string{
		"3 clusters, each with clients, a gateway and a simulated engine", "150ms", "This is B's gateway", "gateway.log",
		"1. Three conversations", "x-penstock-engine: ", "x-penstock-affinity: opening", "its key falls into a slot of this engine", "tokens, 0 of them",
		"2. The first conversation goes on", "this conversation was here before", "32 of them in the engine's cache",
		"3. That engine goes away", " stops listening", "first tried on ", "dial_failed", "x-penstock-attempts: 2",
		"12 of 12 other requests", "its key falls into a slot of this engine", "listens again and is in service",
		"4. Your turn", "curl -N http://127.0.0.1:", "engines --admin 127.0.0.1:", "explain --table", "5. The clusters' own clients",
		"explain --table --admin ", " load ", "POLICY", "Where B's requests go", "Why, by the plan's prices",
		" 0 errors", "The demo has ended",
	} {
		i := strings.Index(text[at:], phrase)
		if i < 0 {
			if strings.HasPrefix(phrase, "first tried") || phrase == "dial_failed" || strings.HasSuffix(phrase, "attempts: 2") {
				continue // the gateway's own probe was the first to notice
			}
			t.Fatalf("%q is missing, or not in its place:\n%s", phrase, text)
		}
		at += i
	}
	if strings.Contains(text, "\x1b") {
		t.Error("control sequences although this is no terminal")
	}
}

// tryPrintedCommands runs what the demo tells the reader to run.
func tryPrintedCommands(t *testing.T, text string) {
	t.Helper()
	tried := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if args, ok := strings.CutPrefix(line, ownCommand()+" "); ok {
			tried++
			if code, stdout, stderr := penstock(t, strings.Fields(args)...); code != exitDone || stdout == "" {
				t.Errorf("%s: exit %d, %s", line, code, stderr)
			}
		} else if strings.HasPrefix(line, "curl ") {
			tried++
			if _, err := exec.LookPath("curl"); err != nil {
				continue
			}
			got, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
			if err != nil || !strings.Contains(string(got), "data: [DONE]") && !strings.Contains(string(got), "penstock_requests_total{") {
				t.Errorf("%s: %v\n%.300s", line, err, got)
			}
		}
	}
	if tried != 6 {
		t.Errorf("%d commands printed:\n%s", tried, text)
	}
}

func TestDemoStopsDuringTheShow(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := penstock(t, "demo", "--for", "500ms")
	if code != exitDone || stderr != "" || !strings.HasSuffix(stdout, ", 0 errors. The demo has ended.\n") || strings.Contains(stdout, "4. Your turn") {
		t.Errorf("exit %d, stderr %q, stdout\n%s", code, stderr, stdout)
	}
}

func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{{"--for", "0s"}, {"--for", "-1s"}, {"--for", "5"}, {"now"}} {
		if code, stdout, _ := penstock(t, append([]string{"demo"}, args...)...); code != exitUsage || stdout != "" {
			t.Errorf("%q: exit %d, stdout %q", args, code, stdout)
		}
	}
	if code, _, stderr := penstock(t, "demo", "--log", t.TempDir()+"/none/x.log"); code != exitFailed || !strings.Contains(stderr, "no such file") {
		t.Errorf("a log that cannot be written: exit %d, %s", code, stderr)
	}
}

// A part that ends by itself ends the demo with its reason.
func TestDemoEndsWithAPartThatFails(t *testing.T) {
	t.Parallel()
	f, err := newDemoFleet(demoWorld, contestant{name: "capacity"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f.home().data.Listener.(*net.TCPListener).Close()
	err = f.serve(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err == nil || !strings.Contains(err.Error(), "gateway: ") {
		t.Errorf("ended with %v", err)
	}
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	s := samples{most: 100}
	if quantile(s.sorted(), 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 150 { // the first 50 are pushed out
		s.add(time.Duration(150-i) * time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 1, 0.01: 1, 0.5: 50, 0.95: 95, 0.99: 99, 1: 100} {
		if got := quantile(s.sorted(), q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v ms, want %v", q, got, want)
		}
	}
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, tty: true}
	s.redraw("one\ntwo\n")
	s.redraw("three\n")
	if want := "\x1b[?7lone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[?7h\x1b[2A\x1b[?7lthree\x1b[K\n\x1b[J\x1b[?7h"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
	if s.bold("x") != "x" || s.engine(1, "x") != "x" {
		t.Error("colour although none was asked for")
	}
	s.colour = true
	if s.bold("x") != "\x1b[1mx\x1b[0m" || s.engine(0, "x") == s.engine(1, "x") {
		t.Error("engines are not told apart by colour")
	}
}

// The demo of a fleet over a network: its leader is killed, another leads in a
// later epoch, and no client sees anything of it.
func TestDemoOfAFleet(t *testing.T) {
	t.Parallel()
	code, out, stderr := penstock(t, "demo", "--fleet", "--for", "26s", "--json")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var report demoReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Fleet == nil {
		t.Fatalf("%v in %s", err, out)
	}
	f := report.Fleet
	if report.Errors != 0 || report.Requests < 300 || f.Killed == "" || f.Leader == "" || f.Leader == f.Killed || len(f.Epochs) != 2 || f.Epochs[1] <= f.Epochs[0] {
		t.Errorf("%+v, fleet %+v\n%s", report, f, stderr)
	}
}

// The tour tells of the conversation what the answers show, and nothing else.
func TestTourTellsWhereAConversationIs(t *testing.T) {
	for _, c := range []struct {
		first, then told
		want        string
	}{
		{told{engine: "a"}, told{engine: "a", cached: 32}, "On a the conversation has a cache again."},
		{told{engine: "a"}, told{engine: "c"}, "While b is out the conversation's slot is one of c's."},
		{told{engine: "a"}, told{engine: "a"}, "While b is out a is its engine."},
	} {
		if got := settledText("b", c.first, c.then); got != c.want {
			t.Errorf("%+v, %+v: %q, want %q", c.first, c.then, got, c.want)
		}
	}
}
