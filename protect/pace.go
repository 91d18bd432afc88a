package protect

import (
	"math"
	"sync/atomic"
	"time"
)

// Utilisation is how full a pool of engines is: what is in flight and waits,
// over what they take at once, smoothed over a second. The zero value is an
// empty pool. Update has one caller at a time; Value any.
type Utilisation struct {
	bits atomic.Uint64
	at   time.Time
}

const utilisationOver = time.Second

// Update adds a reading.
func (x *Utilisation) Update(load, room float64, now time.Time) {
	u := 0.0
	if load > 0 {
		u = min(load/max(room, 1), 2) // what is beyond says nothing more
	}
	if !x.at.IsZero() {
		part := -math.Expm1(-now.Sub(x.at).Seconds() / utilisationOver.Seconds())
		old := x.Value()
		u = old + part*(u-old)
	}
	x.at = now
	x.bits.Store(math.Float64bits(u))
}

// Value is the utilisation, 0 to 2.
func (x *Utilisation) Value() float64 { return math.Float64frombits(x.bits.Load()) }

// Pace is how fast a pool takes requests while some wait, and for how long it
// makes sense to wait. The zero value has seen nothing. Not safe for
// concurrent use.
type Pace struct {
	perSecond float64 // cost begun, while requests wait; 0 = not known
	starts    float64 // requests begun per second, likewise
	offered   float64 // requests that came per second

	cost     float64 // since the last Tick
	n, came  float64
	at       time.Time
	crowded  time.Time // since when some have always waited; zero: none wait
	measured time.Duration
}

const (
	paceOver = 3 * time.Second
	// paceAfter is how long must have been measured before it is a pace.
	paceAfter = 500 * time.Millisecond
	// While an overload lasts a wait is worth a shortWait-th of the limit, or a
	// few turns where turns are slow: a queue that is never empty serves no more
	// for being long, only later.
	shortWait  = 16
	turnsWait  = 2
	lastsAfter = 2 // of the limit, divided by this: since then the queue has never been empty
)

// Began counts a request that was given a place while others waited, or was
// waiting itself.
func (p *Pace) Began(cost float64) { p.cost += cost; p.n++ }

// Came counts n requests that asked for a place.
func (p *Pace) Came(n float64) { p.came += n }

// Tick closes an interval; crowded says that requests wait at its end.
func (p *Pace) Tick(crowded bool, now time.Time) {
	dt := now.Sub(p.at)
	if p.at.IsZero() || dt <= 0 {
		dt = 0
	}
	was := !p.crowded.IsZero()
	if dt > 0 {
		p.offered = blend(p.offered, p.came/dt.Seconds(), dt)
		if was && crowded { // the interval as a whole
			if p.measured < paceAfter { // the mean of all until there is enough to forget
				share := float64(dt) / float64(p.measured+dt)
				p.perSecond += share * (p.cost/dt.Seconds() - p.perSecond)
				p.starts += share * (p.n/dt.Seconds() - p.starts)
			} else {
				p.perSecond = blend(p.perSecond, p.cost/dt.Seconds(), dt)
				p.starts = blend(p.starts, p.n/dt.Seconds(), dt)
			}
			p.measured += dt
		}
	}
	p.cost, p.n, p.came, p.at = 0, 0, 0, now
	switch {
	case !crowded:
		p.crowded = time.Time{}
	case !was:
		p.crowded = now
	}
}

func blend(old, next float64, dt time.Duration) float64 {
	return old - math.Expm1(-dt.Seconds()/paceOver.Seconds())*(next-old)
}

// Wait is how long it takes until cost has been begun; 0 while the pace is not
// known.
func (p *Pace) Wait(cost float64) time.Duration {
	if p.measured < paceAfter || p.perSecond <= 0 {
		return 0
	}
	return time.Duration(min(cost/p.perSecond*float64(time.Second), math.MaxInt64/2))
}

// Worth is how long a request may wait where at most limit was promised.
func (p *Pace) Worth(limit time.Duration, now time.Time) time.Duration {
	if p.crowded.IsZero() || now.Sub(p.crowded) < limit/lastsAfter {
		return limit
	}
	if p.starts <= 0 { // nothing begins: who waits, waits for an engine
		return limit
	}
	short := min(turnsWait/p.starts*float64(time.Second), float64(limit))
	return min(limit, max(limit/shortWait, time.Duration(short)))
}

// Over is how many times what it takes is asked of the pool; 0 while the pace
// is not known.
func (p *Pace) Over() float64 {
	if p.measured < paceAfter || p.starts <= 0 || p.crowded.IsZero() {
		return 0
	}
	return p.offered / p.starts
}
