package solve

import (
	"math/rand/v2"
	"testing"
)

// A second problem of the same size costs no memory.
func TestSolvingAgainAllocatesNothing(t *testing.T) {
	for _, sh := range []shape{
		{sources: 20, engines: 200, clusters: 24, utilisation: 0.9, points: 0.2, flat: 0.1, capped: 0.2, classes: 3},
		{sources: 20, engines: 60, clusters: 6, utilisation: 0.9, previous: 20},
		{sources: 20, engines: 200, clusters: 24, utilisation: 0.9, jitter: true},
	} {
		var s Solver
		p := generate(rand.New(rand.NewPCG(1, 2)), sh)
		for _, method := range []Method{Auto, Gradient, Interior} {
			s.Solve(p, method)
			if n := testing.AllocsPerRun(5, func() { s.Solve(p, method) }); n > 0 {
				t.Errorf("%v %s: %v allocations", method, p.Name, n)
			}
		}
	}
}
