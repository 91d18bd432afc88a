package proxy

import (
	"net/http"
	"time"

	"penstock/selector"
)

// trying is what goes from one attempt of a request to the next. It is part of
// the exchange: what lies on the stack here lies under a stream for as long as
// that lasts.
type trying struct {
	lease   selector.Lease
	spent   tries
	last    attemptFacts
	outcome Outcome // of last, with its cause
	cause   Cause
	next    nextTry
}

// attemptAll picks engines and sends the request until one attempt decides
// it, and answers the client. The lease is taken with the pick and released
// here, once, however the attempt ends.
func (x *exchange) attemptAll() Outcome {
	x.keepRecord()
	if x.deadly() {
		return x.refused(errDeadly())
	}
	t := &x.trying
	*t = trying{last: attemptFacts{End: endDialFailed}}
	defer x.ended() // of a panic on the way
	x.first()
	for {
		if outcome, answered := x.placed(); answered {
			return outcome
		}
		x.attempt()
		if !x.goesOn() {
			x.release(&t.lease)
			x.settle(t.outcome, t.cause)
			return t.outcome
		}
	}
}

// ended gives back what an attempt held.
func (x *exchange) ended() {
	x.repaid()
	x.trying.lease.Release()
}

// placed takes the place for the next attempt, where it is not on that of the
// one before. Without one the request has been answered.
func (x *exchange) placed() (o Outcome, answered bool) {
	t := &x.trying
	if t.next != trySameEngineFresh {
		var refusal *selector.Refusal
		var shed *apiError
		if t.lease, refusal, shed = x.place(t.next == tryQueue); t.lease.Engine == nil {
			return x.noPick(t.last, refusal, shed), true
		}
	}
	if t.next != tryNothing {
		x.h.metrics.retries.WithLabelValues(t.cause.String()).Inc()
	}
	return 0, false
}

// keepRecord begins the decision record.
func (x *exchange) keepRecord() {
	x.record = &selector.Record{ID: x.id[0], Time: x.arrived, Model: x.env.Model, Class: x.class.Key(), Tenant: x.tenant.name, Priority: x.priority.String(),
		KeySource: x.source.String(), Key: x.ask.Key, Keyed: x.ask.Keyed, Stream: x.env.Stream}
	x.h.selector.Records.Add(x.record)
}

// attempt is one, on the engine of the lease.
func (x *exchange) attempt() {
	from := x.beginAttempt()
	in, facts := x.send(x.trying.lease.Engine, x.trying.next == trySameEngineFresh)
	if in != nil {
		facts = x.take(x.trying.lease.Engine, in)
	}
	x.endAttempt(from, facts)
}

// beginAttempt tells those who account for attempts that one begins, and
// returns what is in flight at its engine then.
func (x *exchange) beginAttempt() (inFlight int64) {
	t := &x.trying
	e := t.lease.Engine
	x.engine = e.Name
	x.attempts++
	x.h.selector.Count(&x.pick)
	x.record.Begin(&x.pick, e.Name)
	x.sentAt = time.Now()
	x.guardBegins(e, &t.lease, t.spent)
	if x.attempts > 1 {
		x.dog.watch(x.expect.again(), &errContentTimeout, true)
	}
	return e.InFlight()
}

// endAttempt tells them how it ended. from is what was in flight when it began.
func (x *exchange) endAttempt(from int64, facts attemptFacts) {
	t := &x.trying
	e, ended := t.lease.Engine, time.Now()
	took := ended.Sub(x.sentAt)
	x.inEngines += took
	t.last = facts
	t.outcome, t.cause = classify(facts)
	x.tell(e, from, t.cause, ended)
	x.repaid()
	x.guardEnds(e, t.outcome, t.cause)
	x.record.EndAttempt(t.outcome.String(), t.cause.String(), took)
	x.h.metrics.attempt(e.Name, t.outcome, facts.BodySent)
	x.learnRoom(e, from, t.outcome, t.cause, ended)
	if t.cause == CauseDial || t.cause == CauseModelGone || t.cause == CauseRefusedStream {
		e.Suspect()
	}
}

// goesOn reports whether another attempt follows, and readies for it. The place
// on the engine is given back before any wait, but where it is used again.
func (x *exchange) goesOn() bool {
	t := &x.trying
	e := t.lease.Engine
	t.next = tryNothing
	if t.outcome == OutcomeNotProcessed || t.outcome == OutcomeAmbiguous { // else it is decided, whatever the terms
		t.next, t.spent = t.spent.after(t.outcome, t.cause, x.terms())
	}
	switch {
	case t.next == trySameEngineFresh:
	case t.last.cutShort() && !x.env.Stream:
		t.lease.Abandon(time.Now())
		x.release(&t.lease)
	default:
		x.release(&t.lease)
	}
	switch t.next {
	case tryNothing:
		return false
	case trySameEngineFresh:
	case tryQueue: // full is for a moment: whoever has room then may have it
		x.ask.Tries = 0
	default:
		x.ask.AddTried(e)
	}
	return !x.halt.ended() && !x.crashes && x.mayRepeat(t.next, t.cause) && x.pause(t.spent.backoff())
}

// choose takes a place on an engine: the one that holds what the request
// names, else the selector's pick. The refusal is nil where the class has none
// to give, or where the one engine has been tried.
func (x *exchange) choose() (selector.Lease, *selector.Refusal) {
	switch {
	case x.holder.Engine == nil:
		return x.h.selector.Pick(x.class, &x.ask, &x.pick), nil
	case x.attempts > 0:
		return selector.Lease{}, nil
	}
	return x.h.selector.PickHolder(x.holder, x.class, &x.pick)
}

// noPick answers when no engine could be picked: the pick's own refusal, or
// what the attempt before said where there is no other engine to try.
func (x *exchange) noPick(last attemptFacts, refusal *selector.Refusal, shed *apiError) Outcome {
	switch {
	case x.halt.ended() && x.attempts == 0:
		return x.endedWaiting()
	case shed != nil && x.attempts == 0:
		return x.refused(shed)
	case x.attempts == 0:
		if refusal == nil {
			refusal = x.class.Refuse(&x.ask)
		}
		if refusal.Why == selector.AllFull {
			return x.refused(x.errShed(shedEnginesFull))
		}
		return x.refused(errRefused(x.asAsked(refusal)))
	}
	outcome, cause := classify(last)
	x.settle(outcome, cause)
	return outcome
}

// settle gives the client the end of the last attempt, where the relay has
// not done so already.
func (x *exchange) settle(o Outcome, c Cause) {
	switch {
	case c == CauseNone, c == CauseAnswerFailed: // the client has it all
	case c == CauseClientGone:
		x.abort = true // a client that closed only its half must not see a clean end
		x.code = "client_gone"
	case x.status != 0:
		x.failStream(c)
	case x.crashes:
		x.fail(errDeadly())
	case c == CauseClientError, c == CauseModelGone:
		x.deliverFault()
	default:
		fault := errFailed(c, x.fault.status, x.fault.advice)
		if fault.reason != "" {
			x.h.metrics.shed(fault.reason)
		}
		x.fail(fault)
	}
}

// statusGone is what the log and the metrics call a client that left.
const statusGone = 499

// account books the finished exchange: metrics, decision record, access log.
func (x *exchange) account(o Outcome) {
	total := time.Since(x.arrived)
	if o == OutcomeGone {
		x.status = statusGone
	}
	var ttft, tbot time.Duration
	if !x.firstAt.IsZero() {
		ttft = x.firstAt.Sub(x.arrived)
		if n := x.answer.tokens; n > 1 {
			tbot = x.lastAt.Sub(x.firstAt) / time.Duration(n-1)
		}
	}
	u := usage{}
	if x.attempts > 0 {
		u = x.answer.usage
	}
	x.meterOut(o, u)
	x.countAnswered(o, u)
	if x.gate != nil {
		x.gate.answered(u.Completion)
	}
	m := x.tenant.metrics.forModel(x.class.Model())
	m.finish(o, total, ttft, tbot, total-x.inEngines, u)
	if x.record != nil {
		x.record.Finish(selector.End{Outcome: o.String(), Status: x.status, Code: x.code, TTFT: ttft, Total: total,
			PromptTokens: int(u.Prompt), CompletionTokens: int(u.Completion), CachedTokens: int(u.Cached)})
	}
	x.logAccess(o, total, ttft, u)
}

var _ http.Handler = (*Handler)(nil)
