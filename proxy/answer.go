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
	// verdictIdle: an event that only says that the engine is there. It is no
	// progress, as a comment is none.
	verdictIdle
	// verdictFailed: the API's own event for an answer that failed after it
	// had begun. It is passed on; it ends the stream properly and is a failure.
	verdictFailed
)

var verdictNames = [...]string{"no_content", "first_content", "more_content", "done", "error", "malformed", "idle", "failed"}

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
	// endingFailed: ended by the API's own event for a failure.
	endingFailed
)

var endingNames = [...]string{"complete", "complete_add_done", "interrupted", "empty", "failed"}

// answerKind is a kind of answer: what is content in it, and what its end.
type answerKind uint8

const (
	answerAny        answerKind = iota // any JSON; a stream ends with its framing
	answerChat                         // choices; finish_reason of each, or [DONE]
	answerResponses                    // response.completed, .incomplete or .failed
	answerMessages                     // message_stop
	answerGenerate                     // SGLang: [DONE]; TGI: generated_text
	answerNative                       // llama.cpp: "stop":true
	answerTranscript                   // audio: transcript.text.done, else as answerChat
	answerTokens                       // as answerChat, without its text
)

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

	kind     answerKind
	several  bool  // the request had several prompts, each with an end of its own
	sequence int64 // sequence_number of the last event, -1 = none

	keepsID      bool   // id is wanted
	id           string // of the answer, where keepsID
	conversation string // that it belongs to, likewise

	fresh, written int64 // of Anthropic's usage: tokens that no cache had, and those put into one

	counted   bool // usage is from a usage member, not from timings
	committed bool
	done      bool // the proper end was seen
	failed    bool // ended by the API's own event for a failure
	broken    bool // an error event or malformed data was seen
	choices   bool // a part of an answer was seen
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
	a.kind, a.several, a.sequence = answerChat, false, -1
	a.keepsID, a.id, a.conversation = false, "", ""
	a.fresh, a.written = 0, 0
	a.counted, a.committed, a.done, a.failed, a.broken, a.choices, a.untracked = false, false, false, false, false, false, false
	a.seen, a.finished = choiceSet{}, choiceSet{}
	a.before, a.after = a.before[:0], a.after[:0]
	a.chunk = chunk{}
	a.json.release()
}

// Begin is Reset for an answer of that kind.
func (a *answer) Begin(kind answerKind, several, keepsID bool) {
	a.Reset()
	a.kind, a.several, a.keepsID = kind, several, keepsID
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
	c := &a.chunk
	if c.texts != 1 || c.finish || len(data) > maxFrame {
		return
	}
	a.before = append(a.before, data[:c.textFrom]...)
	a.after = append(a.after, data[c.textTo:]...)
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
		return a.doneMark()
	case string(data) == "null": // llama.cpp, before the first of several answers
		return verdictNoContent
	}
	if a.committed && a.sameFrame(data) {
		a.tokens++
		return verdictMoreContent
	}
	if a.kind == answerAny && data[0] != '{' { // whatever it is, it is not ours to read
		return a.content()
	}
	c, err := a.readChunk(data)
	switch {
	case err != nil:
		a.broken = true
		return verdictMalformed
	case c.fault:
		return a.fail(data)
	case c.failed:
		return a.failProperly(data)
	case c.idle:
		return verdictIdle
	}
	if c.content {
		a.tokens++
		a.frame(data)
	}
	if !c.content && !c.finish {
		return verdictNoContent
	}
	return a.commit()
}

// doneMark is [DONE], the proper end of those kinds whose API has it.
func (a *answer) doneMark() verdict {
	switch a.kind {
	case answerResponses, answerMessages, answerNative:
		return verdictNoContent
	}
	a.done = true
	return verdictDone
}

func (a *answer) content() verdict {
	a.tokens++
	a.choices = true
	return a.commit()
}

func (a *answer) commit() verdict {
	if a.committed {
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

// failProperly is the API's own end of an answer that failed. Before any
// content it is an error as any other.
func (a *answer) failProperly(data []byte) verdict {
	if !a.committed {
		return a.fail(data)
	}
	a.fault = engineError(data)
	a.done, a.failed = true, true
	return verdictFailed
}

// finish says how the stream ended; clean is the framing's own end (final
// chunk, full Content-Length, END_STREAM). An error event is never a proper
// end, whatever follows it.
func (a *answer) finish(clean bool) ending {
	switch {
	case a.broken:
		return endingInterrupted
	case !a.choices && (a.done || clean):
		return endingEmpty
	case a.failed:
		return endingFailed
	case a.done:
		return endingComplete
	case !clean:
		return endingInterrupted
	}
	switch a.kind {
	case answerAny:
		return endingComplete
	case answerChat, answerTranscript, answerTokens, answerNative: // an end for every choice or prompt seen
		switch {
		case a.untracked, a.seen != a.finished, a.seen == choiceSet{}:
		case a.kind == answerChat:
			return endingAddDone
		default:
			return endingComplete
		}
	}
	return endingInterrupted
}

// judgeBody judges a whole JSON answer and reads its usage.
func (a *answer) judgeBody(body []byte) bodyVerdict {
	a.chunk = chunk{}
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return bodyEmpty
	}
	if body[0] != '{' {
		return a.judgeList(body)
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

// judgeList judges an answer that is no object: a list of embeddings, scores
// or answers, or the id of a session.
func (a *answer) judgeList(body []byte) bodyVerdict {
	if body[0] != '[' && (a.kind != answerAny || body[0] != '"') || a.json.readWhole(body) != nil {
		return bodyInvalid
	}
	if body[0] == '"' && a.keepsID {
		a.noteID(&a.id, a.json.raw)
	}
	if body[0] == '[' && (a.kind == answerGenerate || a.kind == answerNative) {
		return a.judgeEach(body)
	}
	return bodyOK
}
