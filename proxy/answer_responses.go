package proxy

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// responsesMember reads a member of an event of the Responses API, or of a
// whole response, which has the members of the event's response at its top.
func (a *answer) responsesMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "type":
		err := a.json.value()
		c.kind = a.json.raw
		return err
	case "delta":
		err := a.json.value()
		c.content = c.content || err == nil && filled(a.json.raw)
		return err
	case "item":
		return a.object((*answer).itemMember)
	case "sequence_number":
		err := a.json.value()
		if err == nil && a.json.raw.Kind() == jsontext.KindNumber {
			a.sequence = integer(a.json.raw)
		}
		return err
	case "response":
		return a.object((*answer).responseMember)
	case "timings":
		return a.readTimings()
	case "error":
		err := a.json.value()
		c.fault = c.fault || err == nil && present(a.json.raw)
		return err
	}
	return a.responseMember(name)
}

// responseMember reads a member of a response.
func (a *answer) responseMember(name []byte) error {
	c := &a.chunk
	switch string(name) {
	case "id":
		return a.readID(&a.id)
	case "object":
		err := a.json.value()
		c.object = a.json.raw
		return err
	case "status":
		err := a.json.value()
		c.status = a.json.raw
		return err
	case "conversation":
		return a.object((*answer).conversationMember)
	case "usage":
		return a.readUsage()
	}
	return a.json.value()
}

func (a *answer) conversationMember(name []byte) error {
	if string(name) == "id" {
		return a.readID(&a.conversation)
	}
	return a.json.value()
}

// itemMember notes the type of an item: that of a message or of reasoning
// begins empty, all others say what they are.
func (a *answer) itemMember(name []byte) error {
	err := a.json.value()
	if err == nil && string(name) == "type" {
		a.chunk.status = a.json.raw // an item's event has no response
	}
	return err
}

// judgeResponses says what an event is by its type, and a whole response by
// its status.
func (a *answer) judgeResponses() {
	c := &a.chunk
	kind := []byte(c.kind)
	if kind == nil && string(c.object) == `"response"` {
		// A whole response. An error in it is the answer as the API has it.
		c.fault, c.content, a.choices = false, true, true
		a.failed = string(c.status) == `"failed"`
		return
	}
	if c.fault = c.fault || string(kind) == `"error"`; c.fault {
		return
	}
	switch string(kind) {
	case `"response.created"`, `"response.queued"`, `"response.in_progress"`, `"response.content_part.added"`,
		`"response.reasoning_summary_part.added"`:
		return
	case `"keepalive"`, `"response.keepalive"`, `"ping"`:
		c.idle = true
		return
	case `"response.output_item.added"`:
		c.finish = string(c.status) != `"message"` && string(c.status) != `"reasoning"`
	case `"response.failed"`:
		c.failed = true
		return
	case `"response.completed"`, `"response.incomplete"`, `"response.cancelled"`:
		c.finish = true
		a.done = true
	default:
		// A delta is content where it holds some; the other events repeat what
		// was sent, or tell of work that was done.
		c.finish = !bytes.HasSuffix(kind, []byte(`.delta"`))
	}
	a.choices = a.choices || c.content || c.finish
}
