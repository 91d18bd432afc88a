package solve

import "math"

// coarse makes smaller nets that stand for a large one. Methods that only come
// near the optimum work on them; the forest goes on with the net itself, so
// what is merged here costs no exactness, and a bad guess only costs pivots.
type coarse struct {
	alike     net     // fewer members; the rest is the large net's
	clustered net     // fewer groups
	narrow    net     // fewer arcs
	column    []int32 // the arc behind an arc of narrow

	loose   []int32   // by row and group: the arc without a bound
	price   []float64 // by row and group: its price, without that of moving
	cluster []int32   // of a group
	far     []float64
	table   table
	sum     []merged
	mean    []float64
	best    []int32
}

// merged collects members that are nearly alike.
type merged struct {
	key                     uint64
	one                     member
	members                 int
	limit, most, root, base float64 // sums; root and base weighted by limit
	low, high               float64 // sums weighted by most
}

// wide nets have so many groups that a step over all arcs is long, and an arc
// without a bound for every pair of row and group: engines with round trips or
// kept flow of their own.
func (n *net) wide() bool {
	return n.groups() >= manyGroups && n.arcs()-len(n.bounded) == n.rows()*n.groups()
}

const (
	manyMembers = 6   // members per group from which on they are merged
	manyGroups  = 128 // groups from which on they are clustered
	clusters    = 48
	probes      = 16 // rows that tell groups apart
)

// mergeMembers makes the same net with fewer members: those of a group whose
// costs agree to about a tenth become one.
func (c *coarse) mergeMembers(n *net) *net {
	if len(n.member) <= manyMembers*n.groups() {
		return n
	}
	k := &c.alike
	member, membersOf := k.member[:0], append(k.membersOf[:0], 0)
	*k = *n
	k.member, k.membersOf = member, membersOf
	for r := range n.groups() {
		c.sum = c.sum[:0]
		c.table.reset(int(n.membersOf[r+1] - n.membersOf[r]))
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			c.merge(&n.member[m])
		}
		c.close(k)
	}
	return k
}

// close writes the merged members of one group.
func (c *coarse) close(k *net) {
	for i := range c.sum {
		k.member = append(k.member, c.sum[i].member())
	}
	k.membersOf = append(k.membersOf, int32(len(k.member)))
}

func (c *coarse) merge(m *member) {
	// The exponent and three bits of a cost.
	bits := func(v float64) uint64 { return math.Float64bits(v) >> 49 }
	h := mix(bits(m.low), bits(m.slope))
	if m.slope > 0 {
		h = mix(h, bits(1-m.most/m.limit+1e-3))
	} else {
		h = mix(h, bits(m.high))
	}
	i := c.table.find(h, func(int32) bool { return true })
	if i < 0 {
		i = int32(len(c.sum))
		c.sum = append(c.sum, merged{key: h, one: *m})
		c.table.add(h, i)
	}
	s := &c.sum[i]
	s.members++
	s.most += m.most
	if m.slope > 0 {
		s.limit += m.limit
		s.root += m.limit * math.Sqrt(m.slope)
		s.base += m.limit * (m.low - m.slope)
	} else {
		s.low += m.most * m.low
		s.high += m.most * m.high
	}
}

// member is one that takes about what the merged ones take at every price: far
// up their loads are limit (1 - sqrt(slope/price)), so square roots add.
func (s *merged) member() member {
	switch {
	case s.members == 1:
		return s.one
	case s.limit == 0:
		return ramp(s.low/s.most, s.high/s.most, s.most)
	}
	root := s.root / s.limit
	return curve(s.base/s.limit, root*root, s.limit, s.most)
}

// clusterGroups makes a net in which groups of about equal prices are one and
// moving costs nothing. n is wide. radius is how far the prices of a group are
// from those of its cluster's centre.
func (c *coarse) clusterGroups(n *net) (k *net, radius float64) {
	c.listPrices(n)
	count, radius := c.chooseClusters(n)
	groups := n.groups()
	k = &c.clustered
	k.demand, k.shed, k.shedsOf, k.scale, k.cost, k.steep = n.demand, n.shed, n.shedsOf, n.scale, n.cost, n.steep
	k.arcsOf, k.row, k.group, k.price, k.most = append(k.arcsOf[:0], 0), k.row[:0], k.group[:0], k.price[:0], k.most[:0]
	k.capacity = zeroed(k.capacity, count)
	for r, at := range c.cluster {
		k.capacity[at] += n.capacity[r]
	}
	c.mean = sized(c.mean, count)
	for i := range n.demand {
		clear(c.mean)
		for r, at := range c.cluster {
			c.mean[at] += c.price[i*groups+r] * (n.capacity[r] / k.capacity[at])
		}
		for at, price := range c.mean {
			k.addArc(i, at, price, math.Inf(1))
		}
		k.arcsOf = append(k.arcsOf, int32(len(k.price)))
	}
	k.member, k.membersOf = k.member[:0], append(k.membersOf[:0], 0)
	for at := range count {
		c.sum = c.sum[:0]
		c.table.reset(len(n.member))
		for r, of := range c.cluster {
			if int(of) == at {
				for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
					c.merge(&n.member[m])
				}
			}
		}
		c.close(k)
	}
	return k, radius
}

// listPrices lays out the arcs without a bound by row and group, and their
// prices without the move price.
func (c *coarse) listPrices(n *net) {
	groups := n.groups()
	c.loose, c.price = sized(c.loose, n.rows()*groups), sized(c.price, n.rows()*groups)
	for i := range n.demand {
		for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
			if math.IsInf(n.most[a], 1) {
				at := i*groups + int(n.group[a])
				c.loose[at], c.price[at] = a, n.price[a]-n.move[i]
			}
		}
	}
}

// chooseClusters picks centres, each the group farthest from those before, and
// gives every group to its nearest. Distance is the largest difference of
// prices over some rows.
func (c *coarse) chooseClusters(n *net) (count int, radius float64) {
	rows, groups := n.rows(), n.groups()
	c.cluster, c.far = sized(c.cluster, groups), sized(c.far, groups)
	for r := range c.far {
		c.far[r] = math.Inf(1)
	}
	for next := 0; count < clusters && (count == 0 || radius > 0); count++ {
		centre := next
		radius = 0
		for r := range groups {
			d := 0.0
			for k := range probes {
				from := k * rows / probes * groups
				d = max(d, math.Abs(c.price[from+r]-c.price[from+centre]))
			}
			if d < c.far[r] {
				c.far[r], c.cluster[r] = d, int32(count)
			}
			if c.far[r] > radius {
				radius, next = c.far[r], r
			}
		}
	}
	return count, radius
}

// narrowArcs makes n with only the arcs that the prices mu and lambda of the
// clusters leave in question: those of kept flow, those of which the reduced
// cost is within radius or what moving costs, and the best one of each row and
// of each group.
func (c *coarse) narrowArcs(n *net, mu, lambda []float64, radius float64) *net {
	groups := n.groups()
	k := &c.narrow
	arcsOf, row, group, price, most, bounded := append(k.arcsOf[:0], 0), k.row[:0], k.group[:0], k.price[:0], k.most[:0], k.bounded[:0]
	*k = *n
	k.arcsOf, k.row, k.group, k.price, k.most, k.bounded = arcsOf, row, group, price, most, bounded
	c.column, c.best, c.far = c.column[:0], sized(c.best, groups), sized(c.far, groups)
	for r := range c.far {
		c.far[r] = math.Inf(1)
	}
	for i, mu := range mu {
		for r, at := range c.cluster {
			if v := c.price[i*groups+r] + lambda[at] - mu; v < c.far[r] {
				c.far[r], c.best[r] = v, int32(i)
			}
		}
	}
	for i, mu := range mu {
		slack := radius + n.move[i]
		least, first, start := math.Inf(1), 0, len(k.price)
		for r, at := range c.cluster {
			v := c.price[i*groups+r] + lambda[at] - mu
			if v < least {
				least, first = v, r
			}
			a := c.loose[i*groups+r]
			if a > n.arcsOf[i] && n.group[a-1] == int32(r) { // the arc of kept flow is before
				c.addColumn(k, n, a-1)
			}
			if v <= slack || int(c.best[r]) == i {
				c.addColumn(k, n, a)
			}
		}
		if len(k.price) == start {
			c.addColumn(k, n, c.loose[i*groups+first])
		}
		k.arcsOf = append(k.arcsOf, int32(len(k.price)))
	}
	return k
}

func (c *coarse) addColumn(k, n *net, a int32) {
	if !math.IsInf(n.most[a], 1) {
		k.bounded = append(k.bounded, int32(len(k.price)))
	}
	k.addArc(int(n.row[a]), int(n.group[a]), n.price[a], n.most[a])
	c.column = append(c.column, a)
}
