package problem

import "math"

// Latency is T(y), the mean latency of an engine in ms at load y: linear between
// Points where there are any, else Base + Slope/(1 - y/Limit).
type Latency struct {
	Base, Slope, Limit float64
	Points             []Point
}

// Point is one measured pair.
type Point struct{ Load, Time float64 }

// Zero is T(0).
func (l *Latency) Zero() float64 {
	if len(l.Points) > 0 {
		return l.Points[0].Time
	}
	return l.Base + l.Slope
}

// Congestion is T(y) - T(0), for loads up to the capacity.
func (l *Latency) Congestion(y float64) float64 {
	if y <= 0 {
		return 0
	}
	if len(l.Points) == 0 {
		if l.Slope == 0 {
			return 0
		}
		if y >= l.Limit {
			return math.Inf(1)
		}
		return l.Slope * (y / (l.Limit - y))
	}
	k := l.segment(y)
	if k < 0 {
		return 0
	}
	p := l.Points[k]
	return p.Time - l.Points[0].Time + l.steepness(k)*(y-p.Load)
}

// Marginal is the derivative of G(y) = y (T(y) - T(0)) from the left and from
// the right: they differ at points. At load 0 both are that from the right.
func (l *Latency) Marginal(y float64) (left, right float64) {
	if len(l.Points) == 0 {
		if l.Slope == 0 || y <= 0 {
			return 0, 0
		}
		rho, idle := y/l.Limit, (l.Limit-y)/l.Limit
		v := l.Slope * rho * (2 - rho) / (idle * idle) // b/(1-rho)^2 - b
		return v, v
	}
	k := l.segment(y)
	if k < 0 || y <= 0 {
		return 0, 0
	}
	left = l.marginalOn(k, y)
	right = left
	if k+1 < len(l.Points)-1 && y >= l.Points[k+1].Load {
		right = l.marginalOn(k+1, y)
	}
	return left, right
}

// Conjugate is G*(v) = max over 0 <= y <= capacity of v y - G(y). For points the
// maximum is taken on every segment: it is right also where rounded points are
// not quite convex.
func (l *Latency) Conjugate(v, capacity float64) float64 {
	if v <= 0 || capacity <= 0 {
		return 0
	}
	if len(l.Points) == 0 {
		return l.conjugateCurve(v, capacity)
	}
	most := 0.0
	for k := range len(l.Points) - 1 {
		from, to := l.Points[k].Load, min(l.Points[k+1].Load, capacity)
		if from >= capacity {
			break
		}
		y := to
		if s := l.steepness(k); s > 0 {
			// G' = T_k - T_0 + s (2y - y_k) on the segment.
			y = min(max((v-(l.Points[k].Time-l.Points[0].Time))/s/2+from/2, from), to)
		}
		most = max(most, y*(v-(l.Points[k].Time-l.Points[0].Time+l.steepness(k)*(y-from))))
	}
	return most
}

func (l *Latency) conjugateCurve(v, capacity float64) float64 {
	if l.Slope == 0 {
		return v * capacity
	}
	// g = sqrt(v+b) - sqrt(b), without cancellation where v is small.
	root := math.Sqrt(v + l.Slope)
	g := v / (root + math.Sqrt(l.Slope))
	if l.Limit*(g/root) < capacity || capacity >= l.Limit {
		return l.Limit * g * g
	}
	return capacity * (v - l.Congestion(capacity))
}

// segment is the one that holds y from its left: the load of its first point
// is below y. -1 at 0, and where there is only one point.
func (l *Latency) segment(y float64) int {
	for k := len(l.Points) - 2; k >= 0; k-- {
		if l.Points[k].Load < y {
			return k
		}
	}
	return -1
}

// steepness is dT/dy on segment k.
func (l *Latency) steepness(k int) float64 {
	a, b := l.Points[k], l.Points[k+1]
	return (b.Time - a.Time) / (b.Load - a.Load)
}

func (l *Latency) marginalOn(k int, y float64) float64 {
	return l.Points[k].Time - l.Points[0].Time + l.steepness(k)*(2*y-l.Points[k].Load)
}
