package solve

import "math"

// member takes load at a marginal cost that rises with it: an engine (or many
// equal ones), one segment between an engine's points, or the shedding of one
// priority at a row. Its marginal cost is
//
//	base + slope/(1 - y/limit)^2        where slope > 0
//	low + (high - low) y/most           where slope = 0
//
// and always strictly rising: what is flat in the problem rises by flatRise
// here, so that a price determines every load.
type member struct {
	low, high float64 // marginal cost at 0 and at most, ms per unit
	most      float64 // capacity, units/s
	slope     float64
	limit     float64
}

const (
	// flatRise is by how much a flat marginal cost rises, relative to itself.
	// It costs at most that share of the objective.
	flatRise = 1e-11
	// leastIdle keeps a load away from its limit by more than rounding.
	leastIdle = 1e-13
)

// curve is the member of an engine with latency base + slope/(1 - y/limit).
func curve(base, slope, limit, most float64) member {
	if slope <= 0 {
		return ramp(base, base, most)
	}
	most = min(most, limit*(1-leastIdle))
	idle := (limit - most) / limit
	return member{low: base + slope, high: base + slope/(idle*idle), most: most, slope: slope, limit: limit}
}

func ramp(low, high, most float64) member { return member{low: low, high: high, most: most} }

// steepen makes a flat ramp rise, by flatRise of its own cost or of scale,
// whichever is more.
func (m *member) steepen(scale float64) {
	if m.slope == 0 {
		m.high = max(m.high, m.low+flatRise*max(m.low, scale))
	}
}

// at is the load at marginal cost low + d, and its derivative. d is what the
// caller knows exactly: near a flat cost a price has too few digits.
func (m *member) at(d float64) (y, dy float64) {
	switch {
	case d <= 0:
		return 0, 0
	case d >= m.high-m.low:
		return m.most, 0
	case m.slope == 0:
		dy = m.most / (m.high - m.low)
		return min(d*dy, m.most), dy
	}
	// With u = 1 - y/limit: slope/u^2 = slope + d.
	w := d + m.slope
	u := math.Sqrt(m.slope / w)
	return min(m.limit*d/(w*(1+u)), m.most), m.limit * u / (2 * w)
}

// marginal is the marginal cost at a load that leaves idle of most, and its
// derivative.
func (m *member) marginal(idle float64) (h, dh float64) {
	if m.slope == 0 {
		rise := m.high - m.low
		return m.high - rise*(idle/m.most), rise / m.most
	}
	u := (m.limit - m.most + idle) / m.limit
	h = m.slope / (u * u)
	return m.low - m.slope + h, 2 * h / (u * m.limit)
}

// rise is the marginal cost at a load, less that at no load.
func (m *member) rise(y float64) float64 {
	if m.slope == 0 {
		return (m.high - m.low) * (y / m.most)
	}
	u := 1 - y/m.limit
	return m.slope * (y / m.limit) * (1 + u) / (u * u)
}

// cost is the integral of the marginal cost from 0 to a load that leaves idle
// of most.
func (m *member) cost(y, idle float64) float64 {
	if m.slope == 0 {
		return y * (m.low + (m.high-m.low)*y/m.most/2)
	}
	return y * (m.low - m.slope + m.slope*m.limit/(m.limit-m.most+idle))
}
