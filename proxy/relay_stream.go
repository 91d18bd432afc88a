package proxy

import (
	"io"
	"net/http"
	"time"

	"penstock/engine"
)

const (
	// peekBytes bounds what is held back of a stream before its first content.
	peekBytes = 64 << 10
	// readAtLeast is the room for one read of a stream.
	readAtLeast = 2 << 10
	// drainAfterDone is how long the framing's end may come after [DONE].
	drainAfterDone = 500 * time.Millisecond
)

var (
	eventStreamNoCache = []string{"no-cache"}
	noBuffering        = []string{"no"}
	doneEvent          = "data: [DONE]\n\n"
)

// relayStream forwards whole events, byte for byte, as they come. Until the
// first content event nothing is sent: a failure up to there is an HTTP error
// and not a broken stream. An engine's comment is the exception, it is passed
// on at once and commits the 200 (C03).
func (x *exchange) relayStream(e *engine.Engine, in *incoming) attemptEnd {
	h := x.header(in)
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = eventStreamNoCache
	}
	if h["X-Accel-Buffering"] == nil {
		h["X-Accel-Buffering"] = noBuffering
	}
	rd := &x.reader
	rd.Reset(maxEventBytes)
	x.answer.Reset()
	x.held = x.held[:0]
	s := stream{x: x, status: in.status}
	for {
		n, err := in.body.Read(rd.Space(readAtLeast))
		rd.Fill(n)
		if err == io.EOF {
			rd.End() // only a clean end makes an event of what has no blank line
		}
		now := time.Now()
		e.Progress(now)
		if end, over := s.forward(rd, now); over {
			return end
		}
		if err != nil {
			return s.end(err == io.EOF)
		}
	}
}

// stream is one stream being relayed.
type stream struct {
	x       *exchange
	status  int
	done    bool   // [DONE] was seen
	drained bool   // the time for what follows it runs
	closing string // what a cut last event needs after it
}

// forward takes the events of one read: judges each, sends them in one write.
func (s *stream) forward(rd *eventReader, now time.Time) (end attemptEnd, over bool) {
	x := s.x
	send, failed, bad := x.status != 0, attemptEnd(0), 0
	progress, content := false, false
	for ev, ok := rd.Next(); ok && !over; ev, ok = rd.Next() {
		s.closing = ev.closing()
		verdict := x.answer.observe(ev)
		progress = progress || !ev.Comment
		switch verdict {
		case verdictNoContent:
			send = send || ev.Comment
		case verdictFirstContent, verdictMoreContent:
			send, content = true, true
		case verdictDone:
			s.done = true
		case verdictError:
			f := &x.answer.fault
			x.fault = engineAnswer{status: f.Status, message: f.Message, code: f.Code, param: f.Param}
			failed, over = endErrorEvent, true
		case verdictMalformed:
			failed, over = endMalformed, true
		}
		if over {
			bad = len(ev.Raw)
			break // Next would take one more
		}
	}
	if rd.Err() != nil && !over {
		failed, over = endTooLarge, true
	}
	out := rd.Taken()
	out = out[:len(out)-bad]
	if content && x.firstAt.IsZero() {
		// Here, and once, it is decided whether the content came in time: what
		// is late by a hair is not sent and then called a timeout.
		if !x.dog.watch(x.set.limits.Stall, &errStalled, true) {
			return endContentTimeout, true
		}
		x.firstAt = now
	}
	if content {
		x.lastAt = now
	}
	if !send {
		x.held = append(x.held, out...)
		send = len(x.held) > peekBytes && !over
		out = nil
	}
	if send && !s.send(out) {
		return endClientGone, true
	}
	switch {
	case over:
		return failed, true
	case s.drained: // whatever still comes does not buy time
	case s.done:
		s.drained = true
		x.dog.watch(drainAfterDone, &errDrained, true)
	case progress && !x.firstAt.IsZero():
		x.dog.watch(x.set.limits.Stall, &errStalled, false)
	}
	return 0, false
}

// send writes what is held and out, after the header if it is still due.
func (s *stream) send(out []byte) bool {
	x := s.x
	if x.status == 0 {
		x.begin(s.status)
	}
	if len(x.held) > 0 {
		x.held = append(x.held, out...)
		out = x.held
		x.held = x.held[:0]
	}
	return len(out) == 0 || x.write(out, true)
}

// end is reached when no more can be read; clean is the framing's own end.
func (s *stream) end(clean bool) attemptEnd {
	x := s.x
	clean = clean && x.ctx.Err() == nil
	switch x.answer.finish(clean) {
	case endingComplete:
		if !s.send(nil) {
			return endClientGone
		}
		return endComplete
	case endingAddDone:
		x.h.metrics.doneAdded.Inc()
		if !s.send([]byte(s.closing + doneEvent)) {
			return endClientGone
		}
		return endComplete
	case endingEmpty:
		if x.ctx.Err() == nil {
			return endEmpty
		}
	}
	return x.brokenEnd()
}

// failStream ends a stream whose header is out: one error event, then an
// unclean end. Every SDK takes a clean one for a complete answer.
func (x *exchange) failStream(c Cause) {
	code, message := streamCode(c)
	if x.firstAt.IsZero() { // a comment had committed the 200 before the engine refused
		switch {
		case c == CauseBusy:
			code, message = "overloaded", "the engine is full"
		case c == CauseClientError && x.fault.message != "":
			code, message = "invalid_request", x.fault.message
		}
	}
	x.code, x.abort = code, true
	if mediaType(x.w.Header()) == "text/event-stream" {
		x.write(appendErrorEvent(nil, code, message), true)
	} else if conn := connOf(x.r); conn != nil && !x.r.ProtoAtLeast(1, 1) {
		conn.resetOnClose() // to an HTTP/1.0 client the end of the connection is that of the answer
	}
}

// mediaType is the content type without its parameters, in lower case.
func mediaType(h http.Header) string {
	v := h["Content-Type"]
	if len(v) == 0 {
		return ""
	}
	return lowerMedia(v[0])
}
