package selector

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
	"penstock/route"
)

// usualCost is that of a large model on a fast engine.
var usualCost = route.Cost{Alone: 4000, PerSeq: 40, PerToken: 0.15, Slots: 256}

func pricedFleet(t testing.TB, n int) (*testFleet, *Selector) {
	f := newTestFleet(t, n, "m")
	f.cost = usualCost
	f.publish()
	return f, f.selector()
}

// A new conversation goes to an engine that has no long prompt to compute, also
// where that one has more in flight, and stays there.
func TestNewConversationsGoWhereTheyCostLeast(t *testing.T) {
	_, s := pricedFleet(t, 2)
	c := class(t, s, "m", Need{})
	const key = 12345<<40 | 1
	slot := c.pool.Slot(key)
	home, other := &c.pool.Candidates[slot.Engine], &c.pool.Candidates[slot.Alternate]
	a := keyed(key, false)
	a.Prompt = 1000
	var d Decision
	first := s.Pick(c, a, &d)
	if first.Engine != home.Engine || d.Why != WhySlot {
		t.Fatalf("with nothing in flight: %s (%v)", first.Engine.Name, d.Why)
	}
	if n := home.Live.Prompts(); n != 1000 {
		t.Errorf("a prompt of 1,000 tokens is counted as %d", n)
	}
	first.Release()

	home.Live.AddPrompts(100_000)
	for range 3 {
		other.Live.Acquire(100)
	}
	a.Key ^= 1 << 20
	l := s.Pick(c, a, &d)
	if l.Engine != other.Engine || d.Why != WhyPlaced {
		t.Fatalf("behind 100,000 tokens of prompts: %s (%v)", l.Engine.Name, d.Why)
	}
	if look := d.Looks[0]; d.N != 2 || look.Engine != home.Engine || look.Fit != Heavier || look.Cost < 15_000 || d.Looks[1].Cost < 4000 || d.Looks[1].Cost >= look.Cost {
		t.Errorf("the record does not say why: %+v", d.Looks[:d.N])
	}
	l.Release()
	home.Live.AddPrompts(-100_000)
	a.EarlierTurns = true
	if l = s.Pick(c, a, &d); l.Engine != other.Engine || d.Why != WhyRemembered {
		t.Errorf("the next turn: %s (%v)", l.Engine.Name, d.Why)
	}
	if n := other.Live.Prompts(); n != 1000/laterFresh {
		t.Errorf("a later turn's prompt of 1,000 tokens, of which most is there, is counted as %d", n)
	}
	l.Release()

	// Of requests without a key none goes behind them either.
	home.Live.AddPrompts(100_000)
	other.Live.SetOthers(50)
	seen := 0
	for i := range 200 {
		u := Ask{Now: now, Prompt: 1000, Chance: spread(uint64(i), 3) | 1}
		if l := s.Pick(c, &u, &d); l.Engine == home.Engine {
			seen++
		}
		first := l
		first.Release()
	}
	if seen > 120 { // with both drawn, nearly always, the lighter is the other until it is full of what comes
		t.Errorf("%d of 200 went behind the long prompts", seen)
	}
}

// What others have on an engine counts like what is ours.
func TestOthersCount(t *testing.T) {
	_, s := pricedFleet(t, 2)
	c := class(t, s, "m", Need{})
	const key = 777<<40 | 1
	slot := c.pool.Slot(key)
	c.pool.Candidates[slot.Engine].Live.SetOthers(5)
	var d Decision
	a := keyed(key, false)
	a.Prompt = 100
	if l := s.Pick(c, a, &d); l.Engine != c.pool.Candidates[slot.Alternate].Engine {
		t.Errorf("%s has five requests of others and was taken", l.Engine.Name)
	}
}

// What the plan gives nothing gets no new work for being idle.
func TestCheapestFollowsThePlan(t *testing.T) {
	one, none := 1.0, 1e-9
	f := fleetOf(t,
		engine.Config{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &one},
		engine.Config{Name: "b", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &none})
	f.cost = usualCost
	f.publish()
	s := f.selector()
	c := class(t, s, "m", Need{})
	for i := range uint64(100) {
		a := keyed(spread(i, 1), false)
		a.Prompt = 5000
		var d Decision
		if l := s.Pick(c, a, &d); l.Engine.Name != "a" {
			t.Fatalf("%s has weight 1e-9 and got conversation %d (%v)", l.Engine.Name, i, d.Why)
		}
	}
}

// A burst fills what the plan gives a source: for its length new work goes where
// the plan has others' requests, and only there.
func TestABurstGoesWhereOthersAre(t *testing.T) {
	one, none := 1.0, 1e-9
	for _, used := range []bool{true, false} {
		f := fleetOf(t,
			engine.Config{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &one},
			engine.Config{Name: "b", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &none})
		f.cost, f.used = usualCost, used
		f.publish()
		s := f.selector()
		c := class(t, s, "m", Need{})
		elsewhere := func(keys uint64) (n int) {
			for i := range uint64(1000) {
				a := keyed(spread(i, keys), false)
				a.Prompt = 5000
				var d Decision
				l := s.Pick(c, a, &d)
				if l.Engine.Name == "b" {
					n++
				}
				l.Release()
			}
			return n
		}
		if n := elsewhere(1); n > 0 {
			t.Errorf("%d of 1,000 left an idle engine", n)
		}
		c.pool.Candidates[0].Live.AddPrompts(100_000)
		// Half of them look there, but for those that go by the plan alone.
		if n := elsewhere(2); used && (n < 400 || n > 540) || !used && n > 0 {
			t.Errorf("with 100,000 tokens of prompts before them and others there %t: %d of 1,000 went there", used, n)
		}
	}
}

// Prompts are given back once, with the first content or with the end.
func TestPromptsAreGivenBack(t *testing.T) {
	f, s := pricedFleet(t, 4)
	c := class(t, s, "m", Need{})
	rapid.Check(t, func(rt *rapid.T) {
		var out []Lease
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if n := len(out); n > 0 && rapid.Bool().Draw(rt, "end") {
				i := rapid.IntRange(0, n-1).Draw(rt, "which")
				switch rapid.IntRange(0, 3).Draw(rt, "how") {
				case 0:
					out[i].Began()
					continue
				case 1:
					out[i].Began()
					out[i].Began()
					out[i].Release()
				case 2:
					out[i].Abandon(time.Unix(now, 0))
				default:
					out[i].Release()
				}
				out[i].Release()
				out = append(out[:i], out[i+1:]...)
				continue
			}
			var d Decision
			a := &Ask{Now: now, Keyed: rapid.Bool().Draw(rt, "keyed"), Key: rapid.Uint64().Draw(rt, "key"), Prompt: rapid.IntRange(0, 1<<20).Draw(rt, "prompt"),
				EarlierTurns: rapid.Bool().Draw(rt, "turns")}
			if l := s.Pick(c, a, &d); l.Engine != nil {
				out = append(out, l)
			}
		}
		held := make(map[*engine.Live]int64)
		for i := range out {
			held[out[i].Engine.Live] += out[i].prompt
		}
		for _, e := range f.fleet.Set().Engines {
			if e.Prompts() != held[e.Live] {
				rt.Fatalf("%s counts %d tokens of prompts, its leases have %d", e.Name, e.Prompts(), held[e.Live])
			}
		}
		for i := range out {
			out[i].Release()
		}
		for _, e := range f.fleet.Set().Engines {
			if e.Prompts() != 0 {
				rt.Fatalf("%s counts %d tokens of prompts with nothing in flight", e.Name, e.Prompts())
			}
		}
	})
}

func TestPricedPickDoesNotAllocate(t *testing.T) {
	_, s := pricedFleet(t, 20)
	i := uint64(0)
	if n := testing.AllocsPerRun(2000, func() {
		i++
		c, _ := s.Resolve("m", Need{}, time.Time{})
		a := Ask{Now: now, Keyed: i%2 == 0, Key: spread(i, 9), Prompt: 1000}
		var d Decision
		l := s.Pick(c, &a, &d)
		l.Began()
		l.Release()
	}); n > 0 {
		t.Errorf("%v allocations per pick", n)
	}
}

// An engine that costs more at all times gets some new work for all that, by
// what the plan gives it.
func TestSomeNewWorkGoesByThePlanAlone(t *testing.T) {
	f, s := pricedFleet(t, 2)
	f.slower = map[string]float32{"e00001": 3}
	f.publish()
	c := class(t, s, "m", Need{})
	const n = 8000
	for name, ask := range map[string]func(uint64) *Ask{
		"keyed":   func(i uint64) *Ask { return keyed(spread(i, 1), false) },
		"unkeyed": func(i uint64) *Ask { return &Ask{Now: now, Chance: spread(i, 5)} },
	} {
		slow := 0
		for i := range uint64(n) {
			a := ask(i)
			a.Prompt = 500
			var d Decision
			l := s.Pick(c, a, &d)
			if l.Engine.Name == "e00001" {
				slow++
			}
			l.Release()
		}
		want := n / plannedPart / 2
		if name == "unkeyed" { // and where both draws are the slow one
			want += (n - n/plannedPart) / 4
		}
		if slow < want*3/4 || slow > want*5/4 {
			t.Errorf("%s: %d of %d went to the engine that is three times as slow, want about %d", name, slow, n, want)
		}
	}
}
