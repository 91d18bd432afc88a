package solve

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func drawMember(t *rapid.T) member {
	number := func(from, to float64, name string) float64 { return rapid.Float64Range(from, to).Draw(t, name) }
	low, most := number(0, 1e4, "low"), math.Pow(10, number(-6, 6, "size"))
	if rapid.Bool().Draw(t, "ramp") {
		m := ramp(low, low+number(0, 100, "rise"), most)
		m.steepen(1)
		return m
	}
	return curve(low, number(1e-3, 1e4, "slope"), most*rapid.SampledFrom([]float64{1, 1.0001, 1.5}).Draw(t, "limit"), most)
}

// Load at a marginal cost, and marginal cost at a load, undo each other.
func TestMembersAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMember(t)
		y := m.most * rapid.Float64Range(0, 0.9999).Draw(t, "y")
		d := m.rise(y)
		h, dh := m.marginal(m.most - y)
		if math.Abs(h-m.low-d) > 1e-9*(m.high-m.low)+1e-12*h {
			t.Fatalf("marginal cost %v, but low %v and rise %v", h, m.low, d)
		}
		got, dy := m.at(d)
		if math.Abs(got-y) > 1e-9*m.most {
			t.Fatalf("at rise %v the load is %v, want %v", d, got, y)
		}
		if y > 0.01*m.most && y < 0.99*m.most && math.Abs(dy*dh-1) > 1e-6 {
			t.Fatalf("derivatives %v and %v", dy, dh)
		}
		// The cost is the area under the marginal cost.
		sum, n := 0.0, 2000
		for k := range n {
			h, _ := m.marginal(m.most - y*(float64(k)+0.5)/float64(n))
			sum += h * y / float64(n)
		}
		if c := m.cost(y, m.most-y); y < 0.9*m.most && math.Abs(c-sum) > 1e-4*c+1e-15*m.most {
			t.Fatalf("cost %v, area %v", c, sum)
		}
	})
}

// The projection is in the simplex, and no exchange between two variables
// brings it nearer.
func TestProjectionIsTheNearestPoint(t *testing.T) {
	var p simplex
	rapid.Check(t, func(t *rapid.T) {
		p.reset()
		n := rapid.IntRange(1, 8).Draw(t, "n")
		var scale []float64
		sum, largest := 0.0, 0.0
		for range n {
			scale = append(scale, math.Pow(10, rapid.Float64Range(-6, 6).Draw(t, "scale")))
			most := rapid.SampledFrom([]float64{math.Inf(1), 1, 0.01}).Draw(t, "most")
			p.add(rapid.Float64Range(-100, 100).Draw(t, "c"), scale[len(scale)-1], most)
			sum += most
			largest = max(largest, math.Abs(p.c[len(p.c)-1]))
		}
		total := min(sum, rapid.Float64Range(1e-6, 50).Draw(t, "total"))
		mu := p.project(total, rapid.Float64Range(-1e3, 1e3).Draw(t, "guess"))
		got := 0.0
		for k, x := range p.x {
			if x < 0 || x > p.most[k] {
				t.Fatalf("x[%d] = %v is not between 0 and %v", k, x, p.most[k])
			}
			got += x
			// The gradient L (x - c) is mu inside, above it at 0, below it at most.
			slope, slack := scale[k]*(x-p.c[k]), 1e-7*(math.Abs(mu)+scale[k]*(math.Abs(p.c[k])+x))
			if x > 0 && slope > mu+slack || x < p.most[k] && slope < mu-slack {
				t.Fatalf("x[%d] = %v of at most %v has slope %v, mu is %v", k, x, p.most[k], slope, mu)
			}
		}
		if math.Abs(got-total) > 1e-14*(total+largest) {
			t.Fatalf("the sum is %v, want %v", got, total)
		}
	})
}

// The Newton system is solved to many digits however far apart its weights
// are, by either side and in either form.
func TestSchurKeepsItsDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, groups := rapid.IntRange(1, 5).Draw(t, "rows"), rapid.IntRange(1, 5).Draw(t, "groups")
		weight := func(name string) float64 { return math.Pow(10, rapid.Float64Range(-18, 18).Draw(t, name)) }
		n := &net{demand: make([]float64, rows), capacity: make([]float64, groups), arcsOf: []int32{0}}
		var theta []float64
		sparse := rapid.Bool().Draw(t, "sparse")
		for i := range rows {
			for r := range groups {
				if sparse && r > 0 && rapid.Bool().Draw(t, "none") {
					continue
				}
				n.addArc(i, r, 0, math.Inf(1))
				theta = append(theta, weight("theta"))
			}
			n.arcsOf = append(n.arcsOf, int32(len(n.price)))
		}
		var s schur
		s.reset(n)
		s.sparse = sparse
		if sparse {
			s.arc = s.arc[:0]
			s.order()
			s.theta, s.scaled = sized(s.theta, len(theta)), sized(s.scaled, len(theta))
		}
		// Right-hand sides of one sign: then nothing cancels in the solution either.
		right := make([]float64, rows+groups)
		for i := range rows {
			s.rowOwn[i], right[i] = weight("own"), weight("right")
		}
		for r := range groups {
			s.groupOwn[r], right[rows+r] = weight("own"), weight("right")
		}
		want := solveExactly(n, theta, s.rowOwn, s.groupOwn, right)
		s.load(theta)
		s.factor()
		got := make([]float64, rows+groups)
		s.solve(right[:rows], right[rows:], got[:rows], got[rows:])
		for k := range got {
			if math.Abs(got[k]-want[k]) > 1e-13*want[k] {
				t.Fatalf("x[%d] = %v, want %v", k, got[k], want[k])
			}
		}
	})
}

// solveExactly is Gaussian elimination of the whole system in 500 bits.
func solveExactly(n *net, theta, rowOwn, groupOwn, right []float64) []float64 {
	const bits = 500
	size := len(right)
	a := make([][]*big.Float, size)
	for k := range a {
		a[k] = make([]*big.Float, size+1)
		for l := range a[k] {
			a[k][l] = new(big.Float).SetPrec(bits)
		}
		a[k][size].SetFloat64(right[k])
		if k < n.rows() {
			a[k][k].SetFloat64(rowOwn[k])
		} else {
			a[k][k].SetFloat64(groupOwn[k-n.rows()])
		}
	}
	for arc, t := range theta {
		i, r := n.row[arc], int32(n.rows())+n.group[arc]
		v := new(big.Float).SetPrec(bits).SetFloat64(t)
		a[i][i].Add(a[i][i], v)
		a[r][r].Add(a[r][r], v)
		a[i][r].Sub(a[i][r], v)
		a[r][i].Sub(a[r][i], v)
	}
	product := new(big.Float).SetPrec(bits)
	factor := new(big.Float).SetPrec(bits)
	for k := range size {
		for l := range size {
			if l == k {
				continue
			}
			factor.Quo(a[l][k], a[k][k])
			for m := k; m <= size; m++ {
				a[l][m].Sub(a[l][m], product.Mul(factor, a[k][m]))
			}
		}
	}
	x := make([]float64, size)
	for k := range x {
		x[k], _ = product.Quo(a[k][size], a[k][k]).Float64()
	}
	return x
}
