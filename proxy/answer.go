package proxy

import "bytes"

// verdict is what one event of a streamed answer means to the relay.
type verdict uint8

const (
	// verdictNoContent: a comment, a role-only chunk, an empty delta, usage alone.
	verdictNoContent verdict = iota
	// verdictFirstContent is the commit point: the first event with content or a finish_reason.
	verdictFirstContent
	verdictMoreContent
	// verdictDone: [DONE].
	verdictDone
	// verdictError: the engine's own error event; answer.fault says which.
	verdictError
	// verdictMalformed: data that is neither [DONE] nor a JSON object.
	verdictMalformed
)

var verdictNames = [...]string{"no_content", "first_content", "more_content", "done", "error", "malformed"}

func (v verdict) String() string { return verdictNames[v] }

// ending is how a streamed answer ended.
type ending uint8

const (
	endingComplete ending = iota
	// endingAddDone: complete, but the engine sent no [DONE]; the gateway adds it.
	endingAddDone
	// endingInterrupted: not complete, whatever the engine sent last.
	endingInterrupted
	// endingEmpty: a proper end with no choice before it.
	endingEmpty
)

var endingNames = [...]string{"complete", "complete_add_done", "interrupted", "empty"}

func (e ending) String() string { return endingNames[e] }

// bodyVerdict is what a whole JSON answer with status 200 is worth.
type bodyVerdict uint8

const (
	bodyOK      bodyVerdict = iota
	bodyEmpty               // no byte but white space
	bodyInvalid             // not exactly one JSON object or array: truncated, or no JSON at all
	bodyFault               // an error object under a 200
)

var bodyVerdictNames = [...]string{"ok", "empty", "invalid", "fault"}

func (v bodyVerdict) String() string { return bodyVerdictNames[v] }

// usage is the engine's token count of an answer. Known is false while nothing was counted.
type usage struct {
	Prompt     int64
	Completion int64
	Total      int64
	Cached     int64 // part of Prompt
	Known      bool
}

// maxChoice bounds the choice indexes that are tracked one by one; an answer with others is
// complete only with [DONE].
const maxChoice = 1024

type choiceSet [maxChoice / 64]uint64

func (s *choiceSet) add(i int) { s[i>>6] |= 1 << (i & 63) }

// answer judges one answer: each event of a stream with observe and its end with finish, or a
// JSON body with judgeBody. It is pooled: Reset before each answer, never copied. An engine's
// bytes are kept in no part of it, but those of the last event until the next call.
type answer struct {
	usage  usage
	fault  engineFault // the first error event, or the error object of a body
	tokens int         // events that carried content: an estimate of tokens for the time between them

	counted   bool // usage is from a usage member, not from timings
	committed bool
	done      bool
	broken    bool // an error event or malformed data was seen
	choices   bool
	untracked bool // a choice index outside [0, maxChoice)
	seen      choiceSet
	finished  choiceSet

	json  jsonReader
	chunk chunk // of the object being read

	// The last event with one content string, without it: of a stream's
	// events nearly all differ in nothing else, and one that is so framed
	// needs no reading.
	before, after []byte
}

func (a *answer) Reset() {
	a.usage, a.fault, a.tokens = usage{}, engineFault{}, 0
	a.counted, a.committed, a.done, a.broken, a.choices, a.untracked = false, false, false, false, false, false
	a.seen, a.finished = choiceSet{}, choiceSet{}
	a.before, a.after = a.before[:0], a.after[:0]
	a.json.release()
}

// maxFrame bounds what is kept of an event to compare the next ones with.
const maxFrame = 4 << 10

// sameFrame reports whether data is the last content event with another
// string for its content: equal before and after it, and between them nothing
// that could end the string, or be an empty one.
func (a *answer) sameFrame(data []byte) bool {
	if len(a.before) == 0 || len(data) <= len(a.before)+len(a.after) ||
		!bytes.HasPrefix(data, a.before) || !bytes.HasSuffix(data, a.after) {
		return false
	}
	content := data[len(a.before) : len(data)-len(a.after)]
	return bytes.IndexByte(content, '"') < 0 && bytes.IndexByte(content, '\\') < 0
}

// frame keeps data without its content string, if it has exactly one and is
// not special otherwise.
func (a *answer) frame(data []byte) {
	a.before, a.after = a.before[:0], a.after[:0]
	if c := &a.chunk; c.texts == 1 && !c.finish && len(data) <= maxFrame {
		a.before = append(a.before, data[:c.textFrom]...)
		a.after = append(a.after, data[c.textTo:]...)
	}
}

// observe judges the next event of a stream.
func (a *answer) observe(ev sseEvent) verdict {
	if string(ev.Name) == "error" {
		return a.fail(ev.Data)
	}
	data := bytes.TrimSpace(ev.Data)
	switch {
	case len(data) == 0:
		return verdictNoContent
	case bytes.HasPrefix(data, []byte("[DONE]")): // SDKs compare the prefix too
		a.done = true
		return verdictDone
	}
	if a.committed && a.sameFrame(data) {
		a.tokens++
		return verdictMoreContent
	}
	c, err := a.readChunk(data)
	switch {
	case err != nil:
		a.broken = true
		return verdictMalformed
	case c.fault:
		return a.fail(data)
	}
	if c.content {
		a.tokens++
		a.frame(data)
	}
	switch {
	case !c.content && !c.finish:
		return verdictNoContent
	case a.committed:
		return verdictMoreContent
	}
	a.committed = true
	return verdictFirstContent
}

func (a *answer) fail(data []byte) verdict {
	if !a.broken {
		a.fault = engineError(data)
	}
	a.broken = true
	return verdictError
}

// finish says how the stream ended; clean is the framing's own end (final chunk, full
// Content-Length, END_STREAM). The proper end of a stream is [DONE], or a finish_reason for every
// choice seen and a clean end. An error event is never one, whatever follows it.
func (a *answer) finish(clean bool) ending {
	switch {
	case a.broken:
		return endingInterrupted
	case !a.choices && (a.done || clean):
		return endingEmpty
	case a.done:
		return endingComplete
	case clean && !a.untracked && a.seen == a.finished:
		return endingAddDone
	default:
		return endingInterrupted
	}
}

// judgeBody judges a whole JSON answer and reads its usage.
func (a *answer) judgeBody(body []byte) bodyVerdict {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return bodyEmpty
	}
	if body[0] == '[' {
		if a.json.readWhole(body) != nil {
			return bodyInvalid
		}
		return bodyOK // embeddings and rerank of some engines
	}
	c, err := a.readChunk(body)
	switch {
	case err != nil:
		return bodyInvalid
	case c.fault:
		a.fault = engineError(body)
		return bodyFault
	default:
		return bodyOK
	}
}
