package balancer

import (
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"penstock/balancer/problem"
	"penstock/engine"
	"penstock/route"
)

// busyLoop is a loop of the optimal policy over two engines of known capacity,
// with demand for model m.
func busyLoop(t *testing.T) (*Loop, *engine.Fleet, *route.Published, func()) {
	t.Helper()
	f := engine.NewFleet()
	forty, twenty := 40.0, 20.0
	if err := f.Apply([]engine.Config{{Name: "a", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &forty},
		{Name: "b", URL: "http://127.0.0.1:1", Models: []string{"m"}, Capacity: &twenty}}); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.Set().Engines {
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Now())
	}
	tables := route.NewPublished("here")
	loop := NewLoop(Options{Fleet: f, Tables: tables, Policy: Optimal, Gateway: "g", Log: slog.New(slog.DiscardHandler)})
	loop.Cycle(time.Now())
	return loop, f, tables, func() {
		traffic := tables.Load().Classes[route.ClassKey{Model: "m"}].Traffic
		for range 10 {
			traffic.Offer(uint8(problem.Standard), 100, 0)
		}
		time.Sleep(time.Second)
		loop.Cycle(time.Now())
	}
}

// A solver that hangs holds up one cycle by its budget, and the cycles after
// it not at all; engines that go out meanwhile lose their weight. When it
// returns, tables are solved again.
func TestHangingSolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop, f, tables, second := busyLoop(t)
		second()
		if d := loop.Decision(); d == nil || len(d.Proofs) != 1 || tables.Load().Plan.Certificate == nil {
			t.Fatalf("not solved: %+v", d)
		}
		release := make(chan struct{})
		loop.BeforeSolve(func() { <-release })
		begun := time.Now()
		second()
		if took := time.Since(begun); took > time.Second+solveBudget(time.Second) {
			t.Errorf("the cycle took %v", took)
		}
		if d := loop.Decision(); d.Results[Kept] != 1 {
			t.Errorf("results %v", d.Results)
		}
		f.Set().ByName("a").SetStatus(engine.Down, engine.ReasonTimeout, time.Now())
		begun = time.Now()
		second()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a cycle behind a solver that hangs took %v", took)
		}
		p := tables.Load().Classes[route.ClassKey{Model: "m"}]
		for i := range p.Candidates {
			if c := &p.Candidates[i]; c.Engine.Name == "a" && c.Weight != 0 || c.Engine.Name == "b" && c.Weight != 1 {
				t.Errorf("%s has weight %v", c.Engine.Name, c.Weight)
			}
		}
		loop.BeforeSolve(func() {})
		close(release)
		synctest.Wait()
		second()
		if d := loop.Decision(); d.Results[Kept] != 0 || len(d.Proofs) != 1 {
			t.Errorf("results %v after the solver has returned", d.Results)
		}
	})
}

// Under steady demand no table follows another, and what each changed is told.
func TestTablesChangeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop, f, tables, second := busyLoop(t)
		for range 60 {
			second()
		}
		version := tables.Load().Version
		for range 60 {
			second()
		}
		if now := tables.Load().Version; now > version+1 {
			t.Errorf("%d tables in a minute of steady demand", now-version)
		}
		f.Set().ByName("b").SetStatus(engine.Down, engine.ReasonTimeout, time.Now())
		second()
		c := loop.Changes()
		if len(c) == 0 || c[0].Version != tables.Load().Version || len(c[0].Causes) == 0 || c[0].Causes[0] != "engine b takes no traffic" || len(c[0].Moves) != 1 || !(c[0].Moves[0].Share > 0.2) {
			t.Errorf("the last change is %+v", c[:min(1, len(c))])
		}
	})
}

// The worked example: three clusters, own one 1 ms away, the others 40 ms,
// T = 50 ms (1 + rho/(1-rho)), demand 90, 120 and 40 of 100, 100 and 80.
func TestWorkedExample(t *testing.T) {
	s := &Situation{Sources: []string{"A", "B", "C"}}
	for i, capacity := range []float64{100, 100, 80} {
		name := s.Sources[i]
		s.Engines = append(s.Engines, EngineView{Name: name, Cluster: name, Ready: true, Slots: 1000, Capacity: capacity, Calibrated: true,
			Curve: problem.Latency{Slope: 50, Limit: capacity}})
		trips := []float64{40, 40, 40}
		trips[i] = 1
		s.RTT = append(s.RTT, trips)
		s.Rows = append(s.Rows, Row{Source: i, Class: route.ClassKey{Model: "m"}, DistanceWeight: 1, Work: 1,
			Rate: [3]float64{0, []float64{90, 120, 40}[i], 0}, Candidates: []int{0, 1, 2}})
	}
	d := decideOptimal(s, solveOnce)
	for j, want := range []float64{89.299, 89.299, 71.401} {
		if got := d.Plan.Engines[j].Load; math.Abs(got-want) > 2e-3 {
			t.Errorf("%s has load %v, want %v", s.Engines[j].Name, got, want)
		}
	}
	if mean := d.Plan.Certificate.Objective / 250; math.Abs(mean-472.5674) > 1e-3 {
		t.Errorf("the mean latency is %v ms, want 472.5674", mean)
	}
	why := d.Explain()[1]
	if len(why.Text) == 0 || len(why.Options) < 2 || why.Options[0].Engine != "B" {
		t.Errorf("B's rows say %+v", why)
	}
}

// Demand that may not leave has its engines; what is free makes room by itself
// and says so.
func TestResidency(t *testing.T) {
	s := pair(0)
	s.Engines[1].Cluster = "far"
	s.Engines[1].Capacity, s.Engines[1].Curve = 40, problem.Latency{Slope: 100, Limit: 40}
	s.RTT[0][1] = 40
	bound := s.Rows[0]
	bound.Class = route.ClassKey{Model: "m", Require: "residency=eu"}
	bound.Candidates = []int{0}
	bound.Rate = [3]float64{0, 34, 0}
	s.Rows[0].Rate[1] = 25
	alone := decideOptimal(&Situation{Sources: s.Sources, Engines: s.Engines, RTT: s.RTT, Rows: s.Rows}, solveOnce).Plan
	s.Rows = append(s.Rows, bound)
	d := decideOptimal(s, solveOnce)
	if err := check(s, d.Plan); err != nil || d.Results[Solved] != 1 {
		t.Fatalf("%v, results %v", err, d.Results)
	}
	if weightOf(d.Plan, 1, "a") != 1 || d.Plan.Rows[1].Shed[1] > 0 {
		t.Errorf("the bound demand has %+v", d.Plan.Rows[1])
	}
	if free, before := weightOf(d.Plan, 0, "a"), weightOf(alone, 0, "a"); !(before > 0.5 && free < 0.1) {
		t.Errorf("the free demand has %v of a, alone %v", free, before)
	}
	said := false
	for _, sentence := range d.Explain()[0].Text {
		said = said || sentence == "It makes room on a: m require residency=eu from s may go nowhere else and takes 34 of the 38 requests/s there."
	}
	if !said {
		t.Errorf("the free demand's weights are because: %q", d.Explain()[0].Text)
	}
}
