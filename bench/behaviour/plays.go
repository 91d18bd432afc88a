package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"penstock/engine/enginetest"
)

// streamed reports whether the request asks for a stream, wherever in the
// body a proxy may have moved the field.
func streamed(x *enginetest.Exchange) bool {
	var in struct{ Stream bool }
	return json.Unmarshal(x.Body, &in) == nil && in.Stream
}

// answerAs is a healthy engine: the text of its answer is its name.
func answerAs(name string) enginetest.Play {
	return func(x *enginetest.Exchange) {
		if !streamed(x) {
			x.Respond(http.StatusOK, "application/json", wholeAnswer(name))
			return
		}
		x.StartStream()
		x.Token(name)
		x.Finish()
	}
}

func wholeAnswer(text string) string {
	return fmt.Sprintf(`{"id":"chatcmpl-script","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":`+
		`{"role":"assistant","content":%q},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}`, text)
}

// tokens begins a stream with n content events, a few milliseconds apart.
func tokens(x *enginetest.Exchange, n int) {
	x.StartStream()
	for i := range n {
		x.Token(fmt.Sprint("token", i, " "))
		x.Pause(5 * time.Millisecond)
	}
}

// resetAfter breaks the connection after n content events.
func resetAfter(n int) enginetest.Play {
	return func(x *enginetest.Exchange) {
		tokens(x, n)
		x.Pause(20 * time.Millisecond) // the reset must not overtake the events
		x.Reset()
	}
}

// endAfter ends the body properly after n content events, but not the answer.
func endAfter(n int) enginetest.Play {
	return func(x *enginetest.Exchange) {
		tokens(x, n)
		x.EndChunks()
	}
}

// silentAfter says nothing more after n content events.
func silentAfter(n int) enginetest.Play {
	return func(x *enginetest.Exchange) {
		tokens(x, n)
		x.Hang()
	}
}

// silent never answers.
func silent(x *enginetest.Exchange) { x.Hang() }

// reset reads the request and breaks the connection.
func reset(x *enginetest.Exchange) { x.Reset() }

// resetOnce resets the first request and answers the others.
func resetOnce(then enginetest.Play) enginetest.Play {
	var done atomic.Bool
	return func(x *enginetest.Exchange) {
		if done.CompareAndSwap(false, true) {
			x.Reset()
			return
		}
		then(x)
	}
}

func errorBody(status int, message string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%d}}`, message, http.StatusText(status), status)
}

// answerStatus answers every request with that status.
func answerStatus(status int) enginetest.Play {
	return func(x *enginetest.Exchange) {
		x.Respond(status, "application/json", errorBody(status, "The engine was told to answer so."))
	}
}

// errorUnder200 is a stream whose first event is an error: what vLLM and
// SGLang send where a request fails after the headers are out.
func errorUnder200(x *enginetest.Exchange) {
	x.StartStream()
	x.Event(errorBody(http.StatusInternalServerError, "EngineCore encountered an issue."))
	x.Event("[DONE]")
	x.EndChunks()
}

// room is an engine of few slots that says so when it is full.
type room struct {
	slots   int64
	service time.Duration
	full    int // status
	held    atomic.Int64
	served  atomic.Int64
	spent   atomic.Int64 // nanoseconds in a slot, of those served
}

func (r *room) play(x *enginetest.Exchange) {
	defer r.held.Add(-1)
	if r.held.Add(1) > r.slots {
		x.Respond(r.full, "application/json", errorBody(r.full, "The engine is currently busy and cannot accept new requests."))
		return
	}
	if x.Pause(r.service) {
		x.Respond(http.StatusOK, "application/json", wholeAnswer("served"))
		r.spent.Add(int64(time.Since(x.Arrived)))
		r.served.Add(1)
	}
}

// awkwardStream is a legal event stream with all that a parser may trip over
// or tidy up. It ends properly.
var awkwardStream = []string{
	": a comment of the engine's\n\n",
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n",
	`data:{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"no space, \u00e9 escaped, é not"}}]}` + "\n\n",
	`data: {"id":"c1" , "object":"chat.completion.chunk","created":1.0,"model":"m","choices":[{"index":0,"delta":{"content":" crlf"},"extra":{"b":1,"a":[1e2,12345678901234567890]}}]}` + "\r\n\r\n",
	"id: 7\nretry: 1000\n" + `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" fields"}}]}` + "\n\n",
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n",
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4},"engine_extra":0.5}}` + "\n\n",
	"data: [DONE]\n\n",
}

func playAwkward(x *enginetest.Exchange) {
	x.StartStream()
	for _, event := range awkwardStream {
		x.Chunk(event)
		x.Pause(2 * time.Millisecond)
	}
	x.EndChunks()
}

// contentEvents counts the events of a body in which text arrives.
func contentEvents(body []byte) int { return bytes.Count(body, []byte(`"content":"token`)) }

// comments counts the comment lines of a body.
func comments(body []byte) (n int) {
	for line := range bytes.Lines(body) {
		if line[0] == ':' {
			n++
		}
	}
	return n
}
