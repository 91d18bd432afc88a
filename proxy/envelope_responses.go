package proxy

import (
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"penstock/engine"
)

// responsesMember reads what only the Responses API has.
func (s *Scanner) responsesMember(name []byte) (read bool, err error) {
	env := s.env
	switch string(name) {
	case "input":
		return true, s.inputItems()
	case "instructions":
		return true, s.systemText()
	case "max_output_tokens":
		return true, s.largest(&s.maxNew)
	case "text":
		return true, s.formatIn("format")
	case "store":
		env.KeepsID = s.dec.PeekKind() != 'f'
		return true, s.skip()
	case "previous_response_id":
		if s.dec.PeekKind() == '"' {
			env.BoundKind = idResponse
			env.EarlierTurns = true
			return true, s.str(&s.held)
		}
	case "conversation":
		return true, s.heldConversation()
	default:
		return false, nil
	}
	return true, s.skip()
}

// heldConversation reads the id of a conversation that an engine keeps: an id,
// or an object with one. Beside a previous_response_id, which no engine takes,
// it counts for nothing.
func (s *Scanner) heldConversation() error {
	take := func() error {
		if s.dec.PeekKind() != '"' {
			return s.skip()
		}
		s.env.EarlierTurns = true
		if s.env.BoundKind != idNone {
			return s.skip()
		}
		s.env.BoundKind = idConversation
		return s.str(&s.held)
	}
	if s.dec.PeekKind() != '{' {
		return take()
	}
	return s.object(func(name []byte) error {
		if string(name) != "id" {
			return s.skip()
		}
		return take()
	})
}

// inputItems reads the input: one text of the user, or the items of a
// conversation.
func (s *Scanner) inputItems() error {
	switch s.dec.PeekKind() {
	case '"':
		m := message{}
		var err error
		if m.content, err = s.scalar(); err == nil {
			m.role = userRole
			s.turn(&m)
		}
		return err
	case '[':
	default:
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		var err error
		if s.dec.PeekKind() == '{' {
			err = s.inputItem()
		} else {
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	return s.step()
}

var userRole = []byte(`"user"`)

// inputItem reads one item. What is no message is the work of an earlier
// answer, or a tool's: it may hold media, and is no part of the opening.
func (s *Scanner) inputItem() error {
	if err := s.step(); err != nil {
		return err
	}
	var m, output message
	var kind []byte
	content := func(m *message) error {
		if s.dec.PeekKind() == '[' {
			return s.parts(m)
		}
		return s.str(&m.content)
	}
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return err
		}
		switch string(s.word(raw)) {
		case "type":
			err = s.str(&kind)
		case "role":
			err = s.str(&m.role)
		case "content":
			err = content(&m)
		case "output":
			err = content(&output)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	if err := s.step(); err != nil {
		return err
	}
	if kind == nil || string(s.word(kind)) == "message" {
		s.turn(&m)
		return nil
	}
	s.env.EarlierTurns = true
	for _, part := range [...]message{m, output} {
		s.env.PromptBytes += part.textBytes
		if part.content != nil {
			s.env.PromptBytes += textLen(part.content)
		}
	}
	return nil
}

// systemText reads what the model is told before the messages, as one text or
// as a list of parts.
func (s *Scanner) systemText() error {
	s.text.Reset()
	covers := 0
	add := func(raw []byte) {
		if s.env.API == APIMessages && billing(s.word(raw)) {
			return
		}
		covers += s.feed(&s.text, raw, math.MaxInt)
	}
	var err error
	switch s.dec.PeekKind() {
	case '"':
		var raw []byte
		if raw, err = s.scalar(); err == nil {
			add(raw)
		}
	case '[':
		err = s.systemParts(add)
	default:
		return s.skip()
	}
	s.env.PromptBytes += covers
	if covers > 0 {
		s.system = s.text.Sum64()
		s.openingBytes += covers
	}
	return err
}

func (s *Scanner) systemParts(add func(raw []byte)) error {
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		var text []byte
		err := s.object(func(name []byte) error {
			if string(name) != "text" {
				return s.skip()
			}
			return s.str(&text)
		})
		if err != nil {
			return err
		}
		if text != nil {
			add(text)
		}
	}
	return s.step()
}

// formatIn reads an object whose member says in which format the answer is
// wanted: {"format":{"type":"json_schema",...}}.
func (s *Scanner) formatIn(member string) error {
	return s.object(func(name []byte) error {
		if string(name) != member {
			return s.skip()
		}
		return s.responseFormat()
	})
}

// media notes that the value at hand, unless it is empty, needs an engine
// with that capability.
func (s *Scanner) media(need engine.Capability) error {
	kind := s.dec.PeekKind()
	switch kind {
	case '"', '0', 't':
		s.env.Needs |= need
		return s.skip()
	case '[', '{':
	default:
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	end := jsontext.Kind(']')
	if kind == '{' {
		end = '}'
	}
	for s.more(end) {
		if s.dec.PeekKind() != 'n' {
			s.env.Needs |= need
		}
		if err := s.skip(); err != nil {
			return err
		}
	}
	return s.step()
}
