package selector

import (
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// withEngines gives the published table its list of engines by id.
func (f *testFleet) withEngines() {
	t := f.tables.Load()
	for _, e := range f.fleet.Set().Engines {
		for len(t.Engines) <= int(e.ID) {
			t.Engines = append(t.Engines, nil)
		}
		t.Engines[e.ID] = e
	}
}

func TestHolderIsFoundWithinTheFilters(t *testing.T) {
	f := fleetOf(t,
		engine.Config{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, Dialect: "vllm", Labels: map[string][]string{"residency": {"eu"}}},
		engine.Config{Name: "b", URL: "http://127.0.0.1:2", Models: []string{"n"}, Dialect: "llamacpp", Labels: map[string][]string{"residency": {"us"}}})
	f.withEngines()
	s := New(f.tables, nil)
	a, b := f.fleet.Set().ByName("a"), f.fleet.Set().ByName("b")
	m, refusal := s.Resolve("m", Need{}, time.Now())
	if refusal != nil {
		t.Fatal(refusal)
	}
	tokens := Need{Caps: engine.PathNeeds("/inference/v1/generate")} // of vLLM
	for _, c := range []struct {
		id    uint16
		class Class
		need  Need
		want  *engine.Engine
	}{
		{a.ID, Class{}, Need{}, a}, {b.ID, Class{}, Need{}, b}, {999, Class{}, Need{}, nil},
		{a.ID, m, Need{}, a}, {b.ID, m, Need{}, nil},
		{a.ID, Class{}, tokens, a}, {b.ID, Class{}, tokens, nil},
		{a.ID, Class{}, Need{Require: "residency=eu"}, a}, {b.ID, Class{}, Need{Require: "residency=eu"}, nil},
	} {
		if got := s.Holder(c.id, c.class, c.need); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if may, out := s.MayHold(Class{}, Need{}); len(may) != 2 || out != 0 {
		t.Errorf("%d may hold it, %d are out", len(may), out)
	}
	b.SetStatus(engine.Down, engine.ReasonRefused, time.Now())
	if may, out := s.MayHold(Class{}, Need{}); len(may) != 1 || may[0] != a || out != 1 {
		t.Errorf("%d may hold it, %d are out", len(may), out)
	}
	if may, out := s.MayHold(Class{}, Need{Require: "residency=us"}); len(may) != 0 || out != 1 {
		t.Errorf("%d may hold it, %d are out", len(may), out)
	}
}

func TestHolderTakesItsPlaceOrSaysWhyNot(t *testing.T) {
	f := fleetOf(t, engine.Config{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, MaxInFlight: 1})
	s := New(f.tables, nil)
	e := f.fleet.Set().ByName("a")
	m, _ := s.Resolve("m", Need{}, time.Now())
	var d Decision
	counted, free := Holder{Engine: e, Counted: true}, Holder{Engine: e}
	first, refusal := s.PickHolder(counted, m, &d)
	if first.Engine != e || refusal != nil || d.Why != WhyHolder || d.N != 1 || d.Looks[0].Fit != Picked || m.pool.Component.InFlight() != 1 {
		t.Fatalf("%+v %v %+v", first, refusal, d)
	}
	if l, refusal := s.PickHolder(counted, m, &d); l.Engine != nil || refusal.Why != AllFull || d.Looks[0].Fit != AtCap {
		t.Errorf("%+v %v", l, refusal)
	}
	second, refusal := s.PickHolder(free, Class{}, &d)
	if second.Engine != e || refusal != nil || e.InFlight() != 2 {
		t.Errorf("%+v %v", second, refusal)
	}
	second.Release()
	second.Release()
	first.Release()
	if e.InFlight() != 0 || m.pool.Component.InFlight() != 0 {
		t.Errorf("%d and %d in flight", e.InFlight(), m.pool.Component.InFlight())
	}
	e.SetStatus(engine.Down, engine.ReasonRefused, time.Now())
	if l, refusal := s.PickHolder(free, m, &d); l.Engine != nil || refusal.Why != HolderOut || d.Looks[0].Fit != Out {
		t.Errorf("%+v %v", l, refusal)
	}
}

func TestSoleModel(t *testing.T) {
	f := fleetOf(t, engine.Config{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, Dialect: "vllm", Labels: map[string][]string{"residency": {"eu"}}},
		engine.Config{Name: "b", URL: "http://127.0.0.1:2", Models: []string{"m", "n"}, Dialect: "llamacpp"})
	s := New(f.tables, nil)
	now := time.Now()
	want := func(caps engine.Capability, model string, count int) {
		t.Helper()
		for range 2 { // the second time it is remembered
			if m, n, told := s.SoleModel(Need{Caps: caps}, now); m != model || n != count || !told {
				t.Errorf("%s: %q, %d, told %v", caps, m, n, told)
			}
		}
	}
	want(0, "", 2)
	if m, n, _ := s.SoleModel(Need{Require: "residency=eu"}, now); m != "m" || n != 1 {
		t.Errorf("in the EU: %q of %d", m, n)
	}
	want(engine.PathNeeds("/pooling"), "m", 1)
	want(engine.PathNeeds("/completion"), "", 2)
	want(engine.PathNeeds("/v1/conversations"), "", 0)
	f.tables.Load().Models["n"].Adapter = true
	now = now.Add(soleFor)
	want(engine.PathNeeds("/completion"), "m", 1)
	if _, _, told := New(route.NewPublished("here"), nil).SoleModel(Need{}, now); told {
		t.Error("nothing is known yet, and that is for good")
	}
	if n := testing.AllocsPerRun(100, func() { s.SoleModel(Need{}, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
