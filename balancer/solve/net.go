package solve

// net is one connected component of the problem in units of work, with equal
// rows and equal engines taken together. Rows are i, groups of engines r, arcs
// a = (i, r):
//
//	minimise   sum_a price_a f_a + sum_m H_m(y_m) + sum_s H_s(v_s)
//	subject to sum_{a of i} f_a + sum_{s of i} v_s = demand_i
//	           sum_{a into r} f_a = sum_{m of r} y_m
//	           0 <= f_a <= most_a,  0 <= y_m <= most_m,  0 <= v_s <= most_s
//
// H is the integral of a member's marginal cost. Flows are divided by a power of
// two near the demand, so that rates of any size are the same problem, digit by
// digit.
type net struct {
	demand []float64
	move   []float64 // of a row: the move price, already in the price of its arcs without a bound

	arcsOf    []int32 // the arcs of row i are arcsOf[i]:arcsOf[i+1]
	row       []int32 // of an arc
	group     []int32 // of an arc
	price     []float64
	most      []float64 // of an arc; +Inf where it has no bound of its own
	bounded   []int32   // the arcs with one
	shedsOf   []int32   // the sheds of row i are shed[shedsOf[i]:shedsOf[i+1]]
	shed      []member
	membersOf []int32 // the members of group r are member[membersOf[r]:membersOf[r+1]]
	member    []member
	capacity  []float64 // of a group: the sum of its members'

	total float64 // demand of all rows
	scale float64 // flows here times scale are flows of the problem
	cost  float64 // a first estimate of the mean cost of a unit of work: a lower bound, or 1 where that is 0
	steep float64 // what differences of cost between arcs are like
}

func (n *net) rows() int   { return len(n.demand) }
func (n *net) groups() int { return len(n.capacity) }
func (n *net) arcs() int   { return len(n.price) }
