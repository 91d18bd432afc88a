package engine

import "time"

// How often health is asked, and how many answers a change of state needs.
const (
	healthEvery   = 5 * time.Second        // of a ready engine, +-20 %
	downEvery     = time.Second            // of one that is out
	freshEvery    = 250 * time.Millisecond // of one that has not been ready yet, for freshFor
	freshFor      = 30 * time.Second
	confirmAfter  = 250 * time.Millisecond // between the first and the second success of one that was out
	suspectEvery  = 50 * time.Millisecond  // at most so often where the proxy asks for it
	failuresDown  = 3
	successesUp   = 2
	workingWithin = 5 * time.Second // progress this young shows that an engine works
)

// verdict is what one health probe found. Closed.
type verdict uint8

const (
	healthy     verdict = iota // 2xx
	loading                    // 503 of an engine that says it is loading its model
	refused                    // connection refused: definite
	unreachable                // name or address leads nowhere
	timedOut                   // no answer in time
	unhealthy                  // any other status
	broken                     // not HTTP, or reset
	untrusted                  // its certificate is not accepted: definite
	insecure                   // it listens, but no TLS comes about
	excused                    // no answer in time, but it works for us: means nothing
	verdictCount
)

func (v verdict) String() string {
	return [...]string{"healthy", "loading", "refused", "unreachable", "timeout", "unhealthy", "broken", "untrusted", "no_tls", "excused"}[v]
}

func (v verdict) reason() Reason {
	return [...]Reason{ReasonHealthy, ReasonLoading, ReasonRefused, ReasonUnreachable, ReasonTimeout, ReasonUnhealthy,
		ReasonBroken, ReasonUntrusted, ReasonInsecure, ReasonHealthy}[v]
}

// health is the state machine of one engine's health. Pure: probes go in,
// states come out. One goroutine owns it.
type health struct {
	state     State
	reason    Reason
	fresh     bool      // not ready yet since we know it, or since it began to load: one success is enough
	since     time.Time // when fresh began
	failures  int       // in a row
	successes int       // in a row
}

func newHealth(s Status, now time.Time) health {
	return health{state: s.State, reason: s.Reason, fresh: s.State == Starting, since: now}
}

// observe takes the verdict of one probe.
func (h *health) observe(v verdict, now time.Time) {
	switch v {
	case excused:
		return
	case healthy:
		h.failures = 0
		h.successes++
		if h.state != Ready && !h.fresh && h.successes < successesUp {
			return
		}
		h.state, h.reason, h.fresh = Ready, ReasonHealthy, false
	case loading:
		if h.reason != ReasonLoading {
			h.since = now
		}
		h.state, h.reason, h.fresh = Starting, ReasonLoading, true
		h.failures, h.successes = 0, 0
	default:
		h.successes = 0
		h.failures++
		if v == refused || v == untrusted || h.state == Down || h.failures >= failuresDown {
			h.state, h.reason = Down, v.reason()
		}
	}
}

// next is how long to wait until the following probe; r in [0,1) spreads the
// probes of many engines.
func (h *health) next(now time.Time, r float64) time.Duration {
	switch {
	case h.state == Ready:
		return spread(healthEvery, r)
	case h.fresh && now.Sub(h.since) < freshFor:
		return freshEvery
	case h.successes > 0:
		return confirmAfter
	default:
		return spread(downEvery, r)
	}
}

// spread is d +-20 %, by r in [0,1).
func spread(d time.Duration, r float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*r))
}

// working reports whether an engine that does not answer its probe is busy
// for us: a part of an answer came just now, or it holds more requests than it
// has slots and its health page needs one of their threads.
func (l *Live) working(now time.Time) bool {
	n := l.InFlight()
	if n > 0 && l.ProgressAge(now) < workingWithin {
		return true
	}
	d := l.Detected()
	return d != nil && d.Slots > 0 && n > int64(d.Slots) && dialectByName(d.Dialect).healthNeedsSlot
}
