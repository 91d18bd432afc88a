package balancer

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
)

// One engine, looked at once a second; each scenario is a rule of DataRule.
type watched struct {
	t       *testing.T
	h       track
	now     time.Time
	page    engine.Sample // what it tells next; At is set by pass
	silent  bool          // its page is not there
	glance  glance        // as the next look has it, but for time and page
	step    float64       // by which its counters move in a second
	lastOne Facts
}

const everything = engine.FieldRunning | engine.FieldWaiting | engine.FieldKVUsed | engine.FieldPromptTokens | engine.FieldGeneratedTokens |
	engine.FieldCachedTokens | engine.FieldSteps

func watch(t *testing.T) *watched {
	now := time.Unix(50_000, 0)
	return &watched{t: t, now: now, step: 100,
		page: engine.Sample{Has: everything, Running: 6, Waiting: 2, KVUsed: 0.3, PromptTokens: 5000, GeneratedTokens: 5000, CachedTokens: 1000, Steps: 9000},
		glance: glance{status: engine.Status{State: engine.Ready, Since: now.Add(-time.Hour)}, inFlight: 8, slots: 16, replicas: 1,
			progress: time.Hour}}
}

func (w *watched) pass(seconds int) Facts {
	for range seconds {
		w.now = w.now.Add(time.Second)
		if !w.silent {
			w.page.PromptTokens += w.step
			w.page.GeneratedTokens += w.step
			w.page.CachedTokens += w.step / 2
			w.page.Steps += w.step
			page := w.page
			page.At = w.now.Add(-200 * time.Millisecond)
			w.glance.sample = &page
		}
		g := w.glance
		g.at = w.now
		w.lastOne = w.h.look(&g)
	}
	return w.lastOne
}

func (w *watched) want(rule DataRule, left float64, what string) {
	w.t.Helper()
	if f := w.lastOne; f.Rule != rule || math.Abs(f.Left-left) > 1e-9 {
		w.t.Errorf("%s: %s, %g left; want %s, %g", what, f.Rule, f.Left, rule, left)
	}
}

func (w *watched) running(want float64, what string) {
	w.t.Helper()
	if got := w.lastOne.Signals.Utilisation * w.glance.slots; math.Abs(got-want) > 1e-6 {
		w.t.Errorf("%s: %g at work, want %g", what, got, want)
	}
}

func TestFreshEngine(t *testing.T) {
	w := watch(t)
	w.glance.seen = []engine.Answer{{TTFT: 100 * time.Millisecond, TBOT: 10 * time.Millisecond}, {How: engine.EndedFault},
		{TTFT: 300 * time.Millisecond, TBOT: 30 * time.Millisecond}, {How: engine.EndedElse}}
	f := w.pass(20)
	w.want(Fresh, 1, "all is well")
	w.running(6, "all is well")
	s := f.Signals
	if !near(s.TTFT, 200, 1e-6) || !near(s.TBOT, 20, 1e-6) || !near(s.Errors, 1.0/3, 1e-6) || s.Waiting != 2 || f.Foreign != 0 {
		t.Errorf("%+v", f)
	}
	w.page.KVUsed = 0.9
	if f = w.pass(1); f.Signals.Utilisation != 0.9 {
		t.Errorf("a full cache is a full engine: %+v", f)
	}
	w.glance.seen = nil
	if f = w.pass(60); !math.IsNaN(f.Signals.TTFT) || !math.IsNaN(f.Signals.TBOT) || !math.IsNaN(f.Signals.Errors) {
		t.Errorf("a minute without answers: %+v", f.Signals)
	}
	if !near(w.h.cached.rate()/w.h.prompt.rate(), 0.5, 0.01) {
		t.Errorf("cached %g of %g", w.h.cached.rate(), w.h.prompt.rate())
	}
}

// Without a page our own attempts are what is known, never nothing.
func TestMissingPage(t *testing.T) {
	w := watch(t)
	w.silent, w.glance.elsewhere = true, 3
	w.pass(60)
	w.want(Missing, 1, "no page ever")
	w.running(11, "no page ever")
	if !math.IsNaN(w.lastOne.Signals.Waiting) {
		t.Error("a queue that nobody told of")
	}
	w = watch(t)
	w.pass(20)
	w.page.Has = 0
	w.pass(1)
	w.want(Missing, 1, "a page of none of the known names")
	w.page.Has = engine.FieldKVUsed
	w.pass(20)
	w.want(Fresh, 1, "only the cache is told")
	w.running(8, "only the cache is told")
}

func TestJustJoined(t *testing.T) {
	w := watch(t)
	w.glance.status.Since = w.now
	w.pass(9)
	w.want(Joined, 1, "in service for nine seconds")
	w.pass(1)
	w.want(Fresh, 1, "in service for ten")
	since := w.lastOne.Since
	w.pass(5)
	if w.lastOne.Since != since {
		t.Error("a rule that holds on began again")
	}
	w.glance.status = engine.Status{State: engine.Ready, Since: w.now}
	w.pass(1)
	w.want(Joined, 1, "back in service")
}

func TestStalePage(t *testing.T) {
	w := watch(t)
	w.pass(20)
	w.silent, w.glance.inFlight = true, 12
	w.pass(2)
	w.want(Fresh, 1, "two seconds old")
	w.running(6, "two seconds old")
	w.pass(2)
	w.want(Stale, 1, "four seconds old")
	w.running(12, "four seconds old")
	w.pass(25)
	w.want(Stale, 1, "twenty-nine seconds old")
	w.pass(1)
	w.want(Distrusted, distrustedLeft, "more than thirty seconds old")
	w.running(12, "more than thirty seconds old")
	w.silent = false
	w.pass(1)
	w.want(Fresh, 1, "told again")
	w.running(6, "told again")
}

// Work that stands still: capacity 0 within ten seconds, back with the first
// move; an engine without work, or without a counter, is not frozen.
func TestFrozenEngine(t *testing.T) {
	w := watch(t)
	w.pass(20)
	w.step = 0
	w.pass(5)
	w.want(Fresh, 1, "still for five seconds")
	w.pass(4)
	w.want(Frozen, 0, "still for nine")
	w.pass(600)
	w.want(Frozen, 0, "still for ten minutes")
	w.step = 1
	w.pass(1)
	w.want(Fresh, 1, "moving again")

	for name, change := range map[string]func(*watched){
		"nothing at work":                func(w *watched) { w.page.Running, w.page.Waiting, w.glance.inFlight = 0, 0, 0 },
		"no counter of steps":            func(w *watched) { w.page.Has &^= engine.FieldSteps },
		"nobody says that it works":      func(w *watched) { w.page.Has &^= engine.FieldRunning },
		"its answers come":               func(w *watched) { w.glance.progress = 100 * time.Millisecond },
		"whole answers come":             func(w *watched) { w.glance.seen = []engine.Answer{{Total: time.Second}} },
		"its page is of one of replicas": func(w *watched) { w.glance.replicas = 3 },
	} {
		w := watch(t)
		w.pass(20)
		w.step = 0
		change(w)
		if w.pass(60); w.lastOne.Rule != Fresh {
			t.Errorf("%s: %s", name, w.lastOne.Rule)
		}
	}
}

// Of a counter that never moved nobody knows whether it counts this work:
// embeddings generate nothing.
func TestCounterThatNeverMoved(t *testing.T) {
	w := watch(t)
	w.step = 0
	w.pass(60)
	w.want(Fresh, 1, "never moved")
	w.step = 5
	w.pass(3)
	w.step = 0
	w.pass(10)
	w.want(Frozen, 0, "moved, and stands still")
}

func TestLyingEngine(t *testing.T) {
	// It tells less than half of what we have there, three polls in a row.
	w := watch(t)
	w.pass(20)
	w.page.Running, w.page.Waiting = 2, 0
	w.pass(2)
	w.want(Fresh, 1, "twice too little")
	w.pass(1)
	w.want(Lying, 1, "three times too little")
	w.running(8, "three times too little")
	w.page.Running = 8
	w.pass(29)
	w.want(Lying, 1, "the truth for half a minute")
	w.pass(2)
	w.want(Fresh, 1, "the truth for longer")
	// What is on the wire is not in the engine.
	w.page.Running, w.glance.onTheWire = 2, 5
	w.pass(60)
	w.want(Fresh, 1, "far away")

	for name, lie := range map[string]func(*watched){
		"a million at work":                     func(w *watched) { w.page.Running = 1e7 },
		"more cached than there is":             func(w *watched) { w.page.CachedTokens = 3*w.page.PromptTokens + mostInPage },
		"more than any engine reads":            func(w *watched) { w.page.PromptTokens += 1e12 },
		"counters go back and forth (replicas)": func(w *watched) { w.page.Steps, w.step = w.page.Steps-500, -100 },
	} {
		w := watch(t)
		w.pass(20)
		lie(w)
		if w.pass(2); w.lastOne.Rule != Lying {
			t.Errorf("%s: %s", name, w.lastOne.Rule)
		}
	}

	// A restart is no lie, and no flood of tokens either.
	w = watch(t)
	w.pass(20)
	w.page.PromptTokens, w.page.GeneratedTokens, w.page.CachedTokens, w.page.Steps = 0, 0, 0, 0
	w.pass(1)
	w.want(Fresh, 1, "started again")
	w.pass(10)
	if r := w.h.prompt.rate(); !near(r, 100, 0.01) {
		t.Errorf("%g tokens/s", r)
	}
}

// Requests that nobody here sent are load: after ten seconds, as long as they
// are there, and not those of other gateways.
func TestForeignLoad(t *testing.T) {
	w := watch(t)
	w.pass(20)
	w.page.Running, w.page.Waiting = 15, 1
	w.pass(9)
	w.want(Fresh, 1, "for nine seconds")
	w.pass(3)
	w.want(Fresh, 0.5, "for twelve")
	if f := w.lastOne; f.Foreign != 8 {
		t.Errorf("%g requests of others, want 8", f.Foreign)
	}
	w.glance.elsewhere = 8
	w.pass(1)
	w.want(Fresh, 1, "they are those of another gateway")
	w.page.Running, w.page.Waiting, w.glance.elsewhere = 12, 0, 0
	w.pass(60)
	w.want(Fresh, 1, "four more than ours is a matter of timing")
	w.page.Running = 1000
	w.pass(60)
	w.want(Fresh, 0, "more than it has room for")
}

// Whatever engines tell and attempts show, in whatever order: what follows is
// within its bounds, capacity is taken only for a reason, and a page that
// stopped coming is never believed.
func TestFactsOfAnything(t *testing.T) {
	figure := rapid.OneOf(rapid.Float64Range(0, 50), rapid.Float64Range(0, 1e9), rapid.Just(0.0))
	rapid.Check(t, func(t *rapid.T) {
		var h track
		now := time.Unix(50_000, 0)
		var page *engine.Sample
		ready := now
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 8000).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 3).Draw(t, "told") > 0 {
				page = &engine.Sample{At: now, Has: engine.Field(rapid.IntRange(0, 255).Draw(t, "has")), Running: figure.Draw(t, "running"), Waiting: figure.Draw(t, "waiting"),
					KVUsed: rapid.Float64Range(0, 1).Draw(t, "kv"), PromptTokens: figure.Draw(t, "prompt"), GeneratedTokens: figure.Draw(t, "generated"),
					CachedTokens: figure.Draw(t, "cached"), Steps: figure.Draw(t, "steps")}
			}
			if rapid.IntRange(0, 9).Draw(t, "came") == 0 {
				ready = now
			}
			g := glance{at: now, sample: page, status: engine.Status{State: engine.Ready, Since: ready}, inFlight: float64(rapid.IntRange(0, 40).Draw(t, "ours")),
				slots: float64(rapid.IntRange(0, 64).Draw(t, "slots")), elsewhere: figure.Draw(t, "elsewhere"), replicas: float64(rapid.IntRange(1, 3).Draw(t, "replicas")),
				onTheWire: figure.Draw(t, "wire"), progress: time.Duration(rapid.IntRange(0, 9000).Draw(t, "progress")) * time.Millisecond,
				seen: make([]engine.Answer, rapid.IntRange(0, 2).Draw(t, "answers"))}
			f := h.look(&g)
			s := f.Signals
			if !(f.Left >= 0 && f.Left <= 1) || !(f.Foreign >= 0) || math.IsInf(f.Foreign, 0) || !(s.Utilisation >= 0) || math.IsInf(s.Utilisation, 0) ||
				s.Waiting < 0 || s.Errors < 0 || s.Errors > 1 || f.Since.After(now) {
				t.Fatalf("%+v", f)
			}
			if f.Left < 1 && f.Rule != Frozen && f.Rule != Distrusted && f.Foreign == 0 {
				t.Fatalf("less is left for no reason: %+v", f)
			}
			if page == nil && f.Rule != Missing || page != nil && now.Sub(page.At) > staleAfter && f.Rule.believed() {
				t.Fatalf("believed: %+v", f)
			}
			if r := h.prompt.rate(); !(r >= 0) || math.IsInf(r, 0) {
				t.Fatalf("%g prompt tokens/s", r)
			}
		}
	})
}

func TestEveryRuleHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for r := range dataRules {
		seen[r.String()] = true
	}
	if len(seen) != int(dataRules) {
		t.Errorf("%v", seen)
	}
}
