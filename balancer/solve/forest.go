package solve

import (
	"cmp"
	"slices"
)

// forest solves a net exactly from a flow that is near the optimum. Optimal
// flows need no cycle of arcs, so the arcs in use (basic arcs) form trees over
// rows and groups. On a tree all prices follow from one, because an arc in use
// has mu_i = price_a + lambda_r; that one price is the root of
//
//	sum of loads at these prices + sum of sheds at these prices = demand of the tree
//
// which rises in it (root.go); and given loads and sheds the flows follow from
// the leaves. So a choice of basic arcs gives prices and flows to the last
// digit, however steep the costs. The choice is improved as in the simplex
// method (pivot.go):
//
//   - settle moves the flow towards what the trees want; an arc that would go
//     below 0 (or above its bound) stops the move there and leaves its tree;
//   - enter takes in an arc whose reduced cost price_a + lambda_r - mu_i is
//     negative (or positive at its bound): it joins two trees, or the cycle it
//     closes is pushed until an arc of it is at a bound.
//
// Both lower the objective, or leave it equal where flows are at ties.
//
// Nodes are the rows, then the groups. Basic arcs have slots, so that walking a
// tree stays in a few small arrays.
type forest struct {
	n *net

	state []arcState // by arc
	slot  []int32    // by arc, where basic
	held  []float64  // by node: flow of its arcs that are at their bound

	slots []basicArc
	free  []int32
	head  []int32 // by node: half-edge+1 of its first slot; half-edges of slot k are 2k at the row, 2k+1 at the group
	next  []int32 // by half-edge
	prev  []int32

	node  []place   // by node
	root  []float64 // by root: its price
	slope []float64 // by root: how much more the tree takes per rise of its price, as settled last

	ceiling float64 // above every price of an optimum

	load  []float64 // by member, as settled last
	shed  []float64 // by shed
	wants []float64 // by node: load of a group, shed of a row; then what its subtree lacks

	order   []int32 // nodes of the tree in hand, parents first
	inHand  int32   // its root; -1 where order is stale
	pending []int32 // roots of trees to settle

	cycle    []cycleStep
	entering []candidate
	tired    []int32 // arcs that left as soon as they had entered, until the flow moves
	isTired  []bool  // by arc
	pivots   int
}

type arcState uint8

const (
	atZero arcState = iota
	atMost
	basic
)

// basicArc is an arc in use.
type basicArc struct {
	arc        int32
	row, group int32 // nodes
	price      float64
	most       float64
	flow       float64
	aim        float64 // the flow that the tree wants
}

// place is where a node is in its tree.
type place struct {
	tree   int32 // root
	up     int32 // slot of the arc to its parent; -1 at a root
	depth  int32
	offset float64 // its price minus that of its root
}

// candidate is an arc that may enter, and how much it promises.
type candidate struct {
	arc   int32
	worth float64
}

// leastShare is the share of a row's demand below which a flow of a method that
// stays inside is taken for none.
const leastShare = 1e-7

// begin takes up a flow: its arcs form the first trees.
func (f *forest) begin(n *net, flow []float64) {
	f.n = n
	nodes, arcs := n.rows()+n.groups(), n.arcs()
	f.state, f.slot, f.held = zeroed(f.state, arcs), sized(f.slot, arcs), zeroed(f.held, nodes)
	f.slots, f.free = f.slots[:0], f.free[:0]
	f.head, f.next, f.prev = zeroed(f.head, nodes), f.next[:0], f.prev[:0]
	f.node, f.root, f.slope = sized(f.node, nodes), zeroed(f.root, nodes), zeroed(f.slope, nodes)
	f.load, f.shed, f.wants = sized(f.load, len(n.member)), sized(f.shed, len(n.shed)), sized(f.wants, nodes)
	f.isTired, f.tired = zeroed(f.isTired, arcs), f.tired[:0]
	f.entering, f.inHand = f.entering[:0], -1
	f.ceiling = n.steep
	for k := range n.shed {
		f.ceiling = max(f.ceiling, 4*(n.shed[k].high+n.steep))
	}
	for i, d := range n.demand {
		small := leastShare * d
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			switch v := flow[a]; {
			case v >= n.most[a]-min(small, leastShare*n.most[a]):
				f.setBound(a, atMost)
			case v > small:
				f.entering = append(f.entering, candidate{a, v})
			}
		}
	}
	slices.SortFunc(f.entering, func(a, b candidate) int { return cmp.Compare(b.worth, a.worth) })
	f.plant()
	f.pivots = 0
}

// plant makes trees of the largest flows in entering. A smaller one that would
// close a cycle is pushed around it until one arc of it is at a bound.
func (f *forest) plant() {
	for u := range f.node {
		f.node[u].tree = int32(u)
	}
	top := func(u int32) int32 {
		for f.node[u].tree != u {
			f.node[u].tree = f.node[f.node[u].tree].tree
			u = f.node[u].tree
		}
		return u
	}
	rest := f.entering[:0]
	for _, c := range f.entering {
		i, r := f.ends(c.arc)
		if p, q := top(i), top(r); p != q {
			f.node[max(p, q)].tree = min(p, q)
			f.link(c.arc, c.worth)
		} else {
			rest = append(rest, c)
		}
	}
	for u := range f.node {
		f.node[u].tree = -1
	}
	for u := range f.node {
		if f.node[u].tree < 0 {
			f.walk(int32(u))
		}
	}
	for _, c := range rest {
		way := -1.0
		if f.reduced(c.arc) < 0 {
			way = 1
		}
		f.push(c.arc, c.worth, way)
	}
}

func (f *forest) ends(a int32) (row, group int32) {
	return f.n.row[a], int32(f.n.rows()) + f.n.group[a]
}

// setBound puts an arc that is not basic at a bound.
func (f *forest) setBound(a int32, to arcState) {
	if f.state[a] == to {
		return
	}
	i, r := f.ends(a)
	flow := f.n.most[a]
	if to == atZero {
		flow = -flow
	}
	f.state[a] = to
	f.held[i] += flow
	f.held[r] += flow
}

// link gives an arc a slot and puts it in the lists of its nodes.
func (f *forest) link(a int32, flow float64) {
	if f.state[a] == atMost {
		f.setBound(a, atZero)
	}
	f.state[a] = basic
	i, r := f.ends(a)
	arc := basicArc{arc: a, row: i, group: r, price: f.n.price[a], most: f.n.most[a], flow: flow}
	var k int32
	if last := len(f.free) - 1; last >= 0 {
		k = f.free[last]
		f.free = f.free[:last]
		f.slots[k] = arc
	} else {
		k = int32(len(f.slots))
		f.slots = append(f.slots, arc)
		f.next, f.prev = append(f.next, 0, 0), append(f.prev, 0, 0)
	}
	f.slot[a] = k
	f.linkHalf(2*k, i)
	f.linkHalf(2*k+1, r)
	f.inHand = -1
}

func (f *forest) linkHalf(half, node int32) {
	f.next[half], f.prev[half] = f.head[node], 0
	if f.head[node] != 0 {
		f.prev[f.head[node]-1] = half + 1
	}
	f.head[node] = half + 1
}

// unlink takes the arc of a slot out of its tree, to a bound.
func (f *forest) unlink(k int32, to arcState) {
	s := &f.slots[k]
	f.unlinkHalf(2*k, s.row)
	f.unlinkHalf(2*k+1, s.group)
	f.free = append(f.free, k)
	f.state[s.arc] = atZero
	f.setBound(s.arc, to)
	f.inHand = -1
}

func (f *forest) unlinkHalf(half, node int32) {
	next, prev := f.next[half], f.prev[half]
	if prev != 0 {
		f.next[prev-1] = next
	} else {
		f.head[node] = next
	}
	if next != 0 {
		f.prev[next-1] = prev
	}
}

// walk goes through the tree of a root and leaves its nodes in order.
func (f *forest) walk(root int32) {
	if f.inHand == root {
		return
	}
	f.node[root] = place{tree: root, up: -1}
	f.walkFrom(root)
	f.inHand = root
}

// hang places a node, and all that is connected to it by other arcs than that
// of slot up, under a parent.
func (f *forest) hang(node, parent, up int32) {
	at := f.node[parent]
	step := f.slots[up].price
	if parent < int32(f.n.rows()) {
		step = -step
	}
	f.node[node] = place{at.tree, up, at.depth + 1, at.offset + step}
	f.walkFrom(node)
	f.inHand = -1
}

// walkFrom places what is below a node.
func (f *forest) walkFrom(node int32) {
	rows := int32(f.n.rows())
	f.order = append(f.order[:0], node)
	for k := 0; k < len(f.order); k++ {
		u := f.order[k]
		at := f.node[u]
		for half := f.head[u]; half != 0; half = f.next[half-1] {
			slot := (half - 1) / 2
			if slot == at.up {
				continue
			}
			s := &f.slots[slot]
			v, step := s.row, s.price
			if u < rows {
				v, step = s.group, -step
			}
			f.node[v] = place{at.tree, slot, at.depth + 1, at.offset + step}
			f.order = append(f.order, v)
		}
	}
}

// parent is the node above.
func (f *forest) parent(u int32) int32 {
	s := &f.slots[f.node[u].up]
	if s.row == u {
		return s.group
	}
	return s.row
}

// reduced is the reduced cost of an arc. Within a tree the price of its root
// cancels, which keeps the digits that tell routes apart near saturation.
func (f *forest) reduced(a int32) float64 {
	i, r := f.ends(a)
	p, q := &f.node[r], &f.node[i]
	v := f.n.price[a] + p.offset - q.offset
	if p.tree != q.tree {
		v += f.root[p.tree] - f.root[q.tree]
	}
	return v
}

// mu and lambda are the prices of a row and a group.
func (f *forest) mu(i int) float64     { return f.node[i].offset + f.root[f.node[i].tree] }
func (f *forest) lambda(r int) float64 { return f.mu(f.n.rows() + r) }

// flow is that of an arc.
func (f *forest) flow(a int32) float64 {
	switch f.state[a] {
	case basic:
		return f.slots[f.slot[a]].flow
	case atMost:
		return f.n.most[a]
	}
	return 0
}
