package selector

// Bound is what a candidate's in-flight, one more request included, was held
// to: by its share of what is in flight on its component, and its cap. Share 0
// means the cap alone. factor is what protection had left of the candidate.
func Bound(share float64, component, limitCap int64, factor float64) int64 {
	return limit{q: share, m: int32(component), cap: int32(limitCap)}.allowed(factor)
}

// Basis is what the look's bound follows from (Bound).
func (l *Look) Basis() (share float64, component, limitCap int64) {
	return l.limit.q, int64(l.limit.m), int64(l.limit.cap)
}
