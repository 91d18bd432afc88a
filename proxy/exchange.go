package proxy

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine"
	"penstock/protect"
	"penstock/selector"
)

// exchange is one request from its arrival to its accounting. It is pooled,
// with the buffers it grew; one goroutine owns it.
type exchange struct {
	h       *Handler
	set     *settings
	w       http.ResponseWriter
	rc      *http.ResponseController
	r       *http.Request
	halt    *halt // ends with the client, the watchdog or the drain
	arrived time.Time

	id       [1]string
	tenant   *tenant // never nil while in use
	priority protect.Priority
	meter    meter
	hasher   keyHasher
	ep       *endpoint
	path     string // of the request: ep.path, with the id in its place
	named    string // the id in the path
	shape    shape
	query    string // what the engine sees of it
	alias    string // the name that the client has for the model, where it is an alias
	env      Envelope
	scanner  *Scanner // while the request is read; a stream does not hold it
	source   KeySource
	class    selector.Class
	ask      selector.Ask
	holder   selector.Holder // the one engine that can serve it, for requests that name what it holds
	pick     selector.Decision
	gate     *gate         // nil: no model is named
	turn     chan turn     // while it waits for a place; stays
	waited   time.Time     // since when; zero: not yet
	queued   time.Duration // spent in the queue so far
	trying   trying
	paid     bool // the retry budget pays for the attempt at hand
	record   *selector.Record
	body     *body

	dog     watchdog
	expect  firstWait
	reader  eventReader
	answer  answer
	learned bool   // the answer's id is remembered
	edited  []byte // events or an answer with the alias in the model's place
	renamer renamer
	held    []byte // events before the first content; also a whole answer
	status  int    // what the client was sent, 0 = nothing yet
	code    string // error code, where the gateway answered by itself
	abort   bool   // the client must see an unclean end

	guard      *guard        // of the attempt's engine
	trial      *engine.Trial // nil but where its breaker is half open
	load       int           // class of the request, for comparison among engines
	crashes    bool          // it has reset two engines
	engine     string        // of the latest attempt
	attempts   int
	inEngines  time.Duration // spent in attempts
	sentAt     time.Time     // of the attempt at hand
	firstAt    time.Time     // of the first content
	lastAt     time.Time     // of the latest content
	armed      time.Time     // when the write deadline was last moved
	cold       bool          // the attempt at hand is the first on its connection
	streamed   bool          // its answer is a stream
	fault      engineAnswer  // what an engine answered instead of an answer
	headerVals [3]string
	toEngine   http.Header // of the attempt at hand
	fromEngine http.Header
	line       []byte // of the access log
	in, out    int64  // body bytes from and to the client
}

var exchanges = sync.Pool{New: func() any { return &exchange{fromEngine: make(http.Header, 8)} }}

// reset empties an exchange for its pool. Buffers stay, references go.
func (x *exchange) reset() {
	x.h, x.set, x.w, x.rc, x.r, x.halt, x.record, x.body, x.tenant = nil, nil, nil, nil, nil, nil, nil, nil, nil
	x.meter.reset()
	x.ep, x.path, x.named, x.query, x.alias, x.holder = nil, "", "", "", "", selector.Holder{}
	x.env, x.class, x.ask = Envelope{}, selector.Class{}, selector.Ask{}
	x.guard, x.trial, x.crashes, x.trying = nil, nil, false, trying{}
	x.cold, x.streamed = false, false
	x.learned, x.gate, x.waited, x.paid = false, nil, time.Time{}, false
	x.status, x.code, x.abort, x.engine, x.attempts, x.inEngines, x.queued, x.in, x.out = 0, "", false, "", 0, 0, 0, 0, 0
	x.firstAt, x.lastAt, x.armed = time.Time{}, time.Time{}, time.Time{}
	x.fault = engineAnswer{}
	x.toEngine, x.fromEngine = emptied(x.toEngine), emptied(x.fromEngine)
	x.answer.Reset()
	if x.held = x.held[:0]; cap(x.held) > keepBufferBytes {
		x.held = nil
	}
	if x.edited = x.edited[:0]; cap(x.edited) > keepBufferBytes {
		x.edited = nil
	}
}

// emptied is h without content, or another where h has grown.
func emptied(h http.Header) http.Header {
	const ordinary = 16
	if len(h) > ordinary {
		return make(http.Header, 8)
	}
	clear(h)
	return h
}

// freeBody lets go of the request's body: at the end, or when content has gone
// to the client and no other attempt can follow. A stream lasts, and its prompt
// need not be held for as long.
func (x *exchange) freeBody() {
	if x.body != nil {
		x.body.free()
		x.body = nil
	}
}

// engineAnswer is a response that is not a success, kept until it is clear
// whether the client gets it.
type engineAnswer struct {
	status  int
	header  http.Header // nil: an error event under a 200, only message and code
	body    []byte
	advice  advice
	message string
	code    string
	param   string
}

// send sends the request to the attempt's engine. Without a response it says
// how the attempt ended.
func (x *exchange) send(e *engine.Engine, fresh bool) (*incoming, attemptFacts) {
	x.fault, x.cold, x.streamed = engineAnswer{}, false, false
	in, failed := x.h.client.send(x.halt, &outgoing{engine: e, method: x.ep.method, path: x.path, query: x.query,
		header: x.engineHeader(e), body: x.body, fresh: fresh, once: !x.harmless(), into: x.fromEngine})
	switch {
	case failed == nil:
		x.cold = in.cold
		return in, attemptFacts{}
	case x.halt.ended():
		return nil, attemptFacts{End: x.endOfHalt(endHeaderTimeout), BodySent: failed.bodySent}
	case x.halt.wasCut():
		return nil, attemptFacts{End: endHeaderTimeout, BodySent: failed.bodySent}
	default:
		return nil, attemptFacts{End: failed.end, Reused: failed.reused, BodySent: failed.bodySent}
	}
}

// take relays the response. What it returns says how the attempt ended;
// everything the client was sent is in x.
func (x *exchange) take(e *engine.Engine, in *incoming) attemptFacts {
	defer in.body.Close()
	facts := x.receive(e, in)
	facts.BodySent = true
	facts.Committed = !x.firstAt.IsZero()
	facts.OurKey = e.Authorization() != nil && !e.PassCredentials
	return facts
}

// receive judges the response's head and hands its body to who can read it.
func (x *exchange) receive(e *engine.Engine, in *incoming) attemptFacts {
	kind := mediaType(in.header)
	switch {
	case in.status == http.StatusRequestTimeout && !in.cold && time.Since(x.sentAt) < idleRaceEnds:
		// The connection was idle for too long, and that is what it says (RFC 9110
		// section 15.5.9): it is no answer to this request.
		return attemptFacts{End: endNoResponse, Reused: true}
	case in.status >= 400:
		return x.receiveFault(e, in)
	case in.status < 200 || in.status > 299, encoded(in.header):
		return attemptFacts{End: endBadAnswer}
	case kind == "text/event-stream":
		return attemptFacts{End: x.relayStream(e, in), Status: x.fault.status}
	case in.status == http.StatusNoContent && x.ep.empty:
		return attemptFacts{End: x.relayEmpty(in)}
	case strings.HasPrefix(kind, "text/") && (x.ep.answer != answerTranscript || kind == "text/html"):
		return attemptFacts{End: endBadAnswer} // a page, or an error in words, under a 200
	case isJSON(in.header):
		return attemptFacts{End: x.relayWhole(e, in), Status: x.fault.status}
	default:
		return attemptFacts{End: x.relayRaw(e, in)}
	}
}

// encoded reports a Content-Encoding, which no client was asked about:
// accept-encoding does not go to engines.
func encoded(h http.Header) bool {
	v := h.Get("Content-Encoding")
	return v != "" && v != "identity"
}

// endOfHalt says why the exchange was halted; timeout is what the content
// limit means at this point.
func (x *exchange) endOfHalt(timeout attemptEnd) attemptEnd {
	switch x.halt.reason() {
	case errContentTimeout:
		return timeout
	case errStalled:
		return endStalled
	case ErrDraining:
		return endDraining
	default:
		return endClientGone
	}
}

// brokenEnd says how a body ended that could not be read to its end.
func (x *exchange) brokenEnd() attemptEnd {
	if x.halt.ended() {
		return x.endOfHalt(endContentTimeout)
	}
	if x.halt.wasCut() {
		if x.expect.wasStalled() {
			return endStalled
		}
		return endContentTimeout
	}
	return endBroken
}

// header sets the response header of an engine's answer.
func (x *exchange) header(in *incoming) http.Header {
	h := x.w.Header()
	copyEngineHeader(h, in.header)
	return h
}

// ours sets the headers that every answer carries.
func (x *exchange) ours() {
	h := x.w.Header()
	h["X-Request-Id"] = x.id[:]
	h["Date"] = dateOf(time.Now())
	if x.shape == shapeAnthropic {
		h["Request-Id"] = x.id[:]
	}
	if x.attempts > 0 {
		x.headerVals = [3]string{x.engine, digits[min(x.attempts, len(digits)-1)], x.source.String()}
		h["X-Penstock-Engine"] = x.headerVals[0:1]
		h["X-Penstock-Attempts"] = x.headerVals[1:2]
		h["X-Penstock-Affinity"] = x.headerVals[2:3]
	}
	x.meter.tell(h)
	if x.r.ProtoMajor == 1 && (x.h.draining.Load() || x.h.gates.strain.Level() >= protect.CloseIdle || x.r.Context().Err() != nil) {
		h["Connection"] = closeConnection
	}
}

var (
	digits          = [...]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
	closeConnection = []string{"close"}
)

// dated is the Date header of one second: net/http would spell it out for every
// answer.
type dated struct {
	second int64 // since 1970
	values []string
}

var date atomic.Pointer[dated]

// dateOf is the Date header of an answer; nobody may change it.
func dateOf(now time.Time) []string {
	second := now.Unix()
	d := date.Load()
	if d == nil || d.second != second {
		d = &dated{second, []string{now.UTC().Format(http.TimeFormat)}}
		date.Store(d)
	}
	return d.values
}

// begin sends the status; the header is complete.
func (x *exchange) begin(status int) {
	x.ours()
	x.status = status
	x.w.WriteHeader(status)
}

// write sends bytes to the client: at once where flush is set, else with what
// follows or with the end, which net/http writes together. Each write has its
// own deadline and there is none for the answer as a whole: a slow client ends,
// a long stream does not. False means that the client is gone.
func (x *exchange) write(now time.Time, b []byte, flush bool) bool {
	x.arm(now)
	x.dog.paused.Store(true)
	n, err := x.w.Write(b)
	x.out += int64(n)
	if err == nil && flush {
		err = x.rc.Flush()
	}
	x.dog.paused.Store(false)
	return err == nil
}

// arm moves the deadline of writes, at most four times per limit: it is a
// system of timers, not a promise to the millisecond.
func (x *exchange) arm(now time.Time) {
	limits := &x.set.limits
	if now.Sub(x.armed) <= limits.Write/4 {
		return
	}
	x.armed = now
	wait := limits.Write + limits.Write/4
	if x.r.ProtoMajor == 2 {
		// net/http resets an h2 stream when the deadline passes, also while
		// nothing waits to be written. It may not pass in a pause that the
		// other limits allow.
		wait += drainAfterDone + limits.Stall
		if x.firstAt.IsZero() {
			wait += limits.FirstContent
		}
	}
	x.rc.SetWriteDeadline(now.Add(wait))
}
