package profile

import (
	"fmt"
	"math"
	"slices"

	"penstock/balancer/problem"
)

// Measured is a pair that was measured: the mean latency in ms at a load in
// requests/s.
type Measured struct{ Load, Latency float64 }

// Fitted is a curve through measured pairs, with how far it is from them.
type Fitted struct {
	problem.Latency
	// Why says why it has points, and not the form a + b/(1 - y/Y); "" if it does not.
	Why string
	// MAPE is the mean of |fitted/measured - 1|, Worst the largest of them.
	MAPE, Worst float64
}

// FewestLoads is how many different loads a fit needs: it has three parameters.
const FewestLoads = 3

const (
	// furthest is the highest limit that is looked for, as a multiple of the
	// largest load: beyond, the latency does not show that there is one.
	furthest = 100
	// Where the curve is off by more than poor, and points by less than half of
	// that, the latency is not of its form.
	poor = 0.05
)

// Fit fits T(y) = a + b/(1 - y/Y) to measured pairs by least squares of relative
// errors, with a, b >= 0 and Y above the largest load. Where that is not the
// form of the latency it takes points instead: the convex piecewise-linear
// regression of y (T(y) - T(0)).
func Fit(pairs []Measured) (*Fitted, error) {
	loads := make(map[float64]bool)
	for i, p := range pairs {
		if !(p.Load >= 0) || math.IsInf(p.Load, 0) || !(p.Latency > 0) || math.IsInf(p.Latency, 0) {
			return nil, fmt.Errorf("pair %d: want a load of 0 or more and a latency above 0, got %v and %v", i+1, p.Load, p.Latency)
		}
		loads[p.Load] = true
	}
	if len(loads) < FewestLoads {
		if len(loads) == 1 {
			return nil, fmt.Errorf("there is one load only, a fit needs %d different ones", FewestLoads)
		}
		return nil, fmt.Errorf("there are %d different loads, a fit needs %d", len(loads), FewestLoads)
	}
	pairs = slices.Clone(pairs)
	slices.SortFunc(pairs, func(a, b Measured) int {
		switch {
		case a.Load < b.Load:
			return -1
		case a.Load > b.Load:
			return 1
		}
		return 0
	})
	curve, why := fitCurve(pairs)
	f := &Fitted{Latency: curve}
	f.judge(pairs)
	if why == "" && f.MAPE <= poor {
		return f, nil
	}
	g := &Fitted{Latency: fitPoints(pairs)}
	g.judge(pairs)
	if why == "" && g.MAPE > f.MAPE/2 {
		return f, nil
	}
	if why == "" {
		why = fmt.Sprintf("the form a + b/(1 - y/Y) is off by %.1f %%, points by %.1f %%", 100*f.MAPE, 100*g.MAPE)
	}
	g.Why = why
	return g, nil
}

// judge fills in how far the curve is from the pairs.
func (f *Fitted) judge(pairs []Measured) {
	for _, p := range pairs {
		off := math.Abs((f.Zero()+f.Congestion(p.Load))/p.Latency - 1)
		f.MAPE += off / float64(len(pairs))
		f.Worst = max(f.Worst, off)
	}
}

// fitCurve searches the limit; a and b follow from it. Why says what speaks
// against the form, "" if nothing does.
func fitCurve(pairs []Measured) (curve problem.Latency, why string) {
	largest := pairs[len(pairs)-1].Load
	at := func(limit float64) (problem.Latency, float64) {
		var a [2][2]float64
		var b [2]float64
		for _, p := range pairs {
			x := [2]float64{1 / p.Latency, 1 / (1 - p.Load/limit) / p.Latency}
			for i := range x {
				for j := range x {
					a[i][j] += x[i] * x[j]
				}
				b[i] += x[i]
			}
		}
		c := problem.Latency{Limit: limit}
		c.Base, c.Slope = positivePair(a, b)
		off := 0.0
		for _, p := range pairs {
			e := (c.Zero()+c.Congestion(p.Load))/p.Latency - 1
			off += e * e
		}
		return c, off
	}
	// Over the logarithm of limit/largest - 1, whose errors may have more than one
	// lowest point: look at many, then closely around the best.
	const steps = 400
	low, high := math.Log(1e-6), math.Log(furthest-1)
	limit := func(x float64) float64 { return largest * (1 + math.Exp(x)) }
	best, least := 0, math.Inf(1)
	for i := range steps + 1 {
		if _, off := at(limit(low + (high-low)*float64(i)/steps)); off < least {
			best, least = i, off
		}
	}
	from, to := low+(high-low)*float64(max(best-1, 0))/steps, low+(high-low)*float64(min(best+1, steps))/steps
	for range 80 {
		x, y := from+(to-from)*0.382, from+(to-from)*0.618
		_, near := at(limit(x))
		if _, far := at(limit(y)); near < far {
			to = y
		} else {
			from = x
		}
	}
	curve, _ = at(limit((from + to) / 2))
	switch {
	case curve.Slope == 0 || curve.Slope < 1e-9*curve.Base:
		// Flat up to where it was measured: beyond, nothing is known.
		return problem.Latency{Base: curve.Zero(), Limit: largest}, ""
	case best == steps:
		return curve, "the latency shows no limit: it would be more than 100 times the largest load"
	case best == 0:
		return curve, "the latency at the largest load is beyond every limit above it"
	}
	return curve, ""
}

// positivePair minimises x'ax/2 - b'x over x >= 0.
func positivePair(a [2][2]float64, b [2]float64) (x, y float64) {
	det := a[0][0]*a[1][1] - a[0][1]*a[1][0]
	if det > 1e-14*a[0][0]*a[1][1] {
		x, y = (b[0]*a[1][1]-b[1]*a[0][1])/det, (a[0][0]*b[1]-a[1][0]*b[0])/det
		if x >= 0 && y >= 0 {
			return x, y
		}
	}
	// One of them alone: the one that lowers the error more.
	if b[0]*b[0]/a[0][0] >= b[1]*b[1]/a[1][1] {
		return b[0] / a[0][0], 0
	}
	return 0, b[1] / a[1][1]
}
