package proxy

import "github.com/go-json-experiment/json/jsontext"

// messagesMember reads a member of an event of the Messages API, or of a whole
// message, which has the members of message_start's message at its top.
func (a *answer) messagesMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "type":
		err := a.json.value()
		c.kind = a.json.raw
		return err
	case "message":
		return a.object((*answer).messageMember)
	case "content_block", "delta":
		return a.object((*answer).blockMember)
	case "error":
		err := a.json.value()
		c.fault = c.fault || err == nil && present(a.json.raw)
		return err
	case "timings":
		return a.readTimings()
	}
	return a.messageMember(name)
}

func (a *answer) messageMember(name []byte) error {
	if string(name) == "usage" {
		return a.readAnthropicUsage()
	}
	return a.json.value()
}

// blockMember reads a member of a content block, or of what is added to one or
// to the message.
func (a *answer) blockMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "type":
		err := a.json.value()
		c.status = a.json.raw
		return err
	case "stop_reason":
		err := a.json.value()
		c.stopped = err == nil && present(a.json.raw)
		return err
	case "text", "thinking", "partial_json", "signature", "data", "citation", "content":
		return a.readContent()
	}
	return a.json.value()
}

// readAnthropicUsage reads the counts. Input tokens are those that no cache
// had: the prompt is the sum. The output's grow from event to event.
func (a *answer) readAnthropicUsage() error {
	if a.json.kind() != '{' {
		return a.json.value()
	}
	if !a.counted {
		a.usage, a.fresh, a.written = usage{}, 0, 0
	}
	a.counted, a.usage.Known = true, true
	err := a.object((*answer).anthropicUsageMember)
	a.usage.Prompt = a.fresh + a.usage.Cached + a.written
	a.usage.Total = a.usage.Prompt + a.usage.Completion
	return err
}

func (a *answer) anthropicUsageMember(name []byte) error {
	switch string(name) {
	case "input_tokens":
		return a.json.count(&a.fresh)
	case "cache_read_input_tokens":
		return a.json.count(&a.usage.Cached)
	case "cache_creation_input_tokens":
		return a.json.count(&a.written)
	case "output_tokens":
		return a.json.count(&a.usage.Completion)
	}
	return a.json.value()
}

// judgeMessages says what an event is by its type.
func (a *answer) judgeMessages() {
	c := &a.chunk
	if c.fault {
		return
	}
	switch kind := string(c.kind); kind {
	case `"error"`:
		c.fault = true
		return
	case `"ping"`:
		c.idle = true
		return
	case `"message_start"`, `"content_block_stop"`:
		c.content = false
		return
	case `"content_block_start"`:
		// Text and thinking begin empty; a tool's block says which tool.
		c.content = c.content || string(c.status) != `"text"` && string(c.status) != `"thinking"`
	case `"content_block_delta"`:
	case `"message_delta"`:
		c.finish = c.stopped
	case `"message_stop"`:
		a.done = true
		c.finish = true
	default:
		// A whole message, or an event that is not known here.
		c.content = c.content || c.kind.Kind() != jsontext.KindString || kind == `"message"`
	}
	a.choices = a.choices || c.content || c.finish
}
