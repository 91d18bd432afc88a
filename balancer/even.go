package balancer

import (
	"math"
	"slices"

	"penstock/balancer/problem"
	"penstock/route"
)

// Equal engines are those of one place with one latency curve and capacity. The
// solution does not care how a stream is split among them.

// kind is what equal engines have in common.
type kind struct {
	place                        int
	capacity, base, slope, limit float64
	points                       *problem.Point
}

// kinds are the engines that a stream may use, by their kind.
func (r *routing) kinds(f *stream) map[kind][]int {
	kinds := make(map[kind][]int)
	for _, j := range f.candidates {
		e := &r.problem.Engines[r.at[j]]
		if e.Capacity <= 0 {
			continue
		}
		k := kind{place: e.Place, capacity: e.Capacity, base: e.Latency.Base, slope: e.Latency.Slope, limit: e.Latency.Limit}
		if len(e.Latency.Points) > 0 {
			k.points = &e.Latency.Points[0]
		}
		kinds[k] = append(kinds[k], r.at[j])
	}
	return kinds
}

// evened keeps the split among equal engines where it is nearly as it was.
func (r *routing) evened(f *stream, target []problem.Share) []problem.Share {
	was, now := r.dense(r.lastShares(f)), r.dense(target)
	at := make(map[int]int, len(target))
	for i, w := range target {
		at[w.Engine] = i
	}
	out := clone(target)
	for _, members := range r.kinds(f) {
		members = slices.DeleteFunc(members, func(j int) bool { return now[j] <= 0 })
		before, after := 0.0, 0.0
		for _, j := range members {
			before, after = before+was[j], after+now[j]
		}
		if len(members) < 2 || before <= 0 {
			continue
		}
		near := true
		for _, j := range members {
			near = near && was[j] > 0 && math.Abs(now[j]/after-was[j]/before) <= deadInner*was[j]/before
		}
		if !near {
			continue
		}
		for _, j := range members {
			out[at[j]].Weight = after * was[j] / before
		}
	}
	return out
}

// evening lets equal engines that are loaded unequally go some way to their
// mean: what they were given when they seemed unequal does not stay for ever
// for costing little now.
func (r *routing) evening(weights [][]problem.Share, shed [][route.Priorities]float64) [][]problem.Share {
	loads, out := r.loads(weights, shed), clone(weights)
	for i := range r.streams {
		shares := r.dense(weights[i])
		for _, members := range r.kinds(&r.streams[i]) {
			least, most, load, mean := math.Inf(1), 0.0, 0.0, 0.0
			for _, j := range members {
				least, most = min(least, loads[j]), max(most, loads[j])
				load += loads[j] / float64(len(members))
				mean += shares[j] / float64(len(members))
			}
			if most-least <= unevenLoad*load {
				continue
			}
			for _, j := range members {
				shares[j] += evenPart * (mean - shares[j])
			}
			out[i] = sparse(shares)
		}
	}
	if !r.fits(out, shed) {
		return weights
	}
	return out
}
