package balancer

import (
	"cmp"
	"slices"
	"strings"

	"penstock/route"
)

// The policies that solve nothing. Each is a pure function from a Situation to
// a plan; the ones whose idea is a pick rule spread weights by capacity and
// name the rule. The planned shed is the same for all of them (policy_shed.go).

// PlanCapacity gives every engine demand in proportion to its capacity.
func PlanCapacity(s *Situation) *route.Plan {
	return planByCapacity(s, Capacity, route.RulePlanned)
}

// PlanRandom is capacity's weights, and every request drawn by them alone.
func PlanRandom(s *Situation) *route.Plan { return planByCapacity(s, Random, route.RuleRandom) }

// PlanBoundedHash is capacity's weights as hash slots, each engine up to a
// bound of what is in flight.
func PlanBoundedHash(s *Situation) *route.Plan {
	return planByCapacity(s, BoundedHash, route.RuleBoundedHash)
}

// PlanPrefix is PlanBoundedHash with the opening of the prompt as the key.
func PlanPrefix(s *Situation) *route.Plan { return planByCapacity(s, Prefix, route.RulePrefix) }

// PlanRoundRobin has the engines take requests in turn. Its picks look at no
// weights: those are what the planned load is told from.
func PlanRoundRobin(s *Situation) *route.Plan {
	return planEvenly(s, RoundRobin, route.RuleRoundRobin)
}

// PlanLeastRequest sends each request where the fewest are in flight.
func PlanLeastRequest(s *Situation) *route.Plan {
	return planByCapacity(s, LeastRequest, route.RuleLeastRequest)
}

// PlanP2C sends each request to the one of two engines with fewer in flight.
func PlanP2C(s *Situation) *route.Plan { return planByCapacity(s, P2C, route.RuleP2C) }

func planByCapacity(s *Situation, policy Policy, rule route.Rule) *route.Plan {
	k := newSketch(s)
	for c := range s.Rows {
		for i, j := range s.Rows[c].Candidates {
			k.flow[c][i] = s.capacity(j)
		}
	}
	return k.plan(policy, rule)
}

func planEvenly(s *Situation, policy Policy, rule route.Rule) *route.Plan {
	k := newSketch(s)
	for c := range s.Rows {
		for i, j := range s.Rows[c].Candidates {
			if s.capacity(j) > 0 {
				k.flow[c][i] = 1
			}
		}
	}
	return k.plan(policy, rule)
}

// capacity is what engine j may be given now: 0 where it takes nothing.
func (s *Situation) capacity(j int) float64 {
	if e := &s.Engines[j]; e.Ready && e.Capacity > 0 {
		return e.Capacity
	}
	return 0
}

// margin of a capacity is left free by plans: it is a measured mean.
const margin = 0.05

// effective is the capacity that a plan may fill.
func (s *Situation) effective(j int) float64 { return (1 - margin) * s.capacity(j) }

// load is the demand of a row in units of load, less what is shed.
func (r *Row) load(shed [route.Priorities]float64) float64 {
	sum := 0.0
	for p, rate := range r.Rate {
		sum += rate * (1 - shed[p])
	}
	return sum * r.Work
}

// sketch is a plan in the making.
type sketch struct {
	s    *Situation
	shed [][route.Priorities]float64 // by row
	load []float64                   // by row: demand that is not shed
	flow [][]float64                 // by row and place in Candidates, in any unit: weights are made of it
}

func newSketch(s *Situation) *sketch {
	k := &sketch{s: s, shed: plannedShed(s), load: make([]float64, len(s.Rows)), flow: make([][]float64, len(s.Rows))}
	for c := range s.Rows {
		k.load[c] = s.Rows[c].load(k.shed[c])
		k.flow[c] = make([]float64, len(s.Rows[c].Candidates))
	}
	return k
}

// plan makes weights of the flows and adds what follows from them.
func (k *sketch) plan(policy Policy, rule route.Rule) *route.Plan {
	s := k.s
	p := &route.Plan{Policy: policy.String(), Rule: rule, Rows: make([]route.PlanRow, len(s.Rows)), Engines: make([]route.PlanEngine, len(s.Engines))}
	for c := range s.Rows {
		row := &s.Rows[c]
		p.Rows[c] = route.PlanRow{Source: s.Sources[row.Source], Class: row.Class, Shed: k.shed[c]}
		// The largest first divides, so that no sum runs over.
		most, sum := slices.Max(append(k.flow[c], 0)), 0.0
		if most <= 0 {
			continue
		}
		for _, f := range k.flow[c] {
			sum += f / most
		}
		for i, j := range row.Candidates {
			if w := k.flow[c][i] / most / sum; w > 0 {
				p.Rows[c].Weights = append(p.Rows[c].Weights, route.PlanWeight{Engine: s.Engines[j].Name, Weight: w})
			}
		}
	}
	if policy != Feedback { // whose steps are small by themselves
		k.stay(p)
	}
	for j, load := range k.loads(p) {
		p.Engines[j] = s.planned(j, load)
		if e := &s.Engines[j]; e.Ready && !e.Calibrated {
			p.Uncalibrated = append(p.Uncalibrated, e.Name)
		}
	}
	return p
}

// loads is what the plan's weights bring to each engine.
func (k *sketch) loads(p *route.Plan) []float64 {
	index := k.s.byName()
	loads := make([]float64, len(k.s.Engines))
	for c := range p.Rows {
		for _, w := range p.Rows[c].Weights {
			loads[index[w.Engine]] += w.Weight * k.load[c]
		}
	}
	return loads
}

func (s *Situation) byName() map[string]int {
	index := make(map[string]int, len(s.Engines))
	for j := range s.Engines {
		index[s.Engines[j].Name] = j
	}
	return index
}

// staying is the total variation of a row's weights that is not worth a move:
// demand and capacities are measured, and differ a little in every cycle.
const staying = 0.01

// stay gives rows the weights that they had under the same policy where those
// are as good: near to the new ones, on engines that take traffic, and none of
// these beyond its effective capacity for their sake.
func (k *sketch) stay(p *route.Plan) {
	if k.s.Last == nil || k.s.Last.Policy != p.Policy {
		return
	}
	index := k.s.byName()
	type key struct {
		source string
		class  route.ClassKey
	}
	last := make(map[key][]route.PlanWeight, len(k.s.Last.Rows))
	for _, row := range k.s.Last.Rows {
		last[key{row.Source, row.Class}] = row.Weights
	}
	before, wanted := make([][]route.PlanWeight, len(p.Rows)), k.loads(p)
	for c := range p.Rows {
		before[c] = p.Rows[c].Weights
		if was := last[key{p.Rows[c].Source, p.Rows[c].Class}]; k.near(c, was, before[c], index) {
			p.Rows[c].Weights = slices.Clone(was)
		}
	}
	for j, load := range k.loads(p) {
		if load > max(k.s.effective(j), wanted[j])*(1+rounding) {
			for c := range p.Rows {
				p.Rows[c].Weights = before[c]
			}
			return
		}
	}
}

// near reports whether row c may have weights as they were instead of now.
func (k *sketch) near(c int, was, now []route.PlanWeight, index map[string]int) bool {
	given := make(map[string]float64, len(now))
	for _, w := range now {
		given[w.Engine] = w.Weight
	}
	moved := 0.0
	for _, w := range was {
		j, known := index[w.Engine]
		if _, may := slices.BinarySearch(k.s.Rows[c].Candidates, j); !known || !may || k.s.capacity(j) <= 0 {
			return false
		}
		moved += max(0, w.Weight-given[w.Engine])
	}
	return len(was) > 0 && moved < staying
}

// planned is engine j at a load. Policies that look at no capacity can plan
// more than the curve knows a latency for; then all its slots are taken.
func (s *Situation) planned(j int, load float64) route.PlanEngine {
	e := &s.Engines[j]
	p := route.PlanEngine{Name: e.Name, Load: load, Capacity: s.capacity(j), Cost: e.Cost}
	switch {
	case len(e.Curve.Points) == 0 && e.Curve.Zero() <= 0: // no curve
	case load >= e.known():
		if load > 0 && e.Slots > 0 { // as long as that many take in its slots; what waits comes on top
			p.InFlight, p.Latency = e.Slots, 1000*e.Slots/load
		}
	default:
		p.Latency = e.Curve.Zero() + e.Curve.Congestion(load)
		p.InFlight = load * p.Latency / 1000
		if e.Slots > 0 {
			p.InFlight = min(p.InFlight, e.Slots)
		}
	}
	return p
}

// known is the load from which on the curve says nothing.
func (e *EngineView) known() float64 {
	if n := len(e.Curve.Points); n > 0 {
		return e.Curve.Points[n-1].Load
	}
	return e.Curve.Limit
}

// tiers lists a row's candidates that take traffic by cluster, the nearest
// cluster first: it is as far as the nearest of them. Places in Candidates.
func (s *Situation) tiers(c int) [][]int {
	type tier struct {
		cluster  string
		distance float64
		places   []int
	}
	row := &s.Rows[c]
	found := make(map[string]int)
	var tiers []tier
	for i, j := range row.Candidates {
		if s.capacity(j) <= 0 {
			continue
		}
		e := &s.Engines[j]
		n, ok := found[e.Cluster]
		if !ok {
			n = len(tiers)
			found[e.Cluster] = n
			tiers = append(tiers, tier{cluster: e.Cluster, distance: s.RTT[row.Source][j]})
		}
		tiers[n].places = append(tiers[n].places, i)
		tiers[n].distance = min(tiers[n].distance, s.RTT[row.Source][j])
	}
	own := s.Sources[row.Source]
	slices.SortFunc(tiers, func(a, b tier) int {
		if d := cmp.Compare(a.distance, b.distance); d != 0 {
			return d
		}
		switch own {
		case a.cluster:
			return -1
		case b.cluster:
			return 1
		}
		return strings.Compare(a.cluster, b.cluster)
	})
	list := make([][]int, len(tiers))
	for n := range tiers {
		list[n] = tiers[n].places
	}
	return list
}
