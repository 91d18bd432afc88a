package enginetest

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// completionID is X-Request-Id where there is one, as in vLLM.
func (s *Sim) completionID(in *input) string {
	prefix := [...]string{chat: "chatcmpl-", completions: "cmpl-", embeddings: "embd-", responses: "resp_"}[in.endpoint]
	if in.requestID != "" {
		return prefix + in.requestID
	}
	id := strconv.FormatUint(mix(s.cfg.Seed+in.number), 16)
	return prefix + "0000000000000000"[len(id):] + id
}

// news is what a handler that waits for its answer can hear.
type news uint8

const (
	progress news = iota
	clientLeft
	engineGone
)

func (s *Sim) await(r *http.Request, c *call) news {
	select {
	case <-c.wake:
		return progress
	case <-r.Context().Done():
		return clientLeft
	case <-s.stopped:
		return engineGone
	}
}

// stream writes one streamed answer, an event and a flush for each token.
type stream struct {
	sim  *Sim
	w    http.ResponseWriter
	rc   *http.ResponseController
	r    *http.Request
	in   *input
	c    *call
	head []byte // of every chunk, up to its choices
	sent []int  // tokens written, by choice
	buf  []byte

	events int // content events written
	failAt int // content events before the fault; -1 = none
}

func (s *Sim) stream(w http.ResponseWriter, r *http.Request, in *input, c *call) ending {
	object := "chat.completion.chunk"
	if in.endpoint == completions {
		object = "text_completion"
	}
	st := &stream{sim: s, w: w, rc: http.NewResponseController(w), r: r, in: in, c: c,
		sent: make([]int, len(c.choices)), failAt: -1}
	st.head = append(st.head, `data: {"id":`...)
	st.head = appendQuoted(st.head, s.completionID(in))
	st.head = append(st.head, `,"object":"`+object+`","created":`...)
	st.head = strconv.AppendInt(st.head, c.arrived.Unix(), 10)
	st.head = append(st.head, `,"model":`...)
	st.head = appendQuoted(st.head, in.Model)
	st.head = append(st.head, `,"choices":[`...)
	st.failAt = failAt(in.fault, c)
	return st.run()
}

func appendQuoted(buf []byte, text string) []byte {
	buf, err := jsontext.AppendQuote(buf, text)
	if err != nil {
		panic(err) // the text came out of a JSON decoder or a header field
	}
	return buf
}

// run writes the headers at once, as vLLM does for a request that only
// queues, and then what the batch produces until all is written, the client
// has left or the fault strikes.
func (st *stream) run() ending {
	st.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if st.in.fault.Kind == Truncate {
		st.w.Header().Set("Content-Length", strconv.Itoa(1<<30))
	}
	st.w.WriteHeader(http.StatusOK)
	if st.rc.Flush() != nil {
		return disconnected
	}
	if st.in.fault.Kind == ErrorFirst {
		return st.fail()
	}
	for {
		finished := st.c.finished() // before the counts are read: they are final then
		if end, over := st.drain(); over {
			return end
		}
		if finished {
			return st.finish()
		}
		switch st.sim.await(st.r, st.c) {
		case clientLeft:
			return disconnected
		case engineGone:
			st.write(st.errorEvent(http.StatusInternalServerError))
			return refused
		}
	}
}

// drain writes every token that is due.
func (st *stream) drain() (end ending, over bool) {
	for i, ch := range st.c.choices {
		for st.sent[i] < int(ch.produced.Load()) {
			if st.sent[i] == 0 && st.in.endpoint == chat && !st.write(st.chunk(i, roleDelta)) {
				return disconnected, true
			}
			if st.events == st.failAt {
				if end, over = st.failNow(i); over {
					return end, true
				}
			} else if !st.write(st.content(i)) {
				return disconnected, true
			}
			st.sent[i]++
			st.events++
		}
	}
	return completed, false
}

func (st *stream) finish() ending {
	st.buf = st.buf[:0]
	if st.in.StreamOptions.IncludeUsage {
		st.buf = append(append(st.buf, st.head...), `],"usage":`...)
		st.buf = usageOf(st.c).append(st.buf, st.in.endpoint, true)
		st.buf = append(st.buf, `,"system_fingerprint":"`+fingerprint+`"}`+"\n\n"...)
	}
	if st.in.fault.Kind != NoDoneFinish {
		st.buf = append(st.buf, doneEvent...)
	}
	if len(st.buf) > 0 && !st.write(st.buf) {
		return disconnected
	}
	if st.failAt >= 0 || st.in.fault.Kind == NoDoneFinish {
		return faulted
	}
	return completed
}

const (
	doneEvent = "data: [DONE]\n\n"
	roleDelta = `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}` + "\n\n"
)

// chunk is an event for the i-th choice.
func (st *stream) chunk(i int, rest string) []byte {
	st.buf = append(append(st.buf[:0], st.head...), `{"index":`...)
	st.buf = append(strconv.AppendInt(st.buf, int64(i), 10), ',')
	st.buf = append(st.buf, rest...)
	return st.buf
}

// content is the event of the next token of the i-th choice. Words consist of
// letters, digits and a space, so nothing has to be escaped.
func (st *stream) content(i int) []byte {
	ch := st.c.choices[i]
	last := st.sent[i] == ch.Out-1
	reason := "null"
	if last {
		reason = `"` + ch.finishReason() + `"`
	}
	b := st.chunk(i, "")
	if st.in.endpoint == chat {
		b = append(append(append(b, `"delta":{"content":"`...), token(ch.answer, st.sent[i])...), `"},"logprobs":null,"finish_reason":`...)
		b = append(b, reason...)
		if last {
			b = append(b, `,"stop_reason":null`...)
		}
	} else {
		b = append(append(append(b, `"text":"`...), token(ch.answer, st.sent[i])...), `","logprobs":null,"finish_reason":`...)
		b = append(append(b, reason...), `,"stop_reason":null,"prompt_token_ids":null`...)
	}
	b = append(b, `,"token_ids":null}]`...)
	if last && !st.in.StreamOptions.IncludeUsage {
		b = append(b, `,"system_fingerprint":"`+fingerprint+`"`...)
	}
	st.buf = append(b, "}\n\n"...)
	return st.buf
}

func (st *stream) errorEvent(code int) []byte {
	e := errorFor(code, engineDied)
	st.buf = append(st.buf[:0], `data: {"error": {"message": "`+e.Message+`", "type": "`+e.Type+`", "param": null, "code": `...)
	st.buf = strconv.AppendInt(st.buf, int64(code), 10)
	st.buf = append(st.buf, "}}\n\n"+doneEvent...)
	return st.buf
}

// write sends one event, or the last ones together, at once.
func (st *stream) write(event []byte) bool {
	if _, err := st.w.Write(event); err != nil {
		return false
	}
	return st.rc.Flush() == nil
}

func (ch *choice) finishReason() string {
	if ch.limited {
		return "length"
	}
	return "stop"
}
