package problem

import (
	"cmp"
	"math"
	"slices"
)

// Certificate is the proof of a plan: what it costs, what no plan can go below,
// and the prices of rows and capacities that go with it.
type Certificate struct {
	Objective float64 // ms per second, of the plan's flows
	Bound     float64 // the dual value at the plan's prices
	Gap       float64 // (Objective - Bound) / max(Objective, least)

	MeanLatency float64 // ms per served request, distance weights 1; 0 where nothing is served
	Served      float64 // requests/s

	Load          []float64 // y_j, units/s
	CapacityPrice []float64 // what lambda_j exceeds G'(y_j) by, where the load is at the capacity
	Marginal      []float64 // mu_c, ms per request: what one more request of the row would cost
}

const (
	// leastObjective keeps the gap finite where nothing costs anything.
	leastObjective = 1e-9
	// atCapacity is how near to its capacity an engine counts as full.
	atCapacity = 1e-9
)

// Certifier computes certificates and keeps its memory between them.
type Certifier struct {
	c      Certificate
	toll   []float64 // T_j(0) + lambda_j by engine
	place  []int32   // of the engines, side by side
	kept   []piece   // of one row
	keptOf []int     // index+1 of a demand row's Previous
	rowOf  map[[2]int]int
}

// piece is engine capacity that a row may use at one cost per request.
type piece struct{ cost, most float64 }

// Certify proves a plan. The result is valid until the next call. It takes time
// in proportion to rows times engines: every pair is looked at.
func (k *Certifier) Certify(p *Problem, plan *Plan) *Certificate {
	k.matchPrevious(p)
	k.loads(p, plan)
	var objective, bound, latency sum
	k.toll, k.place = resize(k.toll, len(p.Engines)), resize(k.place, len(p.Engines))
	k.c.CapacityPrice = resize(k.c.CapacityPrice, len(p.Engines))
	for j := range p.Engines {
		e := &p.Engines[j]
		y, price := k.c.Load[j], plan.Price[j]
		k.toll[j], k.place[j] = e.Latency.Zero()+price, int32(e.Place)
		bound.add(-e.Latency.Conjugate(price, e.Capacity))
		if y > 0 {
			congestion := y * e.Latency.Congestion(y)
			objective.add(congestion)
			latency.add(congestion)
		}
		if y >= e.Capacity*(1-atCapacity) {
			left, _ := e.Latency.Marginal(y)
			k.c.CapacityPrice[j] = max(0, price-left)
		}
	}
	k.c.Marginal = resize(k.c.Marginal, len(p.Demand))
	k.c.Served = 0
	for c := range p.Demand {
		k.costOf(p, plan, c, &objective, &latency)
		value, marginal := k.leastOf(p, c)
		bound.add(value)
		k.c.Marginal[c] = marginal
	}
	k.c.Objective, k.c.Bound = objective.value(), bound.value()
	k.c.Gap = (k.c.Objective - k.c.Bound) / max(k.c.Objective, leastObjective)
	k.c.MeanLatency = 0
	if k.c.Served > 0 {
		k.c.MeanLatency = latency.value() / k.c.Served
	}
	return &k.c
}

// matchPrevious finds the last table's row of each demand row.
func (k *Certifier) matchPrevious(p *Problem) {
	k.keptOf = resize(k.keptOf, len(p.Demand))
	if len(p.Previous) == 0 || p.MovePrice == 0 {
		return
	}
	if k.rowOf == nil {
		k.rowOf = make(map[[2]int]int)
	}
	clear(k.rowOf)
	for i, row := range p.Previous {
		k.rowOf[[2]int{row.Source, row.Class}] = i + 1
	}
	for c, d := range p.Demand {
		k.keptOf[c] = k.rowOf[[2]int{d.Source, d.Class}]
	}
}

func (k *Certifier) loads(p *Problem, plan *Plan) {
	k.c.Load = resize(k.c.Load, len(p.Engines))
	for c, d := range p.Demand {
		work := d.Rate * p.Classes[d.Class].Work
		for _, w := range plan.Row(c) {
			k.c.Load[w.Engine] += work * w.Weight
		}
	}
}

// costOf adds what row c costs apart from congestion.
func (k *Certifier) costOf(p *Problem, plan *Plan, c int, objective, latency *sum) {
	d := p.Demand[c]
	if d.Rate == 0 {
		return
	}
	class := &p.Classes[d.Class]
	trips := p.RTT[d.Source]
	var previous []Share
	if k.keptOf[c] > 0 {
		previous = p.Previous[k.keptOf[c]-1].Weights
	}
	for _, w := range plan.Row(c) {
		if w.Weight == 0 {
			continue
		}
		e := &p.Engines[w.Engine]
		flow := d.Rate * w.Weight
		zero := flow * class.Work * e.Latency.Zero()
		objective.add(flow*class.DistanceWeight*trips[e.Place] + zero)
		latency.add(flow*trips[e.Place] + zero)
		k.c.Served += flow
		if k.keptOf[c] > 0 {
			for len(previous) > 0 && previous[0].Engine < w.Engine {
				previous = previous[1:]
			}
			was := 0.0
			if len(previous) > 0 && previous[0].Engine == w.Engine {
				was = previous[0].Weight
			}
			objective.add(p.MovePrice * d.Rate * max(0, w.Weight-was))
		}
	}
	if z := plan.Shed[c]; z > 0 {
		objective.add(d.Rate * class.Work * p.ShedPrice[class.Priority] * z * (1 + p.ShedCurvature*z/2))
	}
}

// leastOf is the least cost of row c at the prices, and its marginal cost.
func (k *Certifier) leastOf(p *Problem, c int) (value, marginal float64) {
	d := p.Demand[c]
	class := &p.Classes[d.Class]
	least := k.cheapest(p, class, p.RTT[d.Source])
	shed := shedding{class.Work * p.ShedPrice[class.Priority], p.ShedCurvature}
	k.kept = k.kept[:0]
	if k.keptOf[c] > 0 {
		for _, w := range p.Previous[k.keptOf[c]-1].Weights {
			e := &p.Engines[w.Engine]
			cost := class.DistanceWeight*p.RTT[d.Source][e.Place] + class.Work*k.toll[w.Engine]
			if w.Weight > 0 && cost < least+p.MovePrice {
				k.kept = append(k.kept, piece{cost, w.Weight})
			}
		}
		slices.SortFunc(k.kept, func(a, b piece) int { return cmp.Compare(a.cost, b.cost) })
		least += p.MovePrice
	}
	if d.Rate == 0 {
		return 0, min(shed.price, least)
	}
	value, marginal = shed.fill(k.kept, least)
	return d.Rate * value, marginal
}

// cheapest is the least C_cj of a class over the engines it may use.
func (k *Certifier) cheapest(p *Problem, class *Class, trips []float64) float64 {
	least, nu, work := math.Inf(1), class.DistanceWeight, class.Work
	if class.All {
		toll := k.toll[:len(k.place)]
		for j, place := range k.place {
			if v := nu*trips[place] + work*toll[j]; v < least {
				least = v
			}
		}
		return least
	}
	for _, j := range class.Engines {
		if v := nu*trips[k.place[j]] + work*k.toll[j]; v < least {
			least = v
		}
	}
	return least
}

// shedding is the marginal cost price (1 + curvature z) of the shed fraction z.
type shedding struct{ price, curvature float64 }

// at is the fraction that is cheaper to shed than to serve at this cost.
func (s shedding) at(cost float64) float64 {
	switch {
	case cost <= s.price:
		return 0
	case cost >= s.price*(1+s.curvature):
		return 1
	}
	return (cost/s.price - 1) / s.curvature
}

func (s shedding) cost(z float64) float64 { return s.price * z * (1 + s.curvature*z/2) }

// fill is the least cost of one unit of demand, from pieces of capacity in the
// order of their costs, unlimited capacity at the cost rest, and shedding.
func (s shedding) fill(pieces []piece, rest float64) (value, marginal float64) {
	served := 0.0
	for i := 0; ; i++ {
		next := piece{rest, math.Inf(1)}
		if i < len(pieces) {
			next = pieces[i]
		}
		z := s.at(next.cost)
		if served+z >= 1 {
			z = max(0, 1-served)
			return value + s.cost(z), min(s.price*(1+s.curvature*z), next.cost)
		}
		take := min(next.most, 1-served-z)
		served += take
		value += take * next.cost
		if take < next.most {
			return value + s.cost(z), next.cost
		}
	}
}

// sum adds with the rounding errors kept apart (Neumaier): near saturation the
// bound is the small difference of two large sums.
type sum struct{ high, low float64 }

func (s *sum) add(v float64) {
	t := s.high + v
	if math.Abs(s.high) >= math.Abs(v) {
		s.low += (s.high - t) + v
	} else {
		s.low += (v - t) + s.high
	}
	s.high = t
}

func (s *sum) value() float64 { return s.high + s.low }
