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
func (x *exchange) readHeld(in *incoming, limit int) (more bool, err error) {
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
		if first, soon := x.expect.part(); first {
			x.dog.watch(soon, &errContentTimeout, true)
		}
	}
}

// relayWhole passes on a JSON answer once all of it is there and is JSON:
// until then a failure is a 502 and not half an answer.
func (x *exchange) relayWhole(e *engine.Engine, in *incoming) attemptEnd {
	more, err := x.readHeld(in, wholeBytes)
	if err != nil {
		return x.brokenEnd()
	}
	e.Progress(time.Now())
	x.answer.Begin(x.ep.answer, false, x.learns())
	if more {
		if x.answer.keepsID {
			x.answer.judgeBody(x.held) // cut, but an id stands at its beginning
			x.learn(e)
		}
		return x.relayRest(e, in)
	}
	switch x.answer.judgeBody(x.held) {
	case bodyEmpty:
		if x.ep.empty {
			return x.relayEmpty(in)
		}
		return endEmpty
	case bodyInvalid:
		return endBroken
	case bodyFault:
		f := &x.answer.fault
		x.fault = engineAnswer{status: f.Status, message: f.Message, code: f.Code, param: f.Param}
		return endErrorEvent
	}
	if x.ep.answer == answerChat && !x.answer.choices {
		return endEmpty // a JSON of another kind: a page of the engine's state, or an error in words of its own
	}
	x.learn(e)
	body := x.held
	if x.alias != "" {
		x.renamer.begin(x.alias)
		x.edited = x.renamer.append(x.edited[:0], body)
		body = x.edited
	}
	x.firstContent(time.Now())
	x.lastAt = x.firstAt
	h := x.header(in)
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.begin(in.status)
	if !x.write(x.lastAt, body, false) {
		return endClientGone
	}
	if x.answer.failed && x.ep.api == APIResponses {
		return endFailed
	}
	return endComplete
}

// relayEmpty passes on an answer that is a status and no body.
func (x *exchange) relayEmpty(in *incoming) attemptEnd {
	x.firstContent(time.Now())
	x.lastAt = x.firstAt
	h := x.header(in)
	if in.status != http.StatusNoContent {
		h["Content-Length"] = []string{"0"}
	}
	x.begin(in.status)
	return endComplete
}

// relayRaw passes on an answer of another kind piece by piece.
func (x *exchange) relayRaw(e *engine.Engine, in *incoming) attemptEnd {
	x.held = x.held[:0]
	x.answer.Reset()
	if in.length == 0 && x.ep.answer == answerTranscript { // of silence
		return x.relayEmpty(in)
	}
	return x.relayRest(e, in)
}

func isJSON(h http.Header) bool {
	kind := mediaType(h)
	return kind == "application/json" || kind == ""
}

// relayRest sends what is held and then the rest of the body as it comes. The
// header waits for the first byte.
func (x *exchange) relayRest(e *engine.Engine, in *incoming) attemptEnd {
	x.held = slices.Grow(x.held, 2*readBufferBytes)
	renames := x.alias != "" && isJSON(in.header)
	if renames {
		x.renamer.begin(x.alias)
	}
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
				x.firstContent(now)
				h := x.header(in)
				if in.length >= 0 && !renames {
					h["Content-Length"] = []string{strconv.FormatInt(in.length, 10)}
				}
				x.begin(in.status)
			}
			x.lastAt = now
			out := x.held
			if renames {
				x.edited = x.renamer.append(x.edited[:0], out)
				out = x.edited
			}
			if !x.write(now, out, true) {
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
	more, err := x.readHeld(in, faultBytes)
	facts := attemptFacts{End: endStatus, Status: in.status}
	if err != nil && x.halt.ended() {
		return attemptFacts{End: x.brokenEnd()}
	}
	x.fault = engineAnswer{status: in.status, header: in.header, body: x.held, advice: adviceOf(in.header)}
	if more || err != nil || encoded(in.header) {
		x.fault.header = nil // not whole, or not readable: the status is passed on, with our words
	}
	facts.RequestAtFault = in.status == http.StatusInternalServerError && x.shape == shapeAnthropic && missingMember(x.held)
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

// deliverFault gives the client an engine's 4xx or 501 as it is.
func (x *exchange) deliverFault() {
	f := &x.fault
	if f.header == nil {
		code := f.code
		if code == "" {
			code = "invalid_request"
		}
		message := x.asNamed(f.message)
		if message == "" {
			message = "the engine refused the request"
		}
		// The engine's code is its own text: it is no value for a header.
		x.fail(&apiError{status: f.status, code: code, message: message, param: f.param, reason: "invalid_request"})
		return
	}
	h := x.w.Header()
	copyEngineHeader(h, f.header)
	body := f.body
	if x.alias != "" {
		body = replaceName(body, x.env.Model, x.alias)
	}
	if f.status == http.StatusInternalServerError { // of a request that will not get better
		h["X-Should-Retry"] = []string{"false"}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.begin(f.status)
	x.write(time.Now(), body, false)
}

// asNamed is an engine's text with the model named as the client does.
func (x *exchange) asNamed(text string) string {
	if x.alias == "" {
		return text
	}
	return string(replaceName([]byte(text), x.env.Model, x.alias))
}
