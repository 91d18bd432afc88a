package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/bench/report"
)

const whole = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n"

// server answers chat requests as a function of their body says.
func server(t *testing.T, answer func(w http.ResponseWriter, q Ask)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q Ask
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		answer(w, q)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestOutcomes: what a client sees has its name.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   Outcome
	}{
		{"whole", func(w http.ResponseWriter) { _, _ = io.WriteString(w, whole) }, OK},
		{"429", func(w http.ResponseWriter) { w.WriteHeader(429) }, Shed},
		{"503", func(w http.ResponseWriter) { w.WriteHeader(503) }, Shed},
		{"400", func(w http.ResponseWriter) { w.WriteHeader(400) }, Refused},
		{"500", func(w http.ResponseWriter) { w.WriteHeader(500) }, Failed},
		{"302", func(w http.ResponseWriter) { w.WriteHeader(304) }, Failed},
		{"no [DONE]", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		}, Truncated},
		{"nothing in it", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "data: [DONE]\n\n") }, Truncated},
		{"error event", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "data: {\"error\":{\"message\":\"out\"}}\n\n")
		}, ErrorEvent},
		{"no JSON", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "data: {\"choi\n\n") }, Broken},
		{"abort", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, Broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, _ Ask) { c.answer(w) })
			client := NewClient(s.URL, "", nil)
			defer client.Close()
			a := client.Stream(t.Context(), (&Ask{Model: "m"}).body(), "", true, true)
			if a.Outcome != c.want || a.End.IsZero() {
				t.Errorf("%v (%s), want %v", a.Outcome, a.Why, c.want)
			}
			if c.want == OK && (a.Text != "ab" || a.Events != 2 || a.Output != 2 || a.Prompt != 9 || a.Cached != 4 || len(a.Gaps) != 1) {
				t.Errorf("%+v", a)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	_ = l.Close() // so that nobody listens there
	if a := NewClient(gone, "", nil).Stream(t.Context(), nil, "", false, false); a.Outcome != Unreached {
		t.Errorf("nobody listens: %v (%s)", a.Outcome, a.Why)
	}
	s := server(t, func(w http.ResponseWriter, _ Ask) {
		_ = http.NewResponseController(w).Flush()
		<-t.Context().Done()
	})
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a := NewClient(s.URL, "", nil).Stream(limited, (&Ask{}).body(), "", false, false); a.Outcome != TimedOut {
		t.Errorf("no answer within the limit: %v (%s)", a.Outcome, a.Why)
	}
	s.CloseClientConnections()
}

// TestOpenLoop: a server that answers nobody until all have asked is no
// deadlock, and who came first is charged for the wait from its due instant.
func TestOpenLoop(t *testing.T) {
	const n, every = 8, 20 * time.Millisecond
	var all sync.WaitGroup
	all.Add(n)
	s := server(t, func(w http.ResponseWriter, _ Ask) {
		all.Done()
		all.Wait()
		_, _ = io.WriteString(w, whole)
	})
	p := &Plan{}
	for i := range n {
		at := time.Duration(i) * every
		p.Talks = append(p.Talks, Talk{ID: uint64(i), Begin: at, Turns: []Turn{{At: at, Think: -1, User: 3, Output: 2}}})
	}
	var mu sync.Mutex
	var results []Result
	r := &Round{Play: Play{Length: time.Second, Grace: 20 * time.Second, Limit: 20 * time.Second, InFlight: 100},
		Target: &Target{Name: "t", Client: NewClient(s.URL, "", nil), Model: "m"}, Plan: p,
		Done: func(r Result) { mu.Lock(); results = append(results, r); mu.Unlock() }}
	r.Run(t.Context())
	if len(results) != n {
		t.Fatalf("%d results, want %d", len(results), n)
	}
	for _, res := range results {
		least := ms(time.Duration(n-1)*every) - 1000*res.Due
		if res.Outcome != "ok" || res.TTFT < least || res.E2E < res.TTFT || res.Lag < 0 || res.TTFT < res.Lag {
			t.Errorf("%+v: want a first token %g ms after it was due at the earliest", res, least)
		}
	}
}

// TestTurnsFollowAnswers: the next turn has the answer before it in its prompt,
// under the session of its conversation.
func TestTurnsFollowAnswers(t *testing.T) {
	var mu sync.Mutex
	var asked []Ask
	s := server(t, func(w http.ResponseWriter, q Ask) {
		mu.Lock()
		asked = append(asked, q)
		mu.Unlock()
		_, _ = io.WriteString(w, whole)
	})
	p := &Plan{Talks: []Talk{{ID: 5, Shared: []uint64{3}, Block: 7, Turns: []Turn{{Think: -1, User: 11, Output: 2}, {User: 4, Output: 3}, {User: 4, Output: 3}}}}}
	r := &Round{Play: Play{Length: 20 * time.Second, Grace: time.Second, Limit: 20 * time.Second, InFlight: 1, Sessions: true},
		Target: &Target{Name: "t", Client: NewClient(s.URL, "", nil), Model: "m"}, Plan: p, Done: func(Result) {}}
	r.Run(t.Context())
	if len(asked) != 3 {
		t.Fatalf("%d requests, want 3", len(asked))
	}
	last := asked[2]
	var roles []string
	for _, m := range last.Messages {
		roles = append(roles, m.Role)
	}
	if want := []string{"system", "user", "assistant", "user", "assistant", "user"}; !slices.Equal(roles, want) {
		t.Errorf("roles %q, want %q", roles, want)
	}
	if last.Messages[2].Content != "ab" || last.MaxTokens != 3 || !slices.Equal(asked[0].Messages, last.Messages[:2]) {
		t.Errorf("%+v", last)
	}
}

// TestBenchPairs: every target plays every seed once, in changing order, with
// the same requests.
func TestBenchPairs(t *testing.T) {
	var mu sync.Mutex
	var order []string
	texts := map[string]map[string]bool{} // target/seed -> prompts
	var targets []*Target
	for _, name := range []string{"a", "b", "c"} {
		s := server(t, func(w http.ResponseWriter, q Ask) {
			mu.Lock()
			key := name + " " + q.Model
			if texts[key] == nil {
				texts[key] = map[string]bool{}
			}
			if len(order) == 0 || order[len(order)-1] != name {
				order = append(order, name)
			}
			texts[key][q.Messages[0].Content] = true
			mu.Unlock()
			_, _ = io.WriteString(w, whole)
		})
		targets = append(targets, &Target{Name: name, Client: NewClient(s.URL, "", nil), Model: "m"})
	}
	w := &Workload{Rate: 400, Arrivals: Poisson, Turns: 1, Prefixes: 1, Prompt: Fixed(20), Later: Fixed(2), Output: Fixed(2)}
	raw := 0
	b := &Bench{Targets: targets, Scenario: "s", Seed: 10, Rounds: 2, SLO: &report.SLO{TTFT: 60_000},
		Play: Play{Length: 50 * time.Millisecond, Grace: 20 * time.Second, Limit: 20 * time.Second, InFlight: 100},
		Plan: func(seed uint64) (*Plan, error) { return w.Make(seed, 50*time.Millisecond, 0) },
		Raw:  func(Result) error { raw++; return nil }}
	runs, interrupted, err := b.Run(t.Context())
	if err != nil || interrupted || len(runs) != 6 {
		t.Fatalf("%d runs, %v, %v", len(runs), interrupted, err)
	}
	if want := []string{"a", "b", "c", "b", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("played in the order %q, want %q", order, want)
	}
	n := 0
	for _, run := range runs {
		n += run.Requests
		if run.OK != run.Requests || run.Good != run.OK || run.Seed != 10 && run.Seed != 11 || run.E2E.Count() != int64(run.OK) || run.OutputTokens != 2*run.OK {
			t.Errorf("%+v", run)
		}
		for _, other := range runs {
			if other.Seed == run.Seed && other.Requests != run.Requests {
				t.Errorf("seed %d: %s had %d requests, %s %d", run.Seed, run.Name, run.Requests, other.Name, other.Requests)
			}
		}
	}
	if raw != n {
		t.Errorf("%d raw results of %d requests", raw, n)
	}
	for key, prompts := range texts {
		if fmt.Sprint(len(prompts)) != fmt.Sprint(len(texts["a m"])) {
			t.Errorf("%s had %d prompts, a %d", key, len(prompts), len(texts["a m"]))
		}
		for p := range prompts {
			if !texts["a m"][p] {
				t.Errorf("%s had a prompt that a had not", key)
			}
		}
	}
}

// TestInterrupted: an end from outside leaves what was measured, and what was
// cut off counts as neither good nor bad.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := server(t, func(w http.ResponseWriter, q Ask) {
		if q.MaxTokens == 2 {
			_, _ = io.WriteString(w, whole)
			return
		}
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-t.Context().Done()
	})
	p := &Plan{Requests: 2, Talks: []Talk{{ID: 1, Turns: []Turn{{Think: -1, User: 3, Output: 2}, {User: 3, Output: 9}}}}}
	b := &Bench{Targets: []*Target{{Name: "t", Client: NewClient(s.URL, "", nil), Model: "m"}}, Rounds: 5,
		Play: Play{Length: 20 * time.Second, Grace: time.Second, Limit: 20 * time.Second, InFlight: 10},
		Plan: func(uint64) (*Plan, error) { return p, nil }}
	runs, interrupted, err := b.Run(ctx)
	if err != nil || !interrupted || len(runs) != 1 {
		t.Fatalf("%d runs, %v, %v", len(runs), interrupted, err)
	}
	if r := runs[0]; r.Requests != 1 || r.OK != 1 || r.Unfinished != 1 || r.Errors != 0 || r.Seconds >= 20 {
		t.Errorf("%+v", r)
	}
	s.CloseClientConnections()
}

// TestNoRoom: what the generator cannot send is an error, not a request that
// never was.
func TestNoRoom(t *testing.T) {
	release := make(chan struct{})
	s := server(t, func(w http.ResponseWriter, _ Ask) {
		<-release
		_, _ = io.WriteString(w, whole)
	})
	p := &Plan{}
	for i := range 3 {
		p.Talks = append(p.Talks, Talk{ID: uint64(i), Turns: []Turn{{Think: -1, User: 3, Output: 2}}})
	}
	tally := NewTally("t", "s", 1, 0, 1, nil, nil)
	var once sync.Once
	r := &Round{Play: Play{Length: time.Second, Grace: 20 * time.Second, Limit: 20 * time.Second, InFlight: 1},
		Target: &Target{Name: "t", Client: NewClient(s.URL, "", nil), Model: "m"}, Plan: p, Done: func(r Result) {
			tally.Add(r)
			if r.Outcome == "unsent" {
				once.Do(func() { close(release) })
			}
		}}
	r.Run(t.Context())
	run := tally.Run(1)
	if run.Requests != 3 || run.OK != 1 || run.Errors != 2 || run.Outcomes["unsent"] != 2 {
		t.Errorf("%d requests, %d ok, %d errors, %v", run.Requests, run.OK, run.Errors, run.Outcomes)
	}
}
