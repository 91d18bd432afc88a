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
	x.record = &selector.Record{ID: x.id[0], Time: x.arrived, Model: x.env.Model, Class: x.class.String(),
		KeySource: x.source.String(), Key: x.ask.Key, Keyed: x.ask.Keyed, Stream: x.env.Stream}
	x.h.selector.Records.Add(x.record)
	var spent tries
	var lease selector.Lease
	defer lease.Release() // of a panic on the way
	fresh := false
	last := attemptFacts{End: endDialFailed}
	for {
		if !fresh {
			lease = x.h.selector.Pick(x.class, &x.ask, &x.pick)
		}
		if lease.Engine == nil {
			return x.noPick(last)
		}
		e := lease.Engine
		x.engine = e.Name
		x.attempts++
		x.h.selector.Count(&x.pick)
		x.record.Begin(&x.pick, e.Name)
		x.sentAt = time.Now()
		last = x.attemptOn(e, fresh)
		took := time.Since(x.sentAt)
		x.inEngines += took
		outcome, cause := classify(last)
		x.record.EndAttempt(outcome.String(), cause.String(), took)
		x.h.metrics.attempt(e.Name, outcome)
		next, after := spent.after(outcome, cause)
		spent = after
		fresh = next == trySameEngineFresh
		if !fresh {
			lease.Release()
		}
		if cause == CauseDial || cause == CauseModelGone {
			e.Suspect()
			x.ask.AddTried(e)
		}
		if next == tryNothing || x.ctx.Err() != nil {
			lease.Release()
			x.settle(outcome, cause)
			return outcome
		}
		x.h.metrics.retries.WithLabelValues(cause.String()).Inc()
	}
}

// noPick answers when no engine could be picked: the pick's own refusal, or
// what the attempt before said where there is no other engine to try.
func (x *exchange) noPick(last attemptFacts) Outcome {
	if x.attempts == 0 {
		return x.refused(errRefused(x.class.Refuse(&x.ask)))
	}
	outcome, cause := classify(last)
	x.settle(outcome, cause)
	return outcome
}

// settle gives the client the end of the last attempt, where the relay has
// not done so already.
func (x *exchange) settle(o Outcome, c Cause) {
	switch {
	case c == CauseNone:
	case c == CauseClientGone:
		x.abort = true // a client that closed only its half must not see a clean end
		x.code = "client_gone"
	case x.status != 0:
		x.failStream(c)
	case c == CauseClientError, c == CauseModelGone:
		x.deliverFault()
	default:
		x.fail(errFailed(c, x.fault.status, x.fault.retryAfter))
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
	m := x.h.metrics.forModel(x.class.Model())
	m.finish(o, total, ttft, tbot, total-x.inEngines, u)
	if x.record != nil {
		x.record.Finish(selector.End{Outcome: o.String(), Status: x.status, Code: x.code, TTFT: ttft, Total: total,
			PromptTokens: int(u.Prompt), CompletionTokens: int(u.Completion), CachedTokens: int(u.Cached)})
	}
	x.logAccess(o, total, ttft, u)
}

var _ http.Handler = (*Handler)(nil)
