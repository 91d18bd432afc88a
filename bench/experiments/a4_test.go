package experiments

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

// An engine of the fluid settles where the curve has its latency, whatever it
// held before.
func TestFluidSettlesOnTheCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := fluidEngine{curve: problem.Latency{Base: rapid.Float64Range(0, 1000).Draw(t, "base"), Slope: rapid.Float64Range(100, 2000).Draw(t, "slope"),
			Limit: rapid.Float64Range(1, 100).Draw(t, "limit")}, n: rapid.Float64Range(0, 500).Draw(t, "n")}
		load := rapid.Float64Range(0.1, 0.9).Draw(t, "rho") * e.curve.Limit
		for range 120_000 { // 5,000 s to drain what it held, then thirty times as long as the slowest takes to settle
			e.flow(load, 0.1)
		}
		want := e.curve.Base + e.curve.Slope/(1-load/e.curve.Limit)
		if math.Abs(e.latency()-want) > 1e-6*want || math.Abs(e.rate()-load) > 1e-6*load {
			t.Fatalf("latency %v, the curve says %v; %v finished of %v", e.latency(), want, e.rate(), load)
		}
	})
}

// The optimum is below what 2,000 random splits have, and near the best.
func TestFluidOptimum(t *testing.T) {
	f := newFluid(5, 1, 3)
	demand := 0.7 * f.total
	best := math.Inf(1)
	for k := range 2000 {
		x := []float64{math.Mod(float64(k)*0.6180339887, 1), math.Mod(float64(k)*0.7548776662, 1), math.Mod(float64(k)*0.5698402910, 1)}
		normalise(x)
		mean := 0.0
		for j, e := range f.engines {
			y := demand * x[j]
			if y >= e.carries() {
				mean = math.Inf(1)
				break
			}
			mean += x[j] * (f.rtt[0][j] + e.curve.Base + e.curve.Slope/(1-y/e.curve.Limit))
		}
		best = min(best, mean)
	}
	got := f.optimum(new(solve.Solver), demand)
	if got > best*(1+1e-9) || best > got*1.02 {
		t.Errorf("optimum %v, the best of 2,000 splits %v", got, best)
	}
}

// The loop tells a controller that rings from one that does not: what
// optimizer.md 7 has of the proportional one.
func TestLoopRings(t *testing.T) {
	c := a4Case{event: a4Stays, a4Shape: a4Shape{1, 3}, utilisation: 0.8, delay: 10}
	if r := runLoop(c, feedbackAt(0.2)(), 1); r.EngineCV < 0.3 || r.Latency < 2 || r.Overload == 0 {
		t.Errorf("gain 0.2 at 0.8: %+v", r)
	}
	if r := runLoop(c, feedbackAt(0.05)(), 1); r.EngineCV > 0.01 || r.Latency > 1.1 || r.Overload > 0 {
		t.Errorf("gain 0.05 at 0.8: %+v", r)
	}
}

// The aims see a policy that misses them.
func TestA4Misses(t *testing.T) {
	r := &a4Result{Rows: []a4Row{
		{Event: a4Stays, Policy: "optimal", EngineCV: 0.02, P99: 1.2, Overload: 3},
		{Event: a4Lost, Policy: "optimal", Feasible: -1, Overshoot: 0.1},
		{Event: a4Stays, Policy: "feedback 0.2", EngineCV: 0.9, P99: 9, Overload: 300},
		{Event: a4Stays, Policy: "optimal", Counted: true, EngineCV: 0.02},
		{Event: a4Rises, Policy: "optimal", Counted: true, Feasible: 4, Overshoot: 0.1},
		{Event: a4Rises, Policy: "optimal", Counted: true, Feasible: 3},
	}}
	if missed := r.missed(); len(missed) != 7 {
		t.Errorf("%d misses: %q", len(missed), missed)
	}
}
