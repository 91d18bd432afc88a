package solve

import "math"

// start gives every variable a value inside its bounds, with balances met, and
// multipliers on the central path for prices near those loads.
func (ip *interior) start() {
	n := ip.n
	ip.arc.reset(n.arcs())
	ip.member.reset(len(n.member))
	ip.shed.reset(len(n.shed))
	ip.mu, ip.dmu, ip.rowRest = sized(ip.mu, n.rows()), sized(ip.dmu, n.rows()), sized(ip.rowRest, n.rows())
	ip.lambda, ip.dlambda, ip.groupRest = sized(ip.lambda, n.groups()), sized(ip.dlambda, n.groups()), sized(ip.groupRest, n.groups())
	ip.schur.reset(n)
	ip.startFlows()
	ip.startLoads()
	ip.startPrices()
	ip.centre()
}

// Groups start filled to at most startFill of their capacity, rows served to at
// most startServed of their demand.
const (
	startFill   = 0.6
	startServed = 0.95
)

// startFlows gives the groups of a row flow in proportion to their capacities.
func (ip *interior) startFlows() {
	n := ip.n
	load := zeroed(ip.groupRest, n.groups())
	for i, d := range n.demand {
		total := 0.0
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			total += min(n.capacity[n.group[a]], d)
		}
		equal := d / float64(n.arcsOf[i+1]-n.arcsOf[i])
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			x := startServed * d * min(n.capacity[n.group[a]], d) / total
			x = min(x, n.most[a]/2)
			ip.arc.x[a], ip.arc.weight[a] = x, min(equal, n.most[a])
			load[n.group[a]] += x
		}
	}
	for a := range ip.arc.x {
		if part := startFill * n.capacity[n.group[a]] / load[n.group[a]]; part < 1 {
			ip.arc.x[a] *= part
		}
	}
}

// coldFlow is a flow to begin with where nothing else is known.
func (ip *interior) coldFlow(n *net, flow []float64) {
	ip.n = n
	ip.arc.reset(n.arcs())
	ip.groupRest = sized(ip.groupRest, n.groups())
	ip.startFlows()
	copy(flow, ip.arc.x)
}

// startLoads fills the members of a group alike and sheds the rest of each row.
func (ip *interior) startLoads() {
	n := ip.n
	load := zeroed(ip.groupRest, n.groups())
	for a, x := range ip.arc.x {
		load[n.group[a]] += x
	}
	for r, y := range load {
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			most := n.member[m].most
			x := most * (y / n.capacity[r])
			ip.member.x[m], ip.member.s[m], ip.member.weight[m] = x, most-x, min(most, 1)
		}
	}
	for i, d := range n.demand {
		served := 0.0
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			served += ip.arc.x[a]
		}
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			most := n.shed[k].most
			ip.shed.x[k], ip.shed.s[k], ip.shed.weight[k] = most*(1-served/d), most*(served/d), most
		}
	}
	for _, a := range n.bounded {
		ip.arc.s[a] = n.most[a] - ip.arc.x[a]
	}
}

// startPrices takes for a group the mean marginal cost of its members, for a
// row its cheapest group.
func (ip *interior) startPrices() {
	n := ip.n
	for r := range ip.lambda {
		sum := 0.0
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			h, _ := n.member[m].marginal(ip.member.s[m])
			sum += h * n.member[m].most
		}
		ip.lambda[r] = sum / n.capacity[r]
	}
	for i := range ip.mu {
		ip.mu[i] = math.Inf(1)
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			ip.mu[i] = min(ip.mu[i], n.price[a]+ip.lambda[n.group[a]])
		}
	}
}

// centre gives all variables multipliers x z = s w = tau omega, for a tau of the
// size of the costs that are not in balance.
func (ip *interior) centre() {
	n := ip.n
	off, weight := 0.0, 0.0
	for a, x := range ip.arc.x {
		off += x * math.Abs(n.price[a]+ip.lambda[n.group[a]]-ip.mu[n.row[a]])
		weight += ip.arc.weight[a]
	}
	for i, mu := range ip.mu {
		for k := n.shedsOf[i]; k < n.shedsOf[i+1]; k++ {
			h, _ := n.shed[k].marginal(ip.shed.s[k])
			off += ip.shed.x[k] * math.Abs(h-mu)
			weight += ip.shed.weight[k]
		}
	}
	tau := max(off, n.cost) / weight
	for a, x := range ip.arc.x {
		ip.arc.z[a] = tau * ip.arc.weight[a] / x
	}
	for _, a := range n.bounded {
		ip.arc.w[a] = tau * ip.arc.weight[a] / ip.arc.s[a]
		ip.arc.dx[a], ip.arc.dw[a] = 0, 0
	}
	for _, b := range [...]*block{&ip.member, &ip.shed} {
		for k, x := range b.x {
			b.z[k], b.w[k] = tau*b.weight[k]/x, tau*b.weight[k]/b.s[k]
			b.dx[k], b.dz[k], b.dw[k] = 0, 0, 0
		}
	}
}
