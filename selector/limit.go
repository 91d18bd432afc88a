package selector

import "math"

// limit is what bounds a candidate's in-flight at one pick. The bound itself
// is computed only where it decides, or is read.
type limit struct {
	q   float64 // share of the component's in-flight; 0: only the cap holds
	m   int32   // in flight over the component, before the pick
	cap int32
}

// bound is the Little's-law bound of hashing.md 4 on a candidate's in-flight
// including this pick, never above its cap and never under 1:
// ceil((1+eps) q (m+1)), eps = max(0.10, 3/sqrt(q m)). With little in flight
// eps grows beyond measure, as it should: two conversations alone on the
// fleet are no reason to move one of them off its cache.
func (l limit) bound() int64 { return l.allowed(1) }

// allowed is the bound where protection leaves a part of the weight: it leaves
// as much of the bound.
func (l limit) allowed(factor float64) int64 {
	if l.q == 0 {
		return int64(l.cap)
	}
	m := float64(l.m)
	eps := leastEps
	if qm := l.q * m; qm < 9/(leastEps*leastEps) {
		eps = 3 / math.Sqrt(max(qm, 1e-9))
	}
	b := math.Ceil((1 + eps) * l.q * (m + 1) * factor)
	return int64(min(float64(l.cap), max(1, b)))
}

const leastEps = 0.10

// surely is a limit that is never above bound and costs no square root. Most
// picks find their engine below it.
func (l limit) surely() int64 {
	if l.q == 0 {
		return int64(l.cap)
	}
	b := int64((1 + leastEps) * l.q * float64(l.m+1))
	return min(int64(l.cap), max(1, b))
}
