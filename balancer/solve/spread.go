package solve

import (
	"cmp"
	"math"
	"slices"

	"penstock/balancer/problem"
)

// spread turns the solutions of nets back into a plan for the rows and engines
// of the problem.
type spread struct {
	g *grouping
	l *layout

	shed   []float64 // by demand row: fraction
	start  []int32   // by demand row: its shares are shares[start:start+count]
	count  []int32
	shares []problem.Share
	price  []float64 // by group of the problem: the marginal cost of its load
	cost   []float64 // by group of the problem: what a unit of work in its net costs about
	mu     []float64 // by demand row: the price of a unit of its work
	part   []float64 // by unit: its share of its group's load
	into   []float64 // by group of the net: flow of one row
	load   []float64 // by engine
	lambda []float64 // by engine
	moves  []move
}

func (s *spread) begin(g *grouping, l *layout) {
	s.g, s.l = g, l
	rows := len(g.p.Demand)
	s.shed, s.mu = zeroed(s.shed, rows), zeroed(s.mu, rows)
	s.start, s.count = zeroed(s.start, rows), zeroed(s.count, rows)
	s.shares = s.shares[:0]
	s.part = zeroed(s.part, len(g.units))
	s.price, s.cost = zeroed(s.price, len(g.groups)), zeroed(s.cost, len(g.groups))
}

// take notes the solution of a component's net.
func (s *spread) take(component int, n *net, f *forest) {
	g := s.g
	groups := s.l.groups(component)
	for k, r := range groups {
		s.price[r], s.cost[r] = f.lambda(k), n.cost
		total, cheapest := sum(f.load[n.membersOf[k]:n.membersOf[k+1]]), g.unitsOf(r)[0]
		for _, u := range g.unitsOf(r) {
			from := s.l.memberOf[u]
			if total > 0 {
				s.part[u] = sum(f.load[from:from+s.l.membersOf[u]]) / total
			}
			if n.member[from].low < n.member[s.l.memberOf[cheapest]].low {
				cheapest = u
			}
		}
		if total == 0 {
			s.part[cheapest] = 1 // a flow that comes to no load is rounding
		}
	}
	s.into = zeroed(s.into, len(groups))
	for _, c := range s.l.rows(component) {
		s.takeRow(c, groups, n, f)
	}
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// noShare is a share of a row's demand that is taken for rounding.
const noShare = 1e-13

// takeRow splits the flow of a row of the net: every demand row in it goes to
// the groups in the same proportions, each unit has its part of its group's
// load, each engine its part of the unit's capacity.
func (s *spread) takeRow(c int32, groups []int32, n *net, f *forest) {
	g := s.g
	i, k := s.l.rowOf[c], s.l.shedOf[c]
	served := 0.0
	for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
		if flow := f.flow(a); flow > noShare*n.demand[i] {
			served += flow
			s.into[n.group[a]] += flow
		}
	}
	z := f.shed[k] / n.shed[k].most
	switch {
	case z < noShare:
		z = 0
	case z > 1-noShare:
		z = 1
	}
	if served == 0 {
		z = 1
	}
	s.shed[c], s.mu[c] = z, f.mu(int(i))
	s.start[c] = int32(len(s.shares))
	for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
		into := s.into[n.group[a]]
		s.into[n.group[a]] = 0
		if into == 0 || z == 1 {
			continue
		}
		for _, u := range g.unitsOf(groups[n.group[a]]) {
			w := (1 - z) * (into / served) * s.part[u]
			for _, j := range g.engineOf[g.units[u].start:g.units[u].end] {
				if part := w * (g.p.Engines[j].Capacity / g.units[u].capacity); part > 0 {
					s.shares = append(s.shares, problem.Share{Engine: int(j), Weight: part})
				}
			}
		}
	}
	row := s.shares[s.start[c]:]
	s.count[c] = int32(len(row))
	slices.SortFunc(row, func(a, b problem.Share) int { return cmp.Compare(a.Engine, b.Engine) })
}

func (s *spread) rowOf(c int) []problem.Share {
	return s.shares[s.start[c] : s.start[c]+s.count[c]]
}

// finish writes the plan.
func (s *spread) finish(plan *problem.Plan) {
	p := s.g.p
	s.lambda = sized(s.lambda, len(p.Engines))
	for j := range p.Engines {
		s.lambda[j] = s.priceOf(j)
	}
	s.fit()
	plan.Reset(len(p.Demand), len(p.Engines))
	for j := range p.Engines {
		plan.Price[j] = s.snapped(j)
	}
	for c := range p.Demand {
		switch {
		case s.g.work[c] > 0:
			plan.Shed[c] = s.shed[c]
			plan.Weights = s.weigh(plan.Weights, c)
		default:
			// A first request has somewhere to go.
			if j := s.cheapest(c, 0); j >= 0 {
				plan.Weights = append(plan.Weights, problem.Share{Engine: j, Weight: 1})
			} else {
				plan.Shed[c] = 1
			}
		}
		plan.Start = append(plan.Start, len(plan.Weights))
	}
}

// priceOf is lambda_j, the price of a group less the engine's latency without
// load. An engine without capacity has one at which no row wants it.
func (s *spread) priceOf(j int) (price float64) {
	g := s.g
	zero := g.p.Engines[j].Latency.Zero()
	if u := g.unitOf[j]; u >= 0 {
		return max(0, s.price[g.units[u].group]-zero)
	}
	for c, d := range g.p.Demand {
		if g.work[c] > 0 && g.allows(d.Class, int32(j)) {
			class := &g.p.Classes[d.Class]
			trip := class.DistanceWeight * g.p.RTT[d.Source][g.p.Engines[j].Place] / class.Work
			price = max(price, s.mu[c]*(1+4e-16)-trip-zero)
		}
	}
	return price
}

// snap is how near to the exact marginal cost of a straight piece of latency a
// price is taken for it: flat pieces rise by flatRise inside.
const snap = 1e-9

// snapped is lambda_j, on the marginal cost of the load where it is beside it.
func (s *spread) snapped(j int) float64 {
	e := &s.g.p.Engines[j]
	price := s.lambda[j]
	u := s.g.unitOf[j]
	if len(e.Latency.Points) == 0 && e.Latency.Slope > 0 || u < 0 {
		return price
	}
	y := min(s.load[j], e.Capacity)
	left, right := e.Latency.Marginal(y)
	slack := snap * max(e.Latency.Zero()+left, s.cost[s.g.units[u].group])
	switch {
	case price < left && price > left-slack:
		return left
	case y < e.Capacity && price > right && price < right+slack:
		return right
	}
	return price
}

// overCapacity is the share of its capacity by which an engine's load may be
// above it: a tenth of what users are promised, because shedding so little can
// cost more than all the rest.
const overCapacity = 1e-10

// most is the largest load that an engine is left with: its capacity with what
// rounding may add, but below its limit, where latency has no bound.
func most(e *problem.Engine) float64 {
	most := e.Capacity * (1 + overCapacity)
	if e.Latency.Slope > 0 {
		return min(most, e.Latency.Limit*(1-leastIdle/2))
	}
	return most
}

// fit takes what is above an engine's capacity to the engine with room that
// costs the row least, else sheds it. Where the net was solved to the end it is
// rounding, which matters for an engine 1e12 times smaller than others beside
// it.
func (s *spread) fit() {
	g := s.g
	p := g.p
	s.moves = s.moves[:0]
	s.load = zeroed(s.load, len(p.Engines))
	for c := range p.Demand {
		for _, w := range s.rowOf(c) {
			s.load[w.Engine] += g.work[c] * w.Weight
		}
	}
	over := false
	for j := range p.Engines {
		over = over || s.load[j] > most(&p.Engines[j])
	}
	if !over {
		return
	}
	for c := range p.Demand {
		row := s.rowOf(c)
		for k := range row {
			w := &row[k]
			e := &p.Engines[w.Engine]
			if s.load[w.Engine] <= most(e) {
				continue
			}
			excess := min(w.Weight, (s.load[w.Engine]-min(e.Capacity, most(e)))/g.work[c])
			w.Weight -= excess
			s.load[w.Engine] -= excess * g.work[c]
			if j := s.cheapest(c, excess*g.work[c]); j >= 0 {
				s.moves = append(s.moves, move{int32(c), problem.Share{Engine: j, Weight: excess}})
				s.load[j] += excess * g.work[c]
			} else {
				s.shed[c] += excess
			}
		}
	}
}

// move is a share that fit gave to an engine.
type move struct {
	row   int32
	share problem.Share
}

// weigh appends the shares of a row of the problem, with what fit moved.
func (s *spread) weigh(list []problem.Share, c int) []problem.Share {
	start := len(list)
	list = append(list, s.rowOf(c)...)
	if len(s.moves) == 0 {
		return list
	}
	for _, m := range s.moves {
		if int(m.row) == c {
			list = append(list, m.share)
		}
	}
	row := list[start:]
	slices.SortStableFunc(row, func(a, b problem.Share) int { return cmp.Compare(a.Engine, b.Engine) })
	kept := row[:0]
	for _, w := range row {
		if n := len(kept); n > 0 && kept[n-1].Engine == w.Engine {
			kept[n-1].Weight += w.Weight
		} else {
			kept = append(kept, w)
		}
	}
	return list[:start+len(kept)]
}

// cheapest is the engine with room for a load that more requests of a row cost
// least at; -1 where there is none.
func (s *spread) cheapest(c int, load float64) int {
	p := s.g.p
	d := p.Demand[c]
	class := &p.Classes[d.Class]
	best, least := -1, math.Inf(1)
	for j := range p.Engines {
		e := &p.Engines[j]
		if e.Capacity == 0 || !class.Allows(j) || load > 0 && s.load[j]+load > min(e.Capacity, most(e)) {
			continue
		}
		if cost := class.DistanceWeight*p.RTT[d.Source][e.Place] + class.Work*(e.Latency.Zero()+s.lambda[j]); cost < least {
			best, least = j, cost
		}
	}
	return best
}
