package proxy

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
)

// causes gives each Cause its name and the outcome of an attempt that it ended before the commit
// point.
var causes = [...]struct {
	name    string
	outcome Outcome
}{
	CauseNone:            {"none", OutcomeOK},
	CauseDial:            {"dial_failed", OutcomeNotProcessed},
	CauseRefusedStream:   {"refused_stream", OutcomeNotProcessed},
	CauseUnsent:          {"unsent", OutcomeNotProcessed},
	CauseStaleConnection: {"stale_connection", OutcomeNotProcessed},
	CauseReset:           {"reset", OutcomeAmbiguous},
	CauseHeaderTimeout:   {"header_timeout", OutcomeAmbiguous},
	CauseContentTimeout:  {"content_timeout", OutcomeAmbiguous},
	CauseClientError:     {"client_error", OutcomeClient},
	CauseModelGone:       {"model_gone", OutcomeNotProcessed},
	CauseBusy:            {"busy", OutcomeNotProcessed},
	CauseEngineStatus:    {"engine_status", OutcomeAmbiguous},
	CauseErrorEvent:      {"error_event", OutcomeAmbiguous},
	CauseMalformed:       {"malformed", OutcomeAmbiguous},
	CauseTooLarge:        {"event_too_large", OutcomeAmbiguous},
	CauseEmpty:           {"empty_answer", OutcomeAmbiguous},
	CauseBadAnswer:       {"bad_answer", OutcomeAmbiguous},
	CauseInterrupted:     {"interrupted", OutcomeAmbiguous},
	CauseStalled:         {"stalled", OutcomeAmbiguous},
	CauseDeadline:        {"deadline", OutcomeAmbiguous},
	CauseClientGone:      {"client_gone", OutcomeGone},
	CauseDraining:        {"draining", OutcomeGone},
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
	// Committed says that content has been sent to the client.
	Committed bool
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
	case s >= 400 && s < 500 || s == 501:
		return CauseClientError
	default:
		return failure
	}
}

// nextTry is what follows a failed attempt.
type nextTry uint8

const (
	tryNothing nextTry = iota
	tryOtherEngine
	trySameEngineFresh // on a connection of its own
)

var nextTryNames = [...]string{"nothing", "other_engine", "same_engine_fresh"}

func (t nextTry) String() string { return nextTryNames[t] }

// tries is what a request has already spent. Its zero value is the first attempt's.
type tries struct {
	movedByDial  bool
	movedByModel bool
	fresh        bool // at the current engine
}

// after decides what follows an attempt, and what is then spent. A request whose bytes may have
// reached an engine is never sent again, but for two signs that it was not processed: a reused
// connection that died without a response byte, and a 404 for a model which the engine had listed.
func (t tries) after(o Outcome, c Cause) (nextTry, tries) {
	if o != OutcomeNotProcessed {
		return tryNothing, t
	}
	switch {
	case c == CauseDial && !t.movedByDial:
		return tryOtherEngine, tries{movedByDial: true, movedByModel: t.movedByModel}
	case c == CauseModelGone && !t.movedByModel:
		return tryOtherEngine, tries{movedByDial: t.movedByDial, movedByModel: true}
	case c == CauseStaleConnection && !t.fresh:
		t.fresh = true
		return trySameEngineFresh, t
	}
	return tryNothing, t
}
