package solve

import "math"

// response is how the groups of a net fill their members: the price at a load,
// by Newton's method from the last price.
type response struct {
	n    *net
	last []float64 // price of a group
}

func (q *response) begin(n *net) {
	q.n = n
	q.last = sized(q.last, n.groups())
	for r := range q.last {
		q.last[r] = math.Inf(1)
		for m := n.membersOf[r]; m < n.membersOf[r+1]; m++ {
			q.last[r] = min(q.last[r], n.member[m].low)
		}
	}
}

// at is the load of a group at a price, and its derivative.
func (q *response) at(r int, price float64) (load, slope float64) {
	for m := q.n.membersOf[r]; m < q.n.membersOf[r+1]; m++ {
		y, dy := q.n.member[m].at(price - q.n.member[m].low)
		load += y
		slope += dy
	}
	return load, slope
}

// price is that of a group at a load below its capacity, and the derivative of
// the load there.
func (q *response) price(r int, load float64) (price, slope float64) {
	low, high := math.Inf(1), 0.0
	for m := q.n.membersOf[r]; m < q.n.membersOf[r+1]; m++ {
		low, high = min(low, q.n.member[m].low), max(high, q.n.member[m].high)
	}
	first := low
	v := min(max(q.last[r], low), high)
	for range 60 {
		y, dy := q.at(r, v)
		slope = dy
		missing := load - y
		if math.Abs(missing) <= 1e-13*load {
			break
		}
		if missing > 0 {
			low = v
		} else {
			high = v
		}
		next := v + missing/dy
		if !(next > low && next < high) {
			next = middle(low, high)
		}
		if next <= low || next >= high {
			break
		}
		v = next
	}
	if slope == 0 {
		// Between members, or at an end: the rise of the nearest.
		slope = q.n.capacity[r] / max(first, q.n.cost)
	}
	q.last[r] = v
	return v, slope
}

// cost is that of the members at the last price.
func (q *response) cost(r int) (sum float64) {
	for m := q.n.membersOf[r]; m < q.n.membersOf[r+1]; m++ {
		k := &q.n.member[m]
		y, _ := k.at(q.last[r] - k.low)
		sum += k.cost(y, k.most-y)
	}
	return sum
}
