package balancer

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"penstock/route"
)

// planned is what a plan has for one source, by class.
type planned map[route.ClassKey]*route.PlanRow

func plannedRows(p *route.Plan, source string) planned {
	if p == nil {
		return nil
	}
	rows := make(planned)
	for i := range p.Rows {
		if p.Rows[i].Source == source {
			rows[p.Rows[i].Class] = &p.Rows[i]
		}
	}
	return rows
}

// least is the weight of an engine that takes traffic and that the plan gives
// none: no slot and no draw leads to it, but it is there when all others are
// full.
const least = 1e-9

// weigh sets the weights of a class's candidates to the plan's, over those
// that take traffic. Where the plan knows none of them the weights stay.
func (rows planned) weigh(key route.ClassKey, cands []route.Candidate) {
	row := rows[key]
	if row == nil {
		return
	}
	given := make(map[string]float64, len(row.Weights))
	for _, w := range row.Weights {
		given[w.Engine] = w.Weight
	}
	sum := 0.0
	for i := range cands {
		if takes(&cands[i]) {
			sum += given[cands[i].Engine.Name]
		}
	}
	if !(sum > 0) {
		return
	}
	for i := range cands {
		if c := &cands[i]; takes(c) {
			c.Weight = max(given[c.Engine.Name]/sum, least)
		}
	}
}

// shed is what the plan refuses of a class, by priority.
func (rows planned) shed(key route.ClassKey) [route.Priorities]float64 {
	if row := rows[key]; row != nil {
		return row.Shed
	}
	return [route.Priorities]float64{}
}

// takes reports whether a candidate takes traffic, whatever a plan says.
func takes(c *route.Candidate) bool {
	return c.Live.Planned() && (c.Engine.Capacity == nil || *c.Engine.Capacity > 0)
}

// share sets the shares of a component's engines to what the source's requests
// need there, by Little's law. An engine that the plan gives none has no share,
// and so only its cap: the conversations that it holds may end there. Where
// nothing is planned on the component they stay.
func (rows planned) share(cands []route.Candidate) (total float64) {
	inFlight, sum := make(map[string]float64), 0.0
	for _, row := range rows {
		for _, w := range row.Weights {
			inFlight[w.Engine] += w.InFlight
		}
	}
	for i := range cands {
		if takes(&cands[i]) {
			sum += inFlight[cands[i].Engine.Name]
		}
	}
	if !(sum > 0) {
		return 0
	}
	for i := range cands {
		if c := &cands[i]; takes(c) {
			c.Share = inFlight[c.Engine.Name] / sum
		}
	}
	return sum
}

// prices are what a plan says of engines beyond the weights, by name.
type prices struct {
	cost map[string]route.Cost
	used map[string]bool
}

// pricesOf is nil where the plan knows no engine's cost.
func pricesOf(p *route.Plan) *prices {
	if p == nil || p.Rule != route.RulePlanned || !slices.ContainsFunc(p.Engines, func(e route.PlanEngine) bool { return e.Cost.Known() }) {
		return nil
	}
	s := &prices{cost: alikeCosts(p.Engines), used: make(map[string]bool, len(p.Engines))}
	for i := range p.Engines {
		e := &p.Engines[i]
		s.used[e.Name] = p.Policy == Optimal.String() && e.Load > leastLoad*e.Capacity
	}
	return s
}

// set sets what one more request costs on each candidate, where it is known of
// all that take traffic.
func (s *prices) set(cands []route.Candidate, was *route.Class) {
	if s == nil {
		return
	}
	for i := range cands {
		c := &cands[i]
		c.Used = s.used[c.Engine.Name]
		if c.Cost = s.cost[c.Engine.Name]; !c.Cost.Known() && takes(c) {
			for k := range cands {
				cands[k].Cost = route.Cost{}
			}
			return
		}
		c.Cost.Alone += float32(c.Engine.RoundTrip().Seconds() * 1000)
		if was != nil {
			c.Cost = settled(c.Cost, was.Pool, c.Live.ID)
		}
	}
}

// leastLoad is the part of an engine's capacity from which on the plan uses it.
const leastLoad = 1e-3

// alikeCost is by what factor engines may differ in what an answer costs them
// when idle and still be compared by what is there alone. Learned speeds of
// equal engines differ by that much where one was watched in a busy moment; an
// engine that gets nothing new for it would never show that it is over.
const alikeCost = 1.25

// alikeCosts is what the plan says of each engine, the mean of its like where
// there are several. Slots are everyone's own.
func alikeCosts(engines []route.PlanEngine) map[string]route.Cost {
	costs := make(map[string]route.Cost, len(engines))
	var known []route.PlanEngine
	for i := range engines {
		if costs[engines[i].Name] = engines[i].Cost; engines[i].Cost.Known() {
			known = append(known, engines[i])
		}
	}
	slices.SortFunc(known, func(a, b route.PlanEngine) int {
		return cmp.Or(cmp.Compare(a.Cost.Alone, b.Cost.Alone), strings.Compare(a.Name, b.Name))
	})
	for len(known) > 0 {
		n, mean := 0, route.Cost{}
		for ; n < len(known) && known[n].Cost.Alone <= alikeCost*known[0].Cost.Alone; n++ {
			c := &known[n].Cost
			mean.Alone, mean.PerSeq, mean.PerToken = mean.Alone+c.Alone, mean.PerSeq+c.PerSeq, mean.PerToken+c.PerToken
		}
		for _, e := range known[:n] {
			m := float32(n)
			costs[e.Name] = route.Cost{Alone: mean.Alone / m, PerSeq: mean.PerSeq / m, PerToken: mean.PerToken / m, Slots: e.Cost.Slots}
		}
		known = known[n:]
	}
	return costs
}

// settled is the cost of the table before where that is about the same: a pool
// is not to be made anew for what a round trip differs by.
func settled(now route.Cost, was *route.Pool, id uint16) route.Cost {
	i := was.ByID(id)
	if i == route.None {
		return now
	}
	old := was.Candidates[i].Cost
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= sameCost*float64(b) }
	if near(now.Alone, old.Alone) && near(now.PerSeq, old.PerSeq) && near(now.PerToken, old.PerToken) && near(now.Slots, old.Slots) {
		return old
	}
	return now
}

// sameCost is by what part a cost may be another without a new table.
const sameCost = 0.05
