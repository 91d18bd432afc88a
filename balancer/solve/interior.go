package solve

import "math"

// interior is a primal-dual interior-point method (Mehrotra's predictor and
// corrector) on a net. Every variable x with bound most, be it the flow of an
// arc, the load of a member or a shed, has multipliers z >= 0 of x >= 0 and w
// >= 0 of its slack s = most - x >= 0; its marginal cost is h(x). With the
// prices mu_i of rows and lambda_r of groups, and p the price that a variable
// is paid (mu - lambda for an arc, lambda for a member, mu for a shed), the
// optimum is
//
//	h - p - z + w = 0,  x z = 0,  s w = 0,  balance at rows and groups
//
// The method follows x z = s w = tau omega to tau = 0. The weight omega is the
// demand or capacity that x is a share of, so that rates over many decades
// proceed alike. A Newton step is
//
//	dx = theta (dp + e),  1/theta = h' + z/x + w/s,
//	e = p - h + tau omega/x - tau omega/s
//
// and the balances leave a linear system for dmu and dlambda (schur.go). The
// corrector subtracts the products dx dz and dx dw of the predictor from tau
// omega.
type interior struct {
	n *net

	arc, member, shed  block
	mu, lambda         []float64
	dmu, dlambda       []float64
	rowRest, groupRest []float64 // right-hand sides of the balances
	schur              schur

	iterations int
}

// block is variables of one kind. Slack is stored, not computed: near a limit
// most - x has no digits left.
type block struct {
	x, s, z, w []float64
	theta, e   []float64
	dx, dz, dw []float64
	weight     []float64 // omega
}

func (b *block) reset(n int) {
	for _, v := range [...]*[]float64{&b.x, &b.s, &b.z, &b.w, &b.theta, &b.e, &b.dx, &b.dz, &b.dw, &b.weight} {
		*v = sized(*v, n)
	}
}

const (
	mostInterior = 100   // iterations
	nearBound    = 0.995 // the share of the way to the nearest bound that a step goes
	idleLeft     = 0.2   // the least share of 1 - rho that a step leaves
	leastStep    = 0.01  // steps below it make no progress
)

// progress is what a pass over all variables finds.
type progress struct {
	gap     float64 // sum of x z and s w
	cost    float64 // of routes and loads, without sheds
	shed    float64 // cost of sheds
	fastest float64 // the largest rate at which a variable or multiplier goes to 0
	second  float64 // sum of dx dz and -dx dw
}

// solve iterates until the complementarity is below tolerance times the cost
// of what is served, or no progress is made. It reports whether that tolerance
// was reached.
func (ip *interior) solve(n *net, tolerance float64) bool {
	ip.n = n
	ip.start()
	weight := ip.weights()
	stuck := 0
	for ip.iterations = 0; ip.iterations < mostInterior && stuck < 4; ip.iterations++ {
		now := ip.measure()
		if !(now.gap < math.Inf(1)) {
			return false
		}
		if now.gap <= tolerance*max(now.cost, leastCostShare*now.shed) {
			return true
		}
		// Predictor: straight to tau = 0. After a step of length t the gap is
		// gap (1-t) + second t^2.
		ip.linearise()
		ip.schur.factor()
		ahead := ip.direct(0, false)
		t := ip.step(ahead, 1)
		left := 1 - t + ahead.second/now.gap*t*t
		tau := now.gap / weight * left * left * left
		ip.correct(tau)
		t = ip.step(ip.direct(tau, true), nearBound)
		ip.move(t)
		if t < leastStep {
			stuck++
		} else {
			stuck = 0
		}
	}
	return false
}

// leastCostShare is the share of the cost of sheds below which the rest counts
// for nothing.
const leastCostShare = 1e-5

func (ip *interior) weights() (sum float64) {
	for _, w := range ip.arc.weight {
		sum += w
	}
	for _, a := range ip.n.bounded {
		sum += ip.arc.weight[a]
	}
	for _, w := range ip.member.weight {
		sum += 2 * w
	}
	for _, w := range ip.shed.weight {
		sum += 2 * w
	}
	return sum
}

// measure sums complementarity and cost.
func (ip *interior) measure() (p progress) {
	n := ip.n
	x, z := ip.arc.x, ip.arc.z[:len(ip.arc.x)]
	price := n.price[:len(x)]
	for a, v := range x {
		p.gap += v * z[a]
		p.cost += v * price[a]
	}
	for _, a := range n.bounded {
		p.gap += ip.arc.s[a] * ip.arc.w[a]
	}
	for m := range n.member {
		b := &ip.member
		p.gap += b.x[m]*b.z[m] + b.s[m]*b.w[m]
		p.cost += n.member[m].cost(b.x[m], b.s[m])
	}
	for k := range n.shed {
		b := &ip.shed
		p.gap += b.x[k]*b.z[k] + b.s[k]*b.w[k]
		p.shed += n.shed[k].cost(b.x[k], b.s[k])
	}
	return p
}

// linearise sets theta, e for tau = 0 and the right-hand sides, and hands the
// system to schur.
func (ip *interior) linearise() {
	n, sc, arc := ip.n, &ip.schur, &ip.arc
	rows, groups, lambda := ip.rowRest, ip.groupRest, ip.lambda
	clear(groups)
	for i, d := range n.demand {
		from, to := n.arcsOf[i], n.arcsOf[i+1]
		x, z := arc.x[from:to], arc.z[from:to]
		theta, e, price, group := arc.theta[from:to], arc.e[from:to], n.price[from:to], n.group[from:to]
		mu := ip.mu[i]
		for a, r := range group {
			t := x[a] / z[a]
			v := mu - lambda[r] - price[a]
			theta[a], e[a] = t, v
			v = x[a] + t*v
			d -= v
			groups[r] += v
		}
		rows[i] = d
	}
	for _, a := range n.bounded {
		t := 1 / (arc.z[a]/arc.x[a] + arc.w[a]/arc.s[a])
		v := (t - arc.theta[a]) * arc.e[a]
		arc.theta[a] = t
		rows[n.row[a]] -= v
		groups[n.group[a]] += v
	}
	for r, lambda := range lambda {
		own := 0.0
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			own += ip.member.linearise(int(m), &n.member[m], lambda)
			groups[r] -= ip.member.x[m] + ip.member.theta[m]*ip.member.e[m]
		}
		sc.groupOwn[r] = own
	}
	for i, mu := range ip.mu {
		own := 0.0
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			own += ip.shed.linearise(int(k), &n.shed[k], mu)
			rows[i] -= ip.shed.x[k] + ip.shed.theta[k]*ip.shed.e[k]
		}
		sc.rowOwn[i] = own
	}
	sc.load(arc.theta)
}

// linearise sets theta and e of a variable that is paid p, and returns theta.
func (b *block) linearise(k int, m *member, p float64) float64 {
	h, dh := m.marginal(b.s[k])
	b.theta[k] = 1 / (dh + b.z[k]/b.x[k] + b.w[k]/b.s[k])
	b.e[k] = p - h
	return b.theta[k]
}

// correct adds the target tau and the second-order terms of the predictor to e
// and the right-hand sides.
func (ip *interior) correct(tau float64) {
	n, arc := ip.n, &ip.arc
	rows, groups := ip.rowRest, ip.groupRest
	for i := range n.demand {
		from, to := n.arcsOf[i], n.arcsOf[i+1]
		x, dx, dz := arc.x[from:to], arc.dx[from:to], arc.dz[from:to]
		theta, e, weight, group := arc.theta[from:to], arc.e[from:to], arc.weight[from:to], n.group[from:to]
		sum := 0.0
		for a, r := range group {
			v := (tau*weight[a] - dx[a]*dz[a]) / x[a]
			e[a] += v
			v *= theta[a]
			sum += v
			groups[r] += v
		}
		rows[i] -= sum
	}
	for _, a := range n.bounded {
		v := (tau*arc.weight[a] + arc.dx[a]*arc.dw[a]) / arc.s[a]
		arc.e[a] -= v
		v *= arc.theta[a]
		rows[n.row[a]] += v
		groups[n.group[a]] -= v
	}
	for r := range groups {
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			groups[r] -= ip.member.correct(int(m), tau)
		}
	}
	for i := range rows {
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			rows[i] -= ip.shed.correct(int(k), tau)
		}
	}
}

func (b *block) correct(k int, tau float64) float64 {
	t := tau * b.weight[k]
	v := (t-b.dx[k]*b.dz[k])/b.x[k] - (t+b.dx[k]*b.dw[k])/b.s[k]
	b.e[k] += v
	return b.theta[k] * v
}

// direct solves for the step to tau, with the second-order terms where they
// are in e.
func (ip *interior) direct(tau float64, corrected bool) (p progress) {
	n, arc := ip.n, &ip.arc
	ip.schur.solve(ip.rowRest, ip.groupRest, ip.dmu, ip.dlambda)
	use := 0.0
	if corrected {
		use = 1
	}
	// dw first: it needs the predictor's dx.
	for _, a := range n.bounded {
		dx := arc.theta[a] * (ip.dmu[n.row[a]] - ip.dlambda[n.group[a]] + arc.e[a])
		arc.dw[a] = (tau*arc.weight[a]+use*arc.dx[a]*arc.dw[a]+arc.w[a]*dx)/arc.s[a] - arc.w[a]
		p.fastest = max(p.fastest, dx/arc.s[a], -arc.dw[a]/arc.w[a])
		p.second -= dx * arc.dw[a]
	}
	for i, dmu := range ip.dmu {
		from, to := n.arcsOf[i], n.arcsOf[i+1]
		x, z, dx, dz := arc.x[from:to], arc.z[from:to], arc.dx[from:to], arc.dz[from:to]
		theta, e, weight, group := arc.theta[from:to], arc.e[from:to], arc.weight[from:to], n.group[from:to]
		fastest, second := p.fastest, p.second
		for a, r := range group {
			pull := tau * weight[a]
			if corrected {
				pull -= dx[a] * dz[a]
			}
			d := theta[a] * (dmu - ip.dlambda[r] + e[a])
			inverse := 1 / x[a]
			g := (pull-z[a]*d)*inverse - z[a]
			dx[a], dz[a] = d, g
			second += d * g
			if v := -d * inverse; v > fastest {
				fastest = v
			}
			if v := -g / z[a]; v > fastest {
				fastest = v
			}
		}
		p.fastest, p.second = fastest, second
	}
	for r, d := range ip.dlambda {
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			ip.member.direct(int(m), d, tau, use, &p)
		}
	}
	for i, d := range ip.dmu {
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			ip.shed.direct(int(k), d, tau, use, &p)
		}
	}
	return p
}

func (b *block) direct(k int, dp, tau, use float64, p *progress) {
	dx := b.theta[k] * (dp + b.e[k])
	t, product := tau*b.weight[k], use*b.dx[k]
	dz := (t-product*b.dz[k]-b.z[k]*dx)/b.x[k] - b.z[k]
	dw := (t+product*b.dw[k]+b.w[k]*dx)/b.s[k] - b.w[k]
	b.dx[k], b.dz[k], b.dw[k] = dx, dz, dw
	p.second += dx * (dz - dw)
	p.fastest = max(p.fastest, -dx/b.x[k], dx/b.s[k], -dz/b.z[k], -dw/b.w[k])
}

// step is the longest step up to 1 that stays share of the way to every bound,
// and leaves members with a limit some of their idle part.
func (ip *interior) step(p progress, share float64) float64 {
	t := min(1, share/p.fastest)
	for m := range ip.n.member {
		if mem := &ip.n.member[m]; mem.slope > 0 && ip.member.dx[m] > 0 {
			t = min(t, (1-idleLeft)*(mem.limit-mem.most+ip.member.s[m])/ip.member.dx[m])
		}
	}
	return t
}

func (ip *interior) move(t float64) {
	for i, d := range ip.dmu {
		ip.mu[i] += t * d
	}
	for r, d := range ip.dlambda {
		ip.lambda[r] += t * d
	}
	arc := &ip.arc
	x, z, dx, dz := arc.x, arc.z[:len(arc.x)], arc.dx[:len(arc.x)], arc.dz[:len(arc.x)]
	for a := range x {
		x[a] += t * dx[a]
		z[a] += t * dz[a]
	}
	for _, a := range ip.n.bounded {
		arc.s[a] -= t * dx[a]
		arc.w[a] += t * arc.dw[a]
	}
	ip.member.move(t)
	ip.shed.move(t)
}

func (b *block) move(t float64) {
	for k, dx := range b.dx {
		b.x[k] += t * dx
		b.s[k] -= t * dx
		b.z[k] += t * b.dz[k]
		b.w[k] += t * b.dw[k]
	}
}
