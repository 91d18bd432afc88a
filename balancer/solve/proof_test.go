package solve

import (
	"math"
	"math/big"

	"penstock/balancer/problem"
)

// proof recomputes what a certificate claims, from the problem and the printed
// numbers alone (weights, shed fractions, a price per engine, a marginal cost
// per row), in 300 bits and by other formulas than the product's:
//
//	objective = sum of flows times latency and round trip, + shed + moves
//	bound     = sum over rows of the dual of the row at its marginal cost
//	          - sum over engines of (lambda y - G(y)) at the y where G' = lambda
//
// Any prices give a lower bound; a marginal cost above the cheapest way to
// serve is cut down to it, because beyond that the dual is without bound.
type proof struct {
	objective, bound float64
	over             float64 // the largest load above a capacity, relative
	off              float64 // the largest distance of a row's shares from 1
	negative         bool
}

const bits = 300

func num(v float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(v) }
func add(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(bits).Add(a, b)
}
func sub(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(bits).Sub(a, b)
}
func mul(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(bits).Mul(a, b)
}
func div(a, b *big.Float) *big.Float {
	return new(big.Float).SetPrec(bits).Quo(a, b)
}
func below(a, b *big.Float) bool { return a.Cmp(b) < 0 }
func least(a, b *big.Float) *big.Float {
	if below(b, a) {
		return b
	}
	return a
}

// congestion is T(y) - T(0).
func congestion(l *problem.Latency, y *big.Float) *big.Float {
	if len(l.Points) > 0 {
		sum := num(0)
		for k := range len(l.Points) - 1 {
			a, b := l.Points[k], l.Points[k+1]
			part := sub(y, num(a.Load))
			if part.Sign() <= 0 {
				break
			}
			if k+2 < len(l.Points) {
				part = least(part, sub(num(b.Load), num(a.Load)))
			}
			slope := div(sub(num(b.Time), num(a.Time)), sub(num(b.Load), num(a.Load)))
			sum = add(sum, mul(slope, part))
		}
		return sum
	}
	if l.Slope == 0 || y.Sign() == 0 {
		return num(0)
	}
	return div(mul(num(l.Slope), y), sub(num(l.Limit), y))
}

func zeroLoad(l *problem.Latency) *big.Float {
	if len(l.Points) > 0 {
		return num(l.Points[0].Time)
	}
	return add(num(l.Base), num(l.Slope))
}

// conjugate is the largest v y - y (T(y) - T(0)) over loads up to the capacity,
// tried at every load where it can be: the ends, the points, and where the
// derivative is 0.
func conjugate(l *problem.Latency, capacity float64, v *big.Float) *big.Float {
	best := num(0)
	try := func(y *big.Float) {
		if y.Sign() < 0 || y.Cmp(num(capacity)) > 0 || len(l.Points) == 0 && l.Slope > 0 && y.Cmp(num(l.Limit)) >= 0 {
			return
		}
		if value := mul(y, sub(v, congestion(l, y))); below(best, value) {
			best = value
		}
	}
	try(num(capacity))
	if len(l.Points) == 0 {
		if l.Slope > 0 && v.Sign() > 0 {
			// b/(1-rho)^2 - b = v
			root := new(big.Float).SetPrec(bits).Sqrt(div(num(l.Slope), add(v, num(l.Slope))))
			try(mul(num(l.Limit), sub(num(1), root)))
		}
		return best
	}
	for k := range len(l.Points) - 1 {
		a, b := l.Points[k], l.Points[k+1]
		try(num(a.Load))
		slope := div(sub(num(b.Time), num(a.Time)), sub(num(b.Load), num(a.Load)))
		if slope.Sign() > 0 {
			// T_k - T_0 + slope (2y - y_k) = v
			y := add(div(sub(v, sub(num(a.Time), num(l.Points[0].Time))), slope), num(a.Load))
			y = mul(y, num(0.5))
			if y.Cmp(num(a.Load)) >= 0 && y.Cmp(num(b.Load)) <= 0 {
				try(y)
			}
		}
	}
	return best
}

func prove(p *problem.Problem, plan *problem.Plan, marginal []float64) proof {
	var r proof
	objective, bound := num(0), num(0)
	loads := make([]*big.Float, len(p.Engines))
	for j := range loads {
		loads[j] = num(0)
	}
	previous := map[[2]int]map[int]float64{}
	for _, row := range p.Previous {
		was := map[int]float64{}
		for _, w := range row.Weights {
			was[w.Engine] = w.Weight
		}
		previous[[2]int{row.Source, row.Class}] = was
	}
	for c, d := range p.Demand {
		class := &p.Classes[d.Class]
		was, moves := previous[[2]int{d.Source, d.Class}]
		rate, work, pi := num(d.Rate), num(class.Work), num(p.ShedPrice[class.Priority])
		pi = mul(pi, work)
		trip := func(j int) *big.Float {
			return mul(num(class.DistanceWeight), num(p.RTT[d.Source][p.Engines[j].Place]))
		}
		z := plan.Shed[c]
		total := z
		r.negative = r.negative || z < 0
		shed := mul(num(z), add(num(1), mul(num(p.ShedCurvature/2), num(z))))
		objective = add(objective, mul(mul(rate, pi), shed))
		for _, w := range plan.Row(c) {
			total += w.Weight
			r.negative = r.negative || w.Weight < 0 || !class.Allows(w.Engine)
			flow := mul(rate, num(w.Weight))
			cost := add(trip(w.Engine), mul(work, zeroLoad(&p.Engines[w.Engine].Latency)))
			objective = add(objective, mul(flow, cost))
			if moves && w.Weight > was[w.Engine] {
				objective = add(objective, mul(num(p.MovePrice), mul(rate, sub(num(w.Weight), num(was[w.Engine])))))
			}
			loads[w.Engine] = add(loads[w.Engine], mul(flow, work))
		}
		r.off = max(r.off, math.Abs(total-1))

		// The dual of the row at mu: mu - sum kept (mu - C)^+ - (mu z - shed cost)^+.
		mu := num(marginal[c])
		costs := map[int]*big.Float{}
		for j := range p.Engines {
			if class.Allows(j) {
				costs[j] = add(trip(j), mul(work, add(zeroLoad(&p.Engines[j].Latency), num(plan.Price[j]))))
				most := costs[j]
				if moves {
					most = add(most, num(p.MovePrice))
				}
				mu = least(mu, most)
			}
		}
		dual := mu
		if moves && p.MovePrice > 0 {
			for j, w := range was {
				if cost, allowed := costs[j]; allowed && below(cost, mu) {
					dual = sub(dual, mul(num(w), sub(mu, cost)))
				}
			}
		}
		// The shed fraction that mu buys: pi (1 + kappa z) = mu.
		buys := 0.0
		if below(pi, mu) {
			buys = 1
			if p.ShedCurvature > 0 && pi.Sign() > 0 {
				x, _ := div(sub(div(mu, pi), num(1)), num(p.ShedCurvature)).Float64()
				buys = min(x, 1)
			}
		}
		// Any fraction gives less than the maximum: rounding it must not raise the
		// bound, so all of a small neighbourhood is tried.
		gain := num(0)
		for _, f := range []float64{0, buys * (1 - 1e-15), buys, min(1, buys*(1+1e-15)), 1} {
			value := sub(mul(mu, num(f)), mul(pi, mul(num(f), add(num(1), mul(num(p.ShedCurvature/2), num(f))))))
			if below(gain, value) {
				gain = value
			}
		}
		bound = add(bound, mul(rate, sub(dual, gain)))
	}
	for j := range p.Engines {
		e := &p.Engines[j]
		objective = add(objective, mul(loads[j], congestion(&e.Latency, loads[j])))
		bound = sub(bound, conjugate(&e.Latency, e.Capacity, num(plan.Price[j])))
		load, _ := loads[j].Float64()
		r.negative = r.negative || plan.Price[j] < 0
		if load > e.Capacity {
			r.over = max(r.over, load/e.Capacity-1)
		}
	}
	r.objective, _ = objective.Float64()
	r.bound, _ = bound.Float64()
	return r
}

// tester is *testing.T or *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
}

// check fails unless the result is feasible and what it claims is proved.
// slack is the gap that is allowed.
func check(t tester, p *problem.Problem, r *Result, slack float64) proof {
	t.Helper()
	c := r.Certificate
	proved := prove(p, r.Plan, c.Marginal)
	scale := math.Max(proved.objective, 1e-9)
	switch {
	case proved.negative:
		t.Errorf("%s: a negative weight, shed or price, or a weight on an engine that is not allowed", p.Name)
	case proved.over > 1e-9:
		t.Errorf("%s: a load is %.2g of the capacity above it", p.Name, proved.over)
	case proved.off > 1e-9:
		t.Errorf("%s: the shares of a row miss 1 by %.2g", p.Name, proved.off)
	case !(math.Abs(c.Objective-proved.objective) <= 1e-8*scale):
		t.Errorf("%s: objective %.15g, but the flows cost %.15g", p.Name, c.Objective, proved.objective)
	case !(math.Abs(c.Bound-proved.bound) <= 1e-8*scale+slack*scale/10):
		t.Errorf("%s: bound %.15g, but the prices prove %.15g", p.Name, c.Bound, proved.bound)
	case !(proved.objective-proved.bound <= slack*scale):
		t.Errorf("%s (%v): proved gap %.3g", p.Name, r.Method, (proved.objective-proved.bound)/scale)
	case !(c.Gap <= slack):
		t.Errorf("%s (%v): gap %.3g", p.Name, r.Method, c.Gap)
	}
	return proved
}
