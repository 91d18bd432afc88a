package proxy

import (
	"time"

	"penstock/engine"
	"penstock/selector"
)

// guardBegins tells the guard of the attempt's engine that it begins. spent is
// what went before.
func (x *exchange) guardBegins(e *engine.Engine, l *selector.Lease, spent tries) {
	x.guard, x.trial, x.load = x.h.guards.of(e), l.Trial, loadClassOf(x.in, x.env.Stream)
	x.guard.began(x.load)
	var payer repeater
	if x.gate != nil && x.class.Several() && spent.mayMove(x.stateless(), inner(x.r.Header)) {
		payer = x
	}
	x.expect.attempt(x.guard, x.load, x.in, payer)
}

// firstContent is the commit point.
func (x *exchange) firstContent(now time.Time) {
	x.firstAt = now
	x.trying.lease.Began()
	x.guard.answered(x.load, now.Sub(x.sentAt), x.trial)
}

// soundFactor is what a penalty leaves of an engine that has not failed of late.
const soundFactor = 0.9

// guardEnds tells the guard how the attempt ended.
func (x *exchange) guardEnds(e *engine.Engine, o Outcome, c Cause) {
	excused := false
	// An engine that was failing already says nothing about the request.
	if c == CauseReset && x.body != nil && x.ep.api != APIBound && x.guard.penalty.Factor(time.Now()) >= soundFactor {
		excused = x.h.guards.deadly.Reset(x.tenant.name, x.body.bytes, e.ID, time.Now())
		x.crashes = excused
	}
	if x.guard.ended(x.load, o, c, !x.firstAt.IsZero(), excused, x.fault.advice.wait(), x.trial) {
		x.h.guards.settle(x.guard)
	}
	x.guard = nil
	more, paid := x.expect.over()
	if more > 0 {
		x.dog.watch(more, &errContentTimeout, true)
	}
	x.paid = paid
}

// guardPanics ends an attempt in which the gateway itself failed.
func (x *exchange) guardPanics() {
	if x.guard != nil && x.firstAt.IsZero() {
		x.guard.loads[x.load].gaveUp()
	}
}

// deadly reports a request that has reset two engines within the last minute:
// no third one gets it.
func (x *exchange) deadly() bool {
	if x.body == nil || !x.h.guards.deadly.Blocked(x.tenant.name, x.body.bytes, time.Now()) {
		return false
	}
	x.h.guards.blocks.Inc()
	return true
}
