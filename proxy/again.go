package proxy

import (
	"math/rand/v2"
	"net/http"
	"time"

	"penstock/engine"
)

// nextTry is what follows a failed attempt.
type nextTry uint8

const (
	tryNothing         nextTry = iota
	tryOtherEngine             // one not tried yet, free: no engine has seen the request
	tryOtherByBudget           // one not tried yet, if the retry budget pays
	trySameEngineFresh         // on a connection of its own
	tryQueue                   // at the head of those who wait: the fleet is full
)

var nextTryNames = [...]string{"nothing", "other_engine", "other_by_budget", "same_engine_fresh", "queue"}

func (t nextTry) String() string { return nextTryNames[t] }

const (
	attemptsAtMost = 3 // over all, if no engine has worked on the request
	attemptsUnsure = 2 // else
	requeuesAtMost = 2
	fullFrom       = 0.9 // utilisation from which a request that found an engine full waits instead
	unsureBelow    = 0.8 // utilisation below which work may be done twice
	firstBackoff   = 25 * time.Millisecond
	backoffAtMost  = 250 * time.Millisecond
)

// tries is what a request has already spent. Its zero value is the first attempt's.
type tries struct {
	fresh    bool // at the current engine
	repeated bool // on a fresh connection, at this engine or one before
	moves    int
	requeues int
	unsure   bool // an engine may have worked on it
}

// terms are what a further attempt depends on beside how the last one ended.
type terms struct {
	utilisation float64
	crowded     bool // others wait for the same engines
	working     bool // engines work on requests of ours: there will be room
	stateless   bool // doing it twice costs work and nothing else
	harmless    bool // doing it twice at one engine is: what is stateless, and what only reads
	inner       bool // a gateway before this one repeats already
	paid        bool // for doing it again, when its engine was given up
}

// after decides what follows an attempt, and what is then spent. What an
// engine may have worked on goes out again at most once, if that does no harm
// and there is room; what no engine has worked on may go to engines not tried
// yet. A request that may not be done twice is sent again only where no engine
// can have seen it, which a connection that died does not tell.
func (t tries) after(o Outcome, c Cause, now terms) (nextTry, tries) {
	if o == OutcomeNotProcessed && c == CauseStaleConnection && now.harmless && !t.repeated && !t.unsure {
		t.fresh, t.repeated = true, true
		return trySameEngineFresh, t
	}
	t.fresh = false
	full := now.utilisation >= fullFrom || now.crowded
	switch {
	case now.inner:
		return tryNothing, t
	case o == OutcomeNotProcessed && unseen(c):
		if t.moves+1 >= attemptsAtMost || t.unsure {
			return tryNothing, t
		}
		t.moves++
		return tryOtherEngine, t
	case o == OutcomeNotProcessed && c != CauseStaleConnection:
		switch {
		case !now.stateless:
			return tryNothing, t
		case t.sent() >= attemptsAtMost:
			return tryNothing, t
		case c == CauseBusy && full && now.working && t.requeues < requeuesAtMost:
			t.requeues++
			return tryQueue, t
		case full || t.unsure:
			return tryNothing, t
		}
		t.moves++
		return tryOtherByBudget, t
	case o == OutcomeAmbiguous && repeatable(c):
		// A connection that died had perhaps brought it there after all: twice is enough.
		room := now.paid || !now.crowded && now.utilisation < unsureBelow
		if !room || !t.mayMove(now.stateless, now.inner) || t.sent() >= attemptsAtMost {
			return tryNothing, t
		}
		t.moves++
		t.unsure = true
		return tryOtherByBudget, t
	}
	return tryNothing, t
}

// sent is how often it has gone out, waiting for a full engine included.
func (t tries) sent() int { return 1 + t.moves + t.requeues }

// mayMove reports whether what an engine may have worked on may go to another.
func (t tries) mayMove(stateless, inner bool) bool {
	return stateless && !inner && !t.repeated && t.moves+1 < attemptsUnsure
}

// unseen reports an end in which no engine can have worked on the request:
// no byte of the body was on its way, or the engine has not even the model.
func unseen(c Cause) bool {
	switch c {
	case CauseDial, CauseRefusedStream, CauseUnsent, CauseModelGone:
		return true
	}
	return false
}

// repeatable leaves out the ends after which another engine would do no
// better, or that are the client's whole time.
func repeatable(c Cause) bool {
	switch c {
	case CauseDeadline, CauseAnswerFailed, CauseTooLarge:
		return false
	}
	return true
}

// backoff is the wait before the n-th move: none before the first where no
// engine has worked on the request.
func (t tries) backoff() time.Duration {
	if t.moves <= 1 && !t.unsure {
		return 0
	}
	return rand.N(min(firstBackoff<<min(t.moves, 8), backoffAtMost))
}

// stateless reports whether the request, done twice, costs work and nothing else.
func (x *exchange) stateless() bool {
	return x.ep.api != APIForm && x.ep.api != APIBound && !x.env.KeepsID && x.holder.Engine == nil
}

// harmless reports whether the request, done twice at the same engine, changes
// nothing there.
func (x *exchange) harmless() bool { return x.ep.method == http.MethodGet || x.stateless() }

// terms are those of the moment.
func (x *exchange) terms() terms {
	t := terms{stateless: x.stateless(), harmless: x.harmless(), inner: inner(x.r.Header), paid: x.paid}
	if g := x.gate; g != nil {
		t.utilisation, t.crowded = g.u.Value(), g.waiting.Load() > 0
		inFlight, _ := x.h.selector.Load(g.model)
		t.working = inFlight > 1 // the attempt that has ended is still among them
	}
	return t
}

// first counts a request's first attempt, which pays for repeating.
func (x *exchange) first() {
	if x.class.Model() == "" {
		return // about what one engine holds: nobody else could be asked
	}
	x.gate = x.h.gates.of(x.class.Model())
	x.gate.firsts.Add(1)
	x.gate.budget.Deposit(x.gate.u.Value(), x.arrived)
}

// mayRepeat asks the budget, where the next attempt needs it.
func (x *exchange) mayRepeat(next nextTry, cause Cause) bool {
	switch {
	case next != tryOtherByBudget:
		return true
	case x.gate == nil:
		return false
	case x.paid || x.withdraw():
		x.paid = true
		return true
	}
	x.h.metrics.denied.WithLabelValues(cause.String()).Inc()
	return false
}

// withdraw takes one repeat from the budget.
func (x *exchange) withdraw() bool {
	g := x.gate
	inFlight, _ := x.h.selector.Load(g.model)
	return !x.h.guards.panics(g.model) && g.budget.Withdraw(g.u.Value(), inFlight, time.Now())
}

// payRepeat implements repeater, from another goroutine, while an attempt runs.
func (x *exchange) payRepeat(below float64) bool {
	return x.gate.waiting.Load() == 0 && x.gate.u.Value() < below && x.withdraw()
}

// repaid ends an attempt that the budget paid for.
func (x *exchange) repaid() {
	if x.paid {
		x.paid = false
		x.gate.budget.Done()
	}
}

// learnRoom lets an engine's answer say how much it takes at once. The place
// on it is still held; from is what was in flight there when it began, itself
// included.
func (x *exchange) learnRoom(e *engine.Engine, from int64, o Outcome, c Cause, now time.Time) {
	switch {
	case c == CauseBusy:
		x.h.gates.full(e, x.sentAt, x.fault.advice.wait(), now)
	case o == OutcomeOK || o == OutcomeCommitted:
		e.Took(from, x.sentAt, now)
	}
}

// endedWaiting answers a request that was ended while it waited for a place.
func (x *exchange) endedWaiting() Outcome {
	switch x.endOfHalt(endDeadline) {
	case endDraining:
		x.fail(failed(CauseDraining, 0, 0))
		return OutcomeGone
	case endDeadline:
		return x.refused(x.errShed(shedQueueTimeout))
	default:
		x.settle(OutcomeGone, CauseClientGone)
		return OutcomeGone
	}
}
