package proxy

import "penstock/protect"

// Outcome is how an attempt ended, as far as health, retries and metrics are concerned: the
// closed list of protection.md 2.1.
type Outcome uint8

const (
	// OutcomeOK: the engine answered.
	OutcomeOK Outcome = iota
	// OutcomeClient: the request was at fault; the engine's answer is passed on.
	OutcomeClient
	// OutcomeNotProcessed: no engine has worked on the request.
	OutcomeNotProcessed
	// OutcomeAmbiguous: the engine may have worked on it; the client has seen no content.
	OutcomeAmbiguous
	// OutcomeCommitted: broken after content had been sent to the client.
	OutcomeCommitted
	// OutcomeGone: ended from the client's side or by the gateway's own shutdown, blaming nobody.
	OutcomeGone
)

// Outcomes lists every Outcome in order, for what must exist before it happens (metrics).
var Outcomes = [...]Outcome{OutcomeOK, OutcomeClient, OutcomeNotProcessed, OutcomeAmbiguous, OutcomeCommitted, OutcomeGone}

var outcomeNames = [...]string{"ok", "client", "not_processed", "ambiguous", "committed", "gone"}

func (o Outcome) String() string { return outcomeNames[o] }

// Cause says in the log why an attempt has its outcome.
type Cause uint8

const (
	CauseNone Cause = iota
	CauseDial
	CauseRefusedStream
	CauseUnsent
	CauseStaleConnection
	CauseReset
	CauseHeaderTimeout
	CauseContentTimeout
	CauseClientError
	CauseModelGone
	CauseBusy
	CauseEngineStatus
	CauseErrorEvent
	CauseMalformed
	CauseTooLarge
	CauseEmpty
	CauseBadAnswer
	CauseInterrupted
	CauseStalled
	CauseDeadline
	CauseClientGone
	CauseDraining
	CauseAnswerFailed
)

// blame is what an attempt's end says about its engine. Closed.
type blame uint8

const (
	blameNone   blame = iota // nothing
	blameBusy                // it is full, and not ill
	blameGarble              // it failed: what it sent cannot be read
	blameFull                // it failed
)

func (b blame) severity() protect.Severity {
	return [...]protect.Severity{0, protect.Busy, protect.Malformed, protect.Broken}[b]
}

// causes gives each Cause its name, the outcome of an attempt that it ended before the commit
// point, and what it says about the engine, before the commit point and after it.
var causes = [...]struct {
	name    string
	outcome Outcome
	blame   blame
}{
	CauseNone:            {"none", OutcomeOK, blameNone},
	CauseDial:            {"dial_failed", OutcomeNotProcessed, blameFull},
	CauseRefusedStream:   {"refused_stream", OutcomeNotProcessed, blameBusy},
	CauseUnsent:          {"unsent", OutcomeNotProcessed, blameFull},
	CauseStaleConnection: {"stale_connection", OutcomeNotProcessed, blameNone},
	CauseReset:           {"reset", OutcomeAmbiguous, blameFull},
	CauseHeaderTimeout:   {"header_timeout", OutcomeAmbiguous, blameFull},
	CauseContentTimeout:  {"content_timeout", OutcomeAmbiguous, blameFull},
	CauseClientError:     {"client_error", OutcomeClient, blameNone},
	CauseModelGone:       {"model_gone", OutcomeNotProcessed, blameNone},
	CauseBusy:            {"busy", OutcomeNotProcessed, blameBusy},
	CauseEngineStatus:    {"engine_status", OutcomeAmbiguous, blameFull},
	CauseErrorEvent:      {"error_event", OutcomeAmbiguous, blameFull},
	CauseMalformed:       {"malformed", OutcomeAmbiguous, blameGarble},
	CauseTooLarge:        {"event_too_large", OutcomeAmbiguous, blameGarble},
	CauseEmpty:           {"empty_answer", OutcomeAmbiguous, blameFull},
	CauseBadAnswer:       {"bad_answer", OutcomeAmbiguous, blameFull},
	CauseInterrupted:     {"interrupted", OutcomeAmbiguous, blameFull},
	CauseStalled:         {"stalled", OutcomeAmbiguous, blameFull},
	CauseDeadline:        {"deadline", OutcomeAmbiguous, blameNone},
	CauseClientGone:      {"client_gone", OutcomeGone, blameNone},
	CauseDraining:        {"draining", OutcomeGone, blameNone},
	CauseAnswerFailed:    {"answer_failed", OutcomeAmbiguous, blameGarble},
}

func (c Cause) String() string { return causes[c].name }

// attemptEnd is what the relay saw last of an attempt.
type attemptEnd uint8

const (
	// endComplete: a whole answer with a 2xx status, no error in it.
	endComplete attemptEnd = iota
	// endDialFailed: no connection, TLS included.
	endDialFailed
	// endRefusedStream: REFUSED_STREAM, or GOAWAY below this stream.
	endRefusedStream
	// endNoResponse: reset or EOF before the first byte of a response, or a failed write.
	endNoResponse
	endHeaderTimeout
	// endContentTimeout: headers, but no first content in time.
	endContentTimeout
	// endStatus: a final status of 400 or above.
	endStatus
	// endErrorEvent: the engine's error object under a 200, as event or body.
	endErrorEvent
	endMalformed
	endTooLarge
	// endEmpty: a proper end with nothing before it.
	endEmpty
	// endBadAnswer: a response that is none: redirect, 101, too many 1xx, wrong content type,
	// headers beyond the limit.
	endBadAnswer
	// endBroken: the answer ended without its proper end.
	endBroken
	endStalled
	endDeadline
	endClientGone
	endDraining
	// endFailed: a whole answer that says, as its API has it, that it failed.
	endFailed
)

// attemptFacts are what classify needs of an ended attempt.
type attemptFacts struct {
	End attemptEnd
	// Status is that of the response (endStatus) or of the error object (endErrorEvent, 0 when it
	// tells none).
	Status int
	// Reused says that the connection had served before and been idle.
	Reused bool
	// BodySent says that at least one byte of the request body was written to the engine.
	BodySent bool
	// ModelListed says that a 404 names a model (namesModel) which the engine had listed.
	ModelListed bool
	// OurKey says that the attempt carried the engine's configured key: then a 401 is about that
	// and not about the client.
	OurKey bool
	// RequestAtFault says that a 5xx is about the request itself.
	RequestAtFault bool
	// Committed says that content has been sent to the client.
	Committed bool
}

// cutShort reports an attempt that ended from our side, while the engine was
// at work.
func (f attemptFacts) cutShort() bool {
	switch f.End {
	case endClientGone, endHeaderTimeout, endContentTimeout, endStalled, endDeadline, endDraining:
		return f.BodySent
	default:
		return false
	}
}

// classify is the only place where what happened becomes an outcome.
func classify(f attemptFacts) (Outcome, Cause) {
	c := f.cause()
	o := causes[c].outcome
	if f.Committed && o != OutcomeOK && c != CauseClientGone {
		o = OutcomeCommitted
	}
	return o, c
}

func (f attemptFacts) cause() Cause {
	switch f.End {
	case endComplete:
		return CauseNone
	case endDialFailed:
		return CauseDial
	case endRefusedStream:
		return CauseRefusedStream
	case endNoResponse:
		return f.noResponseCause()
	case endHeaderTimeout:
		return CauseHeaderTimeout
	case endContentTimeout:
		return CauseContentTimeout
	case endStatus:
		return f.statusCause(CauseEngineStatus)
	case endErrorEvent:
		return f.statusCause(CauseErrorEvent)
	case endMalformed:
		return CauseMalformed
	case endTooLarge:
		return CauseTooLarge
	case endEmpty:
		return CauseEmpty
	case endBadAnswer:
		return CauseBadAnswer
	case endStalled:
		return CauseStalled
	case endDeadline:
		return CauseDeadline
	case endClientGone:
		return CauseClientGone
	case endDraining:
		return CauseDraining
	case endFailed:
		return CauseAnswerFailed
	default: // endBroken
		return CauseInterrupted
	}
}

// noResponseCause: engines close idle connections after 5 s, so a reused one that dies without a
// response byte is a race and no failure (C09).
func (f attemptFacts) noResponseCause() Cause {
	switch {
	case f.Reused:
		return CauseStaleConnection
	case !f.BodySent:
		return CauseUnsent
	default:
		return CauseReset
	}
}

func (f attemptFacts) statusCause(failure Cause) Cause {
	switch s := f.Status; {
	case s == 429 || s == 503:
		return CauseBusy
	case s == 404 && f.ModelListed:
		return CauseModelGone
	case s == 401 && f.OurKey:
		return failure
	case s >= 400 && s < 500 || s == 501 || f.RequestAtFault:
		return CauseClientError
	default:
		return failure
	}
}
