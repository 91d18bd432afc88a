package solve

// schur solves the linear system of a Newton step,
//
//	(sum_r theta_ir + own_i) dmu_i     - sum_r theta_ir dlambda_r = right_i
//	(sum_i theta_ir + own_r) dlambda_r - sum_i theta_ir dmu_i     = right_r
//
// by eliminating the larger of the two sides, which is diagonal. What is left
// is a dense symmetric M-matrix, kept as the sizes of its off-diagonal entries
// and its row sums,
//
//	off_kl = sum_e theta_ke theta_le / B_e,  rest_k = own_k + sum_e theta_ke own_e / B_e,
//	B_e = own_e + sum_k theta_ke
//
// with k, l on the side that is left and e on the eliminated one. The diagonal
// is rest_k + sum_l off_kl and is never stored: elimination in this form only
// adds, multiplies and divides positive numbers, so nothing cancels, however
// far apart the theta are (Alfa, Xue and Ye's form of Gaussian elimination).
type schur struct {
	n       *net
	byGroup bool // groups are left, rows eliminated
	sparse  bool // few pairs have an arc: walk the arcs of each e, else the matrix

	rowOwn, groupOwn []float64

	size, wide  int
	theta       []float64 // dense: size x wide; sparse: by position, in the order of e
	scaled      []float64 // theta_ke / B_e
	own, ownOut []float64 // of the side that is left, and of the eliminated one
	weight      []float64 // B_e

	start []int32 // sparse: the positions of e are start[e]:start[e+1]
	key   []int32 // k of a position
	arc   []int32 // arc of a position; none where it is the position
	fill  []int32

	off      []float64 // size x size, lower triangle; after factor l
	rest     []float64
	diagonal []float64
	column   []float64
	right    []float64
}

// sparseBelow is the share of pairs with an arc below which arcs are walked.
const sparseBelow = 0.3

func (s *schur) reset(n *net) {
	s.n = n
	s.byGroup = n.groups() < n.rows()
	s.size, s.wide = n.rows(), n.groups()
	if s.byGroup {
		s.size, s.wide = s.wide, s.size
	}
	s.rowOwn, s.groupOwn = sized(s.rowOwn, n.rows()), sized(s.groupOwn, n.groups())
	s.weight = sized(s.weight, s.wide)
	s.off = sized(s.off, s.size*s.size)
	s.rest, s.diagonal, s.column, s.right = sized(s.rest, s.size), sized(s.diagonal, s.size), sized(s.column, s.size), sized(s.right, s.size)
	entries := s.size * s.wide
	if s.sparse = float64(n.arcs()) < sparseBelow*float64(entries); s.sparse {
		entries = n.arcs()
		s.order()
	}
	s.theta, s.scaled = sized(s.theta, entries), sized(s.scaled, entries)
}

// order lists the arcs by the side to be eliminated.
func (s *schur) order() {
	n := s.n
	if s.byGroup {
		s.start, s.key, s.arc = append(s.start[:0], n.arcsOf...), append(s.key[:0], n.group...), s.arc[:0]
		return
	}
	s.start = zeroed(s.start, s.wide+1)
	for _, r := range n.group {
		s.start[r+1]++
	}
	for e := range s.wide {
		s.start[e+1] += s.start[e]
	}
	s.key, s.arc, s.fill = sized(s.key, n.arcs()), sized(s.arc, n.arcs()), sized(s.fill, s.wide)
	copy(s.fill, s.start)
	for a, r := range n.group {
		s.key[s.fill[r]], s.arc[s.fill[r]] = n.row[a], int32(a)
		s.fill[r]++
	}
}

// load takes in the theta of the arcs; rowOwn and groupOwn are set.
func (s *schur) load(theta []float64) {
	n := s.n
	s.own, s.ownOut = s.rowOwn, s.groupOwn
	if s.byGroup {
		s.own, s.ownOut = s.groupOwn, s.rowOwn
	}
	switch {
	case s.sparse && len(s.arc) > 0:
		for k, a := range s.arc {
			s.theta[k] = theta[a]
		}
	case s.sparse:
		copy(s.theta, theta)
	case s.byGroup:
		clear(s.theta)
		for a, t := range theta {
			s.theta[int(n.group[a])*s.wide+int(n.row[a])] += t
		}
	default:
		clear(s.theta)
		for i := range n.demand {
			row := s.theta[i*s.wide : (i+1)*s.wide]
			for a := n.arcsOf[i]; a < n.arcsOf[i+1]; a++ {
				row[n.group[a]] += theta[a]
			}
		}
	}
}

// factor forms and factors the system.
func (s *schur) factor() {
	copy(s.rest, s.own)
	copy(s.weight, s.ownOut)
	if s.sparse {
		s.formSparse()
	} else {
		s.formDense()
	}
	n := s.size
	for k := range n {
		// below is the part of column k under the diagonal.
		below := s.column[:n]
		d := s.rest[k]
		for i := k + 1; i < n; i++ {
			below[i] = s.off[i*n+k]
			d += below[i]
		}
		s.diagonal[k] = d
		for i := k + 1; i < n; i++ {
			l := below[i] / d
			s.off[i*n+k] = l
			if l == 0 {
				continue
			}
			s.rest[i] += l * s.rest[k]
			from := below[k+1 : i]
			row := s.off[i*n+k+1 : i*n+i][:len(from)]
			for j, v := range from {
				row[j] += l * v
			}
		}
	}
}

func (s *schur) formSparse() {
	n := s.size
	clear(s.off)
	for e := range s.wide {
		from, to := s.start[e], s.start[e+1]
		key, theta, scaled := s.key[from:to], s.theta[from:to], s.scaled[from:to]
		for _, t := range theta {
			s.weight[e] += t
		}
		for p, k := range key {
			q := theta[p] / s.weight[e]
			scaled[p] = q
			s.rest[k] += q * s.ownOut[e]
			for o, l := range key[:p] {
				switch v := q * theta[o]; {
				case l < k:
					s.off[int(k)*n+int(l)] += v
				case l > k:
					s.off[int(l)*n+int(k)] += v
				}
			}
		}
	}
}

func (s *schur) formDense() {
	n, wide := s.size, s.wide
	for k := range n {
		for e, t := range s.theta[k*wide : (k+1)*wide] {
			s.weight[e] += t
		}
	}
	for k := range n {
		scaled := s.scaled[k*wide : (k+1)*wide]
		rest := 0.0
		for e, t := range s.theta[k*wide : (k+1)*wide] {
			q := t / s.weight[e]
			scaled[e] = q
			rest += q * s.ownOut[e]
		}
		s.rest[k] += rest
	}
	// Four products at a time: each value read is used twice.
	for i := 0; i < n; i += 2 {
		for j := 0; j <= i; j += 2 {
			s.products(i, j)
		}
	}
}

// products sets the entries (i, i+1) x (j, j+1) of off.
func (s *schur) products(i, j int) {
	n, wide := s.size, s.wide
	a0, b0 := s.theta[i*wide:(i+1)*wide], s.scaled[j*wide:(j+1)*wide]
	a1, b1 := a0, b0
	if i+1 < n {
		a1 = s.theta[(i+1)*wide : (i+2)*wide]
	}
	if j+1 < n {
		b1 = s.scaled[(j+1)*wide : (j+2)*wide]
	}
	a1, b0, b1 = a1[:len(a0)], b0[:len(a0)], b1[:len(a0)]
	var s00, s01, s10, s11 float64
	for e, x := range a0 {
		y, p, q := a1[e], b0[e], b1[e]
		s00 += x * p
		s01 += x * q
		s10 += y * p
		s11 += y * q
	}
	s.off[i*n+j] = s00
	if i+1 < n {
		s.off[(i+1)*n+j] = s10
	}
	if j+1 < n {
		s.off[i*n+j+1] = s01
		if i+1 < n {
			s.off[(i+1)*n+j+1] = s11
		}
	}
}

// solve sets dmu and dlambda from the right-hand sides of rows and groups.
func (s *schur) solve(rows, groups, dmu, dlambda []float64) {
	right, out, x, xOut := rows, groups, dmu, dlambda
	if s.byGroup {
		right, out, x, xOut = groups, rows, dlambda, dmu
	}
	n, wide := s.size, s.wide
	copy(s.right, right)
	if s.sparse {
		for e, v := range out {
			for p := s.start[e]; p < s.start[e+1]; p++ {
				s.right[s.key[p]] += s.scaled[p] * v
			}
		}
	} else {
		for k := range n {
			v := 0.0
			for e, q := range s.scaled[k*wide : (k+1)*wide] {
				v += q * out[e]
			}
			s.right[k] += v
		}
	}
	s.substitute(x)
	for e := range xOut {
		xOut[e] = out[e] / s.weight[e]
	}
	if s.sparse {
		for e := range xOut {
			for p := s.start[e]; p < s.start[e+1]; p++ {
				xOut[e] += s.scaled[p] * x[s.key[p]]
			}
		}
		return
	}
	for k := range n {
		v := x[k]
		for e, q := range s.scaled[k*wide : (k+1)*wide] {
			xOut[e] += q * v
		}
	}
}

// substitute solves for the side that is left, by the factors.
func (s *schur) substitute(x []float64) {
	n := s.size
	for i := range n {
		v := s.right[i]
		for k, l := range s.off[i*n : i*n+i] {
			v += l * s.right[k]
		}
		s.right[i] = v
	}
	for i := range n {
		x[i] = s.right[i] / s.diagonal[i]
	}
	for i := n - 1; i >= 0; i-- {
		v := x[i]
		for k, l := range s.off[i*n : i*n+i] {
			x[k] += l * v
		}
	}
}
