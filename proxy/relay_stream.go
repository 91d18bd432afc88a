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
	readAtLeast = 1 << 10
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
	x.beginStream(in)
	s := stream{x: x, engine: e, status: in.status}
	for {
		after := s.marked // what an engine sends after it is no part of the answer
		ended := s.read(in.body)
		if !after {
			j := s.judge(&x.reader)
			if end, over := s.forward(&j); over {
				return end
			}
		}
		if ended {
			return s.end()
		}
	}
}

// beginStream makes the exchange ready for a stream.
func (x *exchange) beginStream(in *incoming) {
	h := x.header(in)
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = eventStreamNoCache
	}
	if h["X-Accel-Buffering"] == nil {
		h["X-Accel-Buffering"] = noBuffering
	}
	x.reader.Reset(maxEventBytes)
	x.answer.Begin(x.ep.answer, x.env.Several || x.env.N > 1, x.learns())
	x.held = x.held[:0]
	x.streamed = true
}

// stream is one stream being relayed. The functions between net/http's and the
// client's connection lie on each other while the header is written, which takes
// net/http 3.3 KiB: with few and small frames 8 KiB of stack are enough for a
// stream. BenchmarkHeld has the figure.
type stream struct {
	x       *exchange
	engine  *engine.Engine
	status  int
	now     time.Time // of the latest read
	last    bool      // nothing follows it: that was the framing's own end
	marked  bool      // [DONE] has come
	drained bool      // the time for what follows the end runs
	closing string    // what a cut last event needs after it
}

// read reads the body once; ended says that no more can be read.
func (s *stream) read(body io.Reader) (ended bool) {
	rd := &s.x.reader
	n, err := body.Read(rd.Space(readAtLeast))
	s.now, s.last = time.Now(), err == io.EOF
	if s.marked {
		return err != nil
	}
	rd.Fill(n)
	if s.last {
		rd.End() // only a clean end makes an event of what has no blank line
	}
	return err != nil
}

// reading is what the events of one read are.
type reading struct {
	out      []byte // of them, what may go to the client
	send     bool   // it goes now
	content  bool   // some of it is content
	progress bool
	over     bool // the attempt ends with failed
	failed   attemptEnd
}

// judge looks at the events of one read.
func (s *stream) judge(rd *eventReader) reading {
	x := s.x
	j, bad := reading{send: x.status != 0}, 0
	renames := x.alias != ""
	x.edited = x.edited[:0]
	for ev, ok := rd.Next(); ok; ev, ok = rd.Next() {
		s.closing = ev.closing()
		verdict := x.answer.observe(ev)
		j.progress = j.progress || !ev.Comment && verdict != verdictIdle
		switch verdict {
		case verdictNoContent:
			j.send = j.send || ev.Comment
		case verdictFirstContent, verdictMoreContent:
			j.send, j.content = true, true
		case verdictDone:
			if s.marked = true; !x.answer.choices { // the end of nothing: it is not passed on
				j.failed, j.over = endEmpty, true
			}
		case verdictError:
			f := &x.answer.fault
			x.fault = engineAnswer{status: f.Status, message: f.Message, code: f.Code, param: f.Param}
			j.failed, j.over = endErrorEvent, true
		case verdictMalformed:
			j.failed, j.over = endMalformed, true
		}
		if j.over {
			bad = len(ev.Raw)
			break // Next would take one more
		}
		if renames {
			x.edited = appendRenamed(x.edited, ev, x.alias, &x.renamer)
		}
		if s.marked {
			break
		}
	}
	if x.answer.keepsID && x.answer.id != "" {
		x.learn(s.engine)
	}
	if rd.Err() != nil && !j.over {
		j.failed, j.over = endTooLarge, true
	}
	j.out = rd.Taken()
	if j.out = j.out[:len(j.out)-bad]; renames {
		j.out = x.edited
	}
	return j
}

// forward sends what was judged, in one write, or holds it back.
func (s *stream) forward(j *reading) (end attemptEnd, over bool) {
	x := s.x
	if j.progress { // a comment is none, nor a part of an event
		s.engine.Progress(s.now)
	}
	if j.content && !s.content() {
		return endContentTimeout, true
	}
	if !j.send {
		x.held = append(x.held, j.out...)
		j.send = len(x.held) > peekBytes && !j.over
		j.out = nil
	}
	if j.send && !s.send(j.out) {
		return endClientGone, true
	}
	switch {
	case j.over:
		return j.failed, true
	case s.drained: // whatever still comes does not buy time
	case x.answer.done:
		s.drained = true
		x.dog.watch(drainAfterDone, &errDrained, true)
	case j.progress && !x.firstAt.IsZero():
		x.dog.watch(x.set.limits.Stall, &errStalled, false)
	}
	return 0, false
}

// content notes content. Here, and once, it is decided whether it came in
// time: what is late by a hair is not sent and then called a timeout.
func (s *stream) content() bool {
	x := s.x
	if x.firstAt.IsZero() {
		if !x.dog.watch(x.set.limits.Stall, &errStalled, true) {
			return false
		}
		x.firstContent(s.now)
		x.freeBody()
	}
	x.lastAt = s.now
	if x.trial != nil && s.now.Sub(x.firstAt) >= trialStream {
		x.trial.End(nil)
	}
	x.meterMore(s.now)
	return true
}

// send writes what is held and out, after the header if it is still due. The
// last of it goes out with the framing's end, which follows at once; but a whole
// stream in one go would become an answer with a length.
func (s *stream) send(out []byte) bool {
	x := s.x
	flush := !s.last
	if x.status == 0 {
		x.begin(s.status)
		flush = true
	}
	if len(x.held) > 0 {
		x.held = append(x.held, out...)
		out = x.held
		x.held = x.held[:0]
	}
	return len(out) == 0 || x.write(s.now, out, flush)
}

// end is reached when no more can be read.
func (s *stream) end() attemptEnd {
	x := s.x
	switch x.answer.finish(s.last && !x.halt.ended()) {
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
	case endingFailed:
		if !s.send(nil) {
			return endClientGone
		}
		return endFailed
	case endingEmpty:
		if !x.halt.ended() {
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
			code, message = "invalid_request", x.asNamed(x.fault.message)
		}
	}
	x.code, x.abort = code, true
	if mediaType(x.w.Header()) == "text/event-stream" {
		x.write(time.Now(), x.shape.appendErrorEvent(nil, code, message, x.id[0], x.answer.sequence), true)
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
