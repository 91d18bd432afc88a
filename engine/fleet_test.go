package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func mustApply(t interface{ Fatal(...any) }, f *Fleet, configs ...Config) {
	if err := f.Apply(configs); err != nil {
		t.Fatal(err)
	}
}

func TestEnginesThatReturnAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFleet()
		a, b := Config{Name: "a", URL: "http://a"}, Config{Name: "b", URL: "http://b"}
		mustApply(t, f, a, b)
		live := f.Set().ByName("a").Live
		live.SetStatus(Ready, ReasonHealthy, time.Now())
		live.SetModels(&ModelList{Models: []Model{{ID: "m"}}})
		live.Acquire(9)
		mustApply(t, f, b)
		time.Sleep(healthGoodFor)
		mustApply(t, f, b, a)
		if e := f.Set().ByName("a"); e.Live != live || !e.Ready() || e.InFlight() != 1 {
			t.Errorf("back after %s: the same Live %v, %v, %d in flight", healthGoodFor, e.Live == live, e.Status().State, e.InFlight())
		}
		// Nobody probed it for longer than that: it has to answer first.
		mustApply(t, f, b)
		time.Sleep(healthGoodFor + 1)
		mustApply(t, f, b, a)
		if s := live.Status(); f.Set().ByName("a").Live != live || s.State != Starting || live.Models() == nil {
			t.Errorf("back late: %v, models %v", s.State, live.Models())
		}
		// With an attempt on it it is remembered for ever, without for goneFor.
		mustApply(t, f, b)
		time.Sleep(24 * time.Hour)
		mustApply(t, f, b, a)
		if f.Set().ByName("a").Live != live {
			t.Error("an engine with an attempt on it was forgotten")
		}
		live.Release()
		mustApply(t, f, b)
		time.Sleep(goneFor + 1)
		mustApply(t, f, b)
		mustApply(t, f, b, a)
		if f.Set().ByName("a").Live == live {
			t.Error("an engine is remembered for ever")
		}
		mustApply(t, f, a, b)
		c := a
		c.URL = "http://elsewhere"
		f.Set().ByName("a").SetOrder(Cordon, time.Now())
		mustApply(t, f, c, b)
		if e := f.Set().ByName("a"); e.Status().State != Cordoned {
			t.Errorf("the order on a name was lost with its address: %v", e.Status().State)
		}
	})
}

func TestManyEnginesMayComeAndGo(t *testing.T) {
	f := NewFleet()
	for round := range 40 {
		var configs []Config
		for i := range 2000 {
			configs = append(configs, Config{Name: fmt.Sprintf("e-%d-%d", round, i), URL: "http://h"})
		}
		mustApply(t, f, configs...)
		if len(f.gone) > maxGone+2000 || len(f.ids) > maxGone+4000 {
			t.Fatalf("round %d: %d remembered, %d ids", round, len(f.gone), len(f.ids))
		}
	}
	set := f.Set()
	if err := f.Apply(make([]Config, MaxEngines+1)); err == nil || f.Set() != set {
		t.Errorf("%v; the set changed: %v", err, f.Set() != set)
	}
}

// However engines come, go and serve, ids are unique, no attempt is lost, and
// a name and URL with an attempt on it has one Live.
func TestFleetNeverLosesACounter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, seq := NewFleet(), uint64(0)
		held := map[place][]*Live{} // attempts under way
		pool := []Config{{Name: "a", URL: "http://1"}, {Name: "a", URL: "http://2"}, {Name: "b", URL: "http://1"}, {Name: "c", URL: "http://3"}}
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				var configs []Config
				names := map[string]bool{}
				for _, c := range rapid.Permutation(pool).Draw(t, "order") {
					if !names[c.Name] && rapid.Bool().Draw(t, c.URL) {
						names[c.Name] = true
						configs = append(configs, c)
					}
				}
				mustApply(t, f, configs...)
			},
			"acquire": func(t *rapid.T) {
				for _, e := range f.Set().Engines {
					if e.Acquire(100) {
						held[e.place()] = append(held[e.place()], e.Live)
					}
				}
			},
			"release": func(t *rapid.T) {
				for p, lives := range held {
					lives[0].Release()
					if held[p] = lives[1:]; len(lives) == 1 {
						delete(held, p)
					}
				}
			},
			"": func(t *rapid.T) {
				ids := map[uint16]bool{}
				for _, e := range f.Set().Engines {
					if ids[e.ID] {
						t.Fatalf("two engines with id %d", e.ID)
					}
					ids[e.ID] = true
					if n := int64(len(held[e.place()])); e.InFlight() != n {
						t.Fatalf("%s at %s has %d in flight, %d are under way", e.Name, e.URL, e.InFlight(), n)
					}
				}
				if s := f.Set().Seq; s < seq {
					t.Fatal("the sequence went back")
				} else {
					seq = s
				}
			},
		})
	})
}

func TestOrdersStandBeforeHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLive(1)
		want := func(what string, s State, ready, leaving bool) {
			t.Helper()
			if got := l.Status(); got.State != s || l.Ready() != ready || l.Leaving() != leaving {
				t.Errorf("%s: %v, ready %v, leaving %v", what, got.State, l.Ready(), l.Leaving())
			}
		}
		l.SetStatus(Ready, ReasonHealthy, time.Now())
		l.Acquire(5)
		l.SetOrder(Cordon, time.Now())
		want("cordon", Cordoned, false, false)
		if l.SetOrder(Cordon, time.Now()) || l.SetStatus(Ready, ReasonHealthy, time.Now()) || !l.Healthy() {
			t.Error("what holds already is news")
		}
		l.SetStatus(Down, ReasonRefused, time.Now())
		want("down under cordon", Cordoned, false, false)
		l.SetOrder(Serve, time.Now())
		want("uncordoned while down", Down, false, false)
		l.SetOrder(Drain, time.Now())
		l.SetStatus(Ready, ReasonHealthy, time.Now())
		want("drain", Draining, false, true)
		l.lookIdle(time.Now())
		time.Sleep(time.Minute)
		if l.lookIdle(time.Now()); l.Status().State != Draining {
			t.Error("drained with an attempt under way")
		}
		l.Release()
		if l.lookIdle(time.Now()) {
			t.Error("drained at the first look")
		}
		time.Sleep(idleFor)
		if !l.lookIdle(time.Now()) || l.lookIdle(time.Now()) || !l.Status().Since.Equal(time.Now()) {
			t.Error("not drained once")
		}
		want("drained", Drained, false, true)
		l.Acquire(5) // a pick that was late
		if !l.lookIdle(time.Now()) {
			t.Error("still drained")
		}
		want("late pick", Draining, false, true)
		l.SetOrder(Serve, time.Now())
		want("uncordoned", Ready, true, false)
		if l.lookIdle(time.Now()) {
			t.Error("an engine that serves is drained")
		}
	})
}

// What an engine is, is found out under an order as well.
func TestCordonedEngineIsIdentified(t *testing.T) {
	for want, e1 := range map[string]*scripted{DialectVLLM: script(vllmLike(someLoad, "m")), DialectOpenAI: script(plain("m"))} {
		bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
			func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
				e := f.Set().Engines[0]
				e.SetOrder(Cordon, time.Now())
				after(20 * time.Second)
				if d := e.Detected(); d == nil || d.Dialect != want || e.Live.Models() == nil || e.Status().State != Cordoned || e.Health().State != Ready {
					t.Errorf("%s: %+v, models %v, %v", want, d, e.Live.Models(), e.Status().State)
				}
				if n := len(e1.times(modelsPath)); n > 8 {
					t.Errorf("asked for its models %d times in 20 s: it is taken for new with each probe", n)
				}
			})
	}
}
