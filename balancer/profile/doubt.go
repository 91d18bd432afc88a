package profile

import (
	"math"
	"time"

	"penstock/route"
)

// How far a learned speed may be off by chance. The errors of rows that came
// about the same time belong together: what slowed an engine down for some
// seconds slowed down all that it did then. So it is not the rows that are
// counted but batches of them (cluster-robust standard errors), and a thousand
// answers within ten seconds are one observation.

const (
	// batchSpan is the time whose rows make a batch.
	batchSpan = 10 * time.Second
	// batchKeeps is what remains of a batch's weight in the noise after another one.
	batchKeeps = 0.9
	// Before rows have shown otherwise they are taken to be off by expectedOff;
	// that counts as much as expectedRows of them. Before batches have shown
	// otherwise their means are taken to be off as much as their rows, which counts
	// as much as expectedBatches.
	expectedOff     = 0.15
	expectedRows    = 4
	expectedBatches = 2
	// nothing is the variance of what nobody knows, in ms x ms.
	nothing = 1e12
)

// noise is what rows and the means of batches of them show of the rows' errors.
type noise struct {
	now     batch
	rows    float64 // of closed batches, fading: sum of w x error x error
	means   float64 // and of (sum of w x error) squared
	weights float64 // and of w
	batches float64 // and their number
}

// errors are the sum of w x error and of w x error x error at an estimate;
// errors are relative to the rows' times.
func (b *batch) errors(at vector) (sum, squares float64) {
	for i := range at {
		for j := range at {
			squares += at[i] * at[j] * b.normal[i][j]
		}
	}
	all := dot(b.right, at)
	return b.weight - all, max(0, b.weight-2*all+squares)
}

// close ends a batch; what its errors are is told by the estimate at its end.
func (n *noise) close(at vector) {
	if n.now.weight <= 0 {
		return
	}
	sum, squares := n.now.errors(at)
	n.rows = n.rows*batchKeeps + squares
	n.means = n.means*batchKeeps + sum*sum
	n.weights = n.weights*batchKeeps + n.now.weight
	n.batches = n.batches*batchKeeps + 1
	n.now = batch{}
}

// perWeight is the variance of a row of weight 1 that is as uncertain as its
// part of a batch, and deviation that of a batch's mean.
func (n *noise) perWeight(at vector) (variance, deviation float64) {
	_, squares := n.now.errors(at)
	one := (n.rows + squares + expectedRows*expectedOff*expectedOff) / (n.weights + n.now.weight + expectedRows)
	weights, batches := n.weights, n.batches
	if batches == 0 {
		weights, batches = max(n.now.weight, 1), 1
	}
	mean := weights / batches
	variance = (n.means + expectedBatches*one*mean*mean) / (n.weights + expectedBatches*mean)
	return variance, math.Sqrt(variance / mean)
}

// doubt is the covariance of the errors of alpha, beta and gamma.
func (r *regression) doubt(s shape, estimate vector) (d [6]float64) {
	inverse, ok := inverted(r.equations(s))
	if !ok {
		return [6]float64{0: nothing, 3: nothing, 5: nothing}
	}
	per, _ := r.noise.perWeight(estimate)
	at := 0
	for i := range 3 {
		for j := i; j < 3; j++ {
			d[at] = per * inverse[i][j]
			at++
		}
	}
	return d
}

// aged is the doubt of a speed of which nothing was heard for some time: an
// engine may have changed. One that is given no requests for being slow is
// taken for as fast as its peers after that, and so is tried again: after a
// quarter of an hour where it was half as fast.
func aged(doubt [6]float64, s route.Speed, age time.Duration) [6]float64 {
	off := changes * max(0, age.Minutes())
	v, at := [3]float64{s.Step, s.PerSeq, s.PerToken}, 0
	for i := range v {
		for j := i; j < len(v); j++ {
			doubt[at] = min(max(doubt[at]+off*off*v[i]*v[j], -nothing), nothing)
			at++
		}
	}
	return doubt
}

const (
	// changes is by what part an engine's speed may be another after a minute.
	changes = 0.02
	// What came before a pause in which it may have changed by outdated counts half.
	outdated = 0.1
)

// inverted is the inverse of a symmetric matrix; not ok where it is not
// positive definite. Rows are scaled first: a step and a prompt token are
// orders of magnitude apart.
func inverted(a [unknowns][unknowns]float64) (inverse [unknowns][unknowns]float64, ok bool) {
	var scale vector
	for i := range a {
		if !(a[i][i] > 0) {
			return inverse, false
		}
		scale[i] = 1 / math.Sqrt(a[i][i])
		inverse[i][i] = 1
	}
	for i := range a {
		for j := range a {
			a[i][j] *= scale[i] * scale[j]
		}
	}
	for i := range a {
		pivot := a[i][i]
		if !(pivot > 1e-12) {
			return inverse, false
		}
		for j := range a {
			a[i][j] /= pivot
			inverse[i][j] /= pivot
		}
		for k := range a {
			if f := a[k][i]; k != i {
				for j := range a {
					a[k][j] -= f * a[i][j]
					inverse[k][j] -= f * inverse[i][j]
				}
			}
		}
	}
	for i := range inverse {
		for j := range inverse {
			inverse[i][j] *= scale[i] * scale[j]
		}
	}
	return inverse, true
}

// batchAt notes that a row of that time follows.
func (l *Learner) batchAt(at time.Time) {
	if at.After(l.heard) {
		if !l.heard.IsZero() {
			off := changes * at.Sub(l.heard).Minutes() / outdated
			l.rows.fade(1 / (1 + off*off))
		}
		l.heard = at
	}
	if at.Sub(l.batch) >= batchSpan {
		l.rows.noise.close(l.estimated())
		l.batch = at
	}
}
