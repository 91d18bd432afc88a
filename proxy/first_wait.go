package proxy

import (
	"sync"
	"sync/atomic"
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
	// waitForRoom is how much longer one waits at an engine that is out while a
	// repeat is not paid for.
	waitForRoom = 15 * time.Second
	// topClassBytes is where the last class of sizes begins. Bodies there may be
	// many times as long as each other, and take as many times as long.
	topClassBytes = 256 << 10
)

// firstWait decides what the wait for the first content comes to. The client's
// limit ends the exchange. Before it an attempt is cut that shows no sign of
// being worked on, so that another engine may be asked: its engine is out, as
// one that is silent or frozen is, or the engine has answered requests of the
// same class that it was given later, or an answer in one piece has begun and
// does not go on. That it takes long alone is no sign: a queue is long, a
// prompt may be. The watchdog asks, from its timer's goroutine.
type firstWait struct {
	halt  *halt
	stall time.Duration // most between two parts of an answer in one piece
	heard atomic.Int64  // when one came last, in nanoseconds since epoch; 0: none yet

	mu      sync.Mutex // guards what is below
	until   int64      // end of the client's time, in nanoseconds since epoch
	guard   *guard     // of the attempt at hand; nil: between attempts
	class   int
	began   int64
	size    float64  // of the body, where its class has no upper bound, in units of topClassBytes; else 1
	payer   repeater // nil: no other engine may have the request
	cut     bool     // the attempt at hand was cut
	stalled bool     // in the middle of its answer
	paid    bool     // and a repeat is paid for
}

// repeater pays for doing again what an engine may have worked on: false where
// the utilisation is not below that, or the budget does not allow it now.
type repeater interface{ payRepeat(below float64) bool }

// start begins the client's time.
func (f *firstWait) start(h *halt, limit, stall time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.halt, f.stall, f.until, f.guard, f.cut, f.stalled, f.paid = h, stall, sinceEpoch()+int64(limit), nil, false, false, false
	f.heard.Store(0)
	return min(limit, waitLeast)
}

// attempt begins one on the engine of g.
func (f *firstWait) attempt(g *guard, class int, bodyBytes int64, payer repeater) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard, f.class, f.began, f.payer, f.size = g, class, sinceEpoch(), payer, 1
	if class%sizeClasses == sizeClasses-1 {
		f.size = max(1, float64(bodyBytes)/topClassBytes)
	}
}

// again is when to look at a further attempt: the one before may have left
// another limit behind.
func (f *firstWait) again() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(1, min(waitLeast, time.Duration(f.until-sinceEpoch())))
}

// part notes that a part came of an answer that is held until it is whole. With
// the first one its limit begins, and the next look is after soon.
func (f *firstWait) part() (first bool, soon time.Duration) {
	now := sinceEpoch()
	if f.heard.Swap(now) != 0 {
		return false, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return true, max(1, min(f.stall, waitLeast, time.Duration(f.until-now)))
}

// over ends the attempt. After a cut more is the time until the next look, else
// 0; paid says that a repeat is paid for.
func (f *firstWait) over() (more time.Duration, paid bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard, f.payer = nil, nil
	f.heard.Store(0)
	paid = f.paid
	f.paid, f.stalled = false, false
	if !f.cut {
		return 0, paid
	}
	f.cut = false
	f.halt.mend()
	return max(1, min(waitStep, time.Duration(f.until-sinceEpoch()))), paid
}

// wasStalled reports whether the attempt was cut in the middle of its answer.
func (f *firstWait) wasStalled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stalled
}

// more is for how long to go on waiting; 0 says that it is over.
func (f *firstWait) more(why error) time.Duration {
	if why != errContentTimeout {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := sinceEpoch()
	left := time.Duration(f.until - now)
	if heard := f.heard.Load(); heard != 0 {
		quiet := f.stall - time.Duration(now-heard)
		f.stalled = f.guard != nil && quiet <= 0
		left = min(left, quiet)
	}
	if left <= 0 || f.lost(now) {
		return 0
	}
	return min(waitStep, left)
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

// lost reports an attempt that nobody seems to work on. Where another engine
// may have the request it is so once a repeat is paid for.
func (f *firstWait) lost(now int64) bool {
	if f.guard == nil || f.paid {
		return f.paid
	}
	l := &f.guard.loads[f.class]
	needs := max(waitLeast, waitBase+time.Duration(waitTimes*f.size*float64(l.worst())))
	out, since := f.guard.breaker.State() != protect.BreakerClosed, f.began
	silent := f.guard.silentAt.Load()
	back := !out && silent != 0 && silent > f.began
	if back { // it may work on what it has held, for as long as that takes anew
		since = max(since, f.guard.backAt.Load())
	}
	waited := time.Duration(now - since)
	if waited < needs {
		return false
	}
	if f.payer != nil {
		// Of an engine that is out or back its load is gone with it: what it held
		// may be done elsewhere as long as first attempts are not turned away.
		// An answer in one piece takes as long as it is, and tells nothing else.
		switch {
		case out || back:
			f.paid = f.payer.payRepeat(fullFrom)
		case f.class < sizeClasses && l.newest.Load() > f.began:
			f.paid = f.payer.payRepeat(unsureBelow)
		}
	}
	return f.paid || out && (f.payer == nil || waited >= needs+waitForRoom)
}
