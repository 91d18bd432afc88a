package balancer

import (
	"slices"
	"strings"

	"penstock/route"
)

// What a component does that is not solved: it keeps the weights in use, less
// what is gone, or begins from capacities.

// guess splits every stream of a component by slots: nothing else is known of
// its engines. What was planned from knowledge stays.
func (d *Decision) guess(s *Situation, r *routing) {
	for i := range r.streams {
		if f := &r.streams[i]; f.cold() {
			d.spread(s, f, s.slots)
		}
	}
	d.hold(s, r)
}

// slots is what engine j counts where only its slots are known.
func (s *Situation) slots(j int) float64 {
	if s.capacity(j) <= 0 {
		return 0
	}
	return max(s.Engines[j].Slots, 1)
}

// spread gives the rows of a stream weights in proportion.
func (d *Decision) spread(s *Situation, f *stream, to func(j int) float64) {
	sum := 0.0
	for _, j := range f.candidates {
		sum += to(j)
	}
	if !(sum > 0) {
		return
	}
	var weights []route.PlanWeight
	for _, j := range f.candidates {
		if w := to(j) / sum; w > 0 {
			weights = append(weights, route.PlanWeight{Engine: s.Engines[j].Name, Weight: w})
		}
	}
	for _, c := range f.rows {
		d.Plan.Rows[c].Weights = slices.Clone(weights)
	}
}

// hold keeps the weights in use over the engines that take traffic, for all
// streams that have no weights yet. Engines that joined get their share by
// capacity; what engines had that are gone flows to where there is room. A
// stream without weights in use begins by capacity.
func (d *Decision) hold(s *Situation, r *routing) {
	loads := make(map[int]float64)
	var kept []keptStream
	for i := range r.streams {
		f := &r.streams[i]
		if len(d.Plan.Rows[f.rows[0]].Weights) > 0 {
			continue
		}
		if f.cold() {
			d.spread(s, f, s.capacity)
			continue
		}
		k := s.keep(f)
		for j, w := range k.weight {
			loads[j] += w * k.work
		}
		kept = append(kept, k)
	}
	for _, k := range kept {
		k.pour(s, loads)
		for _, c := range k.of.rows {
			row := &d.Plan.Rows[c]
			row.Guessed = false
			if len(k.weight) > 0 && k.work > 0 {
				row.Shed = k.of.last.Shed
			}
			for _, j := range k.of.candidates {
				if w := k.weight[j]; w > 0 {
					row.Weights = append(row.Weights, route.PlanWeight{Engine: s.Engines[j].Name, Weight: w})
				}
			}
		}
	}
	d.note(s, r)
}

// keptStream is a stream's last weights in the making of its next.
type keptStream struct {
	of     *stream
	weight map[int]float64 // by engine of the situation
	lost   float64         // the share of engines that are gone
	work   float64         // units of load
}

// keep takes over what a stream's engines had.
func (s *Situation) keep(f *stream) keptStream {
	k := keptStream{of: f, weight: make(map[int]float64), work: f.total() * f.work}
	given := make(map[string]float64, len(f.last.Weights))
	for _, w := range f.last.Weights {
		given[w.Engine] = w.Weight
	}
	joined, all, held := 0.0, 0.0, 0.0
	for _, j := range f.candidates {
		if c := s.capacity(j); c > 0 {
			all += c
			if s.joined(j) {
				joined += c
				k.weight[j] = c
			} else {
				k.weight[j] = given[s.Engines[j].Name]
				held += k.weight[j]
			}
		}
	}
	if joined > 0 {
		for j := range k.weight {
			if s.joined(j) {
				k.weight[j] /= all
			} else {
				k.weight[j] *= 1 - joined/all
			}
		}
		held *= 1 - joined/all
	}
	k.lost = max(0, 1-held-joined/max(all, 1e-300))
	if k.lost < 1e-9 {
		k.lost = 0
	}
	return k
}

// pour gives the lost share to engines in proportion to the room that they
// have, to their capacity where nobody has any.
func (k *keptStream) pour(s *Situation, loads map[int]float64) {
	if k.lost == 0 {
		return
	}
	room := func(j int) float64 { return max(0, s.effective(j)-loads[j]) }
	sum := 0.0
	for _, j := range k.of.candidates {
		sum += room(j)
	}
	if sum <= 0 || sum < k.lost*k.work {
		room, sum = s.capacity, 0
		for _, j := range k.of.candidates {
			sum += s.capacity(j)
		}
	}
	if sum <= 0 {
		return
	}
	for _, j := range k.of.candidates {
		if part := k.lost * room(j) / sum; part > 0 {
			k.weight[j] += part
			loads[j] += part * k.work
		}
	}
}

// joined reports whether engine j took no traffic when the last plan was made.
func (s *Situation) joined(j int) bool {
	if s.Last == nil {
		return true
	}
	name := s.Engines[j].Name
	i, ok := slices.BinarySearchFunc(s.Last.Engines, name, func(e route.PlanEngine, name string) int { return strings.Compare(e.Name, name) })
	return !ok || s.Last.Engines[i].Capacity <= 0
}

// note fills in the loads that a component's rows come to.
func (d *Decision) note(s *Situation, r *routing) {
	loads := make(map[string]float64)
	for i := range r.streams {
		for _, c := range r.streams[i].rows {
			work := s.Rows[c].load(d.Plan.Rows[c].Shed)
			for _, w := range d.Plan.Rows[c].Weights {
				loads[w.Engine] += work * w.Weight
			}
		}
	}
	for _, j := range r.engines {
		d.Plan.Engines[j] = s.planned(j, loads[s.Engines[j].Name])
	}
}
