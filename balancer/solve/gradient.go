package solve

import "math"

// gradient is a projected-gradient method on a net, accelerated (FISTA with
// restarts), in the metric of a diagonal. Its variables x are the flows of arcs
// and the sheds; the loads of members follow from them, because a group fills
// its members by marginal cost. Without capacities the rows are independent: a
// step is
//
//	x = argmin over the row's simplex of sum_k g_k x_k + L_k/2 (x_k - ahead_k)^2
//	g = price + lambda_r(Y_r) for an arc, the marginal cost for a shed
//
// at a point ahead that momentum extrapolates (simplex.go). Capacity couples
// the rows: a group at its capacity gets a multiplier w_r and an augmented
// term,
//
//	lambda_r(Y) = group price at min(Y, cap_r) + max(0, w_r + K_r (Y - cap_r))
//
// with w_r raised to what the term came to at every restart. L is the curvature
// of the group times how many shares of the row's size its load has, so that
// all rows correcting a load together do not overshoot, with a factor per group
// that doubles where a step was too long.
type gradient struct {
	n     *net
	loads response

	x, last, ahead []float64 // arcs, then sheds
	scale          []float64 // L
	g              []float64
	mu             []float64 // by row: the last multiplier of its projection
	least          []float64 // by row: of L

	load, loadAhead     []float64 // by group
	price, priceAhead   []float64
	curvature           []float64
	capacity            []float64 // where the group's price reaches that of shedding everything
	multiplier, penalty []float64 // w and K
	factor              []float64 // of L, by group
	shares              []float64 // sum of the rows' sizes, by group
	size                []float64 // by arc: the row's size at the group

	simplex    simplex
	iterations int
}

const (
	mostGradient  = 400 // iterations
	mostWarm      = 10  // iterations from a last table: more would save few pivots
	gradientCheck = 5   // iterations between looks at the gap
	patience      = 2   // looks in which the gap must have halved
	mostTries     = 20  // of one step
	// leastSize is the share of a row's demand that it counts for at groups that
	// it hardly uses.
	leastSize = 0.05
	// penaltyRise is the overload of a group that costs as much as a request.
	penaltyRise = 0.01
	// leastCapacity is the share of its capacity that a group counts as having
	// where shedding is cheaper than its first request.
	leastCapacity = 1e-6
	mostFactor    = 1e12
)

// solve runs from a flow until the gap of the net is below tolerance times its
// cost, or no longer halves: what is left then are swaps that leave all loads as
// they are, which the steep cost of loads hides from a gradient, and which the
// forest finds at once. The flow must not be negative nor exceed the demand;
// the rest is shed, of all priorities alike. It reports whether the tolerance
// was reached.
func (gr *gradient) solve(n *net, flow []float64, tolerance float64, most int) bool {
	gr.start(n, flow)
	t := 1.0
	best, since := math.Inf(1), 0
	for gr.iterations = 0; gr.iterations < most; gr.iterations++ {
		if gr.iterations%gradientCheck == 0 {
			gap, cost := gr.gap()
			if gap <= tolerance*cost {
				return true
			}
			if gap < best/2 {
				best, since = gap, 0
			} else if since++; since > patience {
				return false
			}
		}
		gr.slopes()
		for range mostTries {
			gr.step()
			gr.sumLoads(gr.x, gr.load)
			if !gr.shorten() {
				break
			}
		}
		if gr.uphill() {
			t = 1
			gr.restart()
			continue
		}
		next := (1 + math.Sqrt(1+4*t*t)) / 2
		momentum := (t - 1) / next
		t = next
		for k, v := range gr.x {
			gr.ahead[k] = v + momentum*(v-gr.last[k])
		}
		copy(gr.last, gr.x)
	}
	return false
}

func (gr *gradient) start(n *net, flow []float64) {
	gr.n = n
	arcs, groups, rows := n.arcs(), n.groups(), n.rows()
	for _, v := range [...]*[]float64{&gr.x, &gr.last, &gr.ahead, &gr.scale, &gr.g} {
		*v = sized(*v, arcs+len(n.shed))
	}
	for _, v := range [...]*[]float64{&gr.load, &gr.loadAhead, &gr.price, &gr.priceAhead, &gr.curvature, &gr.capacity,
		&gr.multiplier, &gr.penalty, &gr.factor, &gr.shares} {
		*v = zeroed(*v, groups)
	}
	gr.mu, gr.least, gr.size = zeroed(gr.mu, rows), sized(gr.least, rows), sized(gr.size, arcs)
	copy(gr.x, flow)
	ceiling := 0.0
	for i, d := range n.demand {
		rest := d
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			rest -= flow[a]
		}
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			gr.x[arcs+int(k)] = max(0, rest) * n.shed[k].most / d
			ceiling = max(ceiling, n.shed[k].high)
		}
	}
	gr.loads.begin(n)
	for r := range gr.capacity {
		gr.capacity[r], _ = gr.loads.at(r, ceiling)
		gr.penalty[r] = n.cost / (penaltyRise * max(gr.capacity[r], leastCapacity*n.capacity[r]))
		gr.factor[r] = 1
	}
	copy(gr.last, gr.x)
	copy(gr.ahead, gr.x)
	gr.sumLoads(gr.x, gr.load)
	gr.weigh()
}

// weigh sets the sizes of rows at groups, from the flows of now.
func (gr *gradient) weigh() {
	n := gr.n
	clear(gr.shares)
	for a, r := range n.group {
		d := n.demand[n.row[a]]
		part := leastSize * d * min(1, n.capacity[r]/d)
		gr.size[a] = min(max(gr.x[a], part), n.most[a])
		gr.shares[r] += gr.size[a]
	}
}

func (gr *gradient) sumLoads(x, load []float64) {
	clear(load)
	for a, r := range gr.n.group {
		load[r] += x[a]
	}
}

// priceAt is the price of a group at a load, and its curvature there.
func (gr *gradient) priceAt(r int, load float64) (price, curvature float64) {
	price, slope := gr.loads.price(r, min(load, gr.capacity[r]*(1-1e-12)))
	curvature = 1 / slope
	if over := gr.multiplier[r] + gr.penalty[r]*(load-gr.capacity[r]); over > 0 {
		price += over
		curvature += gr.penalty[r]
	}
	return price, curvature
}

// slopes sets gradient and metric at the point ahead.
func (gr *gradient) slopes() {
	n := gr.n
	gr.sumLoads(gr.ahead, gr.loadAhead)
	for r, load := range gr.loadAhead {
		gr.priceAhead[r], gr.curvature[r] = gr.priceAt(r, load)
	}
	for i, d := range n.demand {
		gr.least[i] = 0.1 * n.cost / d
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			gr.g[a] = n.price[a] + gr.priceAhead[n.group[a]]
		}
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			s := &n.shed[k]
			at := n.arcs() + int(k)
			gr.scale[at] = max((s.high-s.low)/s.most, gr.least[i])
			gr.g[at] = s.low + (s.high-s.low)*gr.ahead[at]/s.most
		}
	}
}

// step projects each row.
func (gr *gradient) step() {
	n, arcs := gr.n, int32(gr.n.arcs())
	for i, d := range n.demand {
		p := &gr.simplex
		p.reset()
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			r := n.group[a]
			gr.scale[a] = max(gr.factor[r]*gr.curvature[r]*gr.shares[r]/gr.size[a], gr.least[i])
			p.add(gr.ahead[a]-gr.g[a]/gr.scale[a], gr.scale[a], n.most[a])
		}
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			p.add(gr.ahead[arcs+k]-gr.g[arcs+k]/gr.scale[arcs+k], gr.scale[arcs+k], n.shed[k].most)
		}
		gr.mu[i] = p.project(d, gr.mu[i])
		count := copy(gr.x[n.arcsOf[i]:n.arcsOf[i+1]], p.x)
		copy(gr.x[arcs+n.shedsOf[i]:arcs+n.shedsOf[i+1]], p.x[count:])
	}
}

// shorten doubles the metric of groups whose price rose by more than the metric
// allows for the step, and reports whether there are any.
func (gr *gradient) shorten() (any bool) {
	n := gr.n
	used := gr.simplex.scratch(n.groups()) // sum over a group's arcs of L dx^2
	for a, r := range n.group {
		d := gr.x[a] - gr.ahead[a]
		used[r] += gr.scale[a] * d * d
	}
	for r, load := range gr.load {
		gr.price[r], _ = gr.priceAt(r, load)
		rise := (gr.price[r] - gr.priceAhead[r]) * (load - gr.loadAhead[r])
		if rise > used[r]*(1+1e-9) && gr.factor[r] < mostFactor {
			gr.factor[r] *= 2
			any = true
		} else {
			gr.factor[r] = max(gr.factor[r]*0.98, 0.1)
		}
	}
	return any
}

// uphill reports whether the step goes against the momentum that led to it.
func (gr *gradient) uphill() bool {
	sum := 0.0
	for k, v := range gr.x {
		sum += gr.scale[k] * (gr.ahead[k] - v) * (v - gr.last[k])
	}
	return sum > 0
}

// restart forgets the momentum and takes the augmented terms into the
// multipliers.
func (gr *gradient) restart() {
	for r, load := range gr.load {
		gr.multiplier[r] = max(0, gr.multiplier[r]+gr.penalty[r]*(load-gr.capacity[r]))
	}
	copy(gr.last, gr.x)
	copy(gr.ahead, gr.x)
	gr.weigh()
}

// gap is by how much the flow misses the optimum at the prices of its loads, and
// the cost of what is served.
func (gr *gradient) gap() (gap, cost float64) {
	n, arcs := gr.n, gr.n.arcs()
	for r, load := range gr.load {
		gr.price[r], _ = gr.priceAt(r, load)
		gap += gr.price[r] * max(0, load-gr.capacity[r])
		cost += gr.loads.cost(r)
	}
	for i, d := range n.demand {
		least := math.Inf(1)
		paid := 0.0
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			c := n.price[a] + gr.price[n.group[a]]
			if gr.x[a] < n.most[a] {
				least = min(least, c)
			}
			paid += gr.x[a] * c
			cost += gr.x[a] * n.price[a]
		}
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			s := &n.shed[k]
			x := gr.x[arcs+int(k)]
			c := s.low + (s.high-s.low)*x/s.most
			if x < s.most {
				least = min(least, c)
			}
			paid += x * c
		}
		gap += paid - d*least
	}
	return math.Abs(gap), cost
}
