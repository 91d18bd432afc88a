package experiments

import (
	"math"
	"math/rand/v2"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

// The fluid that A4 controls. Each engine holds n requests, of which it
// finishes y(n) a second: the rate at which n = y T(y), so that a constant load
// settles at its latency, and a load beyond the limit fills it without end.

// fluidEngine is one engine of the fluid.
type fluidEngine struct {
	name, cluster string
	curve         problem.Latency // ms at requests/s
	slots         float64
	out           bool
	n             float64 // requests in it
}

// rate is y(n): the smaller root of a y^2 - y (n + a Y + b Y) + n Y = 0, with
// base a and slope b in seconds and the limit Y.
func (e *fluidEngine) rate() float64 {
	a, b, most := e.curve.Base/1000, e.curve.Slope/1000, e.curve.Limit
	half := (e.n + (a+b)*most) / 2
	return e.n * most / (half + math.Sqrt(half*half-a*e.n*most))
}

// latency is what a request takes there now, in ms.
func (e *fluidEngine) latency() float64 {
	if e.n <= 0 {
		return e.curve.Zero()
	}
	return 1000 * e.n / e.rate()
}

// flow lets arrivals come for dt seconds.
func (e *fluidEngine) flow(arrivals, dt float64) { e.n = max(0, e.n+(arrivals-e.rate())*dt) }

// fluid is a fleet with demand at its sources.
type fluid struct {
	sources []string
	engines []fluidEngine
	rtt     [][]float64 // ms by source and engine
	share   []float64   // of the demand, by source
	total   float64     // effective capacity with all engines in
}

// carries is what an engine may be given.
func (e *fluidEngine) carries() float64 {
	if e.out {
		return 0
	}
	return effective * e.curve.Limit
}

// newFluid makes so many clusters of so many engines with a source in each.
func newFluid(seed uint64, clusters, each int) *fluid {
	dice := rand.New(rand.NewPCG(seed, 0xa4))
	f := &fluid{}
	for k := range clusters {
		name := string(rune('A' + k))
		f.sources = append(f.sources, name)
		f.share = append(f.share, math.Exp(0.4*dice.NormFloat64()))
		for i := range each {
			limit := 20 * math.Exp(0.5*dice.NormFloat64())
			e := fluidEngine{name: name + string(rune('1'+i)), cluster: name,
				curve: problem.Latency{Base: 300 + 400*dice.Float64(), Slope: 500 + 1000*dice.Float64(), Limit: limit}}
			e.slots = math.Ceil(limit / 1000 * (e.curve.Base + e.curve.Slope/(1-effective)))
			f.engines = append(f.engines, e)
		}
	}
	normalise(f.share)
	for range f.sources {
		f.rtt = append(f.rtt, make([]float64, len(f.engines)))
	}
	for a := range clusters {
		for b := a; b < clusters; b++ {
			ms := 1.0
			if a != b {
				ms = 20 + 180*dice.Float64()
			}
			for i := range each {
				f.rtt[a][b*each+i], f.rtt[b][a*each+i] = ms, ms
			}
		}
	}
	f.total = f.carrying()
	return f
}

// evened makes all engines equal: one of five is then 20 % of the capacity.
func (f *fluid) evened() *fluid {
	for j := range f.engines {
		f.engines[j].curve, f.engines[j].slots = f.engines[0].curve, f.engines[0].slots
	}
	f.total = f.carrying()
	return f
}

func (f *fluid) carrying() float64 {
	sum := 0.0
	for j := range f.engines {
		sum += f.engines[j].carries()
	}
	return sum
}

// mean is the latency of what arrives now, in ms: network, and the engines as
// they are. flows is requests/s by source and engine.
func (f *fluid) mean(flows plan) float64 {
	cost, all := 0.0, 0.0
	for i := range flows {
		for j, y := range flows[i] {
			if y > 0 {
				cost += y * (f.rtt[i][j] + f.engines[j].latency())
				all += y
			}
		}
	}
	return cost / all
}

// optimum is the least mean latency in ms that constant weights can have at a
// demand.
func (f *fluid) optimum(s *solve.Solver, demand float64) float64 {
	p := &problem.Problem{Sources: f.sources, RTT: f.rtt, ShedPrice: [problem.Priorities]float64{1e9, 1e9, 1e9},
		Classes: []problem.Class{{Name: "m", Priority: problem.Standard, DistanceWeight: 1, Work: 1, All: true}}}
	for j := range f.engines {
		e := &f.engines[j]
		p.Engines = append(p.Engines, problem.Engine{Name: e.name, Cluster: e.cluster, Place: j, Capacity: e.carries(), Latency: e.curve})
	}
	for i := range f.sources {
		p.Demand = append(p.Demand, problem.Demand{Source: i, Rate: demand * f.share[i]})
	}
	return s.Solve(p, solve.Interior).Certificate.Objective / demand
}
