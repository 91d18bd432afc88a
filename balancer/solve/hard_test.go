package solve

import (
	"math/rand/v2"
	"testing"

	"penstock/balancer/problem"
)

// Sizes and edges that random problems seldom reach.
func TestHardProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		sh   shape
	}{
		{"200 sources", shape{sources: 200, engines: 400, clusters: 50, utilisation: 0.9}},
		{"200 sources, every kind of engine", shape{sources: 200, engines: 400, clusters: 50, utilisation: 0.95, points: 0.3, flat: 0.1, capped: 0.3}},
		{"round trips of their own, 50 x 500", shape{sources: 50, engines: 500, clusters: 20, utilisation: 0.95, jitter: true}},
		{"round trips of their own, 50 x 500, every kind of engine", shape{sources: 50, engines: 500, clusters: 20, utilisation: 0.99, jitter: true, points: 0.3, flat: 0.1, capped: 0.3}},
		{"round trips of their own, overload", shape{sources: 50, engines: 500, clusters: 20, utilisation: 1.3, jitter: true, classes: 3}},
		{"rho 0.9999", shape{sources: 20, engines: 100, clusters: 20, utilisation: 0.9999, shedPrice: 1e12}},
		{"rho 0.99999", shape{sources: 10, engines: 50, clusters: 10, utilisation: 0.99999, shedPrice: 1e14}},
		{"rho 0.9999, round trips of their own", shape{sources: 20, engines: 200, clusters: 10, utilisation: 0.9999, shedPrice: 1e12, jitter: true}},
		{"overload 10", shape{sources: 20, engines: 100, clusters: 20, utilisation: 10, classes: 3}},
		{"kept flow on every engine", shape{sources: 20, engines: 200, clusters: 20, utilisation: 0.9, previous: 5}},
		{"kept flow on copies", shape{sources: 20, engines: 200, clusters: 20, utilisation: 0.9, previous: 5, equal: true}},
		{"only points", shape{sources: 50, engines: 200, clusters: 20, utilisation: 0.9, points: 1}},
		{"only flat, whole numbers", shape{sources: 50, engines: 200, clusters: 20, utilisation: 0.9, flat: 1, whole: true}},
		{"slopes over seven decades", shape{sources: 20, engines: 100, clusters: 20, utilisation: 0.95, slopes: 7}},
		{"twelve decades of demand and capacity", shape{sources: 20, engines: 100, clusters: 20, utilisation: 0.9, decades: 12}},
		{"shed price below every latency", shape{sources: 5, engines: 20, clusters: 5, utilisation: 0.5, shedPrice: 1e-3}},
		{"a thousand rows", shape{sources: 250, engines: 60, clusters: 12, utilisation: 0.9, classes: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Solver
			p := generate(rand.New(rand.NewPCG(7, 7)), c.sh)
			for _, method := range []Method{Auto, Gradient} {
				r := s.Solve(p, method)
				proved := check(t, p, r, Enough)
				t.Logf("%v: gap %.1e, proved %.1e, %d iterations, %d pivots", r.Method, r.Certificate.Gap,
					(proved.objective-proved.bound)/proved.objective, r.Iterations, r.Pivots)
			}
		})
	}
}

// Problems without anything, and with nothing to choose.
func TestEmptyProblems(t *testing.T) {
	flat := problem.Latency{Base: 10, Limit: 5}
	engine := problem.Engine{Name: "a", Capacity: 5, Latency: flat}
	class := problem.Class{Name: "c", Priority: problem.Standard, DistanceWeight: 1, Work: 1, All: true}
	base := problem.Problem{Sources: []string{"A"}, ShedPrice: [3]float64{1e6, 3e5, 1e5}, ShedCurvature: 0.5}
	with := func(edit func(*problem.Problem)) *problem.Problem {
		p := base
		p.Engines, p.Classes, p.RTT = []problem.Engine{engine}, []problem.Class{class}, [][]float64{{1}}
		p.Demand = []problem.Demand{{Rate: 3}}
		edit(&p)
		return &p
	}
	for name, c := range map[string]struct {
		p    *problem.Problem
		want float64
	}{
		"nothing":              {&problem.Problem{Sources: []string{"A"}, RTT: [][]float64{{}}}, 0},
		"no demand":            {with(func(p *problem.Problem) { p.Demand = nil }), 0},
		"no engines":           {with(func(p *problem.Problem) { p.Engines, p.RTT = nil, [][]float64{{}} }), 3 * 3e5 * 1.25},
		"no engine allowed":    {with(func(p *problem.Problem) { p.Classes[0].All = false }), 3 * 3e5 * 1.25},
		"no capacity":          {with(func(p *problem.Problem) { p.Engines[0].Capacity = 0 }), 3 * 3e5 * 1.25},
		"one engine":           {with(func(*problem.Problem) {}), 3 * 11},
		"exactly the capacity": {with(func(p *problem.Problem) { p.Demand[0].Rate = 5 }), 5 * 11},
		"nothing costs":        {with(func(p *problem.Problem) { p.Engines[0].Latency.Base, p.RTT = 0, [][]float64{{0}} }), 0},
		"shedding is free":     {with(func(p *problem.Problem) { p.ShedPrice = [3]float64{} }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s Solver
			for _, method := range all {
				r := s.Solve(c.p, method)
				check(t, c.p, r, 1e-9)
				if got := r.Certificate.Objective; got < c.want*(1-1e-12) || got > c.want*(1+1e-12)+1e-12 {
					t.Errorf("%v: objective %v, want %v", method, got, c.want)
				}
			}
		})
	}
}
