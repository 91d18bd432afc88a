package balancer

import "penstock/route"

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
