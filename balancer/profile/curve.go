package profile

import (
	"math"

	"penstock/balancer/problem"
	"penstock/route"
)

// Request is the mean request of an engine: tokens, Cached of Prompt are those
// that it does not have to compute.
type Request struct{ Prompt, Cached, Output float64 }

// uncached is u: at least the last token is always computed.
func (r Request) uncached() float64 { return max(r.Prompt-r.Cached, 1) }

// usable replaces what nobody knows by a short chat.
func (r Request) usable() Request {
	if !(r.Output >= 1) || math.IsInf(r.Output, 0) {
		r.Output = 200
	}
	if !(r.Prompt >= 1) || math.IsInf(r.Prompt, 0) {
		r.Prompt, r.Cached = 1000, 0
	}
	if !(r.Cached >= 0) {
		r.Cached = 0
	}
	return r
}

// Known is what is told of an engine rather than learned.
type Known struct {
	Capacity *float64         // requests/s as configured; nil where it is not
	Profile  *problem.Latency // as configured, of the engine as a whole; nil where it is not
	Speed    route.Speed      // of a profile that tells steps: what is learned stays near it; zero where there is none
	// Correction is what the capacity that is told is multiplied with
	// (Correction.Factor); 0 counts as 1.
	Correction float64
	Slots      float64 // sequences at once, or the cap of attempts; 0 = not told
	KVTokens   float64 // KV memory; 0 = not told
}

// Calibrating is how many answers make a learned speed one to rely on.
const Calibrating = 10

const (
	// fullest is the highest load of a curve that has no slots to stop it, as a
	// share of its limit.
	fullest = 0.95
	// Marginal costs are matched at these shares of the capacity. Nearer to
	// it the chain waits for slots because requests come by chance; a gateway
	// that places by what is in flight makes them wait much less.
	lower, upper = 0.4, 0.7
	// A capacity below it, in requests/s, is none: one in thirty years.
	idle = 1e-9
)

// Curve is the latency of an engine in ms against its load in requests/s of the
// mean request, and the most load it can carry, without margin. Calibrated says
// that it rests on a profile, a configured capacity or enough answers; if not,
// it is that of speed all the same, which the caller takes from the engine's
// peers (Typical), and of a plausible engine where that is zero too.
func Curve(speed route.Speed, mean Request, known Known) (curve problem.Latency, capacity float64, calibrated bool) {
	mean = mean.usable()
	correction := known.Correction
	if correction == 0 {
		correction = 1
	}
	speed = known.near(speed)
	switch {
	case known.Profile != nil:
		curve, capacity = stretched(*known.Profile, correction), most(*known.Profile)*correction
		if known.Capacity != nil {
			capacity = min(capacity, *known.Capacity*correction)
		}
		return curve, capacity, true
	case known.Capacity != nil:
		capacity = *known.Capacity * correction
		if capacity < idle {
			return problem.Latency{}, 0, true
		}
		of, carries := learned(speed, mean, known)
		if speed.Answers < Calibrating {
			// Peers may be of another speed: what is told says how fast this one is.
			of.Base, of.Slope = of.Base*carries/capacity, of.Slope*carries/capacity
		}
		return stretched(of, capacity/carries), capacity, true
	}
	curve, capacity = learned(speed, mean, known)
	return curve, capacity, speed.Answers >= Calibrating
}

// learned is the curve of a speed.
func learned(speed route.Speed, mean Request, known Known) (problem.Latency, float64) {
	speed = plausible(speed)
	s := stepping{
		alpha: speed.Step, beta: speed.PerSeq, gamma: speed.PerToken,
		o: mean.Output, u: mean.uncached(), slots: slots(speed, mean, known),
	}
	limit := s.limit()
	capacity := fullest * s.unbounded()
	if s.slots > 0 {
		// Where the chain's mean occupancy without the bound comes to its slots.
		capacity = min(capacity, limit)
	}
	zero := s.zero()
	if s.slots == 0 {
		return problem.Latency{Slope: zero, Limit: limit * 1000}, capacity * 1000
	}
	curve := matched(zero, lower*capacity, s.marginal(lower*capacity), upper*capacity, s.marginal(upper*capacity), capacity)
	curve.Limit, capacity = curve.Limit*1000, capacity*1000
	return curve, capacity
}

// matched is a + b/(1 - y/Y) with a + b = zero and the marginal costs m1 and m2
// at y1 < y2, as near as a, b >= 0 and Y > capacity allow.
func matched(zero, y1, m1, y2, m2, capacity float64) problem.Latency {
	m1, m2 = max(m1-zero, 0), max(m2-zero, 0)
	if m2 <= 0 {
		return problem.Latency{Base: zero, Limit: capacity * roomy}
	}
	steep := func(y, limit float64) float64 { r := 1 - y/limit; return 1/(r*r) - 1 }
	// The ratio of the two falls as the limit grows.
	low, high := capacity*tight, capacity*roomy
	for range 50 {
		limit := math.Sqrt(low * high)
		if steep(y2, limit)*m1 > m2*steep(y1, limit) {
			low = limit
		} else {
			high = limit
		}
	}
	limit := low
	slope := m2 / steep(y2, limit)
	if slope > zero {
		slope = zero
		limit = max(capacity*tight, y2/(1-math.Sqrt(zero/(zero+m2))))
	}
	return problem.Latency{Base: zero - slope, Slope: slope, Limit: limit}
}

// The limit of a curve is within these multiples of its capacity.
const tight, roomy = 1.002, 1e3

// slots are the sequences that the engine can have at once with this mix; 0 is
// no bound.
func slots(speed route.Speed, mean Request, known Known) float64 {
	s := math.Inf(1)
	for _, v := range []float64{speed.Slots, known.Slots} {
		if v > 0 {
			s = min(s, v)
		}
	}
	if known.KVTokens > 0 {
		// A sequence holds its prompt and, on average, half of its answer.
		s = min(s, max(1, known.KVTokens/(mean.Prompt+mean.Output/2)))
	}
	if math.IsInf(s, 1) {
		return 0
	}
	return max(1, s)
}

// stretched is the curve of an engine that carries factor times as much.
func stretched(l problem.Latency, factor float64) problem.Latency {
	if factor == 1 {
		return l
	}
	l.Limit *= factor
	if len(l.Points) > 0 {
		points := make([]problem.Point, len(l.Points))
		for i, p := range l.Points {
			points[i] = problem.Point{Load: p.Load * factor, Time: p.Time}
		}
		l.Points = points
	}
	return l
}

// most is the capacity that a curve alone allows.
func most(l problem.Latency) float64 {
	if n := len(l.Points); n > 0 {
		return l.Points[n-1].Load
	}
	if l.Slope == 0 {
		return l.Limit
	}
	return fullest * l.Limit
}

// Closed is the latency in ms of a mean request where so many streams each
// send their next request when the last was answered: then that many sequences
// are there all the time.
func Closed(speed route.Speed, mean Request, streams float64) float64 {
	mean, speed = mean.usable(), plausible(speed)
	s := stepping{alpha: speed.Step, beta: speed.PerSeq, gamma: speed.PerToken, o: mean.Output, u: mean.uncached()}
	// Of each stream's time its own prompt stretches the others' steps too.
	return s.steps()*(s.alpha+s.beta*streams) + s.gamma*s.u*streams
}
