package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

func named(t *testing.T, name string) *scenario {
	t.Helper()
	for i := range scenarios {
		if scenarios[i].name == name {
			return &scenarios[i]
		}
	}
	t.Fatalf("no scenario %s", name)
	return nil
}

// The load is what the scenarios say: rate, turns, lengths of prompts and answers.
func TestTalks(t *testing.T) {
	s := named(t, "s1")
	warm, measure := time.Minute, 20*time.Minute
	turns, prompt, out := 0, 0, 0
	all := talks(s, 1, 1, warm, measure)
	for i := range all {
		for n, u := range all[i].turns {
			if u.due >= warm && u.due < warm+measure {
				turns++
				prompt += all[i].promptTokens(n)
				out += u.out
			}
		}
	}
	near := func(what string, got, want, within float64) {
		if math.Abs(got/want-1) > within {
			t.Errorf("%s: %.4g, want %.4g", what, got, want)
		}
	}
	near("turns/s", float64(turns)/measure.Seconds(), 51, 0.04)
	near("prompt tokens", float64(prompt)/float64(turns), 1100, 0.05)
	near("answer tokens", float64(out)/float64(turns), 100, 0.05)
	again := talks(s, 1, 1, warm, measure)
	if len(again) != len(all) || !slices.Equal(again[7].turns, all[7].turns) {
		t.Error("the same seed gives other conversations")
	}
	if other := talks(s, 2, 1, warm, measure); slices.Equal(other[7].turns, all[7].turns) {
		t.Error("another seed gives the same conversations")
	}
	step := talks(named(t, "s5-step"), 1, 1, 0, 400*time.Second)
	before, after := 0, 0
	for i := range step {
		if at := step[i].turns[0].due; at < 100*time.Second {
			before++
		} else if at < 400*time.Second {
			after++
		}
	}
	near("the step", float64(after)/3/float64(before), 1.6, 0.12)
}

// The reference engine carries what loads are measured by: at 0.9 of 15
// requests/s it is in balance, at 1.1 its queue grows.
func TestReferenceEngine(t *testing.T) {
	firsts := func(u float64) []float64 {
		s := scenario{speeds: []float64{1}, u: u}
		warm, measure := time.Minute, 4*time.Minute
		seen := virtually(&s, talks(&s, 3, 1, warm, measure), newLeastRequest(1), 1, warm, measure)
		halves := make([]float64, 2)
		count := make([]float64, 2)
		for i := range seen {
			k := 0
			if seen[i].due > warm+measure/2 {
				k = 1
			}
			halves[k] += seen[i].first.Seconds()
			count[k]++
		}
		return []float64{halves[0] / count[0], halves[1] / count[1]}
	}
	if f := firsts(0.85); f[1] > 1 {
		t.Errorf("at 0.85 the first token comes after %.2f s on average", f[1])
	}
	if f := firsts(1.2); f[1] < 5 || f[1] < 1.5*f[0] {
		t.Errorf("at 1.2 the first token comes after %.2f s and later %.2f s: no queue", f[0], f[1])
	}
}

// The engines of the scenarios are those that `penstock sim` makes of the flags.
func TestSimFlagsMakeTheModel(t *testing.T) {
	for _, s := range scenarios {
		for i := range s.speeds {
			flags := s.simFlags(i, 1.5)
			value := func(name string) time.Duration {
				d, err := time.ParseDuration(flags[slices.Index(flags, name)+1])
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			want := s.model(i, 1.5)
			got := want
			got.Speed(value("--ttft"), value("--tbot"))
			for _, pair := range [][2]time.Duration{{got.Base, want.Base}, {got.PerSeq, want.PerSeq}, {got.PrefillBase, want.PrefillBase}, {got.PerPrefill, want.PerPrefill}} {
				if off := pair[0] - pair[1]; off > time.Microsecond || off < -time.Microsecond {
					t.Errorf("%s engine %d: %v, want %v", s.name, i, got, want)
				}
			}
		}
	}
}

// The omniscient placement is worth being measured by: it beats least-request
// everywhere and comes near the known share of a slow engine.
func TestOmniscientIsBetter(t *testing.T) {
	warm, measure := 30*time.Second, time.Minute
	for _, name := range []string{"s1", "s2", "s3", "s4"} {
		s := named(t, name)
		convs := talks(s, 5, 1, warm, measure)
		best := sum(virtually(s, convs, newOmniscient(s, 1), 1, warm, measure), 1, measure)
		least := sum(virtually(s, convs, newLeastRequest(len(s.speeds)), 1, warm, measure), 1, measure)
		if best.Mean > 0.7*least.Mean || best.Good < 0.97 {
			t.Errorf("%s: omniscient %.2f s and %.3f good, least-request %.2f s", name, best.Mean, best.Good, least.Mean)
		}
		if x := best.Share["e4"]; name == "s2" && (x < 0.01 || x > 0.06) {
			t.Errorf("the quarter-speed engine has %.3f of the traffic", x)
		}
	}
}

// With the speeds known, the gateway's own curves, solver, slots and picks come
// near the placement that knows everything: the aims of the scenarios, which a
// real gateway then reaches as far as it has learned.
func TestPlannedComesNear(t *testing.T) {
	b := &bench{options: options{stretch: 1, warm: time.Minute, measure: 40 * time.Second}}
	for _, c := range []struct {
		name  string
		ratio float64
		good  float64 // below that of the omniscient placement
	}{{"s1", 1.03, 0.01}, {"s2", 1.05, 0.01}, {"s2-high", 1.04, 0.03}, {"s3", 1.03, 0.02}, {"s4", 1.03, 0.01}, {"s5-step", 1.05, 0.01}, {"s5-kill", 1.05, 0.02}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &report{s: named(t, c.name)}
			const seeds = 2
			ratio, good, best := 0.0, 0.0, 0.0
			for seed := range uint64(seeds) {
				if err := r.foresee(b, talks(r.s, seed, 1, b.warm, b.measure), seed); err != nil {
					t.Fatal(err)
				}
				ratio += r.Planned[seed].Mean / r.Virtual[seed].Mean / seeds
				good += r.Planned[seed].Good / seeds
				best += r.Virtual[seed].Good / seeds
			}
			t.Logf("%.3f of the omniscient mean, goodput %.3f of %.3f, %.3f", ratio, good, best, r.Right)
			if ratio > c.ratio || good < best-c.good {
				t.Errorf("%.3f of the omniscient mean (aim %.2f), goodput %.3f of %.3f", ratio, c.ratio, good, best)
			}
		})
	}
}

// Beyond what the engines carry, refusing the planned share of conversations
// keeps answers good; taking all of them loses nearly every one.
func TestPlannedRefusesEarly(t *testing.T) {
	b := &bench{options: options{stretch: 1, warm: time.Minute, measure: 40 * time.Second}}
	r := &report{s: named(t, "s6")}
	if err := r.foresee(b, talks(r.s, 1, 1, b.warm, b.measure), 1); err != nil {
		t.Fatal(err)
	}
	if r.Planned[0].GoodRate < 24 || r.Virtual[0].GoodRate > 5 {
		t.Errorf("%.1f good answers/s with the plan's share refused, %.1f without", r.Planned[0].GoodRate, r.Virtual[0].GoodRate)
	}
}

// A turn counts from when it was due, also where the one before was not over.
func TestLatencyCountsFromDue(t *testing.T) {
	s := scenario{speeds: []float64{0.01}, u: 0.85}
	c := conversation{turns: []turn{{due: 0, user: 100, out: 100}, {due: time.Second, user: 20, out: 10}}}
	seen := virtually(&s, []conversation{c}, newLeastRequest(1), 1, 0, time.Minute)
	if len(seen) != 2 || seen[1].first < seen[0].total-time.Second || seen[0].total < 50*time.Second {
		t.Errorf("%+v", seen)
	}
}

// The client reads a simulated engine's stream; the next turn finds the
// conversation in the engine's cache, so that its texts are those of the model.
func TestConversationIsCached(t *testing.T) {
	sim := enginetest.New(enginetest.Config{Models: []string{modelName}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = sim.Serve(ctx, ln) })
	defer serving.Wait()
	defer cancel()
	c := conversation{id: 3, hot: true, turns: []turn{{user: 150, out: 60}, {user: 30, out: 20}, {user: 20, out: 20}}}
	client := newClient()
	defer client.close()
	said := []message{{"system", words(7, hotTokens)}}
	for n, u := range c.turns {
		said = append(said, message{"user", words(uint64(n)+100, u.user)})
		told := 0
		a, err := client.ask(ctx, ln.Addr().String(), "", body(said, u.out), func(k int) { told = k })
		if err != nil {
			t.Fatal(err)
		}
		if a.tokens != u.out || told != u.out || a.prompt != c.promptTokens(n) {
			t.Errorf("turn %d: %d tokens of %d, prompt %d of %d", n, a.tokens, u.out, a.prompt, c.promptTokens(n))
		}
		if n > 0 {
			before := c.promptTokens(n-1) + c.turns[n-1].out
			if a.cached < before-2*enginetest.BlockTokens || a.cached > before {
				t.Errorf("turn %d: %d tokens from the cache, %d were there", n, a.cached, before)
			}
		}
		said = append(said, message{"assistant", string(a.text)})
	}
}

// A refusal, a cut and a whole answer are told apart.
func TestReadAnswers(t *testing.T) {
	whole := enginetest.Answer(1, "n", 5)
	event := func(text string) string {
		return `data: {"id":"x","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n"
	}
	usage := `data: {"choices":[],"usage":{"prompt_tokens":12,"prompt_tokens_details":{"cached_tokens":7}}}` + "\n\n"
	for _, c := range []struct {
		text string
		want error
	}{
		{event("") + event(whole[:8]) + event(whole[8:]) + usage + "data: [DONE]\n\n", nil},
		{event(whole[:8]) + "data: [DONE]\n\n", errNotWhole},
		{event(whole), errNotWhole},
	} {
		var a answer
		err := a.read(strings.NewReader(c.text), func(int) {})
		if err != c.want {
			t.Errorf("%q: %v, want %v", c.text, err, c.want)
		}
		if c.want == nil && (a.tokens != 2 || a.prompt != 12 || a.cached != 7 || a.first.IsZero()) {
			t.Errorf("%+v", a)
		}
	}
}

func TestFigures(t *testing.T) {
	sec := time.Second
	f := sum([]seen{
		{engine: "e1", first: sec / 2, total: 3 * sec, out: 51, prompt: 100, cached: 50},
		{engine: "e1", first: 2 * sec, total: 4 * sec, out: 51, prompt: 100, cached: 100},
		{engine: "e2", first: sec / 2, total: 6 * sec, out: 51, prompt: 100},
		{engine: "e2", fault: "status 503"},
	}, 1, 2*sec)
	if f.Turns != 4 || f.Faults["status 503"] != 1 || math.Abs(f.Mean-13.0/3) > 1e-9 || f.Good != 0.25 || f.GoodRate != 0.5 || f.Share["e1"] != 0.5 || f.Hit != 0.5 {
		t.Errorf("%+v", f)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--scenario s9", "there are s1"}, {"--session maybe", "on, off or both"}, {"--seeds 0", "above 0"}, {"more", "unexpected"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(c.args), &out, &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	o := options{columns: "penstock,least-request,omniscient", session: "both"}
	var names []string
	for _, c := range o.columnsOf() {
		names = append(names, c.name+"/"+c.policy)
	}
	if got := strings.Join(names, " "); got != "penstock/ penstock +s/ least-request/least-request least-request +s/least-request omniscient/" {
		t.Error(got)
	}
	if found, err := scenariosNamed("s2,s6"); err != nil || len(found) != 3 {
		t.Errorf("s2,s6 are %d scenarios, %v", len(found), err)
	}
}

// What the gateway says of its engines is found in its page, in the scenario's order.
func TestFactsOfTable(t *testing.T) {
	var page tablePage
	if err := json.Unmarshal([]byte(`{"weights":[{"engine":"e2","weight":0.3},{"engine":"e1","weight":0.7}],
		"plan":{"engines":[{"engine":"e1","load":3,"capacity":9},{"engine":"e2","load":1,"capacity":5}]},
		"proofs":[{"problem":{"engines":[{"name":"e1","capacity":8,"latency":{"base_ms":10,"slope_ms":20,"limit":9}}]}}]}`), &page); err != nil {
		t.Fatal(err)
	}
	got := page.facts(&scenario{speeds: []float64{1, 0.5}})
	if got[0] != (engineFacts{0.7, 30, 8, 3}) || got[1] != (engineFacts{0.3, 0, 5, 1}) {
		t.Errorf("%+v", got)
	}
}

// The table tells ratios to the omniscient placement of the same seed.
func TestReport(t *testing.T) {
	s := named(t, "s1")
	of := func(mean float64) []oneRun { return []oneRun{{Seed: 1, figures: figures{Mean: mean, Turns: 9}}} }
	r := &report{Scenario: s.name, s: s, Virtual: []figures{{Mean: 2}}, Planned: []figures{{Mean: 2.1}}, Columns: []*columnReport{{"penstock", of(3.3)}, {"omniscient", of(2.2)}}}
	var out bytes.Buffer
	r.print(&out)
	if !strings.Contains(out.String(), "1.500") || strings.Contains(out.String(), "keep up") {
		t.Error(out.String())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	r.Columns[1].Runs = of(2.5)
	if r.disturbed() == "" {
		t.Error("an omniscient placement that is a quarter slower than it can be is no disturbance")
	}
}
