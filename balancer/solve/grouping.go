package solve

import (
	"math"
	"slices"

	"penstock/balancer/problem"
)

// grouping takes equal engines and rows together, without any loss.
//
// A unit is engines that are copies of each other up to their size: same round
// trips, same classes, same latency at equal utilisation, same kept flow in
// proportion to their capacity. By convexity the optimum loads them in that
// proportion. A group is units with the same round trips and classes and no
// kept flow: to a row they are one engine whose members fill by marginal cost.
// Rows with the same costs on the same groups are one row that sheds by several
// members. A component is what is connected by classes and groups.
type grouping struct {
	p *problem.Problem

	work   []float64 // of a demand row: units/s; 0 takes no part
	mask   []uint64  // by engine: the classes in use that may use it
	words  int       // of an engine's mask
	column []int32   // by place: equal where all round trips are
	unitOf []int32   // by engine; -1 takes no part
	units  []unit
	groups []group

	engineOf   []int32 // the engines of unit u are engineOf[units[u].start:units[u].end]
	unitsStart []int32 // the units of group g are unitList[unitsStart[g]:unitsStart[g+1]]
	unitList   []int32

	keptStart []int32 // the kept flows of engine j are kept[keptStart[j]:keptStart[j+1]], by demand row
	kept      []keptFlow
	previous  []bool // by demand row: it has kept flows

	component  []int32 // by class; of groups in group.component
	components int

	table table
	hash  []uint64
	fill  []int32
	used  []bool
	rows  map[[2]int]int
}

type unit struct {
	group      int32
	first      int32 // one of its engines
	start, end int32
	capacity   float64
}

type group struct {
	first     int32 // one of its engines
	component int32
	local     int32 // index in its component's net
}

// keptFlow is the flow of a demand row that may stay on an engine for nothing.
type keptFlow struct {
	row  int32
	flow float64 // units/s
}

func (g *grouping) build(p *problem.Problem) {
	g.p = p
	g.work = sized(g.work, len(p.Demand))
	for c, d := range p.Demand {
		g.work[c] = d.Rate * p.Classes[d.Class].Work
	}
	g.markClasses()
	g.matchColumns()
	g.keepFlows()
	g.formUnits()
	g.listUnits()
	g.connect()
}

// markClasses notes for each engine which classes with demand may use it.
func (g *grouping) markClasses() {
	p := g.p
	g.used = zeroed(g.used, len(p.Classes))
	for c, d := range p.Demand {
		g.used[d.Class] = g.used[d.Class] || g.work[c] > 0
	}
	g.words = (len(p.Classes) + 63) / 64
	g.mask = zeroed(g.mask, g.words*len(p.Engines))
	for k := range p.Classes {
		if !g.used[k] {
			continue
		}
		bit, word := uint64(1)<<(k%64), k/64
		class := &p.Classes[k]
		if class.All {
			for j := range p.Engines {
				g.mask[j*g.words+word] |= bit
			}
			continue
		}
		for _, j := range class.Engines {
			g.mask[j*g.words+word] |= bit
		}
	}
}

// allows reports whether a class with demand may use an engine.
func (g *grouping) allows(class int, engine int32) bool {
	return g.mask[int(engine)*g.words+class/64]>>(class%64)&1 != 0
}

func (g *grouping) maskOf(engine int32) []uint64 {
	return g.mask[int(engine)*g.words : int(engine+1)*g.words]
}

// matchColumns finds places with equal round trips to every source with demand.
func (g *grouping) matchColumns() {
	p := g.p
	g.used = zeroed(g.used, len(p.Sources))
	for c, d := range p.Demand {
		g.used[d.Source] = g.used[d.Source] || g.work[c] > 0
	}
	places := 0
	if len(p.RTT) > 0 {
		places = len(p.RTT[0])
	}
	g.hash, g.column = zeroed(g.hash, places), sized(g.column, places)
	for s, trips := range p.RTT {
		if g.used[s] {
			for k, v := range trips {
				g.hash[k] = mixFloat(g.hash[k], v)
			}
		}
	}
	g.table.reset(places)
	for k := range g.column {
		same := g.table.find(g.hash[k], func(other int32) bool {
			for s, trips := range p.RTT {
				if g.used[s] && math.Float64bits(trips[k]) != math.Float64bits(trips[other]) {
					return false
				}
			}
			return true
		})
		if same < 0 {
			same = int32(k)
			g.table.add(g.hash[k], same)
		}
		g.column[k] = same
	}
}

// keepFlows lists by engine what the last table gives it, where moving costs.
func (g *grouping) keepFlows() {
	p := g.p
	g.previous = zeroed(g.previous, len(p.Demand))
	g.keptStart = zeroed(g.keptStart, len(p.Engines)+1)
	g.kept = g.kept[:0]
	g.matchRows()
	if p.MovePrice == 0 || len(p.Previous) == 0 {
		return
	}
	each := func(do func(c int32, w problem.Share)) {
		for c, d := range p.Demand {
			if at, has := g.rows[[2]int{d.Source, d.Class}]; has && g.work[c] > 0 {
				g.previous[c] = true
				for _, w := range p.Previous[at].Weights {
					if w.Weight*g.work[c] > 0 {
						do(int32(c), w)
					}
				}
			}
		}
	}
	total := int32(0)
	each(func(_ int32, w problem.Share) { g.keptStart[w.Engine+1]++; total++ })
	for j := range p.Engines {
		g.keptStart[j+1] += g.keptStart[j]
	}
	g.kept = sized(g.kept, int(total))
	g.fill = sized(g.fill, len(p.Engines))
	copy(g.fill, g.keptStart)
	each(func(c int32, w problem.Share) {
		g.kept[g.fill[w.Engine]] = keptFlow{c, w.Weight * g.work[c]}
		g.fill[w.Engine]++
	})
}

func (g *grouping) matchRows() {
	if g.rows == nil {
		g.rows = make(map[[2]int]int)
	}
	clear(g.rows)
	for i, row := range g.p.Previous {
		g.rows[[2]int{row.Source, row.Class}] = i
	}
}

// warm reports whether the last table tells where most of the demand went.
func (g *grouping) warm() bool {
	known, total := 0.0, 0.0
	for c, d := range g.p.Demand {
		total += g.work[c]
		if _, has := g.rows[[2]int{d.Source, d.Class}]; has {
			known += g.work[c]
		}
	}
	return known > total/2
}

func (g *grouping) keptOf(engine int32) []keptFlow {
	return g.kept[g.keptStart[engine]:g.keptStart[engine+1]]
}

func (g *grouping) formUnits() {
	p := g.p
	g.units, g.groups = g.units[:0], g.groups[:0]
	g.unitOf = sized(g.unitOf, len(p.Engines))
	g.table.reset(2 * len(p.Engines))
	const asGroup, asUnit = 1, 2
	for j := range p.Engines {
		e, id := &p.Engines[j], int32(j)
		g.unitOf[j] = -1
		if e.Capacity == 0 || !slices.ContainsFunc(g.maskOf(id), func(w uint64) bool { return w != 0 }) {
			continue
		}
		h := uint64(g.column[e.Place])
		for _, w := range g.maskOf(id) {
			h = mix(h, w)
		}
		key := g.hashUnit(mix(h, asUnit), id)
		u := g.table.find(key, func(i int32) bool {
			return i&1 == asUnit>>1 && g.sameUnit(g.units[i>>1].first, id)
		})
		if u < 0 {
			at := int32(-1)
			if len(g.keptOf(id)) == 0 {
				at = g.table.find(mix(h, asGroup), func(i int32) bool {
					return i&1 == asGroup>>1 && g.samePlace(g.groups[i>>1].first, id)
				})
			}
			if at < 0 {
				at = int32(len(g.groups)) << 1
				g.groups = append(g.groups, group{first: id})
				if len(g.keptOf(id)) == 0 {
					g.table.add(mix(h, asGroup), at)
				}
			}
			u = int32(len(g.units))<<1 | 1
			g.units = append(g.units, unit{group: at >> 1, first: id})
			g.table.add(key, u)
		}
		g.unitOf[j] = u >> 1
		g.units[u>>1].capacity += e.Capacity
		g.units[u>>1].end++ // counted here, placed by listUnits
	}
}

func (g *grouping) samePlace(a, b int32) bool {
	return g.column[g.p.Engines[a].Place] == g.column[g.p.Engines[b].Place] && slices.Equal(g.maskOf(a), g.maskOf(b))
}

func (g *grouping) hashUnit(h uint64, j int32) uint64 {
	e := &g.p.Engines[j]
	l := &e.Latency
	switch {
	case len(l.Points) > 0:
		h = mixFloat(h, e.Capacity)
		for _, pt := range l.Points {
			h = mixFloat(mixFloat(h, pt.Load), pt.Time)
		}
	case l.Slope > 0:
		h = mixFloat(mixFloat(mixFloat(h, l.Base), l.Slope), l.Limit/e.Capacity)
	default:
		h = mixFloat(h, l.Base)
	}
	for _, k := range g.keptOf(j) {
		h = mixFloat(mix(h, uint64(k.row)), k.flow/e.Capacity)
	}
	return h
}

// sameUnit reports whether two engines are copies up to their size.
func (g *grouping) sameUnit(a, b int32) bool {
	ea, eb := &g.p.Engines[a], &g.p.Engines[b]
	la, lb := &ea.Latency, &eb.Latency
	switch {
	case !g.samePlace(a, b) || len(la.Points) != len(lb.Points):
		return false
	case len(la.Points) > 0:
		if ea.Capacity != eb.Capacity || !slices.Equal(la.Points, lb.Points) {
			return false
		}
	case la.Base != lb.Base || la.Slope != lb.Slope || la.Slope > 0 && la.Limit/ea.Capacity != lb.Limit/eb.Capacity:
		return false
	}
	return slices.EqualFunc(g.keptOf(a), g.keptOf(b), func(x, y keptFlow) bool {
		return x.row == y.row && x.flow/ea.Capacity == y.flow/eb.Capacity
	})
}

// listUnits lays out the engines of each unit and the units of each group.
func (g *grouping) listUnits() {
	at := int32(0)
	g.unitsStart = zeroed(g.unitsStart, len(g.groups)+1)
	for i := range g.units {
		u := &g.units[i]
		u.start, u.end, at = at, at, at+u.end
		g.unitsStart[u.group+1]++
	}
	g.engineOf = sized(g.engineOf, int(at))
	for j, u := range g.unitOf {
		if u >= 0 {
			g.engineOf[g.units[u].end] = int32(j)
			g.units[u].end++
		}
	}
	for i := range g.groups {
		g.unitsStart[i+1] += g.unitsStart[i]
	}
	g.unitList, g.fill = sized(g.unitList, len(g.units)), sized(g.fill, len(g.groups))
	copy(g.fill, g.unitsStart)
	for i := range g.units {
		r := g.units[i].group
		g.unitList[g.fill[r]] = int32(i)
		g.fill[r]++
	}
}

func (g *grouping) unitsOf(group int32) []int32 {
	return g.unitList[g.unitsStart[group]:g.unitsStart[group+1]]
}

// connect numbers the components: classes with demand that share a group.
func (g *grouping) connect() {
	classes := len(g.p.Classes)
	g.component = sized(g.component, classes)
	parent := g.component
	for k := range parent {
		parent[k] = int32(k)
	}
	find := func(k int32) int32 {
		for parent[k] != k {
			parent[k] = parent[parent[k]]
			k = parent[k]
		}
		return k
	}
	for i := range g.groups {
		first := int32(-1)
		for k := range classes {
			if g.allows(k, g.groups[i].first) {
				if first < 0 {
					first = int32(k)
				}
				// The smaller root stays, so that a root comes before its classes.
				a, b := find(first), find(int32(k))
				parent[max(a, b)] = min(a, b)
			}
		}
		g.groups[i].component = first
	}
	g.components = 0
	g.fill = sized(g.fill, classes)
	for k := range classes {
		if root := find(int32(k)); int(root) == k {
			g.fill[k] = int32(g.components)
			g.components++
		} else {
			g.fill[k] = g.fill[root]
		}
	}
	copy(parent, g.fill)
	for i := range g.groups {
		g.groups[i].component = parent[g.groups[i].component]
	}
}
