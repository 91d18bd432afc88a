package engine

import (
	"math"
	"sync"
	"time"
)

const (
	// blindAfter is the age beyond which an engine's gauges say nothing any more.
	blindAfter = 30 * time.Second
	// abandonedAtMost ends a wait for gauges that never fall: others may send
	// to the engine too, and their requests look like ours.
	abandonedAtMost = 10 * time.Minute
)

// abandoned counts the places of an engine that are taken by requests nobody
// waits for any more.
type abandoned struct {
	mu      sync.Mutex
	watched bool // somebody reads the gauges, and will give the places back
	n       int64
	last    time.Time // when the last of them was given up
}

func (a *abandoned) watch(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = on
}

// Abandon gives up the place of a request on which the engine works on without
// us: llama.cpp does not notice that whoever waits for an answer in one piece
// has left. The place stays taken, so that the engine is not overfilled, until
// its own gauges show it free. False where the engine notices, or where its
// gauges cannot tell: then the place is still the caller's to release.
func (l *Live) Abandon(now time.Time) bool {
	d, s := l.Detected(), l.Sample()
	if d == nil || !dialectByName(d.Dialect).worksOn || !s.tellsLoad(now) {
		return false
	}
	a := &l.abandoned
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.watched {
		return false
	}
	a.n++
	a.last = now
	return true
}

// Abandoned is how many of the places taken are of requests that were given up.
func (l *Live) Abandoned() int64 {
	l.abandoned.mu.Lock()
	defer l.abandoned.mu.Unlock()
	return l.abandoned.n
}

// freeAbandoned gives back the places of abandoned requests that are over, by
// the gauges as they were read last.
func (l *Live) freeAbandoned(now time.Time) {
	a, s := &l.abandoned, l.Sample()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == 0 {
		return
	}
	keep := int64(0)
	if l.Ready() && s.tellsLoad(now) && now.Sub(a.last) <= abandonedAtMost {
		if s.At.Before(a.last) {
			return // older than what it is asked about
		}
		keep = stillWorkedOn(a.n, l.InFlight(), s.Running+s.Waiting)
	}
	l.inflight.Add(keep - a.n)
	a.n = keep
}

// dropAbandoned gives all of them back: nobody looks at the engine any more.
func (l *Live) dropAbandoned() {
	a := &l.abandoned
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = false
	l.inflight.Add(-a.n)
	a.n = 0
}

// tellsLoad reports whether s says, and recently enough, what the engine works on.
func (s *Sample) tellsLoad(now time.Time) bool {
	return s != nil && s.Has&FieldRunning != 0 && now.Sub(s.At) <= blindAfter
}

// stillWorkedOn is how many of the abandoned requests an engine with that load
// has left: what is beyond those that we still wait for.
func stillWorkedOn(abandoned, inflight int64, load float64) int64 {
	waitedFor := inflight - abandoned
	return min(max(int64(math.Ceil(load))-waitedFor, 0), abandoned)
}
