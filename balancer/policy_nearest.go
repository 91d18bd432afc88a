package balancer

import "penstock/route"

// PlanNearest sends all demand of a row to the nearest cluster that has engines
// ready for it, in proportion to their capacities, even beyond them.
func PlanNearest(s *Situation) *route.Plan {
	k := newSketch(s)
	for c := range s.Rows {
		tiers := s.tiers(c)
		if len(tiers) == 0 {
			continue
		}
		for _, i := range tiers[0] {
			k.flow[c][i] = s.capacity(s.Rows[c].Candidates[i])
		}
	}
	return k.plan(Nearest, route.RulePlanned)
}

// PlanWaterfall fills the nearest cluster up to its effective capacity and
// spills the rest to the next one. All rows pour at once: where several want
// more of an engine than it has, each gets the same part of what it wants, and
// what is left of it goes on. A row whose clusters are all full keeps the
// proportions that it has: its engines then go beyond their capacity.
func PlanWaterfall(s *Situation) *route.Plan {
	k := newSketch(s)
	w := waterfall{sketch: k, room: make([]float64, len(s.Engines)), asked: make([]float64, len(s.Engines)),
		left: make([]float64, len(s.Rows)), tiers: make([][][]int, len(s.Rows))}
	for j := range s.Engines {
		w.room[j] = s.effective(j)
	}
	for c := range s.Rows {
		w.tiers[c] = s.tiers(c)
		w.left[c] = k.load[c]
	}
	for w.pour() {
	}
	for c := range s.Rows { // no demand, or too little to tell: where the next request would go
		sum := 0.0
		for _, f := range k.flow[c] {
			sum += f
		}
		if sum <= 0 {
			w.first(c)
		}
	}
	return k.plan(Waterfall, route.RulePlanned)
}

// waterfall is what the pouring keeps between its rounds.
type waterfall struct {
	*sketch
	tiers [][][]int // by row; a row's full clusters are taken off its front
	room  []float64 // by engine
	asked []float64 // by engine, in this round
	left  []float64 // by row
}

// full is the part of a capacity at which rounding counts as full.
const full = 1e-12

// pour is one round: every row with something left asks the nearest cluster
// with room. It reports whether anybody asked. Each round in which somebody
// stays with a rest fills an engine, so they come to an end.
func (w *waterfall) pour() bool {
	clear(w.asked)
	any := false
	for c := range w.left {
		w.eachShare(c, func(j, _ int, part float64) {
			w.asked[j] += part
			any = true
		})
	}
	if !any {
		return false
	}
	for c := range w.left {
		got := 0.0
		w.eachShare(c, func(j, i int, part float64) {
			if w.asked[j] > w.room[j] {
				part *= w.room[j] / w.asked[j]
			}
			w.flow[c][i] += part
			got += part
		})
		if w.left[c] -= got; w.left[c] <= full*w.load[c] {
			w.left[c] = 0
		}
	}
	for j := range w.room {
		if w.room[j] -= w.asked[j]; w.room[j] <= full*w.s.effective(j) {
			w.room[j] = 0
		}
	}
	return true
}

// eachShare splits what row c has left over the engines of its nearest cluster
// with room, in proportion to their room.
func (w *waterfall) eachShare(c int, yield func(j, i int, part float64)) {
	if w.left[c] <= 0 {
		return
	}
	cands := w.s.Rows[c].Candidates
	for len(w.tiers[c]) > 0 {
		sum := 0.0
		for _, i := range w.tiers[c][0] {
			sum += w.room[cands[i]]
		}
		if sum > 0 {
			for _, i := range w.tiers[c][0] {
				if room := w.room[cands[i]]; room > 0 {
					yield(cands[i], i, w.left[c]*(room/sum))
				}
			}
			return
		}
		w.tiers[c] = w.tiers[c][1:]
	}
}

// first puts a row without demand on the nearest cluster with room for a
// request to come, else on the nearest.
func (w *waterfall) first(c int) {
	cands := w.s.Rows[c].Candidates
	tiers := w.s.tiers(c)
	if len(tiers) == 0 {
		return
	}
	to := tiers[0]
	for _, places := range tiers {
		room, capacity := 0.0, 0.0
		for _, i := range places {
			room += w.room[cands[i]]
			capacity += w.s.effective(cands[i])
		}
		if room > someRoom*capacity {
			to = places
			break
		}
	}
	for _, i := range to {
		w.flow[c][i] = w.s.capacity(cands[i])
	}
}

// someRoom is the part of a capacity that is more than what rounding leaves.
const someRoom = 0.01
