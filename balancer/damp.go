package balancer

import (
	"math"

	"penstock/balancer/problem"
	"penstock/route"
)

const (
	// SlotBudget is the share of a source's conversations that may move in one
	// cycle: total variation of its weights.
	SlotBudget = 0.05
	// The weights in use stay while they cost no more than this beyond the
	// solution's, relatively: noise of the demand moves no conversation.
	deadCost = 2e-3
	// A stream whose weights would change by less, in sum and for every engine,
	// keeps them too.
	deadAll    = 0.005
	deadEngine = 0.05  // of the engine's own weight
	deadLittle = 0.002 // or this much of the stream
	// Equal engines keep their split where each would change by less.
	deadInner = 0.02
	// Where they differ by more than unevenLoad of their mean load, for little as
	// that may cost now, each goes evenPart of the way to it in a cycle.
	unevenLoad = 0.2
	evenPart   = 0.02
)

// damp is how far the weights in use go towards the solution's in one cycle:
// no further than the budget, and not at all for little. It goes all the way
// where the weights in use would leave an engine above its effective capacity,
// and where they were only guessed. What engines have that joined or left is
// not counted.
func (r *routing) damp(s *Situation, proof *Proof, target [][]problem.Share, shed [][route.Priorities]float64) [][]problem.Share {
	from, weights := make([][]problem.Share, len(target)), make([][]problem.Share, len(target))
	for i := range r.streams {
		if f := &r.streams[i]; f.cold() || len(target[i]) == 0 {
			from[i] = target[i]
		} else {
			from[i] = r.base(s, f, r.evened(f, target[i]))
			target[i] = r.evened(f, target[i])
		}
	}
	if !r.fits(from, shed) {
		return target
	}
	if r.cost(proof, from, shed) <= deadCost {
		return r.evening(from, shed)
	}
	least := 1.0
	for i := range target {
		part := step(from[i], target[i])
		if part > 0 {
			least = min(least, part)
		}
		weights[i] = between(from[i], target[i], part)
	}
	if r.fits(weights, shed) {
		return weights
	}
	// Streams that go different ways may meet on an engine; with one step for
	// all, loads lie between two that fit.
	for i := range target {
		weights[i] = between(from[i], target[i], least)
	}
	return weights
}

// base is where a stream's step begins: the weights in use, with engines that
// left given to those which the solution gives more, and engines that joined
// at the solution's weight.
func (r *routing) base(s *Situation, f *stream, target []problem.Share) []problem.Share {
	wanted := r.dense(target)
	base := make([]float64, len(r.engines))
	held, joined, more := 0.0, 0.0, 0.0
	for _, w := range r.lastShares(f) {
		if r.problem.Engines[w.Engine].Capacity > 0 {
			base[w.Engine] = w.Weight
			held += w.Weight
		}
	}
	for at, j := range r.engines {
		if wanted[at] > 0 && s.joined(j) {
			joined += wanted[at]
		}
	}
	if held <= 0 {
		return target
	}
	for at := range base {
		base[at] *= 1 - joined
	}
	lost := (1 - held) * (1 - joined)
	for at, j := range r.engines {
		if s.joined(j) {
			base[at] = wanted[at]
		} else {
			more += max(0, wanted[at]-base[at])
		}
	}
	for at, j := range r.engines {
		if !s.joined(j) && more > 0 && lost > 0 {
			base[at] += lost * max(0, wanted[at]-base[at]) / more
		}
	}
	return sparse(base)
}

func (r *routing) dense(shares []problem.Share) []float64 {
	v := make([]float64, len(r.engines))
	for _, w := range shares {
		v[w.Engine] = w.Weight
	}
	return v
}

// sparse lists what is above 0, as shares of the sum.
func sparse(v []float64) []problem.Share {
	sum := 0.0
	for _, w := range v {
		sum += w
	}
	var list []problem.Share
	for j, w := range v {
		if w > 0 {
			list = append(list, problem.Share{Engine: j, Weight: w / sum})
		}
	}
	return list
}

// step is the part of the way that a stream goes: 0 within the dead band, else
// as far as the budget allows.
func step(from, to []problem.Share) float64 {
	total, near := 0.0, true
	eachPair(from, to, func(was, now float64) {
		total += max(0, now-was)
		near = near && math.Abs(now-was) <= max(deadEngine*was, deadLittle)
	})
	switch {
	case total <= deadAll && near:
		return 0
	case total <= SlotBudget:
		return 1
	}
	return SlotBudget / total
}

// eachPair walks two lists of shares, both by engine.
func eachPair(a, b []problem.Share, do func(a, b float64)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Engine < b[0].Engine:
			do(a[0].Weight, 0)
			a = a[1:]
		case len(a) == 0 || b[0].Engine < a[0].Engine:
			do(0, b[0].Weight)
			b = b[1:]
		default:
			do(a[0].Weight, b[0].Weight)
			a, b = a[1:], b[1:]
		}
	}
}

// between is the part of the way from one list of shares to another.
func between(from, to []problem.Share, part float64) []problem.Share {
	switch part {
	case 0:
		return from
	case 1:
		return to
	}
	var list []problem.Share
	i, k := 0, 0
	for i < len(from) || k < len(to) {
		switch {
		case k == len(to) || i < len(from) && from[i].Engine < to[k].Engine:
			list = append(list, problem.Share{Engine: from[i].Engine, Weight: from[i].Weight * (1 - part)})
			i++
		case i == len(from) || to[k].Engine < from[i].Engine:
			list = append(list, problem.Share{Engine: to[k].Engine, Weight: to[k].Weight * part})
			k++
		default:
			list = append(list, problem.Share{Engine: to[k].Engine, Weight: from[i].Weight + part*(to[k].Weight-from[i].Weight)})
			i, k = i+1, k+1
		}
	}
	return list
}

// fits reports whether no engine is above its effective capacity.
func (r *routing) fits(weights [][]problem.Share, shed [][route.Priorities]float64) bool {
	for j, y := range r.loads(weights, shed) {
		if y > r.problem.Engines[j].Capacity*(1+1e-9) {
			return false
		}
	}
	return true
}
