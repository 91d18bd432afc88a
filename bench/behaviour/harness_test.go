package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/bench/child"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == bareRole { // as main does
		_ = bareProxy(os.Args[2], strings.Split(os.Args[3], ","))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// addresses are two that nobody listens on.
func addresses(t *testing.T) (a [2]string) {
	t.Helper()
	for i := range a {
		var err error
		if a[i], err = freeAddress(); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// playBehind plays rows behind a proxy of the test's own.
func playBehind(t *testing.T, names string, proxy func(engines [2]string) http.Handler) map[string]*cell {
	t.Helper()
	engines := addresses(t)
	server := httptest.NewServer(proxy(engines))
	t.Cleanup(server.Close)
	x := &target{base: server.URL, engines: engines, policy: &policy{}}
	var rows []*row
	for _, r := range append(behaviours(), affinities()...) {
		if regexp.MustCompile(names).MatchString(r.name) {
			rows = append(rows, r)
		}
	}
	table := newTable("t", rows, []*target{x})
	h := &harness{work: t.TempDir(), repeat: 1, progress: io.Discard,
		limits: limits{firstByte: time.Second, stall: time.Second, overload: 2 * time.Second, slack: 50}}
	h.play(t.Context(), table.cells)
	cells := map[string]*cell{}
	for _, c := range table.cells {
		cells[c.row.name] = c
	}
	return cells
}

// roundRobin passes everything on, to each engine in turn: what a proxy does
// that knows nothing of what it carries.
func roundRobin(engines [2]string) http.Handler {
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: engines[turn.Add(1)%2]})
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // else it truncates streams
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})
}

// A proxy that only passes on is right where passing on is right, and nowhere else.
func TestRowsBehindAProxyThatOnlyPassesOn(t *testing.T) {
	cells := playBehind(t, `resets after 5|body ends|broken JSON|model missing|request bytes|SSE bytes|first event|both engines|answers 500|own errors|leaves in mid|refuses`, roundRobin)
	for name, want := range map[string]struct {
		verdict verdict
		text    string
	}{
		"engine resets after 5 events":                                        {isWrong, endsCut},
		"body ends properly, without finish_reason and [DONE]":                {isWrong, endsComplete},
		"broken JSON / duplicate keys":                                        {isWrong, "to the engine / to the engine"},
		"model missing / unknown":                                             {isWrong, "to the engine / to the engine"},
		"request bytes at the engine":                                         {isRight, "identical"},
		"SSE bytes at the client":                                             {isRight, "identical"},
		"first event is an error, under 200 (one engine of two, 40 requests)": {isWrong, "20 ok, 20 errors under 200, 0 told by status"},
		"both engines fail: deliveries per request (500 / 503 / 429)":         {isRight, "1 / 1 / 1"},
		"one engine answers 500 (60 requests)":                                {isWrong, "30 fail, 30 hits"},
		"own errors: engines reset / engines down":                            {isWrong, "502 empty / 502 empty"},
		"engine refuses connections (100 requests)":                           {isWrong, "50 fail, 0 slowed"},
	} {
		c := cells[name]
		if c == nil {
			t.Errorf("no row %q", name)
			continue
		}
		if c.err != nil || c.verdict != want.verdict || c.text != want.text {
			t.Errorf("%s: %s %q %v, want %s %q", name, c.verdict, c.text, c.err, want.verdict, want.text)
		}
	}
	left := cells["client leaves in mid-stream: engine knows after (median of 20)"]
	if left.verdict != isRight {
		t.Errorf("a client that leaves: %s %q %v", left.verdict, left.text, left.err)
	}
}

// eager repeats on the other engine whatever failed, up to five times, ends
// broken streams cleanly, and rewrites bodies.
func eager(engines [2]string) http.Handler {
	var turn atomic.Uint64
	client := newHTTP()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		body = bytes.ReplaceAll(body, []byte(`":`), []byte(`" :`))
		for try := range 5 {
			resp, err := client.Post("http://"+engines[turn.Add(1)%2]+r.URL.Path, "application/json", bytes.NewReader(body))
			if err != nil || resp.StatusCode >= 500 && try < 4 {
				continue
			}
			defer resp.Body.Close()
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
			w.WriteHeader(resp.StatusCode)
			text, err := io.ReadAll(resp.Body)
			_, _ = w.Write(text)
			if err != nil {
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			}
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	})
}

func TestRowsBehindAProxyThatRepeats(t *testing.T) {
	cells := playBehind(t, `resets after 5|request bytes|both engines|POST delivered|answers 500`, eager)
	for name, want := range map[string]struct {
		verdict verdict
		text    string
	}{
		"engine resets after 5 events":                                {isWrong, endsDone},
		"request bytes at the engine":                                 {isWrong, "6 of 7 changed"},
		"both engines fail: deliveries per request (500 / 503 / 429)": {isWrong, "5 / 5 / 1"},
		"one engine answers 500 (60 requests)":                        {isRight, "0 fail"},
	} {
		if c := cells[name]; c == nil || c.err != nil || c.verdict != want.verdict || !strings.HasPrefix(c.text, want.text) {
			t.Errorf("%s: %+v, want %s %q", name, c, want.verdict, want.text)
		}
	}
	if c := cells["POST delivered, engines reset without an answer: most deliveries of one request"]; c.err != nil || c.verdict != isWrong {
		t.Errorf("deliveries: %+v", c)
	}
}

// sticky sends a conversation where its header says, all others to one engine;
// requests of no conversation go to both.
func sticky(engines [2]string) http.Handler {
	both := roundRobin(engines)
	pass := [2]http.Handler{roundRobin([2]string{engines[0], engines[0]}), roundRobin([2]string{engines[1], engines[1]})}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		id := r.Header.Get("X-Session-Id")
		switch {
		case !bytes.Contains(body, []byte("what about that?")):
			both.ServeHTTP(w, r)
		case id != "":
			pass[id[len(id)-1]%2].ServeHTTP(w, r)
		default:
			pass[0].ServeHTTP(w, r)
		}
	})
}

func TestAffinityRows(t *testing.T) {
	cells := playBehind(t, "^X-Session-Id$|^no key$|^own header$", sticky)
	if c := cells["X-Session-Id"]; c.verdict != isRight || !strings.HasPrefix(c.text, "1.00 / ") {
		t.Errorf("with its header: %s %q %v", c.verdict, c.text, c.err)
	}
	if c := cells["no key"]; c.verdict != isWrong || c.text != "1.00 / 1.00" {
		t.Errorf("all on one engine: %s %q %v", c.verdict, c.text, c.err)
	}
	if c := cells["own header"]; c.verdict != isSkipped || c.text != noOwnHeader {
		t.Errorf("no header of its own: %s %q %v", c.verdict, c.text, c.err)
	}
}

// A proxy that does not serve is an error of its cells, not a result.
func TestProxyThatDoesNotServe(t *testing.T) {
	x := &target{engines: addresses(t), policy: &policy{}, peer: &peer{name: "broken", write: func(setup) ([]string, error) { return nil, nil }}, command: "false"}
	c := &cell{row: behaviours()[0], target: x}
	h := &harness{work: t.TempDir(), repeat: 1, progress: io.Discard, limits: limits{slack: 1}}
	h.play(t.Context(), []*cell{c})
	if c.verdict != isError || !strings.Contains(c.text, "broken ended: exit status 1") {
		t.Errorf("%s %q", c.verdict, c.text)
	}
}

// Time that is up is an error too.
func TestOutOfTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &cell{row: behaviours()[0], target: &target{policy: &policy{}}}
	h := &harness{work: t.TempDir(), repeat: 2, progress: io.Discard, limits: limits{slack: 1}}
	h.play(ctx, []*cell{c})
	if c.verdict != isError || !errors.Is(c.err, errOutOfTime) {
		t.Errorf("%s %v", c.verdict, c.err)
	}
}

// What a proxy is started with names the engines, the listener and, where it has one, the limit.
func TestSettings(t *testing.T) {
	for _, p := range peers {
		for _, policy := range p.policies {
			s := setup{dir: t.TempDir(), listen: "127.0.0.1:7001", spare: "127.0.0.1:7002", engines: [2]string{"127.0.0.1:7003", "127.0.0.1:7004"},
				policy: policy.name, limits: limits{firstByte: 7 * time.Second, stall: 5 * time.Second}}
			args, err := p.write(s)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(args, " ")
			files, err := filepath.Glob(s.dir + "/*")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				text += string(b)
			}
			for _, want := range []string{"7001", "7003", "7004"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s, %s: no %s in\n%s", p.name, policy.title, want, text)
				}
			}
			if strings.Contains(text, "%!") {
				t.Errorf("%s, %s: %s", p.name, policy.title, text)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--target", "apache"}, {"--format", "pdf"}, {"--repeat", "0"}, {"--slack", "0.5"}, {"surplus"}, {"--nothing"},
		{"--url", "http://127.0.0.1:1", "--engines", "127.0.0.1:1"}, {"--url", "http://127.0.0.1:1", "--cost"}, {"--url", "http://127.0.0.1:1", "--row", "(", "--engines", "a,b"},
		{"--url", "http://127.0.0.1:1", "--row", "no such row"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.As(err, new(child.Usage)) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The cost of the bare proxy beside itself is 1, and something.
func TestCostOfTheBareProxy(t *testing.T) {
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Skip(err)
	}
	o := options{costs: costOptions{rounds: 2, requests: 80}, limits: limits{firstByte: time.Second, stall: time.Second, slack: 1}}
	rows, err := measureCosts(t.Context(), []*target{bareTarget(os.Args[0]), {peer: nginx, skip: "not here"}}, o, t.TempDir(), nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(costLoads) {
		t.Fatalf("%d loads", len(rows))
	}
	for _, r := range rows {
		if len(r.Costs) != 1 || r.Costs[0].CPU.Median <= 0 || r.Costs[0].ToBare.Median != 1 {
			t.Errorf("%+v", r)
		}
	}
	var b bytes.Buffer
	o.format = "text"
	if err := o.printCost(&report{Costs: rows}, &b); err != nil || !strings.Contains(b.String(), "per streamed chunk") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
