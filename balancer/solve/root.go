package solve

import "math"

// solveTree finds the price of the root at which the tree in hand takes just
// its demand, and leaves the loads and sheds at it in load, shed and wants. It
// returns that demand.
//
// The unknown is d, the change of all its prices: a load is a function of
// (price - low) + d, which has digits where price + d has none left (flat costs
// rise by 1e-11 of themselves). A large d has lost them too: then it is taken
// into the price, and a small one sought from there.
func (f *forest) solveTree(root int32) (need float64) {
	need = f.needOf()
	var d, taken, slope float64
	for pass := 0; ; pass++ {
		d, taken, slope = f.findRise(need)
		balanced := math.Abs(need-taken) <= roundOff*need
		if balanced && slope == 0 && need > 0 {
			d = f.lowestSame(d)
		}
		from, to := f.root[root], f.root[root]+d
		near := max(math.Abs(from), math.Abs(d)) <= 4*math.Abs(to)
		if balanced && near || to == from || to > f.ceiling || pass == 3 {
			break
		}
		f.root[root] = to
	}
	if slope == 0 && need-taken > overfull*need {
		// All is full: as dear as nothing in the net can be.
		f.root[root], f.slope[root] = f.ceiling, 0
		return need
	}
	if slope > 0 && math.Abs(need-taken) > roundOff*need {
		// What rounding leaves is spread in proportion to what each would take.
		f.spread(d, (need-taken)/slope)
	}
	f.root[root] = min(f.root[root]+d, f.ceiling)
	f.slope[root] = slope
	return need
}

// overfull is the share of its need that a tree must be unable to take to count
// as overfull. It is so only until arcs at their bound, which are what fills it,
// have come in.
const overfull = 1e-12

// needOf is the demand that the loads and sheds of the tree in hand have to
// take.
func (f *forest) needOf() float64 {
	n, rows := f.n, f.n.rows()
	need := 0.0
	for _, u := range f.order {
		if int(u) < rows {
			need += n.demand[u] - f.held[u]
		} else {
			need += f.held[u]
		}
	}
	return need
}

// takers are the members of a group or the sheds of a row, with their loads.
func (f *forest) takers(u int32) (members []member, loads []float64) {
	n, rows := f.n, int32(f.n.rows())
	if u < rows {
		from, to := n.shedsOf[u], n.shedsOf[u+1]
		return n.shed[from:to], f.shed[from:to]
	}
	from, to := n.membersOf[u-rows], n.membersOf[u-rows+1]
	return n.member[from:to], f.load[from:to]
}

// respond sets loads and sheds at prices risen by d, and returns their sum and
// its derivative.
func (f *forest) respond(d float64) (taken, slope float64) {
	base := f.root[f.order[0]]
	for _, u := range f.order {
		price := f.node[u].offset + base
		members, loads := f.takers(u)
		sum := 0.0
		for k := range members {
			m := &members[k]
			y, dy := m.at(price - m.low + d)
			loads[k] = y
			sum += y
			slope += dy
		}
		f.wants[u] = sum
		taken += sum
	}
	return taken, slope
}

// spread adds per unit of slope to each load, within its bounds.
func (f *forest) spread(d, per float64) {
	base := f.root[f.order[0]]
	for _, u := range f.order {
		price := f.node[u].offset + base
		members, loads := f.takers(u)
		for k := range members {
			m := &members[k]
			if _, dy := m.at(price - m.low + d); dy > 0 {
				y := min(max(loads[k]+dy*per, 0), m.most)
				f.wants[u] += y - loads[k]
				loads[k] = y
			}
		}
	}
}

// findRise is the change d of the tree's prices at which it takes what it
// needs, with the loads at it: Newton's method between bounds. Where a whole
// interval of prices does, it is the lowest, except that a tree that takes
// nothing has the highest.
func (f *forest) findRise(need float64) (d, taken, slope float64) {
	low, high := math.Inf(-1), math.Inf(1)
	bounded := false
	if need <= 0 {
		d, _ = f.bounds()
		taken, slope = f.respond(d)
		return d, taken, slope
	}
	taken, slope = f.respond(d)
	for range 200 {
		missing := need - taken
		if math.Abs(missing) <= roundOff*need {
			break
		}
		if missing > 0 {
			low = d
		} else {
			high = d
		}
		var next float64
		if slope > 0 {
			next = d + missing/slope
		} else {
			next = f.overFlat(d, missing)
		}
		if !(next > low && next < high) || math.IsInf(next, 0) {
			if !bounded {
				bounded = true
				first, last := f.bounds()
				low, high = max(low, first), min(high, last)
			}
			next = middle(low, high)
		}
		if next <= low || next >= high {
			break
		}
		d = next
		taken, slope = f.respond(d)
	}
	return d, taken, slope
}

// middle is a point between bounds that may lie decades apart.
func middle(low, high float64) float64 {
	switch width := high - low; {
	case low > 0 && high > 16*low:
		return math.Sqrt(low) * math.Sqrt(high)
	case high < 0 && low < 16*high:
		return -math.Sqrt(-low) * math.Sqrt(-high)
	case low <= 0 && high >= 0 && (high > 1e3*-low || -low > 1e3*high) && low != high:
		if high > -low {
			return low + width*1e-3
		}
		return high - width*1e-3
	}
	return low + (high-low)/2
}

// bounds are the rises at which the tree takes nothing more or less: the least
// at which something could be taken, and one at which all is.
func (f *forest) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	base := f.root[f.order[0]]
	for _, u := range f.order {
		price := f.node[u].offset + base
		members, _ := f.takers(u)
		for k := range members {
			low = min(low, members[k].low-price)
			high = max(high, members[k].high-price)
		}
	}
	return low, high
}

// overFlat looks beyond prices between which nothing changes: the rise at which
// the next member alone would take what is missing, or give back the excess.
func (f *forest) overFlat(d, missing float64) float64 {
	base := f.root[f.order[0]]
	nearest, next := math.Inf(1), d
	for _, u := range f.order {
		price := f.node[u].offset + base
		members, _ := f.takers(u)
		for k := range members {
			m := &members[k]
			if missing > 0 {
				if at := m.low - price - d; at >= 0 && at < nearest {
					nearest, next = at, m.low-price+m.rise(min(missing, m.most))
				}
			} else if at := d - (m.high - price); at >= 0 && at < nearest {
				nearest, next = at, m.low-price+m.rise(max(m.most+missing, 0))
			}
		}
	}
	return next
}

// lowestSame is the lowest rise at which everything that is full at d still is.
func (f *forest) lowestSame(d float64) float64 {
	low := math.Inf(-1)
	base := f.root[f.order[0]]
	for _, u := range f.order {
		price := f.node[u].offset + base
		members, _ := f.takers(u)
		for k := range members {
			m := &members[k]
			if price-m.low+d >= m.high-m.low {
				low = max(low, m.high-price)
			}
		}
	}
	if math.IsInf(low, -1) {
		return d
	}
	return low
}
