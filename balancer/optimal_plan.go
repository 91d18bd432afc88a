package balancer

import (
	"math"

	"penstock/balancer/problem"
	"penstock/route"
)

// take makes the rows of a component out of its solution.
func (d *Decision) take(s *Situation, r *routing, proof *Proof, target [][]problem.Share, shed [][route.Priorities]float64) {
	weights := r.damp(s, proof, target, shed)
	if damped := r.cost(proof, weights, shed); damped > 0 {
		proof.Certificate.Damping = damped
	}
	d.Proofs = append(d.Proofs, proof)
	d.parts = append(d.parts, solvedPart{r, proof})
	bound := true // a guessed capacity refuses nobody
	for _, j := range r.engines {
		bound = bound && (s.capacity(j) <= 0 || s.Engines[j].Calibrated)
	}
	for i := range r.streams {
		f := &r.streams[i]
		if r.room(f) <= 0 {
			continue // no engine takes traffic: another reason than load
		}
		for _, c := range f.rows {
			row := &d.Plan.Rows[c]
			row.Guessed = false
			row.Weights = r.named(weights[i])
			if bound {
				row.Shed = shed[i]
			}
		}
	}
	d.note(s, r)
	for at, j := range r.engines {
		e, of := &d.Plan.Engines[j], &r.problem.Engines[at]
		e.Price = proof.Plan.Price[at]
		if left, _ := of.Latency.Marginal(min(e.Load, of.Capacity)); e.Load >= of.Capacity*(1-1e-9) {
			e.CapacityPrice = max(0, e.Price-left)
		}
	}
}

// room is the capacity that a stream may use at all.
func (r *routing) room(f *stream) float64 {
	sum := 0.0
	for _, j := range f.candidates {
		sum += r.problem.Engines[r.at[j]].Capacity
	}
	return sum
}

func (r *routing) named(weights []problem.Share) []route.PlanWeight {
	list := make([]route.PlanWeight, 0, len(weights))
	for _, w := range weights {
		list = append(list, route.PlanWeight{Engine: r.problem.Engines[w.Engine].Name, Weight: w.Weight})
	}
	return list
}

// merged is what the slot table of each stream can follow: one set of weights
// for all its priorities, of what each is left with, and what each loses.
// Priorities of a stream differ in nothing but their shed price, so that this
// costs nothing but where moves are priced.
func (r *routing) merged(proof *Proof) (weights [][]problem.Share, shed [][route.Priorities]float64) {
	weights, shed = make([][]problem.Share, len(r.streams)), make([][route.Priorities]float64, len(r.streams))
	flow := make([]float64, len(r.engines))
	for i := range r.streams {
		clear(flow)
		total := 0.0
		for c, of := range r.demand {
			if of.stream != i {
				continue
			}
			shed[i][of.priority] = proof.Plan.Shed[c]
			for _, w := range proof.Plan.Row(c) {
				flow[w.Engine] += w.Weight * r.problem.Demand[c].Rate
				total += w.Weight * r.problem.Demand[c].Rate
			}
		}
		if total <= 0 { // all is shed: what is admitted all the same goes by capacity
			for _, j := range r.streams[i].candidates {
				flow[r.at[j]] = r.problem.Engines[r.at[j]].Capacity
				total += r.problem.Engines[r.at[j]].Capacity
			}
		}
		for _, j := range r.streams[i].candidates {
			if at := r.at[j]; flow[at] > 0 {
				weights[i] = append(weights[i], problem.Share{Engine: at, Weight: flow[at] / total})
			}
		}
	}
	return weights, shed
}

// flows is a plan of the problem that follows the streams' weights.
func (r *routing) flows(weights [][]problem.Share, shed [][route.Priorities]float64, price []float64) *problem.Plan {
	p := &problem.Plan{Start: []int{0}, Shed: make([]float64, len(r.demand)), Price: price}
	for c, of := range r.demand {
		z := shed[of.stream][of.priority]
		p.Shed[c] = z
		if z < 1 {
			for _, w := range weights[of.stream] {
				p.Weights = append(p.Weights, problem.Share{Engine: w.Engine, Weight: w.Weight * (1 - z)})
			}
		}
		p.Start = append(p.Start, len(p.Weights))
	}
	return p
}

// certify proves the merged weights where merging changed any: the certificate
// is of what tables follow.
func (p *Proof) certify(r *routing, weights [][]problem.Share, shed [][route.Priorities]float64) {
	if len(r.demand) == len(r.streams) {
		return
	}
	p.Plan = r.flows(weights, shed, p.Plan.Price)
	var k problem.Certifier
	c := k.Certify(&r.problem, p.Plan)
	p.Certificate.Objective, p.Certificate.Bound, p.Certificate.Gap = c.Objective, c.Bound, c.Gap
	p.Marginal = clone(c.Marginal)
}

// cost is what other weights cost beyond the solution's, relatively.
func (r *routing) cost(proof *Proof, weights [][]problem.Share, shed [][route.Priorities]float64) float64 {
	var k problem.Certifier
	c := k.Certify(&r.problem, r.flows(weights, shed, proof.Plan.Price))
	if math.IsInf(c.Objective, 0) || math.IsNaN(c.Objective) {
		return 0
	}
	return (c.Objective - proof.Certificate.Objective) / max(proof.Certificate.Objective, leastObjective)
}

// loads are the engines' loads under weights, in order of the problem.
func (r *routing) loads(weights [][]problem.Share, shed [][route.Priorities]float64) []float64 {
	loads := make([]float64, len(r.engines))
	for i := range r.streams {
		f := &r.streams[i]
		work := 0.0
		for p, rate := range f.rate {
			work += rate * (1 - shed[i][p]) * f.work
		}
		for _, w := range weights[i] {
			loads[w.Engine] += work * w.Weight
		}
	}
	return loads
}
