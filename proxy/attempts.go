package proxy

import (
	"net/http"
	"time"

	"penstock/selector"
)

// attemptAll picks engines and sends the request until one attempt decides
// it, and answers the client. The lease is taken with the pick and released
// here, once, however the attempt ends.
func (x *exchange) attemptAll() Outcome {
	x.keepRecord()
	if x.deadly() {
		return x.refused(errDeadly())
	}
	var spent tries
	var lease selector.Lease
	defer lease.Release() // of a panic on the way
	defer x.repaid()
	var next nextTry
	var cause Cause
	x.first()
	last := attemptFacts{End: endDialFailed}
	for {
		fresh := next == trySameEngineFresh
		if !fresh {
			var refusal *selector.Refusal
			var shed *apiError
			if lease, refusal, shed = x.place(next == tryQueue); lease.Engine == nil {
				return x.noPick(last, refusal, shed)
			}
		}
		if next != tryNothing {
			x.h.metrics.retries.WithLabelValues(cause.String()).Inc()
		}
		e := lease.Engine
		x.engine = e.Name
		x.attempts++
		x.h.selector.Count(&x.pick)
		x.record.Begin(&x.pick, e.Name)
		from := e.InFlight()
		x.sentAt = time.Now()
		x.guardBegins(e, &lease, spent)
		if x.attempts > 1 {
			x.dog.watch(x.expect.again(), &errContentTimeout, true)
		}
		last = x.attemptOn(e, fresh)
		ended := time.Now()
		took := ended.Sub(x.sentAt)
		x.inEngines += took
		var outcome Outcome
		outcome, cause = classify(last)
		x.tell(e, from, cause, ended)
		x.repaid()
		x.guardEnds(e, outcome, cause)
		x.record.EndAttempt(outcome.String(), cause.String(), took)
		x.h.metrics.attempt(e.Name, outcome, last.BodySent)
		x.learnRoom(e, from, outcome, cause, ended)
		next, spent = spent.after(outcome, cause, x.terms())
		switch {
		case next == trySameEngineFresh:
		case last.cutShort() && !x.env.Stream:
			lease.Abandon(time.Now())
			x.release(&lease)
		default:
			x.release(&lease)
		}
		if cause == CauseDial || cause == CauseModelGone || cause == CauseRefusedStream {
			e.Suspect()
		}
		switch next {
		case trySameEngineFresh:
		case tryQueue: // full is for a moment: whoever has room then may have it
			x.ask.Tries = 0
		default:
			x.ask.AddTried(e)
		}
		if next == tryNothing || x.halt.ended() || x.crashes || !x.mayRepeat(next, cause) || !x.pause(spent.backoff()) {
			x.release(&lease)
			x.settle(outcome, cause)
			return outcome
		}
	}
}

// keepRecord begins the decision record.
func (x *exchange) keepRecord() {
	x.record = &selector.Record{ID: x.id[0], Time: x.arrived, Model: x.env.Model, Class: x.class.Key(), Tenant: x.tenant.name, Priority: x.priority.String(),
		KeySource: x.source.String(), Key: x.ask.Key, Keyed: x.ask.Keyed, Stream: x.env.Stream}
	x.h.selector.Records.Add(x.record)
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
