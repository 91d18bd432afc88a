package solve

import (
	"cmp"
	"math"
	"slices"
)

const (
	// flowSlack is the share of a row's demand that a flow may be beyond its
	// bound by rounding.
	flowSlack = 1e-13
	// balanceSlack is the same as a share of the need of the tree.
	balanceSlack = 4e-15
	// roundOff is the rounding error of sums, relative to their terms.
	roundOff = 4e-16
	// costSlack is the rounding error of reduced costs, relative to costs.
	costSlack = 1e-13
	// noPromise is the share of the cost that is not worth a long run of pivots:
	// ties of rounding can make one.
	noPromise = 1e-11
)

// improve settles and takes in arcs until no arc is worth it, or most pivots
// were made. It reports whether it came to the end.
func (f *forest) improve(most int) bool {
	f.pending = f.pending[:0]
	for u := range f.node {
		if f.node[u].tree == int32(u) {
			f.pending = append(f.pending, int32(u))
		}
	}
	f.settle()
	for f.pivots < most {
		promise := f.price()
		if promise == 0 || f.pivots > len(f.node) && promise <= noPromise*f.n.total*f.n.cost {
			return true
		}
		for _, c := range f.entering {
			if f.pivots >= most {
				return false
			}
			if f.worth(c.arc) > 0 {
				f.enter(c.arc)
			}
		}
	}
	return false
}

// price lists the best arc of each row, the most promising first, and returns
// by how much the objective could fall at most if their prices stayed.
func (f *forest) price() (promise float64) {
	n, rows := f.n, f.n.rows()
	f.entering = f.entering[:0]
	for i, d := range n.demand {
		best := candidate{arc: -1}
		at := &f.node[i]
		mu, own := at.offset, f.root[at.tree]
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			to := &f.node[rows+int(n.group[a])]
			v := mu - n.price[a] - to.offset
			if to.tree != at.tree {
				v += own - f.root[to.tree]
			}
			// Most arcs are at 0 and worth nothing.
			if (v > best.worth || f.state[a] == atMost) && f.worth(a) > best.worth {
				best = candidate{a, f.worth(a)}
			}
		}
		if best.arc >= 0 {
			best.worth *= d
			promise += best.worth
			f.entering = append(f.entering, best)
		}
	}
	slices.SortFunc(f.entering, func(a, b candidate) int { return cmp.Compare(b.worth, a.worth) })
	return promise
}

// worth is by how much the objective falls with each unit of flow that an arc
// that is not basic takes on or off; 0 where it does not.
func (f *forest) worth(a int32) float64 {
	v := 0.0
	switch f.state[a] {
	case atZero:
		v = -f.reduced(a)
	case atMost:
		v = f.reduced(a)
	default:
		return 0
	}
	if v <= f.tolerance(a) || f.isTired[a] {
		return 0
	}
	return v
}

// tolerance is what rounding leaves of a reduced cost.
func (f *forest) tolerance(a int32) float64 {
	i, r := f.ends(a)
	t := costSlack * f.n.steep
	if p, q := f.node[i].tree, f.node[r].tree; p != q {
		t += roundOff * (math.Abs(f.root[p]) + math.Abs(f.root[q]))
	}
	return t
}

// enter takes an arc into the forest and settles what that changes.
func (f *forest) enter(a int32) {
	f.isTired[a] = true
	f.tired = append(f.tired, a)
	i, r := f.ends(a)
	p, q := f.node[i].tree, f.node[r].tree
	if p == q {
		if f.state[a] == atZero {
			f.push(a, 0, +1)
		} else {
			f.push(a, f.n.most[a], -1)
		}
		f.pending = append(f.pending[:0], p)
	} else {
		f.pivots++
		// Row i's tree falls and group r's rises until they meet, each the less
		// the more it takes.
		gap := f.reduced(a)
		meet := 0.0
		if sum := f.slope[p] + f.slope[q]; sum > 0 {
			meet = gap * f.slope[q] / sum
		}
		f.root[p] += meet
		f.link(a, f.flow(a))
		f.pending = append(f.pending[:0], p)
	}
	f.settle()
}

// rest forgets which arcs left as soon as they entered: the flow has moved.
func (f *forest) rest() {
	for _, a := range f.tired {
		f.isTired[a] = false
	}
	f.tired = f.tired[:0]
}

// push moves flow around the cycle that arc a, which is not basic, closes in
// its tree: more on a where way is +1, less where it is -1. The first arc at a
// bound leaves the tree, and a takes its place unless it is that arc.
func (f *forest) push(a int32, flow, way float64) {
	i, r := f.ends(a)
	f.findCycle(i, r)
	out, room := -1, flow
	if way > 0 {
		room = f.n.most[a] - flow
	}
	for at, step := range f.cycle {
		s := &f.slots[step.slot]
		space := s.flow
		if step.sign*way > 0 {
			space = s.most - s.flow
		}
		if space < room {
			out, room = at, space
		}
	}
	for _, step := range f.cycle {
		f.slots[step.slot].flow += step.sign * way * room
	}
	f.pivots++
	if room > flowSlack*f.n.demand[i] {
		f.rest()
	}
	if out < 0 {
		if way > 0 {
			f.setBound(a, atMost)
		} else {
			f.setBound(a, atZero)
		}
		return
	}
	leaves := f.cycle[out]
	to := atZero
	if s := &f.slots[leaves.slot]; s.flow > s.most/2 {
		to = atMost
	}
	f.unlink(leaves.slot, to)
	f.link(a, flow+way*room)
	// What hung on the arc that left hangs on a now.
	if leaves.rowSide {
		f.hang(i, r, f.slot[a])
	} else {
		f.hang(r, i, f.slot[a])
	}
}

// cycleStep is an arc of a cycle, whether its flow rises or falls as that of
// the arc that closes it rises, and whether it is between that arc's row and
// the node where the two ways up meet, or between its group and that node.
type cycleStep struct {
	slot    int32
	sign    float64
	rowSide bool
}

// findCycle lists the tree path between row i and group r.
func (f *forest) findCycle(i, r int32) {
	rows := int32(f.n.rows())
	f.cycle = f.cycle[:0]
	for u, v := i, r; u != v; {
		// The deeper end goes up. The balance of a node between two arcs of the
		// path makes one rise as the other falls.
		if f.node[u].depth >= f.node[v].depth {
			step := cycleStep{f.node[u].up, +1, true}
			if u < rows {
				step.sign = -1
			}
			f.cycle = append(f.cycle, step)
			u = f.parent(u)
			continue
		}
		step := cycleStep{f.node[v].up, -1, false}
		if v < rows {
			step.sign = +1
		}
		f.cycle = append(f.cycle, step)
		v = f.parent(v)
	}
}

// settle moves the flow of the pending trees to what their prices want.
func (f *forest) settle() {
	for len(f.pending) > 0 {
		root := f.pending[len(f.pending)-1]
		f.pending = f.pending[:len(f.pending)-1]
		f.walk(root)
		need := f.solveTree(root)
		f.aimFlows()
		out, step, to := f.stopping(need)
		moved := false
		for _, u := range f.order[1:] {
			s := &f.slots[f.node[u].up]
			d := step * (s.aim - s.flow)
			moved = moved || math.Abs(d) > f.slack(s, need)
			if step == 1 {
				s.flow = min(max(s.aim, 0), s.most)
			} else {
				s.flow += d
			}
		}
		if moved {
			f.rest()
		}
		if out < 0 {
			continue
		}
		// The root stays in one part; the lower end of the arc heads the rest.
		s := f.slots[out]
		below := s.row
		if f.node[s.group].depth > f.node[s.row].depth {
			below = s.group
		}
		f.unlink(out, to)
		f.pivots++
		f.root[below] = f.root[root] + f.node[below].offset
		f.pending = append(f.pending, root, below)
		f.walk(below)
	}
}

// slack is how much of a flow in a tree of this need may be rounding.
func (f *forest) slack(s *basicArc, need float64) float64 {
	return flowSlack*f.n.demand[s.row] + balanceSlack*need
}

// stopping is the slot that stops the move to the aimed flows, after which part
// of it, and at which of its bounds; -1 and 1 where none does.
func (f *forest) stopping(need float64) (out int32, step float64, to arcState) {
	out, step = -1, 1
	fastest := 0.0
	for _, u := range f.order[1:] {
		k := f.node[u].up
		s := &f.slots[k]
		d := s.aim - s.flow
		slack := f.slack(s, need)
		var part float64
		var bound arcState
		switch {
		case s.aim < -slack:
			part, bound = max(0, s.flow/-d), atZero
		case s.aim > s.most+min(slack, flowSlack*s.most):
			part, bound = max(0, (s.most-s.flow)/d), atMost
		default:
			continue
		}
		// Of arcs that stop at the same place the one that moves fastest leaves.
		if part < step || part == step && out >= 0 && math.Abs(d) > fastest {
			out, step, to, fastest = k, part, bound, math.Abs(d)
		}
	}
	return out, step, to
}

// aimFlows turns the wanted loads and sheds of the tree in hand into flows,
// from the leaves.
func (f *forest) aimFlows() {
	n, rows := f.n, f.n.rows()
	// wants becomes what a subtree has over: demand not shed nor held, less load.
	for _, u := range f.order {
		if int(u) < rows {
			f.wants[u] = n.demand[u] - f.held[u] - f.wants[u]
		} else {
			f.wants[u] = f.held[u] - f.wants[u]
		}
	}
	for k := len(f.order) - 1; k > 0; k-- {
		u := f.order[k]
		s := &f.slots[f.node[u].up]
		if s.row == u {
			s.aim = f.wants[u]
			f.wants[s.group] += f.wants[u]
		} else {
			s.aim = -f.wants[u]
			f.wants[s.row] += f.wants[u]
		}
	}
}
