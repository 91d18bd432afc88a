package protect

import "sync/atomic"

// Pressure is how short the gateway is of memory: what lives on its heap over
// the limit. The zero value is none. One writer; read by every request with
// one load.
type Pressure struct{ level atomic.Int32 }

// Strained is what the gateway does about it.
type Strained int32

const (
	Relaxed       Strained = iota
	ShedSheddable          // sheddable requests are refused, queues are halved
	CloseIdle              // and connections are closed after their answer
	ShedAll                // and all requests are refused
)

var strainedNames = [...]string{"relaxed", "shed_sheddable", "close_idle", "shed_all"}

func (s Strained) String() string { return strainedNames[s] }

// The shares of the limit from which each begins; it ends easeBelow less, so
// that it does not change with every collection.
var strainedFrom = [...]float64{ShedSheddable: 0.85, CloseIdle: 0.92, ShedAll: 0.95}

const easeBelow = 0.02

// Set takes a reading: bytes that live on the heap, of limit, 0 = none.
func (p *Pressure) Set(live, limit int64) Strained {
	now := Relaxed
	if limit > 0 {
		share := float64(live) / float64(limit)
		before := p.Level()
		for s := ShedSheddable; s <= ShedAll; s++ {
			from := strainedFrom[s]
			if s <= before {
				from -= easeBelow
			}
			if share >= from {
				now = s
			}
		}
	}
	p.level.Store(int32(now))
	return now
}

// Level is what the last reading said.
func (p *Pressure) Level() Strained { return Strained(p.level.Load()) }

// Refuses reports whether requests of that priority are refused.
func (s Strained) Refuses(p Priority) bool {
	switch s {
	case ShedAll:
		return true
	case ShedSheddable, CloseIdle:
		return p >= Sheddable
	default:
		return false
	}
}
