package balancer

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// engines are a fleet; models maps an engine's name to what it serves.
func fleetOf(t *testing.T, models map[string][]string) *engine.Fleet {
	t.Helper()
	var configs []engine.Config
	for name, m := range models {
		configs = append(configs, engine.Config{Name: name, URL: "http://127.0.0.1:1", Models: m})
	}
	f := engine.NewFleet()
	if err := f.Apply(configs); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.Set().Engines {
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
	}
	return f
}

func firstTable() *route.Table { return route.NewPublished("here").Load() }

func weightsOf(t *route.Table, model string) map[string]float64 {
	w := make(map[string]float64)
	p := t.Classes[route.ClassKey{Model: model}]
	for i := range p.Candidates {
		w[p.Candidates[i].Engine.Name] = p.Candidates[i].Weight
	}
	return w
}

// The same inputs give the same table, with the very pools of the last one.
func TestNothingNewKeepsTheTable(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m", "n"}})
	first, same := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(100, 0))
	if same {
		t.Fatal("the first table is no news")
	}
	second, same := Build(f.Set(), first, nil, nil, nil, time.Unix(101, 0))
	if !same {
		t.Error("equal input is news")
	}
	for k, p := range second.Classes {
		if p != first.Classes[k] {
			t.Errorf("class %s was built again", k)
		}
	}
}

// An engine that is out has weight 0 and the others its share; its models stay
// known, so that they are unavailable and not unknown.
func TestEngineOut(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"only-c"}})
	for _, name := range []string{"a", "c"} {
		f.Set().ByName(name).SetStatus(engine.Down, engine.ReasonRefused, time.Now())
	}
	table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(100, 0))
	if w := weightsOf(table, "m"); w["a"] != 0 || w["b"] != 1 {
		t.Errorf("weights %v", w)
	}
	if table.Models["only-c"] == nil {
		t.Error("the model of an engine that is out is unknown")
	}
	if p := table.Classes[route.ClassKey{Model: "only-c"}]; p.Draw(1) != route.None {
		t.Error("an engine that is out can be drawn")
	}
}

// Engines that have never said what they serve leave the table open.
func TestUntold(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": nil})
	if table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(1, 0)); !table.Untold {
		t.Error("b has not told its models, but the table is closed")
	}
	f.Set().ByName("b").SetModels(&engine.ModelList{Models: []engine.Model{{ID: "n"}}})
	if table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(1, 0)); table.Untold || table.Models["n"] == nil {
		t.Error("b has told its models, but the table does not know")
	}
}

// Models that share an engine share a component and its in-flight counter;
// others have their own. The counter outlives the table.
func TestComponents(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m", "n"}, "c": {"n"}, "d": {"alone"}})
	table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(1, 0))
	of := func(tb *route.Table, model string) *route.Component {
		return tb.Classes[route.ClassKey{Model: model}].Component
	}
	if of(table, "m") != of(table, "n") || of(table, "m") == of(table, "alone") {
		t.Fatal("components are not those of shared engines")
	}
	f.Set().ByName("a").SetStatus(engine.Down, engine.ReasonRefused, time.Now())
	next, _ := Build(f.Set(), table, nil, nil, nil, time.Unix(2, 0))
	if of(next, "m") != of(table, "m") {
		t.Error("the in-flight counter was lost with an engine's state")
	}
}

// Classes with one candidate set share one slot table; a class that was asked
// for gets its own when its candidates differ.
func TestClassesShareSlotTables(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m", "n"}, "b": {"m", "n"}})
	wanted := []route.ClassKey{{Model: "m", Caps: engine.Tools}, {Model: "m", Require: "residency=eu"}, {Model: "gone"}}
	table, _ := Build(f.Set(), firstTable(), nil, nil, wanted, time.Unix(1, 0))
	m, n, tools := table.Classes[route.ClassKey{Model: "m"}], table.Classes[route.ClassKey{Model: "n"}], table.Classes[wanted[0]]
	if m.Pool != n.Pool || m.Pool != tools.Pool {
		t.Error("equal candidate sets have several slot tables")
	}
	if _, ok := table.Classes[wanted[1]]; ok {
		t.Error("a class that no engine satisfies has a pool")
	}
}

// Context lengths make tiers: a prompt that is longer than a limit excludes
// the engines of that limit, one longer than all excludes nobody.
func TestContextTiers(t *testing.T) {
	f := fleetOf(t, map[string][]string{"short": nil, "long": nil})
	for name, tokens := range map[string]int{"short": 1000, "long": 8000} {
		f.Set().ByName(name).SetModels(&engine.ModelList{Models: []engine.Model{{ID: "m", ContextTokens: tokens}}})
	}
	table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(1, 0))
	for _, c := range []struct {
		tokens int
		want   []string
	}{{0, []string{"long", "short"}}, {1000, []string{"long", "short"}}, {1001, []string{"long"}}, {8000, []string{"long"}}, {8001, []string{"long", "short"}}} {
		m, key, _ := table.Class("m", route.Need{Context: c.tokens})
		var got []string
		for _, cand := range route.Candidates(m, key) {
			got = append(got, cand.Engine.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d tokens: candidates %v, want %v", c.tokens, got, c.want)
		}
	}
}

// Capacity sets weights; without it the in-flight cap does, at the rate of
// the engines that have both.
func TestWeightsByCapacity(t *testing.T) {
	two, zero := 2.0, 0.0
	for name, c := range map[string]struct {
		configs []engine.Config
		want    map[string]float64
	}{
		"none":     {[]engine.Config{{Name: "a"}, {Name: "b"}}, map[string]float64{"a": .5, "b": .5}},
		"caps":     {[]engine.Config{{Name: "a", MaxInFlight: 30}, {Name: "b", MaxInFlight: 10}}, map[string]float64{"a": .75, "b": .25}},
		"capacity": {[]engine.Config{{Name: "a", Capacity: &two}, {Name: "b", Capacity: &zero}}, map[string]float64{"a": 1, "b": 0}},
		"mixed":    {[]engine.Config{{Name: "a", Capacity: &two, MaxInFlight: 10}, {Name: "b", MaxInFlight: 30}}, map[string]float64{"a": .25, "b": .75}},
	} {
		for i := range c.configs {
			c.configs[i].URL, c.configs[i].Models = "http://127.0.0.1:1", []string{"m"}
		}
		f := engine.NewFleet()
		if err := f.Apply(c.configs); err != nil {
			t.Fatal(err)
		}
		for _, e := range f.Set().Engines {
			e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Now())
		}
		table, _ := Build(f.Set(), firstTable(), nil, nil, nil, time.Unix(1, 0))
		if w := weightsOf(table, "m"); fmt.Sprint(w) != fmt.Sprint(c.want) {
			t.Errorf("%s: weights %v, want %v", name, w, c.want)
		}
	}
}

// The loop publishes what changed and names the reason; a counter that drifted
// because its component was made anew is right again after two cycles.
func TestLoop(t *testing.T) {
	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"n"}})
	tables := route.NewPublished("here")
	loop := NewLoop(Options{Fleet: f, Tables: tables, Saved: nil, Log: slog.New(slog.DiscardHandler)})
	now := time.Unix(1000, 0)
	cycle := func(want route.Reason, version uint64) {
		t.Helper()
		now = now.Add(time.Second)
		loop.Cycle(now)
		if got := tables.Load(); got.Reason != want || got.Version != version {
			t.Fatalf("table %d because of %v, want %d because of %v", got.Version, got.Reason, version, want)
		}
	}
	cycle(route.ReasonStart, 1)
	cycle(route.ReasonStart, 1)
	f.Set().ByName("a").SetStatus(engine.Down, engine.ReasonTimeout, now)
	cycle(route.ReasonState, 2)
	f.Set().ByName("a").SetStatus(engine.Ready, engine.ReasonHealthy, now)
	cycle(route.ReasonState, 3)
	tables.Load().Wants.Add(route.ClassKey{Model: "m", Caps: engine.Tools}, now)
	cycle(route.ReasonClass, 4)

	// Five requests of a are under way when n comes to it: one component now.
	old := tables.Load().Classes[route.ClassKey{Model: "m"}].Component
	for range 5 {
		f.Set().ByName("a").Acquire(100)
		old.Add(1)
	}
	if err := f.Apply([]engine.Config{{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m", "n"}}, {Name: "b", URL: "http://127.0.0.1:1", Models: []string{"n"}}}); err != nil {
		t.Fatal(err)
	}
	cycle(route.ReasonEngines, 5)
	joined := tables.Load().Classes[route.ClassKey{Model: "m"}].Component
	if joined == old || joined.InFlight() != 5 {
		t.Fatalf("the new component counts %d, 5 are in flight", joined.InFlight())
	}
	for range 5 { // they end on the counter they began on
		f.Set().ByName("a").Release()
		old.Add(-1)
	}
	for range 3 {
		cycle(route.ReasonEngines, 5)
	}
	if joined.InFlight() != 0 {
		t.Errorf("the component still counts %d", joined.InFlight())
	}
}

// A class that nobody asks for any more is forgotten, and comes back on demand.
func TestIdleClassesAreForgotten(t *testing.T) {
	w := route.NewWants()
	k := route.ClassKey{Model: "m", Require: "residency=eu"}
	never := func(route.ClassKey) time.Time { return time.Time{} }
	start := time.Unix(1000, 0)
	w.Add(k, start)
	if got := w.Keys(start.Add(9*time.Minute), never); len(got) != 1 {
		t.Errorf("forgotten after nine minutes: %v", got)
	}
	used := func(route.ClassKey) time.Time { return start.Add(8 * time.Minute) }
	if got := w.Keys(start.Add(15*time.Minute), used); len(got) != 1 {
		t.Errorf("forgotten although it was used: %v", got)
	}
	if got := w.Keys(start.Add(30*time.Minute), never); len(got) != 0 {
		t.Errorf("kept for ever: %v", got)
	}
	for i := range 2 * route.MaxClasses {
		w.Add(route.ClassKey{Model: fmt.Sprint(i)}, start)
	}
	if got := w.Keys(start, never); len(got) != route.MaxClasses {
		t.Errorf("%d classes are kept, the bound is %d", len(got), route.MaxClasses)
	}
}
