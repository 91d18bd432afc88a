package proxy

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/engine"
)

const (
	// wholeBytes bounds an answer that is held until it is whole; a larger one
	// is relayed as it comes, and its truncation shows as an unclean end.
	wholeBytes = 8 << 20
	// faultBytes bounds what is kept of an engine's error answer.
	faultBytes = 1 << 20
)

func lowerMedia(v string) string {
	v, _, _ = strings.Cut(v, ";")
	return strings.ToLower(strings.TrimSpace(v))
}

// readHeld reads the body into x.held, up to limit. more says that the body
// goes on beyond it.
func (x *exchange) readHeld(e *engine.Engine, in *incoming, limit int) (more bool, err error) {
	x.held = x.held[:0]
	if in.length > 0 && in.length <= int64(limit) {
		x.held = slices.Grow(x.held, int(in.length)+1)
	}
	for {
		if len(x.held) == cap(x.held) {
			x.held = slices.Grow(x.held, max(4<<10, len(x.held)))
		}
		n, err := in.body.Read(x.held[len(x.held):cap(x.held)])
		x.held = x.held[:len(x.held)+n]
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case len(x.held) > limit:
			return true, nil
		}
		e.Progress(time.Now())
		x.dog.watch(x.set.limits.Stall, &errStalled, true)
	}
}

// relayWhole passes on a JSON answer once all of it is there and is JSON:
// until then a failure is a 502 and not half an answer.
func (x *exchange) relayWhole(e *engine.Engine, in *incoming) attemptEnd {
	more, err := x.readHeld(e, in, wholeBytes)
	if err != nil {
		return x.brokenEnd()
	}
	x.answer.Reset()
	if more {
		return x.relayRest(e, in)
	}
	switch x.answer.judgeBody(x.held) {
	case bodyEmpty:
		return endEmpty
	case bodyInvalid:
		return endBroken
	case bodyFault:
		f := &x.answer.fault
		x.fault = engineAnswer{status: f.Status, message: f.Message, code: f.Code, param: f.Param}
		return endErrorEvent
	}
	x.firstAt = time.Now()
	x.lastAt = x.firstAt
	h := x.header(in)
	h["Content-Length"] = []string{strconv.Itoa(len(x.held))}
	x.begin(in.status)
	if !x.write(x.held, false) {
		return endClientGone
	}
	return endComplete
}

// relayRaw passes on an answer of another kind piece by piece.
func (x *exchange) relayRaw(e *engine.Engine, in *incoming) attemptEnd {
	x.held = x.held[:0]
	x.answer.Reset()
	return x.relayRest(e, in)
}

// relayRest sends what is held and then the rest of the body as it comes. The
// header waits for the first byte.
func (x *exchange) relayRest(e *engine.Engine, in *incoming) attemptEnd {
	x.held = slices.Grow(x.held, readBufferBytes)
	for {
		var err error
		if len(x.held) == 0 {
			var n int
			n, err = in.body.Read(x.held[:cap(x.held)])
			x.held = x.held[:n]
		}
		if x.status == 0 && len(x.held) == 0 && err == io.EOF {
			return endEmpty
		}
		now := time.Now()
		e.Progress(now)
		if len(x.held) > 0 {
			if x.status == 0 {
				x.firstAt = now
				h := x.header(in)
				if in.length >= 0 {
					h["Content-Length"] = []string{strconv.FormatInt(in.length, 10)}
				}
				x.begin(in.status)
			}
			x.lastAt = now
			if !x.write(x.held, true) {
				return endClientGone
			}
			x.held = x.held[:0]
			x.dog.watch(x.set.limits.Stall, &errStalled, x.firstAt.Equal(now))
		}
		switch {
		case err == io.EOF:
			return endComplete
		case err != nil:
			return x.brokenEnd()
		}
	}
}

// receiveFault reads an engine's answer of 400 and above and keeps it.
func (x *exchange) receiveFault(e *engine.Engine, in *incoming) attemptFacts {
	more, err := x.readHeld(e, in, faultBytes)
	facts := attemptFacts{End: endStatus, Status: in.status}
	if err != nil && x.ctx.Err() != nil {
		return attemptFacts{End: x.brokenEnd()}
	}
	x.fault = engineAnswer{status: in.status, header: in.header, body: x.held, retryAfter: retryAfterOf(in.header)}
	if more || err != nil || encoded(in.header) {
		x.fault.header = nil // not whole, or not readable: the status is passed on, with our words
	}
	if in.status == http.StatusNotFound && namesModel(x.held, x.env.Model) {
		facts.ModelListed = lists(e, x.env.Model)
	}
	return facts
}

// lists reports whether the engine said that it serves the model.
func lists(e *engine.Engine, model string) bool {
	models, _ := e.Serves()
	return slices.ContainsFunc(models, func(m engine.Model) bool { return m.ID == model })
}

// retryAfterOf reads Retry-After in seconds, within what SDKs obey (1-60 s);
// 0 where it is absent or a date.
func retryAfterOf(h http.Header) int {
	n, err := strconv.Atoi(strings.TrimSpace(h.Get("Retry-After")))
	if err != nil || n < 1 {
		return 0
	}
	return min(n, 60)
}

// deliverFault gives the client an engine's 4xx or 501 as it is.
func (x *exchange) deliverFault() {
	f := &x.fault
	if f.header == nil {
		code := f.code
		if code == "" {
			code = "invalid_request"
		}
		message := f.message
		if message == "" {
			message = "the engine refused the request"
		}
		// The engine's code is its own text: it is no value for a header.
		x.fail(&apiError{status: f.status, code: code, message: message, param: f.param, reason: "invalid_request"})
		return
	}
	h := x.w.Header()
	copyEngineHeader(h, f.header)
	h["Content-Length"] = []string{strconv.Itoa(len(f.body))}
	x.begin(f.status)
	x.write(f.body, false)
}
