package proxy

import (
	"math"

	"penstock/engine"
)

// message is what matters of one entry of messages.
type message struct {
	role      []byte // raw
	content   []byte // raw, where it is one string
	textBytes int
	digest    uint64 // of content given as parts
	covers    int    // how much digest covers; 0 = an empty message
}

// chatMember reads what only chat/completions has.
func (s *Scanner) chatMember(name []byte) (read bool, err error) {
	switch string(name) {
	case "store", "reasoning_control":
		var keeps bool
		err = s.boolean(&keeps)
		s.env.KeepsID = s.env.KeepsID || keeps
		return true, err
	}
	return false, nil
}

// messages reads the turns of a conversation, or of several in a batch. A
// value of another type is the engine's to judge.
func (s *Scanner) messages() error {
	if s.dec.PeekKind() != '[' || s.env.API == APICompletions {
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		var err error
		switch s.dec.PeekKind() {
		case '{':
			err = s.message()
		case '[':
			s.env.Several = true
			err = s.messages()
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	return s.step()
}

func (s *Scanner) message() error {
	if err := s.step(); err != nil {
		return err
	}
	var m message
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return err
		}
		switch string(s.word(raw)) {
		case "role":
			err = s.str(&m.role)
		case "content":
			if s.dec.PeekKind() == '[' {
				err = s.parts(&m)
			} else {
				err = s.str(&m.content)
			}
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
	s.turn(&m)
	return nil
}

// turn counts one message and, up to the first of the user, adds it to the
// opening. Answers before that (few-shot examples, greetings) are left out.
func (s *Scanner) turn(m *message) {
	env := s.env
	const system, user = 's', 'u'
	var tag uint64
	switch string(s.word(m.role)) {
	case "user":
		tag = user
		if s.users++; s.users > 1 {
			env.EarlierTurns = true
		}
	case "system", "developer":
		tag = system
	case "assistant", "tool", "function":
		env.EarlierTurns = true
	}
	opens := tag != 0 && !s.openingDone && env.API.conversation()
	if m.content != nil {
		if opens {
			s.text.Reset()
			m.textBytes = s.feed(&s.text, m.content, math.MaxInt)
			m.digest, m.covers = s.text.Sum64(), m.textBytes
		} else {
			m.textBytes = textLen(m.content)
		}
	}
	env.PromptBytes += m.textBytes
	if !opens {
		return
	}
	if m.covers > 0 {
		s.opening = mix(mix(s.opening, tag), m.digest)
		s.openingBytes += m.covers
	}
	s.openingDone = tag == user
}

// parts reads content given as a list. Its text has the digest it would have
// as one string; other parts stand in it behind a byte that no text has.
func (s *Scanner) parts(m *message) error {
	hash := !s.openingDone && s.env.API.conversation()
	s.text.Reset()
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		var err error
		switch s.dec.PeekKind() {
		case '{':
			err = s.part(m, hash)
		case '"':
			var raw []byte
			if raw, err = s.scalar(); err == nil {
				s.partText(m, raw, hash)
			}
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	m.digest = s.text.Sum64()
	return s.step()
}

func (s *Scanner) partText(m *message, raw []byte, hash bool) {
	n := 0
	if hash {
		n = s.feed(&s.text, raw, math.MaxInt)
	} else {
		n = textLen(raw)
	}
	m.textBytes += n
	m.covers += n
}

// part is one entry of content given as a list.
type part struct {
	kind, text []byte            // raw
	rest       uint64            // digest of the other members, in any order
	holds      engine.Capability // by the names of the other members
}

func (s *Scanner) part(m *message, hash bool) error {
	if err := s.step(); err != nil {
		return err
	}
	var p part
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return err
		}
		switch name := s.word(raw); string(name) {
		case "type":
			err = s.str(&p.kind)
		case "text":
			err = s.str(&p.text)
		default:
			p.holds |= partNeeds(name)
			err = s.partMember(&p, raw, hash)
		}
		if err != nil {
			return err
		}
	}
	s.addPart(m, &p, hash)
	return s.step()
}

// partMember reads a member of a part that is neither its type nor its text.
// What a tool gave back may hold parts of its own.
func (s *Scanner) partMember(p *part, rawName []byte, hash bool) error {
	nested := s.env.API == APIMessages && s.dec.PeekKind() == '[' && string(s.word(rawName)) == "content"
	if !hash && !nested {
		return s.skip()
	}
	name := s.hashString(rawName)
	s.seeking = nested
	value, err := s.canonical()
	s.seeking = false
	p.rest += mix(name, value)
	return err
}

// addPart adds a part to its message. Of a text part only the text belongs to
// the opening: cache marks move from turn to turn.
func (s *Scanner) addPart(m *message, p *part, hash bool) {
	kind := s.word(p.kind)
	if kind != nil {
		p.holds = partNeeds(kind)
	}
	s.env.Needs |= p.holds
	switch string(kind) {
	case "", "text", "input_text", "output_text":
		if p.text != nil {
			s.partText(m, p.text, hash)
			return
		}
	}
	if hash {
		s.sealPart(mix(mix(s.hashString(p.kind), s.hashString(p.text)), p.rest))
	}
	m.covers++
}

// partNeeds is what a part needs, by its type or, in the lax form without a
// type, by the member that holds the medium.
func partNeeds(name []byte) engine.Capability {
	switch string(name) {
	case "image_url", "input_image", "image", "image_pil", "image_embeds",
		"video_url", "input_video", "video", "video_embeds":
		return engine.Vision
	case "input_audio", "audio_url", "audio", "audio_embeds":
		return engine.Audio
	}
	return 0
}

// toolList reads tools or functions: a list with an entry needs an engine
// that knows tools. The digest of an empty list is that of none.
func (s *Scanner) toolList(digest *uint64) error {
	if s.dec.PeekKind() != '[' || !s.env.API.conversation() {
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		entry, err := s.canonical()
		if err != nil {
			return err
		}
		*digest = mix(*digest, entry)
		s.env.Needs |= engine.Tools
	}
	return s.step()
}

// responseFormat notes a demand for structured output.
func (s *Scanner) responseFormat() error {
	return s.object(func(name []byte) error {
		if string(name) != "type" {
			return s.skip()
		}
		var kind []byte
		err := s.str(&kind)
		switch string(s.word(kind)) {
		case "json_object", "json_schema":
			s.env.Needs |= engine.StructuredOutput
		}
		return err
	})
}

func (s *Scanner) streamOptions() error {
	return s.object(func(name []byte) error {
		if string(name) != "include_usage" {
			return s.skip()
		}
		return s.boolean(&s.env.IncludeUsage)
	})
}

// modalities notes a demand for audio output.
func (s *Scanner) modalities() error {
	if s.dec.PeekKind() != '[' {
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more(']') {
		var kind []byte
		if err := s.str(&kind); err != nil {
			return err
		}
		if string(s.word(kind)) == "audio" {
			s.env.Needs |= engine.Audio
		}
	}
	return s.step()
}

// object calls member for each name of an object, unescaped; member reads the
// value. Values of another type are passed over.
func (s *Scanner) object(member func(name []byte) error) error {
	if s.dec.PeekKind() != '{' {
		return s.skip()
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return err
		}
		if err := member(s.word(raw)); err != nil {
			return err
		}
	}
	return s.step()
}
