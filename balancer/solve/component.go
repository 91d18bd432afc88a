package solve

import (
	"math"
	"slices"

	"penstock/balancer/problem"
)

// layout lists the demand rows and groups of each component, and says where
// they went in its net.
type layout struct {
	rowsStart   []int32 // the demand rows of component k are rowList[rowsStart[k]:rowsStart[k+1]]
	rowList     []int32
	groupsStart []int32
	groupList   []int32

	rowOf     []int32 // by demand row: its row in the net of its component
	shedOf    []int32 // by demand row: its shed there
	memberOf  []int32 // by unit: its first member there
	membersOf []int32 // by unit: how many

	shedWork [][problem.Priorities]float64 // by row of the net being built: work by priority
	keptFor  []float64                     // by group of the net being built: kept flow of one demand row
	table    table
}

func (l *layout) list(g *grouping) {
	l.rowsStart = zeroed(l.rowsStart, g.components+1)
	l.groupsStart = zeroed(l.groupsStart, g.components+1)
	for c, d := range g.p.Demand {
		if g.work[c] > 0 {
			l.rowsStart[g.component[d.Class]+1]++
		}
	}
	for i := range g.groups {
		l.groupsStart[g.groups[i].component+1]++
	}
	for k := range g.components {
		l.rowsStart[k+1] += l.rowsStart[k]
		l.groupsStart[k+1] += l.groupsStart[k]
	}
	l.rowList, l.groupList = sized(l.rowList, int(l.rowsStart[g.components])), sized(l.groupList, len(g.groups))
	g.fill = sized(g.fill, g.components)
	copy(g.fill, l.rowsStart)
	for c, d := range g.p.Demand {
		if g.work[c] > 0 {
			at := &g.fill[g.component[d.Class]]
			l.rowList[*at] = int32(c)
			*at++
		}
	}
	copy(g.fill, l.groupsStart)
	for i := range g.groups {
		k := g.groups[i].component
		l.groupList[g.fill[k]] = int32(i)
		g.groups[i].local = g.fill[k] - l.groupsStart[k]
		g.fill[k]++
	}
	l.rowOf, l.shedOf = sized(l.rowOf, len(g.p.Demand)), sized(l.shedOf, len(g.p.Demand))
	l.memberOf, l.membersOf = sized(l.memberOf, len(g.units)), sized(l.membersOf, len(g.units))
}

func (l *layout) rows(component int) []int32 {
	return l.rowList[l.rowsStart[component]:l.rowsStart[component+1]]
}

func (l *layout) groups(component int) []int32 {
	return l.groupList[l.groupsStart[component]:l.groupsStart[component+1]]
}

// build makes the net of a component.
func (l *layout) build(g *grouping, component int, n *net) {
	rows, groups := l.rows(component), l.groups(component)
	total := 0.0
	for _, c := range rows {
		total += g.work[c]
	}
	// A power of two: flows change in exponent only.
	_, exponent := math.Frexp(total)
	exponent = min(max(exponent, -1000), 1000)
	n.scale = math.Ldexp(1, exponent)
	l.addMembers(g, groups, n)
	l.addRows(g, rows, groups, n)
	l.addSheds(g, rows, n)
	n.steepen()
}

func (l *layout) addMembers(g *grouping, groups []int32, n *net) {
	n.member, n.membersOf, n.capacity = n.member[:0], append(n.membersOf[:0], 0), n.capacity[:0]
	for _, r := range groups {
		start := len(n.member)
		for _, u := range g.unitsOf(r) {
			l.memberOf[u] = int32(len(n.member))
			n.addUnit(&g.p.Engines[g.units[u].first], g.units[u].capacity)
			l.membersOf[u] = int32(len(n.member)) - l.memberOf[u]
		}
		n.membersOf = append(n.membersOf, int32(len(n.member)))
		capacity := 0.0
		for i := range n.member[start:] {
			capacity += n.member[start+i].most
		}
		n.capacity = append(n.capacity, capacity)
	}
}

// addUnit appends the members of engines that are copies of e and have this
// capacity together.
func (n *net) addUnit(e *problem.Engine, capacity float64) {
	times := capacity / e.Capacity / n.scale
	capacity /= n.scale
	if len(e.Latency.Points) == 0 {
		n.member = append(n.member, curve(e.Latency.Base, e.Latency.Slope, e.Latency.Limit*times, capacity))
		return
	}
	// y T(y) has the derivative T_k + s (2y - y_k) on the segment from y_k.
	points := e.Latency.Points
	before := 0.0
	for k := 0; k+1 < len(points) && points[k].Load < e.Capacity; k++ {
		a, b := points[k], points[k+1]
		end, s := min(b.Load, e.Capacity), (b.Time-a.Time)/(b.Load-a.Load)
		low := max(a.Time+s*a.Load, before) // rounded points may be a little concave
		before = max(a.Time+s*(2*end-a.Load), low)
		n.member = append(n.member, ramp(low, before, (end-a.Load)*times))
	}
}

// addRows makes the rows and arcs. Demand rows without kept flow that have the
// same arcs become one.
func (l *layout) addRows(g *grouping, rows, groups []int32, n *net) {
	n.demand, n.move, n.arcsOf = n.demand[:0], n.move[:0], append(n.arcsOf[:0], 0)
	n.row, n.group, n.price, n.most, n.bounded = n.row[:0], n.group[:0], n.price[:0], n.most[:0], n.bounded[:0]
	l.table.reset(len(rows))
	l.keptFor = zeroed(l.keptFor, len(groups))
	for _, c := range rows {
		i, start := int32(len(n.demand)), len(n.price)
		h := l.addArcs(g, int(c), groups, n)
		if !g.previous[c] {
			same := l.table.find(h, func(k int32) bool {
				from, to := n.arcsOf[k], n.arcsOf[k+1]
				return slices.Equal(n.price[from:to], n.price[start:]) && slices.Equal(n.group[from:to], n.group[start:])
			})
			if same >= 0 {
				n.row, n.group, n.price, n.most = n.row[:start], n.group[:start], n.price[:start], n.most[:start]
				n.demand[same] += g.work[c] / n.scale
				l.rowOf[c] = same
				continue
			}
			l.table.add(h, i)
		}
		l.rowOf[c] = i
		n.demand = append(n.demand, g.work[c]/n.scale)
		n.move = append(n.move, l.movePrice(g, int(c)))
		n.arcsOf = append(n.arcsOf, int32(len(n.price)))
	}
}

// addArcs appends the arcs of a demand row and returns their hash. Kept flow is
// an arc of its own, with a bound and without the move price.
func (l *layout) addArcs(g *grouping, c int, groups []int32, n *net) (h uint64) {
	p := g.p
	d := p.Demand[c]
	class, trips := &p.Classes[d.Class], p.RTT[d.Source]
	work, move := class.Work, l.movePrice(g, c)
	if g.previous[c] {
		l.sumKept(g, c)
	}
	for k, r := range groups {
		first := g.groups[r].first
		if !g.allows(d.Class, first) {
			continue
		}
		price := class.DistanceWeight * trips[p.Engines[first].Place] / work
		if kept := l.keptFor[k]; kept > 0 {
			n.bounded = append(n.bounded, int32(len(n.price)))
			n.addArc(len(n.demand), k, price, kept/n.scale)
			l.keptFor[k] = 0
		}
		n.addArc(len(n.demand), k, price+move, math.Inf(1))
		h = mixFloat(mix(h, uint64(k)), price)
	}
	return h
}

// movePrice is that of a unit of work of a demand row.
func (l *layout) movePrice(g *grouping, c int) float64 {
	if !g.previous[c] {
		return 0
	}
	return g.p.MovePrice / g.p.Classes[g.p.Demand[c].Class].Work
}

func (n *net) addArc(row, group int, price, most float64) {
	n.row, n.group = append(n.row, int32(row)), append(n.group, int32(group))
	n.price, n.most = append(n.price, price), append(n.most, most)
}

// sumKept sums the kept flow of a demand row by group of the net.
func (l *layout) sumKept(g *grouping, c int) {
	d := g.p.Demand[c]
	for _, w := range g.p.Previous[g.rows[[2]int{d.Source, d.Class}]].Weights {
		if u := g.unitOf[w.Engine]; u >= 0 && w.Weight > 0 && g.allows(d.Class, int32(w.Engine)) {
			l.keptFor[g.groups[g.units[u].group].local] += w.Weight * g.work[c]
		}
	}
}

// lastFlow sets the flow of the last table at the demand of now, and reports
// whether there is one.
func (l *layout) lastFlow(g *grouping, component int, n *net, flow []float64) (has bool) {
	clear(flow)
	for _, c := range l.rows(component) {
		d := g.p.Demand[c]
		if _, known := g.rows[[2]int{d.Source, d.Class}]; !known {
			continue
		}
		has = true
		l.sumKept(g, int(c))
		for a := n.arcsOf[l.rowOf[c]]; a < n.arcsOf[l.rowOf[c]+1]; a++ {
			v := min(l.keptFor[n.group[a]]/n.scale, n.most[a])
			l.keptFor[n.group[a]] = 0
			flow[a] += v
		}
	}
	for i, d := range n.demand {
		of := flow[n.arcsOf[i]:n.arcsOf[i+1]]
		if part := d / sum(of); part < 1 { // the weights may sum to 1e-6 more than 1
			for a := range of {
				of[a] *= part
			}
		}
	}
	return has
}

// addSheds gives each row a shed for each priority that its demand rows have.
func (l *layout) addSheds(g *grouping, rows []int32, n *net) {
	l.shedWork = zeroed(l.shedWork, n.rows())
	for _, c := range rows {
		l.shedWork[l.rowOf[c]][g.p.Classes[g.p.Demand[c].Class].Priority] += g.work[c] / n.scale
	}
	n.shed, n.shedsOf = n.shed[:0], append(n.shedsOf[:0], 0)
	for i := range n.demand {
		n.demand[i] = 0
		for q, work := range l.shedWork[i] {
			if work > 0 {
				price := g.p.ShedPrice[q]
				n.shed = append(n.shed, ramp(price, price*(1+g.p.ShedCurvature), work))
				n.demand[i] += work // the same sum as the sheds can take
			}
		}
		n.shedsOf = append(n.shedsOf, int32(len(n.shed)))
	}
	for _, c := range rows {
		i, q := l.rowOf[c], g.p.Classes[g.p.Demand[c].Class].Priority
		l.shedOf[c] = n.shedsOf[i]
		for k := range q {
			if l.shedWork[i][k] > 0 {
				l.shedOf[c]++
			}
		}
	}
}

// steepen makes flat marginal costs rise, and sets the scales of costs.
func (n *net) steepen() {
	cost, demand, most := 0.0, 0.0, 0.0
	for i, d := range n.demand {
		least := math.Inf(1)
		for _, s := range n.shed[n.shedsOf[i]:n.shedsOf[i+1]] {
			least = min(least, s.high)
		}
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			r := n.group[a]
			low := math.Inf(1)
			for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
				low = min(low, n.member[m].low)
			}
			least = min(least, n.price[a]+low)
			most = max(most, n.price[a])
		}
		cost += d * least
		demand += d
	}
	n.cost, n.total = cost/demand, demand
	if n.cost == 0 {
		n.cost = 1
	}
	n.steep = max(most, n.cost)
	for i := range n.shed {
		n.shed[i].steepen(n.cost)
	}
	for i := range n.member {
		n.member[i].steepen(n.cost)
	}
}
