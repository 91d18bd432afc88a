package balancer

import (
	"math"
	"time"

	"penstock/route"
)

const (
	// A plan that nobody has confirmed for trustFor is followed as it is; then its
	// share of the weights falls with trustMemory, and after trustEnd none of it
	// is left (fleet.md 7).
	trustFor    = 10 * time.Second
	trustMemory = time.Minute
	trustEnd    = 10 * time.Minute
	// trustSteps is in how many steps it falls: each moves conversations.
	trustSteps = 20
)

// trust is how much of the weights is the plan's, at its age.
func trust(age time.Duration) float64 {
	switch {
	case age <= trustFor:
		return 1
	case age > trustEnd:
		return 0
	}
	return math.Ceil(trustSteps*math.Exp(-(age-trustFor).Seconds()/trustMemory.Seconds())) / trustSteps
}

// aged is a plan that nobody has confirmed for long: the source's weights go
// over to what this gateway would do by itself, by capacity among the engines
// that are near. What each may have in flight stays as it was planned, since
// others still count on it.
func aged(p *route.Plan, share float64, source string, models map[string]*route.Model) *route.Plan {
	next := *p
	next.Rows = make([]route.PlanRow, len(p.Rows))
	for i := range p.Rows {
		row := p.Rows[i]
		if row.Source == source {
			row.Weights = mix(row.Weights, share, local(source, models[row.Class.Model], row.Class))
			for k := range row.Shed {
				row.Shed[k] *= share
			}
		}
		next.Rows[i] = row
	}
	return &next
}

// mix is share of the one and the rest of the other.
func mix(planned []route.PlanWeight, share float64, local map[string]float64) []route.PlanWeight {
	if len(local) == 0 {
		return planned
	}
	var all []route.PlanWeight
	for _, w := range planned {
		w.Weight = share*w.Weight + (1-share)*local[w.Engine]
		delete(local, w.Engine)
		all = append(all, w)
	}
	for name, w := range local {
		all = append(all, route.PlanWeight{Engine: name, Weight: (1 - share) * w})
	}
	return all
}

// local are the weights by capacity of a class's engines in a cluster, or of
// all where none of it takes traffic.
func local(cluster string, m *route.Model, k route.ClassKey) map[string]float64 {
	if m == nil || int(k.Tier) > len(m.Limits) {
		return nil
	}
	all := route.Candidates(m, k)
	var near []route.Candidate
	for i := range all {
		if all[i].Engine.Cluster == cluster && takes(&all[i]) {
			near = append(near, all[i])
		}
	}
	if len(near) == 0 {
		near = all
	}
	route.Weigh(near)
	weights := make(map[string]float64, len(near))
	for i := range near {
		if near[i].Weight > 0 {
			weights[near[i].Engine.Name] = near[i].Weight
		}
	}
	return weights
}
