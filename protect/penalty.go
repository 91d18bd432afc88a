package protect

import (
	"math"
	"sync/atomic"
	"time"
)

// Severity is how much a failure says about an engine.
type Severity float64

const (
	Broken    Severity = 1   // refused, reset, 5xx, silent, died in mid-stream
	Malformed Severity = 0.5 // what it sent was no event, or no JSON
	Busy      Severity = 0.3 // 429 or 503: full, not ill
	Slow      Severity = 0.2 // much slower than its peers
)

const (
	penaltyDecay = 15 * time.Second
	penaltyMost  = 0.98
	penaltyStep  = 0.25
	penaltyHeal  = 0.9   // a first token in time takes a tenth off
	penaltyNone  = 0.001 // below this there is none
	leastFactor  = 0.02  // of the weight that a penalty leaves
)

// Penalty lowers an engine's weight while it fails and forgets by itself:
//
//	p *= exp(-dt/15 s)
//	failure      p = min(0.98, p + 0.25 sev (1-p))
//	first token  p *= 0.9
//	factor       m = max(0.02, 1-p)
//
// The zero value is an engine without one. Safe for concurrent use, without a
// lock: one word holds p (float32) and when it was that (10 ms units since the
// first use of the process's clock).
type Penalty struct{ word atomic.Uint64 }

// epoch is on a whole second, so that what is counted from it in ticks and in
// seconds does not depend on when in a second the process began.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(-time.Duration(now.Nanosecond()))
}()

func penaltyTicks(now time.Time) uint32 {
	return uint32(max(0, now.Sub(epoch)) / (10 * time.Millisecond))
}

// at is p at a time, from a word.
func penaltyAt(word uint64, ticks uint32) float64 {
	p := float64(math.Float32frombits(uint32(word >> 32)))
	if since := int32(ticks - uint32(word)); since > 0 { // the count goes round once in 497 days
		p *= math.Exp(-float64(since) * 0.01 / penaltyDecay.Seconds())
	}
	if p < penaltyNone {
		return 0
	}
	return p
}

func (x *Penalty) update(now time.Time, f func(p float64) float64) {
	ticks := penaltyTicks(now)
	for {
		old := x.word.Load()
		p := f(penaltyAt(old, ticks))
		next := uint64(0)
		if p >= penaltyNone {
			// Two at once may see the clock in another order: time does not go back.
			next = uint64(math.Float32bits(float32(p)))<<32 | uint64(max(ticks, uint32(old)))
		}
		if x.word.CompareAndSwap(old, next) {
			return
		}
	}
}

// Failed counts a failure.
func (x *Penalty) Failed(s Severity, now time.Time) {
	x.update(now, func(p float64) float64 { return min(penaltyMost, p+penaltyStep*float64(s)*(1-p)) })
}

// Answered counts a first token. It costs one load where there is no penalty.
func (x *Penalty) Answered(now time.Time) {
	if x.word.Load() != 0 {
		x.update(now, func(p float64) float64 { return p * penaltyHeal })
	}
}

// Factor is what is left of the engine's weight, 0.02 to 1.
func (x *Penalty) Factor(now time.Time) float64 {
	word := x.word.Load()
	if word == 0 {
		return 1
	}
	return max(leastFactor, 1-penaltyAt(word, penaltyTicks(now)))
}
