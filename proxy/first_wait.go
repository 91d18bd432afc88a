package proxy

import (
	"sync"
	"time"

	"penstock/protect"
)

const (
	// An attempt waits for its first content for waitBase + waitTimes of what
	// the engine has needed at most of late for requests like it, and for
	// waitLeast at the least (protection.md 2.6).
	waitLeast = 15 * time.Second
	waitBase  = 5 * time.Second
	waitTimes = 3
	// waitStep is how often one that waits for so long is looked at.
	waitStep = time.Second
	// topClassBytes is where the last class of sizes begins. Bodies there may be
	// many times as long as each other, and take as many times as long.
	topClassBytes = 256 << 10
)

// firstWait decides what the wait for the first content comes to. The client's
// limit ends the exchange. Before it an attempt is cut that shows no sign of
// being worked on: its engine is out, as one that is silent or frozen is, or the
// engine has answered requests of the same class that it was given later, and
// another engine may be asked. That it takes long alone is no sign: a queue is
// long, a prompt may be. The watchdog asks, from its timer's goroutine.
type firstWait struct {
	halt *halt

	mu      sync.Mutex // guards what is below
	until   int64      // end of the client's time, in nanoseconds since epoch
	guard   *guard     // of the attempt at hand; nil: between attempts
	class   int
	began   int64
	size    float64              // of the body, where its class has no upper bound, in units of topClassBytes; else 1
	movable bool                 // another engine may have the request
	busy    *protect.Utilisation // of the model
	cut     bool                 // the attempt at hand was cut
}

// start begins the client's time.
func (f *firstWait) start(h *halt, limit time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.halt, f.until, f.guard, f.cut = h, sinceEpoch()+int64(limit), nil, false
	return min(limit, waitLeast)
}

// attempt begins one on the engine of g.
func (f *firstWait) attempt(g *guard, class int, bodyBytes int64, busy *protect.Utilisation, movable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard, f.class, f.began, f.busy, f.movable, f.size = g, class, sinceEpoch(), busy, movable && busy != nil, 1
	if class%sizeClasses == sizeClasses-1 {
		f.size = max(1, float64(bodyBytes)/topClassBytes)
	}
}

// again is when to look at a further attempt: the one before may have left
// another limit behind, as that of its body's reading.
func (f *firstWait) again() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(1, min(waitLeast, time.Duration(f.until-sinceEpoch())))
}

// over ends the attempt. After a cut the time until the next look is what it
// returns; 0 where there was none.
func (f *firstWait) over() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard = nil
	if !f.cut {
		return 0
	}
	f.cut = false
	f.halt.mend()
	return max(1, min(waitStep, time.Duration(f.until-sinceEpoch())))
}

// more is for how long to go on waiting; 0 says that it is over.
func (f *firstWait) more(why error) time.Duration {
	if why != errContentTimeout {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := sinceEpoch()
	if now >= f.until || f.lost(now) {
		return 0
	}
	return min(waitStep, time.Duration(f.until-now))
}

// end ends the attempt, or all, where the client's time is over.
func (f *firstWait) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why == errContentTimeout && f.guard != nil && sinceEpoch() < f.until {
		f.cut = true
		f.halt.cut()
		return
	}
	f.halt.end(why)
}

// lost reports an attempt that nobody seems to work on.
func (f *firstWait) lost(now int64) bool {
	if f.guard == nil {
		return false
	}
	l := &f.guard.loads[f.class]
	needs := max(waitLeast, waitBase+time.Duration(waitTimes*f.size*float64(l.worst())))
	switch {
	case time.Duration(now-f.began) < needs:
		return false
	case f.guard.breaker.State() != protect.BreakerClosed:
		return true
	}
	// An answer in one piece takes as long as it is.
	return f.class < sizeClasses && l.newest.Load() > f.began && f.movable && f.busy.Value() < unsureBelow
}
