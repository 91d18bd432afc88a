package selector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
	"penstock/route"
)

// otherRules are all but the planned one.
var otherRules = []route.Rule{route.RuleRandom, route.RuleRoundRobin, route.RuleLeastRequest, route.RuleP2C, route.RuleBoundedHash, route.RulePrefix}

// pickBy publishes the table again under a rule.
func (f *testFleet) pickBy(rule route.Rule) {
	next := *f.tables.Load()
	next.Version++
	next.Rule = rule
	f.tables.Publish(&next)
}

// engines of the given capacities, with room for cap attempts each.
func enginesOf(t testing.TB, cap int, capacities ...float64) *testFleet {
	configs := make([]engine.Config, len(capacities))
	for i, c := range capacities {
		configs[i] = engine.Config{Name: fmt.Sprintf("e%02d", i), URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: ptr(c), MaxInFlight: cap}
	}
	return fleetOf(t, configs...)
}

// Under every rule: no engine beyond its cap, none that is out or was tried,
// none refused while one has room, the record tells the rule and what was
// taken, and every place comes back once.
func TestRulesKeepTheContract(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "engines")
		capacities := make([]float64, n)
		for i := range capacities {
			capacities[i] = rapid.Float64Range(0.5, 20).Draw(rt, "capacity")
		}
		f := enginesOf(t, rapid.IntRange(1, 12).Draw(rt, "cap"), capacities...)
		rule := rapid.SampledFrom(otherRules).Draw(rt, "rule")
		engines := f.fleet.Set().Engines
		out := rapid.IntRange(-1, n-1).Draw(rt, "out")
		if out >= 0 {
			engines[out].SetStatus(engine.Down, engine.ReasonNoAnswerYet, time.Unix(0, 0))
		}
		f.pickBy(rule)
		s := f.selector()
		c := class(t, s, "m", Need{})
		var leases []Lease
		for range rapid.IntRange(1, 100).Draw(rt, "picks") {
			if len(leases) > 0 && rapid.IntRange(0, 2).Draw(rt, "release") == 0 {
				leases[0].Release()
				leases = leases[1:]
			}
			a := keyed(rapid.Uint64Range(0, 5).Draw(rt, "key")<<60, rapid.Bool().Draw(rt, "turns"))
			a.Keyed = rapid.Bool().Draw(rt, "keyed")
			tried := engines[rapid.IntRange(0, n-1).Draw(rt, "tried")]
			if rapid.IntRange(0, 3).Draw(rt, "retry") == 0 {
				a.AddTried(tried)
			}
			var d Decision
			l := s.Pick(c, a, &d)
			if d.Rule != rule {
				rt.Fatalf("the record says %v, the table %v", d.Rule, rule)
			}
			if l.Engine == nil {
				for _, e := range engines {
					if e.Ready() && e.InFlight() < e.K && !a.tried(e.Live) {
						rt.Fatalf("%v refused while %s has room: %d of %d", rule, e.Name, e.InFlight(), e.K)
					}
				}
				continue
			}
			leases = append(leases, l)
			if l.Engine.InFlight() > l.Engine.K || !l.Engine.Ready() || a.tried(l.Engine.Live) {
				rt.Fatalf("%v took %s: %d of %d, ready %v, tried %v", rule, l.Engine.Name, l.Engine.InFlight(), l.Engine.K, l.Engine.Ready(), a.tried(l.Engine.Live))
			}
			if d.Why < WhyRandom && d.Why != WhyAnyRoom && (d.Why != WhySpillDraw || rule < route.RuleBoundedHash) {
				rt.Fatalf("%v picked for %v", rule, d.Why)
			}
			if last := d.Looks[d.N-1]; last.Engine != l.Engine || last.Fit != Picked {
				rt.Fatalf("the decision's last look is %+v, picked was %s", last, l.Engine.Name)
			}
		}
		for i := range leases {
			leases[i].Release()
			leases[i].Release()
		}
		for _, e := range engines {
			if e.InFlight() != 0 {
				rt.Fatalf("%s counts %d in flight at the end", e.Name, e.InFlight())
			}
		}
		if m := c.pool.Component.InFlight(); m != 0 {
			rt.Fatalf("component counts %d in flight at the end", m)
		}
	})
}

// counts picks n times, each released at once, by engine.
func counts(t *testing.T, f *testFleet, s *Selector, n int, ask func() *Ask) map[string]int {
	t.Helper()
	c := class(t, s, "m", Need{})
	got := make(map[string]int)
	for range n {
		var d Decision
		l := s.Pick(c, ask(), &d)
		if l.Engine == nil {
			t.Fatal("refused")
		}
		got[l.Engine.Name]++
		l.Release()
	}
	return got
}

func anyKey() *Ask { return keyed(rand.Uint64(), false) }

// Random and the hashes follow the weights, the others do not look at them.
func TestRulesAndWeights(t *testing.T) {
	const picks = 40_000
	for _, rule := range otherRules {
		f := enginesOf(t, 1000, 1, 2, 5)
		f.pickBy(rule)
		got := counts(t, f, f.selector(), picks, anyKey)
		want := map[string]float64{"e00": 1.0 / 8, "e01": 2.0 / 8, "e02": 5.0 / 8}
		switch rule {
		case route.RuleRoundRobin, route.RuleLeastRequest, route.RuleP2C:
			want = map[string]float64{"e00": 1.0 / 3, "e01": 1.0 / 3, "e02": 1.0 / 3}
		}
		for name, share := range want {
			// Five standard deviations of a draw, and the slots' own rounding.
			if room := 5*math.Sqrt(picks*share*(1-share)) + 0.005*picks; math.Abs(float64(got[name])-picks*share) > room {
				t.Errorf("%v: %s got %d of %d, want %.0f", rule, name, got[name], picks, picks*share)
			}
		}
	}
}

// In turn means in turn, over whatever classes and conversations; who is full
// or out is passed over.
func TestRoundRobinTurns(t *testing.T) {
	f := enginesOf(t, 2, 1, 1, 9, 1)
	f.pickBy(route.RuleRoundRobin)
	s := f.selector()
	for name, n := range counts(t, f, s, 400, anyKey) {
		if n != 100 {
			t.Errorf("%s had %d of 400 turns", name, n)
		}
	}
	full := f.fleet.Set().Engines[2]
	full.Acquire(2)
	full.Acquire(2)
	got := counts(t, f, s, 400, anyKey)
	if got[full.Name] != 0 || got["e00"]+got["e01"]+got["e03"] != 400 {
		t.Errorf("with %s full: %v", full.Name, got)
	}
}

// Least-request knows the fewest of all, which the test finds by itself.
func TestLeastRequestIsLeast(t *testing.T) {
	f := newTestFleet(t, 50, "m")
	f.pickBy(route.RuleLeastRequest)
	s := f.selector()
	c := class(t, s, "m", Need{})
	var leases []Lease
	for range 3000 {
		least := int64(math.MaxInt64)
		for _, e := range f.fleet.Set().Engines {
			least = min(least, e.InFlight())
		}
		var d Decision
		l := s.Pick(c, anyKey(), &d)
		if had := l.Engine.InFlight() - 1; had != least || d.Why != WhyFewest {
			t.Fatalf("picked one with %d in flight (%v), the fewest is %d", had, d.Why, least)
		}
		leases = append(leases, l)
		if k := rand.IntN(len(leases)); rand.IntN(3) > 0 {
			leases[k].Release()
			leases[k] = leases[len(leases)-1]
			leases = leases[:len(leases)-1]
		}
	}
}

// Of two drawn the lighter: the heaviest of all is never taken, and with two
// engines it is least-request.
func TestP2CTakesTheLighter(t *testing.T) {
	f := newTestFleet(t, 5, "m")
	f.pickBy(route.RuleP2C)
	s := f.selector()
	heavy := f.fleet.Set().Engines[3]
	heavy.Acquire(10)
	for name, n := range counts(t, f, s, 4000, anyKey) {
		if name == heavy.Name {
			t.Errorf("%s, the heaviest, was taken %d times", name, n)
		} else if n < 800 {
			t.Errorf("%s was taken %d times of 4000", name, n)
		}
	}
}

// A key stays on its slot's engine up to the bound, goes to the same next one
// beyond it, and comes back: nothing is remembered.
func TestBoundedHashKeepsTheBound(t *testing.T) {
	f := enginesOf(t, 1000, 1, 1, 1, 1)
	f.pickBy(route.RuleBoundedHash)
	s := f.selector()
	c := class(t, s, "m", Need{})
	key := rand.Uint64()
	slot := c.pool.Slot(key)
	home, next := c.pool.Candidates[slot.Engine].Engine, c.pool.Candidates[slot.Alternate].Engine
	var leases []Lease
	for m := range 40 {
		var d Decision
		l := s.Pick(c, keyed(key, m > 0), &d)
		bound := max(1, int64(math.Ceil(1.25*0.25*float64(m+1))))
		if d.Why != WhySpillDraw && ((d.Why == WhyHashed) != (l.Engine == home) || l.Engine.InFlight() > bound) {
			t.Fatalf("pick %d: %s (%v) with %d, bound %d", m, l.Engine.Name, d.Why, l.Engine.InFlight(), bound)
		}
		if l.Engine != home && home.InFlight() < bound {
			t.Fatalf("pick %d left %s at %d of %d", m, home.Name, home.InFlight(), bound)
		}
		if l.Engine != home && l.Engine != next && next.InFlight() < bound {
			t.Fatalf("pick %d passed over the next, %s", m, next.Name)
		}
		leases = append(leases, l)
	}
	for i := range leases {
		leases[i].Release()
	}
	var d Decision
	if l := s.Pick(c, keyed(key, true), &d); l.Engine != home || d.Why != WhyHashed {
		t.Errorf("afterwards: %s (%v), want its slot's engine", l.Engine.Name, d.Why)
	}
}

// Retries of one request go to as many engines as it may have.
func TestRulesRetryElsewhere(t *testing.T) {
	for _, rule := range otherRules {
		f := newTestFleet(t, 4, "m")
		f.pickBy(rule)
		s := f.selector()
		c := class(t, s, "m", Need{})
		a := anyKey()
		seen := make(map[*engine.Engine]bool)
		for range 4 {
			var d Decision
			l := s.Pick(c, a, &d)
			if l.Engine == nil || seen[l.Engine] {
				t.Fatalf("%v: attempt %d goes to %v", rule, len(seen)+1, l.Engine)
			}
			seen[l.Engine] = true
			a.AddTried(l.Engine)
			l.Release()
		}
	}
}

func TestRulesDoNotAllocate(t *testing.T) {
	for _, rule := range otherRules {
		f := newTestFleet(t, 20, "m")
		f.pickBy(rule)
		s := f.selector()
		i := 0
		if n := testing.AllocsPerRun(2000, func() {
			i++
			c, _ := s.Resolve("m", Need{}, time.Time{})
			a := Ask{Now: now, Keyed: i%2 == 0, Key: spread(uint64(i), 0)}
			var d Decision
			l := s.Pick(c, &a, &d)
			s.Count(&d)
			l.Release()
		}); n > 0 {
			t.Errorf("%v: %v allocations per pick", rule, n)
		}
	}
}

// Many at once never pass a cap and leave nothing behind.
func TestRulesAtOnce(t *testing.T) {
	for _, rule := range otherRules {
		f := enginesOf(t, 3, 1, 2, 3)
		f.pickBy(rule)
		s := f.selector()
		c := class(t, s, "m", Need{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 500 {
					var d Decision
					l := s.Pick(c, anyKey(), &d)
					if l.Engine != nil && l.Engine.InFlight() > 3 {
						t.Errorf("%v: %d in flight", rule, l.Engine.InFlight())
					}
					l.Release()
				}
			})
		}
		wg.Wait()
		if m := c.pool.Component.InFlight(); m != 0 {
			t.Errorf("%v: %d in flight at the end", rule, m)
		}
	}
}

// BenchmarkRules is the pick by each rule; least-request's grows with the
// engines, the others' must not.
func BenchmarkRules(b *testing.B) {
	for _, n := range []int{10, 1000} {
		f := newTestFleet(b, n, "m")
		s := f.selector()
		busy(s, []string{"m"}, 100)
		for _, rule := range append([]route.Rule{route.RulePlanned}, otherRules...) {
			b.Run(fmt.Sprintf("engines=%d/%v", n, rule), func(b *testing.B) {
				f.pickBy(rule)
				c := class(b, s, "m", Need{})
				b.ReportAllocs()
				var d Decision
				for i := uint64(0); b.Loop(); i++ {
					l := s.Pick(c, &Ask{Now: now, Keyed: true, Key: spread(i%benchConversations, 0)}, &d)
					l.Release()
				}
			})
		}
	}
}
