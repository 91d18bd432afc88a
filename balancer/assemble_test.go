package balancer

import (
	"math"
	"slices"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// inputsOf are the inputs of a fleet of engines, each with its models.
func inputsOf(t *testing.T, models map[string][]string, demands ...*route.Demand) *Inputs {
	t.Helper()
	set := fleetOf(t, models).Set()
	in := &Inputs{At: time.Unix(1000, 0), Source: "here", Demands: demands}
	for _, e := range set.Engines {
		in.Engines = append(in.Engines, viewOf(e))
	}
	in.Models, _ = modelsOf(set)
	return in
}

func told(gateway, source string, replicas int, rows ...route.DemandRow) *route.Demand {
	return &route.Demand{Gateway: gateway, Source: source, Replicas: replicas, At: time.Unix(999, 0), Rows: rows}
}

// Demands of gateways add up by source, class and priority, replicas
// included; one that is old, and one that no engine serves, does not count.
func TestAssembleDemand(t *testing.T) {
	m := route.ClassKey{Model: "m"}
	old := told("g4", "gone", 1, route.DemandRow{Class: m, Rate: 7})
	old.At = time.Unix(900, 0)
	in := inputsOf(t, map[string][]string{"a": {"m"}, "b": {"m", "n"}},
		told("g1", "here", 1, route.DemandRow{Class: m, Priority: 1, Rate: 3, Prompt: 1000, Cached: 600, Output: 100}),
		told("g2", "here", 2, route.DemandRow{Class: m, Priority: 1, Rate: 2, Prompt: 1000, Cached: 600, Output: 100}),
		told("g3", "there", 1, route.DemandRow{Class: m, Priority: 0, Rate: 5, Prompt: 2000, Cached: 0, Output: 300},
			route.DemandRow{Class: route.ClassKey{Model: "unknown"}, Rate: 1}), old)
	s := Assemble(in)
	if len(s.Sources) != 2 || s.Sources[0] != "here" || s.Sources[1] != "there" {
		t.Fatalf("sources %v", s.Sources)
	}
	want := []struct {
		source int
		model  string
		rate   [3]float64
	}{{0, "m", [3]float64{0, 7, 0}}, {0, "n", [3]float64{}}, {1, "m", [3]float64{5, 0, 0}}}
	if len(s.Rows) != len(want) {
		t.Fatalf("rows %+v", s.Rows)
	}
	for i, w := range want {
		if r := s.Rows[i]; r.Source != w.source || r.Class.Model != w.model || r.Rate != w.rate {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
	}
	// 12 requests a second of mean work 1, the heavier ones with more.
	if here, there := s.Rows[0].Work, s.Rows[2].Work; math.Abs(7*here+5*there-12) > 1e-9 || !(there > 2*here) {
		t.Errorf("work %v here, %v there", here, there)
	}
}

// Round trips: measured ones in whole ms, the least of a source's gateways;
// an engine's cluster stands in for it, and then a guess by rule.
func TestAssembleRoundTrips(t *testing.T) {
	f := engine.NewFleet()
	if err := f.Apply([]engine.Config{
		{Name: "a", URL: "http://127.0.0.1:1", Cluster: "here", Models: []string{"m"}},
		{Name: "b", URL: "http://127.0.0.1:1", Cluster: "here", Models: []string{"m"}},
		{Name: "c", URL: "http://127.0.0.1:1", Cluster: "far", Models: []string{"m"}},
		{Name: "d", URL: "http://127.0.0.1:1", Cluster: "further", Models: []string{"m"}}}); err != nil {
		t.Fatal(err)
	}
	seen := func(gateway string, a, c float64) *route.Demand {
		d := told(gateway, "here", 1)
		d.Engines = []route.Sighting{{Engine: "a", RTT: a, Factor: 1}, {Engine: "c", RTT: c, Factor: 1}, {Engine: "x", RTT: 1}}
		return d
	}
	in := &Inputs{At: time.Unix(1000, 0), Source: "here", Demands: []*route.Demand{seen("g1", 0.3, math.NaN()), seen("g2", 2.6, 81.7)}}
	for _, e := range f.Set().Engines {
		in.Engines = append(in.Engines, viewOf(e))
	}
	in.Network = (&NetworkConfig{RTT: map[string]map[string]float64{"here": {"further": 33.3}, "there": {"here": 7}}}).between
	if s := Assemble(in); s.RTT[0][0] != 0 || s.RTT[0][1] != 0 || s.RTT[0][2] != 82 || s.RTT[0][3] != 33.3 || s.Guessed != 0 {
		t.Errorf("round trips %v, %d guessed", s.RTT, s.Guessed)
	}
	// What nobody knows is as far as the farthest that is known.
	in.Network = nil
	if s := Assemble(in); s.RTT[0][3] != 82 || s.Guessed != 1 {
		t.Errorf("round trips %v, %d guessed", s.RTT, s.Guessed)
	}
	in.Demands = nil
	if s := Assemble(in); s.RTT[0][0] != nearRTT || s.RTT[0][3] != farRTT || s.Guessed != 4 {
		t.Errorf("round trips of nobody's knowledge: %v, %d guessed", s.RTT, s.Guessed)
	}
	// A source's own cluster is left for one that is nearer by a millisecond.
	for _, c := range []struct{ own, far, want float64 }{{0.7, 0.3, 0}, {1.4, 0.6, 1}, {1.4, 0.3, 1}, {40.9, 40.2, 40}, {42.1, 40.2, 42}} {
		in.Demands = []*route.Demand{seen("g1", c.own, c.far)}
		if s := Assemble(in); s.RTT[0][0] != c.want || s.RTT[0][1] != c.want || s.RTT[0][2] != math.Round(c.far) {
			t.Errorf("here at %v ms and far at %v: round trips %v", c.own, c.far, s.RTT)
		}
	}
	// Engines of one cluster are equal but for whole milliseconds.
	d := told("g1", "here", 1)
	d.Engines = []route.Sighting{{Engine: "a", RTT: 10.4}, {Engine: "b", RTT: 11.3}, {Engine: "c", RTT: 20}, {Engine: "d", RTT: 22.6}}
	in.Demands = []*route.Demand{d}
	for j := range in.Engines {
		in.Engines[j].Cluster = map[string]string{"a": "here", "b": "here"}[in.Engines[j].Name]
	}
	if s := Assemble(in); !slices.Equal(s.RTT[0], []float64{10, 10, 20, 22}) {
		t.Errorf("round trips %v", s.RTT)
	}
}

// Speeds make capacities; an engine that nobody has learned of is taken for a
// typical one and is not calibrated; penalties lower the capacity.
func TestAssembleCalibrates(t *testing.T) {
	d := told("g1", "here", 1, route.DemandRow{Class: route.ClassKey{Model: "m"}, Priority: 1, Rate: 3, Prompt: 1000, Cached: 600, Output: 100})
	speed := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 100}
	slow := speed
	slow.Step, slow.PerSeq, slow.PerToken = 20, 0.7, 0.12
	d.Engines = []route.Sighting{{Engine: "a", RTT: 1, Factor: 1, Speed: speed}, {Engine: "b", RTT: 1, Factor: 1, Speed: slow}, {Engine: "c", RTT: 1, Factor: 1},
		{Engine: "d", RTT: 1, Factor: 0.5, Speed: speed}}
	s := Assemble(inputsOf(t, map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"m"}, "d": {"m"}}, d))
	a, b, c, half := s.Engines[0], s.Engines[1], s.Engines[2], s.Engines[3]
	if !a.Calibrated || !b.Calibrated || c.Calibrated || !(c.Capacity > 0) {
		t.Errorf("calibrated %v %v %v, capacity of c %v", a.Calibrated, b.Calibrated, c.Calibrated, c.Capacity)
	}
	if math.Abs(a.Capacity/b.Capacity-2) > 1e-6 || math.Abs(half.Capacity-a.Capacity/2) > 1e-9 {
		t.Errorf("capacities %v, %v of half the speed, %v with half of it left", a.Capacity, b.Capacity, half.Capacity)
	}
	if got, want := s.Rows[0].Cache, 600*0.06; math.Abs(got-want) > 20 {
		t.Errorf("a move costs %v ms, want about %v", got, want)
	}
	if p := decideOptimal(s, solveOnce); p.Results[Solved] != 1 || len(p.Plan.Uncalibrated) != 1 {
		t.Errorf("results %v, uncalibrated %v", p.Results, p.Plan.Uncalibrated)
	}
}

// What is learned of equal engines differs by chance, and makes no difference.
func TestAssembleLikensEngines(t *testing.T) {
	d := told("g1", "here", 1, route.DemandRow{Class: route.ClassKey{Model: "m"}, Priority: 1, Rate: 3, Prompt: 1000, Cached: 600, Output: 100})
	for name, speed := range map[string]float64{"a": 1, "b": 1.04, "c": 0.96, "d": 0.5} {
		d.Engines = append(d.Engines, route.Sighting{Engine: name, RTT: 1, Factor: 1,
			Speed: route.Speed{Step: 10 / speed, PerSeq: 0.35 / speed, PerToken: 0.06 / speed, Slots: 48, Answers: 100}})
	}
	e := Assemble(inputsOf(t, map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"m"}, "d": {"m"}}, d)).Engines
	if e[0].Capacity != e[1].Capacity || e[0].Capacity != e[2].Capacity || e[0].Curve.Zero() != e[1].Curve.Zero() || e[3].Capacity > 0.6*e[0].Capacity {
		t.Errorf("capacities %v %v %v %v", e[0].Capacity, e[1].Capacity, e[2].Capacity, e[3].Capacity)
	}
}
