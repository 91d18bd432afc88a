package engine

import (
	"math"
	"sync/atomic"
)

// Allowance is what protection leaves of an engine for now: a factor of its
// weight (penalty, slow start, "full") and one of its in-flight cap (slow
// start). One word, so that a pick reads it with one load; 0 leaves all of it,
// which is what nearly every pick finds. The low half is what is taken off the
// weight, the high half off the cap, in 65535ths.
type Allowance uint32

const allowanceUnit = 1<<16 - 1

// NewAllowance rounds two factors in [0,1] to a word.
func NewAllowance(weight, cap float64) Allowance {
	off := func(f float64) uint32 {
		if !(f < 1) {
			return 0
		}
		return uint32(math.Round(allowanceUnit * (1 - max(0, f))))
	}
	return Allowance(off(cap)<<16 | off(weight))
}

// Factor is what is left of the weight, m of protection.md 2.2.
func (a Allowance) Factor() float64 { return 1 - float64(a&allowanceUnit)/allowanceUnit }

// CapFactor is what is left of the in-flight cap.
func (a Allowance) CapFactor() float64 { return 1 - float64(a>>16)/allowanceUnit }

// Keeps reports whether a conversation stays on the engine: those with a
// second hash of at least the factor are elsewhere meanwhile. It is the same
// ones each time, and they come back in the order in which they left.
func (a Allowance) Keeps(secondHash uint64) bool {
	return uint32(secondHash>>48) < allowanceUnit-uint32(a&allowanceUnit)
}

// Cap is what is left of an in-flight cap, never under 1.
func (a Allowance) Cap(k int64) int64 {
	if a>>16 == 0 {
		return k
	}
	return max(1, int64(math.Round(float64(k)*a.CapFactor())))
}

// Allowance is what protection leaves of the engine now.
func (l *Live) Allowance() Allowance { return Allowance(l.allowance.Load()) }

// SetAllowance publishes what protection leaves of the engine. Whoever guards
// the engine calls it, and tests.
func (l *Live) SetAllowance(a Allowance) {
	if l.allowance.Load() != uint32(a) { // a cache line that every pick writes is not to be taken for nothing
		l.allowance.Store(uint32(a))
	}
}

// Protection is what the gateway's protections think of an engine, for people
// to read and for the control plane. Immutable.
type Protection struct {
	Factor    float64 // of its weight, of penalty, slow start and busy together
	Penalty   float64 // factor of its penalty alone
	SlowStart float64 // factor of its slow start alone
	Lasting   float64 // factor of a penalty that stays, 0 while its breaker stays open; 1: nothing that the control plane should plan with
	Busy      bool    // it said "full" a moment ago
	Slow      bool    // much slower than its peers
	Breaker   Breaker
	Lifted    bool   // its breaker is open, and ignored: too much of the pool is out
	Attention string // what a person should look at, and since when; "" = nothing
}

var unprotected = Protection{Factor: 1, Penalty: 1, SlowStart: 1, Lasting: 1}

// Protection is what the protections think of the engine, never nil.
func (l *Live) Protection() *Protection {
	if p := l.protection.Load(); p != nil {
		return p
	}
	return &unprotected
}

// SetProtection publishes it.
func (l *Live) SetProtection(p *Protection) { l.protection.Store(p) }

// Trial is a place on an engine whose breaker lets a few requests through to
// see whether it has recovered. It ends once: with its first content or its
// failure, or without a word on the engine.
type Trial struct {
	end  func(err error) // nil error: it answered
	none error           // that says nothing of the engine
	over atomic.Bool
}

// NewTrial makes a trial that tells end how it went; none is the error that
// means nothing.
func NewTrial(end func(error), none error) *Trial { return &Trial{end: end, none: none} }

// End says how it went; further calls do nothing. A nil Trial is none.
func (t *Trial) End(err error) {
	if t != nil && t.over.CompareAndSwap(false, true) {
		t.end(err)
	}
}

// Drop ends it without a word on the engine, unless it has ended.
func (t *Trial) Drop() {
	if t != nil {
		t.End(t.none)
	}
}

// SetTrials says who gives out trials while the engine is half open.
func (l *Live) SetTrials(give func() *Trial) { l.trials.Store(&give) }

// Try takes a place for a trial, nil where there is none. Only engines in
// state HalfOpen have any.
func (l *Live) Try() *Trial {
	give := l.trials.Load()
	if give == nil || !l.OnTrial() {
		return nil
	}
	return (*give)()
}
