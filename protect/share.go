package protect

import (
	"math"
	"sync/atomic"
	"time"
)

// Admission carries out a planned shed: of the requests of one priority that
// fraction is refused, whole conversations at a time. Those that were seen in
// the last ten minutes come before new ones, and who is refused is the same
// for ten minutes, so that no conversation is admitted and refused by turns.
// The zero value is ready; safe for concurrent use without a lock.
type Admission struct {
	all, refused atomic.Int64  // keyed requests since the last Tick, and of them those refused
	planned      atomic.Uint64 // float64: the fraction asked for last
	correction   atomic.Uint64 // float64: of the threshold, so that the fraction comes out
	at           time.Time     // of the last Tick
}

const (
	// admissionRotates is how long the same conversations are refused.
	admissionRotates = 600
	// admissionOver is the time in which half of a deviation from the plan is corrected.
	admissionOver = 3 * time.Second
)

// Admits decides on one request: fraction of its priority is to be refused at
// now, in seconds. key is that of its conversation, seen that it was here
// lately. draw is a random number from 0 to 1, for requests without a key.
//
// Conversations are ranked by their hash, those seen lately before the others,
// and admitted up to a threshold. Who is refused comes again more often than
// who is served is new, so the threshold is corrected by what comes out.
func (a *Admission) Admits(fraction float64, keyed bool, key uint64, seen bool, draw float64, now int64) bool {
	if !(fraction > 0) {
		return true
	}
	fraction = min(fraction, 1)
	if !keyed {
		return draw >= fraction
	}
	a.planned.Store(math.Float64bits(fraction))
	rank := admissionHash(key, now) / 2
	if !seen {
		rank += 0.5
	}
	a.all.Add(1)
	if fraction < 1 && rank < 1-fraction/2+math.Float64frombits(a.correction.Load()) {
		return true
	}
	a.refused.Add(1)
	return false
}

// Drained is the share to refuse where a plan refuses fraction and the pool is
// so full (Utilisation). A plan makes demand fit what engines carry, and so
// keeps a queue that is there. While they are full, conversations spill and
// their prompts are computed again: engines then carry a fifth less than they
// could, and the plan believes them. So more is refused until they have room.
func Drained(fraction, utilisation float64) float64 {
	if !(fraction > 0) {
		return 0
	}
	return fraction + (1-fraction)*drainMost*min(max((utilisation-drainFrom)/(1-drainFrom), 0), 1)
}

const (
	// drainFrom is where all slots are busy: in-flight caps are 1.15 times them.
	drainFrom = 1 / 1.15
	// drainMost of what the plan admits is refused of a pool that is full.
	drainMost = 0.25
)

// admissionHash spreads conversations over 0 to 1, in a domain of its own:
// with that of the slots a shed would empty whole engines. The key is a keyed
// hash already, so clients cannot choose.
func admissionHash(key uint64, now int64) float64 {
	h := key ^ 0x5ed0_ad41_7715_0000 + uint64(now/admissionRotates)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return float64(h>>11) / (1 << 53)
}

// Tick corrects the threshold by what came out since the last one. One caller
// at a time.
func (a *Admission) Tick(now time.Time) {
	all, refused := a.all.Swap(0), a.refused.Swap(0)
	var dt time.Duration // none before the first Tick: the few requests that it sees are no deviation yet
	if !a.at.IsZero() {
		dt = min(now.Sub(a.at), admissionOver)
	}
	a.at = now
	planned := math.Float64frombits(a.planned.Load())
	if all == 0 || planned >= 1 {
		return
	}
	off := float64(refused)/float64(all) - planned
	c := math.Float64frombits(a.correction.Load()) + off*dt.Seconds()/admissionOver.Seconds()/2
	c = min(max(c, -1+planned/2), planned/2) // the threshold stays within 0 to 1
	a.correction.Store(math.Float64bits(c))
}
