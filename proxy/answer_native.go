package proxy

import "github.com/go-json-experiment/json/jsontext"

// nativeMember reads a member of llama.cpp's own answers.
func (a *answer) nativeMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "content", "tokens":
		return a.readContent()
	case "stop":
		err := a.json.value()
		c.stopped = err == nil && a.json.raw.Kind() == jsontext.KindTrue
		return err
	case "index":
		return a.readIndex()
	case "choices":
		return a.json.value()
	}
	return a.topMember(name)
}

// judgeNative: each prompt of a request ends with an event of its own. With
// one prompt that is the answer's end.
func (a *answer) judgeNative() {
	c := &a.chunk
	if c.fault {
		return
	}
	if c.finish = c.stopped; c.content || c.finish {
		a.choices = true
		a.track(c.stopped)
	}
	a.done = a.done || c.stopped && !a.several
}

// generateMember reads a member of an answer of SGLang's /generate or TGI's:
// they share a path and no member's name.
func (a *answer) generateMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "text", "output_ids", "token":
		a.choices = true
		return a.readContent()
	case "meta_info":
		return a.object((*answer).metaInfoMember)
	case "generated_text": // TGI: in the last event, or the whole answer
		err := a.json.value()
		if err == nil && a.json.raw.Kind() == jsontext.KindString {
			a.choices, a.done, c.finish = true, true, true
		}
		return err
	case "details":
		return a.object((*answer).detailsMember)
	case "choices", "usage", "timings":
		return a.json.value()
	}
	return a.topMember(name)
}

// metaInfoMember reads what SGLang says about an answer with each event.
func (a *answer) metaInfoMember(name []byte) error {
	u := &a.usage
	switch string(name) {
	case "prompt_tokens":
		u.Known = true
		return a.json.count(&u.Prompt)
	case "completion_tokens":
		err := a.json.count(&u.Completion)
		u.Total = u.Prompt + u.Completion
		return err
	case "cached_tokens":
		return a.json.count(&u.Cached)
	case "finish_reason":
		if a.json.kind() == '{' {
			a.chunk.finish = true
			return a.object((*answer).finishMember)
		}
		err := a.json.value()
		a.chunk.finish = err == nil && present(a.json.raw)
		return err
	}
	return a.json.value()
}

// finishMember: SGLang says in the finish reason that it gave up on a request.
func (a *answer) finishMember(name []byte) error {
	err := a.json.value()
	if err == nil && string(name) == "type" && string(a.json.raw) == `"abort"` {
		a.chunk.fault = true
	}
	return err
}

// detailsMember reads TGI's counts.
func (a *answer) detailsMember(name []byte) error {
	u := &a.usage
	switch string(name) {
	case "generated_tokens":
		u.Known = true
		err := a.json.count(&u.Completion)
		u.Total = u.Prompt + u.Completion
		return err
	case "input_length":
		err := a.json.count(&u.Prompt)
		u.Total = u.Prompt + u.Completion
		return err
	}
	return a.json.value()
}

// judgeEach reads a list of answers, one for each prompt, and adds up what
// they count. The list is known to be valid.
func (a *answer) judgeEach(body []byte) bodyVerdict {
	sum := usage{}
	var walk jsonReader
	walk.begin(body)
	walk.kind()
	walk.enter()
	for {
		more, err := walk.more(']')
		if err != nil {
			return bodyInvalid
		}
		if !more {
			break
		}
		if walk.value() != nil {
			return bodyInvalid
		}
		if walk.raw.Kind() != jsontext.KindBeginObject {
			continue
		}
		a.usage, a.counted = usage{}, false
		c, err := a.readChunk(walk.raw)
		if err != nil {
			return bodyInvalid
		}
		if c.fault {
			a.fault = engineError(walk.raw)
			return bodyFault
		}
		u := a.usage
		sum = usage{sum.Prompt + u.Prompt, sum.Completion + u.Completion, sum.Total + u.Total, sum.Cached + u.Cached, sum.Known || u.Known}
	}
	a.usage = sum
	return bodyOK
}

// transcriptMember reads an event of a transcription: choices as a chat's, or
// OpenAI's own events.
func (a *answer) transcriptMember(name []byte) error {
	switch string(name) {
	case "type":
		err := a.json.value()
		a.chunk.kind = a.json.raw
		return err
	case "delta", "text":
		return a.readContent()
	}
	return a.topMember(name)
}

func (a *answer) judgeTranscript() {
	c := &a.chunk
	if string(c.kind) == `"transcript.text.done"` {
		a.done, c.finish = true, true
	}
	a.choices = a.choices || c.content || c.finish
}
