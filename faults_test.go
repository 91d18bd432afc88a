package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"penstock/bench/witness"
	"penstock/engine/enginetest"
	"penstock/selector"
)

// faultyEngines are the engines of the suite: each fails in ways of its own,
// one in all of them, one never.
var faultyEngines = []struct {
	name   string
	faults []string
}{
	{"healthy", nil},
	{"refuse", nil}, // the test makes it refuse for a while, again and again
	{"reset-before", []string{"reset-before@0.6"}},
	{"reset-headers", []string{"reset-headers@0.6"}},
	{"reset-after", []string{"reset-after=0@0.3", "reset-after=3@0.6"}},
	{"cut-after", []string{"cut-after=0@0.3", "cut-after=3@0.6"}},
	{"no-done", []string{"no-done=0@0.3", "no-done=3@0.6"}},
	{"no-done-finish", []string{"no-done-finish@0.6"}},
	{"error-first", []string{"error-first=500@0.2", "error-first=503@0.2", "error-first=429@0.2", "error-first=400@0.2"}},
	{"error-after", []string{"error-after=0@0.3", "error-after=3@0.6"}},
	{"silent", []string{"silent@0.12"}},
	{"headers-only", []string{"headers-only@0.12"}},
	{"stall-after", []string{"stall-after=3@0.2"}},
	{"garbage", []string{"garbage@0.6"}},
	{"bad-json-after", []string{"bad-json-after=0@0.3", "bad-json-after=3@0.6"}},
	{"html", []string{"html@0.6"}},
	{"status", []string{"status=500@0.2", "status=503@0.2", "status=429@0.2", "status=422@0.2"}},
	{"empty", []string{"empty@0.6"}},
	{"truncate", []string{"truncate@0.6"}},
	{"all", []string{"reset-before@0.05", "reset-headers@0.05", "reset-after=2@0.05", "cut-after=2@0.05", "no-done=2@0.05",
		"no-done-finish@0.05", "error-first@0.05", "error-after=2@0.05", "silent@0.02", "headers-only@0.02", "stall-after=2@0.02",
		"garbage@0.05", "bad-json-after=2@0.05", "html@0.05", "status=503@0.05", "empty@0.05", "truncate@0.05"}},
}

// faultRun is one gateway in front of those engines and what came of the
// requests through it.
type faultRun struct {
	g    *running
	sims map[string]*enginetest.Sim

	mu    sync.Mutex
	asked []*asking
	wrong int
}

// asking is one request and what its client saw.
type asking struct {
	id     string
	stays  bool
	saw    string
	engine string           // that answered
	record *selector.Record // nil: it left before the gateway had it
}

// streamsPerSetting is what has to pass at each GOMAXPROCS.
func streamsPerSetting() int {
	if testing.Short() {
		return 500
	}
	return 5000
}

// Whatever an engine does, no client takes half an answer for a whole one, no
// request is delivered twice, and every request is accounted for.
func TestStreamsThroughFaultyEngines(t *testing.T) { // counts goroutines: not parallel
	for _, procs := range []int{1, 2} {
		for _, client := range []struct {
			name string
			make func(testing.TB) *http.Client
		}{{"HTTP1", client}, {"h2c", h2cClient}} {
			t.Run(fmt.Sprintf("GOMAXPROCS=%d/%s", procs, client.name), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				goroutines, files := settled(t), openFiles(t)
				t.Run("streams", func(t *testing.T) { faultyStreams(t, client.make(t), streamsPerSetting()/2) })
				http.DefaultClient.CloseIdleConnections()
				awaitCond(t, "goroutines and files of the run to end", func() bool {
					return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
				})
			})
		}
	}
}

// settled is the number of goroutines once no more of them end.
func settled(t *testing.T) int {
	http.DefaultClient.CloseIdleConnections()
	n, same := runtime.NumGoroutine(), 0
	for end := time.Now().Add(10 * time.Second); same < 10 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if same++; runtime.NumGoroutine() != n {
			n, same = runtime.NumGoroutine(), 0
		}
	}
	return n
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("open files are not counted: %v", err)
	}
	return len(list)
}

func faultyStreams(t *testing.T, c *http.Client, streams int) {
	run := startFaultRun(t)
	goroutines := settled(t)
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { refuseNowAndThen(ctx, run.sims["refuse"]) })
	atOnce(streams+streams/10, 64, func(i int) { run.ask(t, c, i, i%11 != 10) })
	cancel()
	background.Wait()
	run.report(t)

	t.Run("accounts", run.checkAccounts)
	t.Run("deliveries", run.checkDeliveries)
	// The connections to the poller come and go; what thousands of requests left would show.
	run.g.handler.CloseIdle()
	c.CloseIdleConnections()
	awaitCond(t, "goroutines of requests to end", func() bool { return runtime.NumGoroutine() <= goroutines+4*len(run.sims) })
}

func startFaultRun(t *testing.T) *faultRun {
	run := &faultRun{sims: map[string]*enginetest.Sim{}}
	file := "[limits]\nfirst_content = \"1s\"\nstall = \"500ms\"\n"
	for i, e := range faultyEngines {
		faults, err := enginetest.ParseFaults(e.faults)
		if err != nil {
			t.Fatal(err)
		}
		sim, url := startSim(t, enginetest.Config{Name: e.name, Slots: 64, Seed: uint64(i), Faults: faults})
		run.sims[e.name] = sim
		file += engineTOML(e.name, url)
	}
	run.g = startGateway(t, file, slices.Collect(maps.Keys(run.sims))...)
	return run
}

// refuseNowAndThen makes an engine refuse connections, and close the idle
// ones, for a part of the time.
func refuseNowAndThen(ctx context.Context, sim *enginetest.Sim) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		sim.SetFaults(enginetest.Fault{Kind: enginetest.Refuse, P: 1, For: 50 * time.Millisecond})
		select {
		case <-ctx.Done():
			sim.SetFaults()
			return
		case <-tick.C:
		}
	}
}

// ask sends the i-th request and judges what its client sees. One client in
// ten leaves, half of them with the first content.
func (run *faultRun) ask(t *testing.T, c *http.Client, i int, stream bool) {
	q := &asking{id: fmt.Sprintf("q%d-%x", i, rand.Uint32()), stays: i%10 != 7}
	body := fmt.Sprintf(`{"model":"m","stream":%t,"nonce":%q,"max_tokens":%d,"messages":[{"role":"user","content":"What is %s?"}]}`,
		stream, q.id, 4+i%2, q.id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	when := witness.Stays
	switch {
	case q.stays:
	case i%20 == 7:
		when = witness.LeavesMid
	default:
		when = witness.LeavesSoon
		timer := time.AfterFunc(rand.N(200*time.Millisecond), cancel)
		defer timer.Stop()
	}
	a := witness.Ask(ctx, c, run.g.url, witness.Question{Path: "/v1/chat/completions", ID: q.id, Body: body, When: when})
	kind := witness.Chat
	if stream {
		kind = witness.ChatStream
	}
	var wrong string
	if q.saw, wrong = witness.Judge(a, q.id, kind); wrong == "" && a.Status != 0 && a.Header.Get("X-Request-Id") != q.id {
		wrong = "the answer is called " + a.Header.Get("X-Request-Id")
	}
	q.engine = a.Header.Get("X-Penstock-Engine")
	q.record = run.g.selector.Records.Find(q.id) // now it is among the newest

	run.mu.Lock()
	defer run.mu.Unlock()
	run.asked = append(run.asked, q)
	if wrong != "" {
		if run.wrong++; run.wrong <= 10 {
			t.Errorf("%s at %q: %s: %s\nstatus %d, %v, stream %t\n%.1500s", q.id, q.engine, q.saw, wrong, a.Status, a.Err, stream, a.Body)
		}
	}
}

// report logs what clients saw of each engine.
func (run *faultRun) report(t *testing.T) {
	table, all := map[string]map[string]int{}, map[string]int{}
	for _, q := range run.asked {
		if table[q.engine] == nil {
			table[q.engine] = map[string]int{}
		}
		table[q.engine][q.saw]++
		all[q.saw]++
	}
	columns := slices.Sorted(maps.Keys(all))
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "engine\tfaults\t%s\t\n", strings.Join(columns, "\t"))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		label, faulted := name, 0
		if sim := run.sims[name]; sim != nil {
			faulted = sim.Stats().Faulted
		} else {
			label = "(left before any)"
		}
		fmt.Fprintf(w, "%s\t%d\t", label, faulted)
		for _, c := range columns {
			fmt.Fprintf(w, "%d\t", table[name][c])
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	t.Logf("%d requests, %d wrong answers, %d truncated ones that look complete\n%s", len(run.asked), run.wrong, all[witness.Truncated], &text)
	if testing.Short() {
		return // too few for every fault to befall one
	}
	if all[witness.Complete] == 0 || len(columns) < 10 {
		t.Errorf("the faults did not show: %v", all)
	}
	for name, sim := range run.sims {
		if n := sim.Stats().Faulted; n == 0 && len(sim.Faults()) > 0 {
			t.Errorf("no fault befell %s", name)
		}
	}
}

// An engine that sends its header at once and all else quickly: the case in
// which a proxy that still reads its client's body cuts streams short.
func TestNoStreamIsCutByAnEarlyHeader(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	streams := 2000
	if testing.Short() {
		streams = 200
	}
	_, url := startSim(t, enginetest.Config{Slots: 64})
	// A busy machine's engine looks silent for a moment; what waits then is not refused.
	g := startGateway(t, "[limits]\nqueue_entries = 1000\nqueue_wait = \"1m\"\n"+engineTOML("e1", url), "e1")
	clients := []*http.Client{client(t), h2cClient(t)}
	prompt := strings.Repeat("Tell me more. ", 300) // more than one read of the gateway's
	var mu sync.Mutex
	cut := 0
	atOnce(streams, 32, func(i int) {
		id := fmt.Sprintf("q%d", i)
		body := fmt.Sprintf(`{"model":"m","stream":true,"nonce":%q,"max_tokens":8,"messages":[{"role":"user","content":"%s %s"}]}`, id, id, prompt[:i%len(prompt)])
		a := witness.Ask(t.Context(), clients[i%2], g.url, witness.Question{Path: "/v1/chat/completions", ID: id, Body: body})
		if saw, wrong := witness.Judge(a, id, witness.ChatStream); saw != witness.Complete || wrong != "" {
			mu.Lock()
			defer mu.Unlock()
			if cut++; cut <= 5 {
				t.Errorf("%s: %s %s: %d %v\n%.1000s", id, saw, wrong, a.Status, a.Err, a.Body)
			}
		}
	})
	t.Logf("%d of %d streams were cut", cut, streams)
}
