package proxy

import (
	"slices"
	"time"

	"penstock/engine"
	"penstock/protect"
)

const (
	frozenAfter = 8 * time.Second // with requests and without a step; a scrape and a look more make less than ten
	signalFresh = 3 * time.Second
	silentLeast = 2 * time.Second // and at least silentTimes what its peers need
	silentTimes = 3
	slowTimes   = 3
	slowLeast   = 200 * time.Millisecond // and at least so much more than its peers: a round trip is no slowness
	slowSamples = 10
	slowWindows = 3
	worstFor    = 30 * time.Second
)

// watched is what the loop remembers of an engine from one look to the next.
type watched struct {
	name     string
	health   engine.State
	steps    float64   // of the last sample that had them
	sampleAt time.Time // of that sample
	still    time.Time // since when steps has not moved though requests run; zero: it moves
	moved    time.Time // when steps last moved
	slowRuns int       // windows in a row in which it was slow
	aged     time.Time // when the longest times were begun anew
	panicked bool
	pooled   bool // it serves a model
	renewed  bool // more than half of a pool is starting with it
	out      time.Time
	low      time.Time // since when its penalty is deep
	any      time.Time // since when it has one
	probing  chan struct{}
	probed   time.Time
	attends  bool
}

// openSince is when the breaker opened for the first time since it was closed.
func (w *watched) openSince(now time.Time) time.Time {
	if w.out.IsZero() {
		w.out = now
	}
	return w.out
}

// watch follows an engine's health and its signs of life. It reports whether
// the engine has just come up.
func (g *guard) watch(now time.Time) (up bool) {
	w := &g.watched
	h := g.live.Health()
	switch {
	case h.State == w.health:
	case h.State == engine.Ready:
		up = true
		if joined := sinceEpoch() - int64(now.Sub(h.Since)); joined > 0 { // else it was up before this process
			g.join(joined)
		}
	case h.State == engine.Down && g.breaker.State() != protect.BreakerClosed:
		// Nobody listens, or it says no itself: health has the word now, and is
		// the sooner to see it come back.
		g.breaker.Reset()
	}
	w.health = h.State
	if s := g.live.Sample(); s != nil && s.At != w.sampleAt && s.Has&engine.FieldSteps != 0 {
		switch {
		case s.Steps != w.steps, s.Has&engine.FieldRunning == 0, s.Running == 0:
			if s.Steps != w.steps {
				w.moved = s.At
			}
			w.still = time.Time{}
		case w.still.IsZero():
			w.still = s.At
		}
		w.steps, w.sampleAt = s.Steps, s.At
	}
	if now.Sub(w.aged) >= worstFor {
		w.aged = now
		for i := range g.loads {
			g.loads[i].age()
		}
	}
	return up
}

// frozen reports an engine that answers its pages and does nothing: it says
// that it runs requests, and its counters stand still.
func (g *guard) frozen(now time.Time) (protect.Trip, bool) {
	w := &g.watched
	return protect.TripFrozen, !w.still.IsZero() && now.Sub(w.sampleAt) <= signalFresh && now.Sub(w.still) >= frozenAfter &&
		g.live.ProgressAge(now) >= frozenAfter && g.live.Ready()
}

// silent reports a member that took requests and has sent nothing since,
// although a peer has answered one of the same class that it was given later,
// and never takes so long. What only works slowly shows by its counters.
func (p *pool) silent(m poolMember, now time.Time) bool {
	if !m.live.Ready() || m.breaker.State() != protect.BreakerClosed {
		return false
	}
	at := sinceEpoch()
	quiet := m.live.ProgressAge(now)
	if !m.watched.moved.IsZero() {
		quiet = min(quiet, now.Sub(m.watched.moved))
	}
	for c := range m.loads {
		l := &m.loads[c]
		if l.waiting.Load() <= 0 {
			continue
		}
		quiet := min(quiet, time.Duration(at-l.since.Load()))
		if quiet < silentLeast {
			continue
		}
		worst, answered := time.Duration(0), false
		for _, peer := range p.members {
			if peer.guard == m.guard {
				continue
			}
			worst = max(worst, peer.loads[c].worst())
			answered = answered || peer.loads[c].newest.Load() > at-int64(quiet)
		}
		if answered && quiet >= silentTimes*worst {
			return true
		}
	}
	return false
}

// judgeSlowLocked ends a window: an engine is slow whose time to the first
// content has been more than three times the median of its peers', for
// requests of one class, three windows in a row.
func (gs *guards) judgeSlowLocked() {
	slow := make(map[*guard]bool)
	for _, p := range gs.pools {
		var times []int64
		for c := range loadClasses {
			for _, m := range p.members {
				times = times[:0]
				for _, peer := range p.members {
					if t := peer.loads[c].ewma.Load(); peer.guard != m.guard && t > 0 && peer.loads[c].samples.Load() > 0 {
						times = append(times, t)
					}
				}
				if len(times) == 0 {
					continue
				}
				slices.Sort(times)
				median := (times[len(times)/2] + times[(len(times)-1)/2]) / 2
				limit := max(slowTimes*median, median+int64(slowLeast))
				l := &m.loads[c]
				l.limit.Store(limit)
				enough := l.samples.Load() >= slowSamples || m.slow.Load() && l.samples.Load() > 0
				slow[m.guard] = slow[m.guard] || enough && l.ewma.Load() > limit
			}
		}
	}
	for _, e := range gs.set.Engines {
		g := gs.addLocked(e)
		if g.watched.slowRuns++; !slow[g] {
			g.watched.slowRuns = 0
		}
		g.slow.Store(g.watched.slowRuns >= slowWindows)
		for c := range g.loads {
			g.loads[c].samples.Store(0)
		}
	}
}

// report publishes what people and the control plane are to know, and says
// once in the log that an engine needs a person.
func (g *guard) report(now time.Time) {
	w := &g.watched
	penalty := g.penalty.Factor(now)
	track := func(since *time.Time, holds bool) time.Duration {
		if !holds {
			*since = time.Time{}
			return 0
		}
		if since.IsZero() {
			*since = now
		}
		return now.Sub(*since)
	}
	any, low := track(&w.any, penalty < 0.999), track(&w.low, penalty < lowFactor)
	state := g.breaker.State()
	p := engine.Protection{Factor: g.live.Allowance().Factor(), Penalty: penalty, SlowStart: engine.Allowance(g.start.Load()).Factor(), Lasting: 1,
		Busy: g.isBusy(), Slow: g.slow.Load(), Breaker: engine.Breaker(state), Lifted: g.lifted.Load()}
	switch {
	case !w.out.IsZero() && now.Sub(w.out) >= lastingFor && !p.Lifted:
		p.Lasting = 0
	case any >= lastingFor:
		p.Lasting = penalty
	}
	status := g.live.Status()
	order, _ := g.live.Order()
	since := status.Since
	if !w.out.IsZero() && w.out.Before(since) {
		since = w.out // half open now and then is out all the same
	}
	switch {
	case order != engine.Serve: // a person's own doing
	case status.State != engine.Ready && now.Sub(since) >= attentionFrom:
		p.Attention = "out since " + since.UTC().Format(time.RFC3339) + ": " + status.Reason.String()
	case low >= attentionFrom:
		p.Attention = "under a penalty since " + w.low.UTC().Format(time.RFC3339) + ": its requests keep failing"
		if p.Slow {
			p.Attention = "under a penalty since " + w.low.UTC().Format(time.RFC3339) + ": much slower than its peers"
		}
	}
	if attends := p.Attention != ""; attends != w.attends {
		w.attends = attends
		if attends {
			g.log.Warn("engine needs attention", "why", p.Attention)
		} else {
			g.log.Info("engine needs attention no more")
		}
	}
	if old := g.live.Protection(); *old != p {
		g.live.SetProtection(&p)
	}
}
