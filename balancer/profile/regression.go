package profile

import "math"

// unknowns are alpha, beta, gamma and delta: what a first token takes beyond
// the engine's steps.
const unknowns = 4

type vector [unknowns]float64

// row says that a time in ms was spent on x[0] steps, x[1] tokens of sequences,
// x[2] tokens of prompts and x[3] beginnings.
type row struct {
	x      vector
	time   float64
	weight float64
}

// regression is a weighted least-squares estimate of the unknowns from rows,
// of which later ones count more. Errors are relative to the row's time, and
// rows far off what is expected count less. The zero value is empty.
type regression struct {
	batch

	// Of decode rows alone: the mean step, and what is in it.
	steps, spent, tokens, prompts float64

	spread float64 // of relative errors, lately; 0 before the first row
	lean   float64 // their mean, lately
	noise  noise
}

const (
	// A row makes earlier ones fade by at most this much, so that a hundred rows
	// remain of an engine with little to do.
	fadePerRow = 0.01
	// leaning is the mean error from which the engine is taken to have changed:
	// then earlier rows fade by fadeChanged a row.
	leaning     = 0.15
	fadeChanged = 0.3
	// An engine whose pace wanders by itself has to lean by so many deviations of
	// its batches.
	surprising = 3

	initialSpread, leastSpread = 0.2, 0.02
)

// add takes in a row at which the estimate is guess. faded is the share that
// the passing of time alone leaves of earlier rows; while rows go on coming a
// hundred remain all the same.
func (r *regression) add(in row, guess vector, faded float64) {
	if !(in.time > 0) || !(in.weight > 0) {
		return
	}
	w := in.weight
	if r.spread > 0 {
		off := 1 - dot(in.x, guess)/in.time
		clipped := min(max(off, -0.5), 0.5)
		r.lean += (clipped - r.lean) * in.weight / 16
		r.spread += (math.Abs(clipped) - r.spread) * in.weight / 32
		r.spread = max(r.spread, leastSpread)
		// Huber: within two spreads a row counts in full.
		w *= min(1, 2*r.spread/max(math.Abs(off), 1e-9))
	} else {
		r.spread = initialSpread
	}
	least := 1 - fadePerRow*in.weight
	if _, deviation := r.noise.perWeight(guess); math.Abs(r.lean) > max(leaning, surprising*deviation) {
		least, faded = 0, min(faded, 1-fadeChanged*in.weight)
	}
	r.fade(max(faded, least))
	r.batch.add(in, w)
	r.noise.now.add(in, w)
	if in.x[3] == 0 {
		r.steps += w * in.x[0]
		r.spent += w * in.time
		r.tokens += w * in.x[1]
		r.prompts += w * in.x[2]
	}
}

func (r *regression) fade(left float64) {
	r.batch.fade(left)
	r.steps, r.spent, r.tokens, r.prompts = r.steps*left, r.spent*left, r.tokens*left, r.prompts*left
}

// batch is the normal equations of some rows.
type batch struct {
	normal [unknowns][unknowns]float64 // sum of w x x', x relative to the row's time
	right  vector                      // sum of w x
	weight float64                     // sum of w
}

func (b *batch) add(in row, w float64) {
	for i := range in.x {
		for j := range in.x {
			b.normal[i][j] += w * in.x[i] * in.x[j] / (in.time * in.time)
		}
		b.right[i] += w * in.x[i] / in.time
	}
	b.weight += w
}

func (b *batch) fade(left float64) {
	for i := range b.normal {
		for j := range b.normal[i] {
			b.normal[i][j] *= left
		}
		b.right[i] *= left
	}
	b.weight *= left
}

// shape is what is expected of beta/alpha and gamma/alpha before anything was
// measured. Belief is the weight of a row that says nothing but that.
type shape struct{ perSeq, perToken, belief float64 }

// solve is the estimate, none of it negative. Where rows do not tell the
// unknowns apart, their ratios are those of the shape.
func (r *regression) solve(s shape) (vector, bool) {
	if r.weight <= 0 {
		return vector{}, false
	}
	return leastPositive(r.equations(s), r.right), true
}

// equations are the rows' normal equations with what the shape expects.
func (r *regression) equations(s shape) [unknowns][unknowns]float64 {
	a := r.normal
	step, seqs, prompts := 1.0, 1.0, 10.0
	if r.steps > 0 {
		step = r.spent / r.steps
		seqs, prompts = max(seqs, r.tokens/r.steps), max(prompts, r.prompts/r.steps)
	} else if r.right[0] > 0 {
		step = r.weight / r.right[0]
	}
	expect := func(x vector) {
		for i := range x {
			for j := range x {
				a[i][j] += s.belief * x[i] * x[j]
			}
		}
	}
	// The difference from the shape, as a share of the mean step.
	expect(vector{-s.perSeq * seqs / step, seqs / step})
	expect(vector{-s.perToken * prompts / step, 0, prompts / step})
	expect(vector{0, 0, 0, 1 / step})
	return a
}

// leastPositive minimises x'ax/2 - b'x over x >= 0 by trying all sets of
// unknowns that are not 0: there are fifteen.
func leastPositive(a [unknowns][unknowns]float64, b vector) vector {
	var best vector
	lowest := 0.0
	for set := 1; set < 1<<unknowns; set++ {
		x, ok := solveOn(a, b, set)
		if !ok {
			continue
		}
		// At the solution of its equations a set's value is -b'x/2.
		if value := -dot(b, x) / 2; value < lowest {
			best, lowest = x, value
		}
	}
	return best
}

// solveOn solves a x = b on the unknowns in set, the others 0. It fails where x
// has a negative part or the equations do not determine it.
func solveOn(a [unknowns][unknowns]float64, b vector, set int) (vector, bool) {
	in := func(i int) bool { return set>>i&1 == 1 }
	for i := range unknowns {
		if !in(i) {
			continue
		}
		pivot := a[i][i]
		if !(pivot > 1e-12*math.Abs(b[i])*math.Abs(b[i])) || pivot <= 0 {
			return vector{}, false
		}
		for k := range unknowns {
			if k == i || !in(k) {
				continue
			}
			f := a[k][i] / pivot
			for j := range unknowns {
				a[k][j] -= f * a[i][j]
			}
			b[k] -= f * b[i]
		}
	}
	var x vector
	for i := range unknowns {
		if in(i) {
			x[i] = b[i] / a[i][i]
			if !(x[i] >= 0) {
				return vector{}, false
			}
		}
	}
	return x, true
}

func dot(a, b vector) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
