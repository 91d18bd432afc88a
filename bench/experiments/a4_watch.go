package experiments

import (
	"math"
	"slices"
)

// watch notes what happens in the measured time.
type watch struct {
	before   []float64 // engines' shares of all requests
	weights  []plan    // by cycle
	shares   [][]float64
	means    []float64
	overload float64
	feasible int // cycles until it was
	found    bool
	moved    float64 // part of all conversations
	shed     float64
}

func (w *watch) begin(l *loop) { w.before = l.shares() }

// shares is the part of all demand that goes to each engine.
func (l *loop) shares() []float64 {
	s := make([]float64, len(l.engines))
	for i := range l.weights {
		for j, x := range l.weights[i] {
			s[j] += l.share[i] * x
		}
	}
	return s
}

func (w *watch) cycle(l *loop) {
	now := make(plan, len(l.weights))
	for i := range now {
		now[i] = slices.Clone(l.weights[i])
		if n := len(w.weights); n > 0 {
			for j, x := range now[i] {
				w.moved += l.share[i] * max(0, x-w.weights[n-1][i][j])
			}
		}
	}
	w.weights = append(w.weights, now)
	w.shares = append(w.shares, l.shares())
	if !w.found {
		w.feasible++
		w.found = l.feasible()
	}
}

func (w *watch) second(l *loop) {
	for i := range l.admitted {
		w.shed += (1 - l.admitted[i]) * l.share[i]
	}
	mean, overload := l.second()
	w.means = append(w.means, mean)
	if overload {
		w.overload++
	}
}

func (w *watch) row(optimum float64, event bool) a4Row {
	n := float64(len(w.means))
	r := a4Row{Overload: w.overload, Feasible: w.feasible, Shed: w.shed / n, Moved: w.moved / n * 60}
	if !w.found {
		r.Feasible = -1
	}
	for _, m := range w.means {
		r.Latency += m / optimum / n
	}
	sorted := slices.Sorted(slices.Values(w.means))
	r.P99 = sorted[int(0.99*n)] / optimum
	for j := range w.shares[0] {
		of := make([]float64, len(w.shares))
		for k := range of {
			of[k] = w.shares[k][j]
		}
		if event {
			r.Overshoot = max(r.Overshoot, overshoot(w.before[j], of))
		} else {
			r.EngineCV = max(r.EngineCV, cv(of, 0.01))
		}
		for i := range w.weights[0] {
			for k := range of {
				of[k] = w.weights[k][i][j]
			}
			r.WeightCV = max(r.WeightCV, cv(of, 0.05))
		}
	}
	if event {
		r.WeightCV = 0
	} else {
		r.Feasible = 0
	}
	return r
}

// cv is the standard deviation over the mean; 0 where that is less than least.
func cv(x []float64, least float64) float64 {
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if mean < least {
		return 0
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean) / float64(len(x))
	}
	return math.Sqrt(squares) / mean
}

// overshoot is how far x went beyond where it settled, on the side away from
// where it began, relative to that.
func overshoot(from float64, x []float64) float64 {
	last := 0.0
	tail := x[len(x)*2/3:]
	for _, v := range tail {
		last += v / float64(len(tail))
	}
	if last < 0.01 {
		return 0
	}
	most := 0.0
	for _, v := range x {
		if from > last {
			v = 2*last - v
		}
		most = max(most, v/last-1)
	}
	return most
}
