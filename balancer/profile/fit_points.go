package profile

import (
	"math"

	"penstock/balancer/problem"
)

const (
	// mostKnots bounds the points of a regression.
	mostKnots = 64
	// apart is how far knots are from each other, as a share of the largest load:
	// nearer ones would have slopes that rounding spoils.
	apart = 1e-4
)

// fitPoints is the regression of G(y) = y (T(y) - T(0)) on functions that are
// convex and linear in T between knots: T(y) = t0 + sum of c_k (y - knot_k)+
// with no t0 and no c_k below 0. Errors are relative, as those of y T(y), so
// that a slow point does not outweigh the others.
func fitPoints(pairs []Measured) problem.Latency {
	knots := []float64{0}
	largest := pairs[len(pairs)-1].Load
	for _, p := range pairs {
		// One at the end would have nothing behind it.
		if p.Load > knots[len(knots)-1]+largest*apart && p.Load < largest*(1-apart) {
			knots = append(knots, p.Load)
		}
	}
	for len(knots) > mostKnots {
		kept := knots[:1]
		for i := 2; i < len(knots); i += 2 {
			kept = append(kept, knots[i])
		}
		knots = kept
	}
	n := 1 + len(knots)
	rows := make([][]float64, len(pairs))
	want := make([]float64, len(pairs))
	for i, p := range pairs {
		rows[i] = make([]float64, n)
		rows[i][0] = 1 / p.Latency
		for k, knot := range knots {
			rows[i][1+k] = max(0, p.Load-knot) / p.Latency
		}
		want[i] = 1
	}
	c := leastSquares(rows, want)
	l := problem.Latency{Limit: largest}
	time, slope := c[0], 0.0
	for k, knot := range knots {
		if k > 0 {
			time += slope * (knot - knots[k-1])
		}
		if k == 0 || c[1+k] > 0 {
			l.Points = append(l.Points, problem.Point{Load: knot, Time: time})
		}
		slope += c[1+k]
	}
	time += slope * (largest - knots[len(knots)-1])
	l.Points = append(l.Points, problem.Point{Load: largest, Time: time})
	l.Limit = 0
	return l
}

// leastSquares minimises |rows x - want| over x >= 0 (Lawson and Hanson).
func leastSquares(rows [][]float64, want []float64) []float64 {
	n := len(rows[0])
	size := make([]float64, n) // of the columns: they are made 1
	unit := make([][]float64, len(rows))
	for i, r := range rows {
		unit[i] = make([]float64, n)
		for j, v := range r {
			size[j] = math.Hypot(size[j], v)
		}
	}
	for i, r := range rows {
		for j, v := range r {
			if size[j] > 0 {
				unit[i][j] = v / size[j]
			}
		}
	}
	x := leastSquaresOf(unit, want)
	for j := range x {
		if size[j] > 0 {
			x[j] /= size[j]
		}
	}
	return x
}

// leastSquaresOf has columns of length 1, or of 0.
func leastSquaresOf(rows [][]float64, want []float64) []float64 {
	n := len(rows[0])
	x := make([]float64, n)
	free := make([]bool, n)
	for range 10 * n {
		// The bound that holds the most back is let go.
		most, next := 1e-10, -1
		for j := range n {
			if free[j] {
				continue
			}
			push := 0.0
			for i, r := range rows {
				residual := want[i]
				for k, v := range x {
					residual -= r[k] * v
				}
				push += r[j] * residual
			}
			if push > most {
				most, next = push, j
			}
		}
		if next < 0 {
			break
		}
		free[next] = true
		for range n + 1 { // each round but the last takes one out again
			z := unbounded(rows, want, free)
			step, out := 1.0, -1
			for j := range n {
				if free[j] && z[j] <= 0 {
					if s := x[j] / (x[j] - z[j]); out < 0 || s < step {
						step, out = s, j
					}
				}
			}
			for j := range n {
				if free[j] {
					x[j] += step * (z[j] - x[j])
				}
			}
			if out < 0 {
				break
			}
			x[out], free[out] = 0, false
		}
	}
	return x
}

// unbounded solves the least squares on the free columns by orthogonalising
// them one after the other.
func unbounded(rows [][]float64, want []float64, free []bool) []float64 {
	n := len(free)
	var columns []int
	for j := range n {
		if free[j] {
			columns = append(columns, j)
		}
	}
	q := make([][]float64, len(columns))
	r := make([][]float64, len(columns))
	for c, j := range columns {
		v := make([]float64, len(rows))
		for i := range rows {
			v[i] = rows[i][j]
		}
		r[c] = make([]float64, len(columns))
		for range 2 { // once more against rounding
			for p := range c {
				dot := 0.0
				for i := range v {
					dot += q[p][i] * v[i]
				}
				r[p][c] += dot
				for i := range v {
					v[i] -= dot * q[p][i]
				}
			}
		}
		norm := 0.0
		for _, a := range v {
			norm += a * a
		}
		norm = math.Sqrt(norm)
		r[c][c] = norm
		for i := range v {
			if norm > 0 {
				v[i] /= norm
			}
		}
		q[c] = v
	}
	z := make([]float64, n)
	for c := len(columns) - 1; c >= 0; c-- {
		sum := 0.0
		for i := range want {
			sum += q[c][i] * want[i]
		}
		for p := c + 1; p < len(columns); p++ {
			sum -= r[c][p] * z[columns[p]]
		}
		if r[c][c] > 1e-9 {
			z[columns[c]] = sum / r[c][c]
		}
	}
	return z
}
