package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine"
	"penstock/protect"
)

// guard is what protects clients from one engine, and the engine from them:
// its penalty, its breaker, and what tells a silent or slow one. It outlives
// reloads with the engine's Live. What it decides the pick reads from the Live.
type guard struct {
	live    *engine.Live
	penalty protect.Penalty
	breaker *protect.Breaker
	busy    atomic.Int64 // "full" until then, in nanoseconds since epoch; 0: not
	loads   [loadClasses]loadClass

	lifted   atomic.Bool   // its breaker is ignored: too much of its pool is out
	panicked atomic.Bool   // so little of a pool is left that penalties count nothing
	joined   atomic.Int64  // when slow start began, in nanoseconds since epoch; 0: not
	start    atomic.Uint32 // what slow start leaves, an engine.Allowance
	shown    atomic.Bool   // half open, it has answered a probe: clients' requests may decide as well
	slow     atomic.Bool   // its first contents have been much slower than its peers'
	silentAt atomic.Int64  // when it was last taken out for doing nothing, in nanoseconds since epoch; 0: never
	backAt   atomic.Int64  // when its breaker last closed, likewise

	opens  [len(tripReasons)]atomic.Int64  // by why
	probes [len(probeResults)]atomic.Int64 // by result

	mu  sync.Mutex // one at a time publishes
	log *slog.Logger

	watched watched // of the loop alone
}

func newGuard(l *engine.Live, log *slog.Logger) *guard {
	g := &guard{live: l, breaker: protect.NewBreaker(), log: log}
	l.SetTrials(g.trial)
	return g
}

// trial gives out one of the places that a half open breaker has, once a probe
// of the gateway's own has had an answer: until then a client would wait for an
// engine that may be as silent as before.
func (g *guard) trial() *engine.Trial {
	if !g.shown.Load() {
		return nil
	}
	end, ok := g.breaker.Try()
	if !ok {
		return nil
	}
	return engine.NewTrial(func(err error) {
		end(err)
		g.followBreaker(time.Now())
	}, protect.ErrNoVerdict)
}

// errEngineFailed ends a trial that failed.
var errEngineFailed = errors.New("the engine failed")

const (
	busyMost    = 5 * time.Second        // an engine that says "full" is held for as long as it says, up to this
	busyDefault = 500 * time.Millisecond // where it does not say
	busyFactor  = 0.02                   // of its weight meanwhile: the others first, but no refusal while it is all there is
	lastingFor  = 10 * time.Second       // a penalty older than this is the control plane's business too
)

// began is called with the pick of an attempt.
func (g *guard) began(class int) { g.loads[class].began(sinceEpoch()) }

// answered is called with the first content of an attempt that began at.
func (g *guard) answered(class int, took time.Duration, trial *engine.Trial) {
	now := time.Now()
	g.loads[class].answered(sinceEpoch(), took)
	if g.slow.Load() && took > g.loads[class].tolerated() {
		g.penalty.Failed(protect.Slow, now)
		g.publish(now)
	} else if g.penalty.Factor(now) < 1 {
		g.penalty.Answered(now)
		g.publish(now)
	}
	if trial != nil && !g.breaksOff() {
		trial.End(nil)
	}
	g.breaker.Answered()
}

// breaksOff reports an engine that is out for streams that broke off: that it
// begins one says nothing, and a trial is over with its answer, or when that
// has gone on for trialStream.
func (g *guard) breaksOff() bool {
	if g.breaker.State() == protect.BreakerClosed {
		return false
	}
	why, _, _ := g.breaker.Why()
	return why == protect.TripStreams
}

// trialStream is longer than streams of an engine that breaks them off at once,
// and short beside long ones, which else would be all the trials that there are.
const trialStream = 5 * time.Second

// ended is called with the end of an attempt: what it says about the engine,
// whether content had come before, and the hold that a "full" asks for. excused
// says that the failure is known not to be the engine's.
func (g *guard) ended(class int, o Outcome, c Cause, content, excused bool, hold time.Duration, trial *engine.Trial) (opened bool) {
	if !content {
		g.loads[class].gaveUp()
	}
	b := causes[c].blame
	now := time.Now()
	switch {
	case o == OutcomeOK:
		trial.End(nil)
		switch {
		case !content: // an answer without any
			g.breaker.Answered()
		case class < sizeClasses: // a stream
			g.breaker.Ended()
		}
		return false
	case b == blameNone || excused:
		trial.Drop()
		return false
	case b == blameBusy:
		g.penalty.Failed(b.severity(), now)
		if c == CauseBusy {
			if hold == 0 {
				hold = busyDefault
			}
			g.busy.Store(sinceEpoch() + int64(min(hold, busyMost)))
		}
		trial.Drop()
		g.publish(now)
		return false
	}
	g.penalty.Failed(b.severity(), now)
	trial.End(errEngineFailed)
	if g.live.Health().State == engine.Ready { // else its health keeps it out already, and for longer
		if content {
			opened = g.breaker.BrokeOff()
		} else {
			opened = g.breaker.Failed()
		}
	}
	g.publish(now)
	return opened
}

// publish makes one word of what is left of the engine.
func (g *guard) publish(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live.SetAllowance(g.allowance(now))
}

func (g *guard) allowance(now time.Time) engine.Allowance {
	if g.breaker.State() == protect.BreakerHalfOpen && !g.lifted.Load() {
		return 0 // the trials are bound enough
	}
	weight, cap := 1.0, 1.0
	if !g.panicked.Load() {
		start := engine.Allowance(g.start.Load())
		weight, cap = start.Factor()*g.penalty.Factor(now), start.CapFactor()
	}
	if g.isBusy() {
		weight = min(weight, busyFactor)
	}
	return engine.NewAllowance(max(weight, busyFactor), cap)
}

func (g *guard) isBusy() bool {
	until := g.busy.Load()
	return until != 0 && sinceEpoch() < until
}

// followBreaker shows the breaker's state to picks and people.
func (g *guard) followBreaker(now time.Time) (changed bool) {
	why, _, _ := g.breaker.Why()
	state := g.breaker.State()
	if g.lifted.Load() {
		state = protect.BreakerClosed
	}
	was := g.live.Status()
	switch state {
	case protect.BreakerOpen:
		changed = g.live.SetBreaker(engine.BreakerOpen, tripReasons[why], now)
	case protect.BreakerHalfOpen:
		changed = g.live.SetBreaker(engine.BreakerHalfOpen, engine.ReasonTrial, now)
	default:
		if changed = g.live.SetBreaker(engine.BreakerClosed, engine.ReasonNoAnswerYet, now); changed && !g.lifted.Load() {
			g.backAt.Store(sinceEpoch())
			g.join(sinceEpoch())
			g.start.Store(uint32(engine.NewAllowance(leastStart, leastCap))) // the next look takes it back where the whole pool starts
		}
	}
	if !changed {
		return false
	}
	g.publish(now)
	if is := g.live.Status(); is.State != was.State {
		level := slog.LevelInfo
		if is.State == engine.Open {
			level = slog.LevelWarn
		}
		g.log.Log(context.Background(), level, "engine state", "state", is.State.String(), "was", was.State.String(), "reason", is.Reason.String())
	}
	return true
}

const (
	slowStartFor = 30 * time.Second // of an engine that has joined or come back
	leastStart   = 0.1              // of its weight at first
	leastCap     = 0.25             // of its cap
)

// join begins a slow start.
func (g *guard) join(now int64) {
	g.joined.Store(max(now, 1))
}

var tripReasons = [...]engine.Reason{protect.TripFailures: engine.ReasonFailures, protect.TripStreams: engine.ReasonStreams,
	protect.TripFrozen: engine.ReasonFrozen, protect.TripSilent: engine.ReasonSilent}
