package balancer

import (
	"fmt"
	"testing"

	"penstock/balancer/problem"
	"penstock/route"
)

// BenchmarkPlan is a whole decision of the optimal policy, from the situation
// to the plan, warm: 20 sources, engines in 20 clusters.
func BenchmarkPlan(b *testing.B) {
	for _, engines := range []int{10, 200, 2000} {
		b.Run(fmt.Sprintf("%d engines", engines), func(b *testing.B) {
			s := &Situation{}
			for i := range 20 {
				s.Sources = append(s.Sources, fmt.Sprintf("s%02d", i))
			}
			var all []int
			for j := range engines {
				all = append(all, j)
				capacity := 20 + float64(j%7)
				s.Engines = append(s.Engines, EngineView{Name: fmt.Sprintf("e%05d", j), Cluster: s.Sources[j%20], Ready: true, Slots: 64,
					Capacity: capacity, Calibrated: true, Curve: problem.Latency{Slope: 100, Limit: capacity}})
			}
			for i := range s.Sources {
				trips := make([]float64, engines)
				for j := range trips {
					trips[j] = 1 + 7*float64((i+20-j%20)%20)
				}
				s.RTT = append(s.RTT, trips)
				s.Rows = append(s.Rows, Row{Source: i, Class: route.ClassKey{Model: "m"}, DistanceWeight: 1, Work: 1,
					Rate: [3]float64{0, float64(engines) * (0.5 + 0.05*float64(i%10)), 0}, Candidates: all})
			}
			s.Last = decideOptimal(s, solveOnce).Plan
			if err := check(s, s.Last); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				finish(s, decideOptimal(s, solveOnce).Plan)
			}
		})
	}
}
