package solve

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"penstock/balancer/problem"
)

// drawShape draws the kind of a problem: every kind that is in
// testdata/problems, harder ones, and their mixtures.
func drawShape(t *rapid.T) shape {
	pick := func(name string, from ...float64) float64 { return rapid.SampledFrom(from).Draw(t, name) }
	sh := shape{
		sources:     rapid.IntRange(1, 12).Draw(t, "sources"),
		engines:     rapid.IntRange(1, 40).Draw(t, "engines"),
		utilisation: pick("utilisation", 0.1, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 1, 1.0001, 1.05, 1.2, 2, 3, 10),
		rate:        pick("rate", 1, 1e-6, 1e6, 1e-3, 1e3),
		jitter:      rapid.Bool().Draw(t, "own round trips"),
		equal:       rapid.Bool().Draw(t, "equal engines"),
		whole:       rapid.Bool().Draw(t, "whole numbers"),
		noCurvature: rapid.Bool().Draw(t, "linear shed price"),
		curvature:   pick("curvature", 0, 1e-3, 10),
		dead:        pick("engines without capacity", 0, 0, 0.2),
		classes:     rapid.IntRange(1, 4).Draw(t, "classes"),
		shedPrice:   pick("shed price", 0, 0, 10, 1e3, 1e10, 1e12),
		decades:     pick("decades", 0, 0, 3, 6, 12),
		slopes:      pick("decades of slopes", 0, 0, 3, 7),
		previous:    pick("move price", 0, 0, 1, 20, 1000),
	}
	sh.clusters = rapid.IntRange(1, min(sh.engines, 12)).Draw(t, "clusters")
	sh.points = pick("points", 0, 0.3, 1)
	sh.flat = pick("flat", 0, 0.2, 0.5) * (1 - sh.points)
	sh.capped = pick("capped", 0, 0.3, 1) * (1 - sh.points - sh.flat)
	if sh.utilisation == 1 {
		// Demand and capacity that are equal to rounding leave the optimum as
		// uncertain as rounding times the shed price.
		sh.shedPrice = min(sh.shedPrice, 1e8)
	}
	return sh
}

// Whatever is drawn, both methods find a feasible plan, prove it, and agree.
func TestRandomProblems(t *testing.T) {
	var s Solver
	solved, hard := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 5 {
			sh := drawShape(t)
			p := generate(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), sh)
			if err := p.Validate(); err != nil {
				t.Fatalf("the drawn problem is not valid: %v", err)
			}
			var objective [methods]float64
			for _, method := range all {
				r := s.Solve(p, method)
				objective[method] = check(t, p, r, Enough).objective
				if r.Certificate.Gap > 1e-9 {
					hard++
				}
				solved++
			}
			for _, method := range all {
				if math.Abs(objective[method]-objective[Interior]) > Enough*objective[Interior] {
					t.Fatalf("%s: %v comes to %v, interior to %v", p.Name, method, objective[method], objective[Interior])
				}
			}
		}
	})
	t.Logf("%d solutions, %d of them with a gap above 1e-9", solved, hard)
}

// More capacity never costs more, and what a source sees does not depend on the
// order in which engines and rows are named, nor on the unit of time.
func TestSymmetries(t *testing.T) {
	var s Solver
	rapid.Check(t, func(t *rapid.T) {
		sh := drawShape(t)
		sh.utilisation, sh.shedPrice, sh.decades = min(sh.utilisation, 1.2), 0, 0
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		p := generate(r, sh)
		base := s.Solve(p, Auto).Certificate.Objective
		same := func(what string, q *problem.Problem, times float64) {
			c := s.Solve(q, Auto).Certificate
			if math.Abs(c.Objective-times*base) > 1e-8*times*base {
				t.Fatalf("%s: %s: objective %v, want %v", p.Name, what, c.Objective, times*base)
			}
		}
		same("engines renamed", reordered(r, p), 1)

		faster := *p
		faster.Engines = append([]problem.Engine(nil), p.Engines...)
		faster.Demand = append([]problem.Demand(nil), p.Demand...)
		for j := range faster.Engines {
			faster.Engines[j] = scaled(p.Engines[j], 60)
		}
		for c := range faster.Demand {
			faster.Demand[c].Rate *= 60
		}
		same("minutes", &faster, 60)

		more := *p
		more.Engines = append([]problem.Engine(nil), p.Engines...)
		j := r.IntN(len(more.Engines))
		more.Engines[j] = scaled(more.Engines[j], 1.5)
		if c := s.Solve(&more, Auto).Certificate; c.Objective > base*(1+1e-8) {
			t.Fatalf("%s: with more of engine %d: objective %v, before %v", p.Name, j, c.Objective, base)
		}
	})
}

// scaled is so many copies of an engine in one.
func scaled(e problem.Engine, times float64) problem.Engine {
	e.Capacity *= times
	e.Latency.Limit *= times
	e.Latency.Points = append([]problem.Point(nil), e.Latency.Points...)
	for k := range e.Latency.Points {
		e.Latency.Points[k].Load *= times
	}
	return e
}

// reordered is the problem with engines and rows in another order.
func reordered(r *rand.Rand, p *problem.Problem) *problem.Problem {
	q := *p
	to := r.Perm(len(p.Engines))
	q.Engines = make([]problem.Engine, len(p.Engines))
	for j, e := range p.Engines {
		q.Engines[to[j]] = e
	}
	renamed := func(list []int) []int {
		marks := make([]bool, len(p.Engines))
		for _, j := range list {
			marks[to[j]] = true
		}
		var sorted []int
		for j, in := range marks {
			if in {
				sorted = append(sorted, j)
			}
		}
		return sorted
	}
	q.Classes = append([]problem.Class(nil), p.Classes...)
	for k := range q.Classes {
		q.Classes[k].Engines = renamed(p.Classes[k].Engines)
	}
	q.Previous = append([]problem.Previous(nil), p.Previous...)
	for i, row := range p.Previous {
		weight := make([]float64, len(p.Engines))
		for _, w := range row.Weights {
			weight[to[w.Engine]] = w.Weight
		}
		q.Previous[i].Weights = nil
		for j, w := range weight {
			if w > 0 {
				q.Previous[i].Weights = append(q.Previous[i].Weights, problem.Share{Engine: j, Weight: w})
			}
		}
	}
	q.Demand = append([]problem.Demand(nil), p.Demand...)
	r.Shuffle(len(q.Demand), func(a, b int) { q.Demand[a], q.Demand[b] = q.Demand[b], q.Demand[a] })
	return &q
}

// A solver that has solved other problems gives the same answer, bit for bit.
func TestResultsDoNotDependOnThePast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, fresh Solver
		p := generate(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), drawShape(t))
		other := generate(rand.New(rand.NewPCG(1, 1)), drawShape(t))
		method := rapid.SampledFrom(all).Draw(t, "method")
		s.Solve(other, method)
		got, want := s.Solve(p, method), fresh.Solve(p, method)
		if got.Certificate.Objective != want.Certificate.Objective || got.Certificate.Bound != want.Certificate.Bound ||
			got.Iterations != want.Iterations || got.Pivots != want.Pivots {
			t.Fatalf("%s: objective %v, bound %v; fresh %v, %v", p.Name,
				got.Certificate.Objective, got.Certificate.Bound, want.Certificate.Objective, want.Certificate.Bound)
		}
	})
}
