package proxy

import (
	"math"
	"net/http"
	"time"

	"penstock/engine"
)

// What the control plane learns from requests: demand by class as it comes in,
// and what each attempt showed of its engine. Written once per request and
// once per attempt, away from the pick.

// countOffered counts the request as demand: after its tenant's limits, which
// are no lack of engines, and before anything is shed. What generates nothing
// is no demand.
func (x *exchange) countOffered() {
	if x.ep.api == APITool {
		return
	}
	limit := x.env.MaxTokens
	if x.env.N > 1 && limit > 0 {
		limit = int(min(float64(limit)*float64(x.env.N), math.MaxInt32))
	}
	x.class.Offered(uint8(x.priority), repeated(x.r.Header), x.guessedPrompt(), limit)
}

// guessedPrompt is an estimate of the prompt's tokens.
func (x *exchange) guessedPrompt() int { return x.env.PromptBytes / guessedBytesPerToken }

// repeated reports whether the client says that the request has failed before.
func repeated(h http.Header) bool { return sdkRetries(h) > 0 }

// countAnswered counts the tokens of a whole answer where they are known, if
// only by the events of its stream.
func (x *exchange) countAnswered(o Outcome, u usage) {
	switch {
	case o != OutcomeOK:
	case u.Known:
		x.class.Answered(uint8(x.priority), int(u.Prompt), int(u.Cached), int(u.Completion))
	case x.streamed && x.answer.tokens > 0:
		x.class.Answered(uint8(x.priority), x.guessedPrompt(), 0, x.answer.tokens)
	}
}

// tell notes what the attempt that has just ended showed of its engine, while
// its lease is still held. from is what was in flight there when it began.
func (x *exchange) tell(e *engine.Engine, from int64, c Cause, ended time.Time) {
	a := engine.Answer{At: ended, Total: ended.Sub(x.sentAt), InFlightFrom: tokens32(from), InFlightTo: tokens32(e.InFlight()),
		Cold: x.cold, How: endedBy(c), Repeat: x.paid}
	if !x.firstAt.IsZero() { // content came: x.answer is this attempt's
		u := &x.answer.usage
		a.Counted = u.Known
		a.Prompt, a.Cached, a.Output = tokens32(u.Prompt), tokens32(u.Cached), tokens32(u.Completion)
		if !u.Known {
			a.Prompt, a.Output = tokens32(int64(x.guessedPrompt())), tokens32(int64(x.answer.tokens))
		}
		if x.streamed {
			a.TTFT = x.firstAt.Sub(x.sentAt)
			if each := a.Output / int32(max(1, min(x.env.N, math.MaxInt32))); each > 1 {
				a.TBOT = x.lastAt.Sub(x.firstAt) / time.Duration(each-1)
			}
		}
	}
	e.Answered(a)
}

func tokens32(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// endedBy is what a cause tells of the engine.
func endedBy(c Cause) engine.Ended {
	switch c {
	case CauseNone:
		return engine.EndedWhole
	case CauseBusy:
		return engine.EndedBusy
	case CauseStaleConnection, CauseRefusedStream, CauseClientError, CauseModelGone, CauseDeadline, CauseClientGone, CauseDraining:
		return engine.EndedElse
	default:
		return engine.EndedFault
	}
}
