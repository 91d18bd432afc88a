package proxy

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"penstock/engine"
)

const (
	// openingPrompt is how much of a prompt opens it: text that is sent as one
	// prompt grows at its end from turn to turn.
	openingPrompt = 2 << 10
	// longString is how much of one string counts in a canonical digest; of
	// longer ones (media) its length counts too.
	longString = 64 << 10
	// endOfText never occurs in UTF-8: it keeps what is not text apart from text.
	endOfText = 0xff
)

// mix combines two digests; the order counts.
func mix(a, b uint64) uint64 {
	var pair [16]byte
	binary.LittleEndian.PutUint64(pair[:8], a)
	binary.LittleEndian.PutUint64(pair[8:], b)
	return xxhash.Sum64(pair[:])
}

// canonical reads one value and returns a digest that the order of members,
// white space and escapes do not change. Numbers count by their spelling.
func (s *Scanner) canonical() (uint64, error) {
	kind := s.dec.PeekKind()
	switch kind {
	case '"':
		raw, err := s.scalar()
		return mix('"', s.hashString(raw)), err
	case '0':
		raw, err := s.scalar()
		return mix('0', xxhash.Sum64(raw)), err
	case '[':
		return s.canonicalArray()
	case '{':
		return s.canonicalObject()
	}
	return mix(uint64(kind), 0), s.step() // null, true, false, or an error
}

func (s *Scanner) canonicalArray() (uint64, error) {
	if err := s.step(); err != nil {
		return 0, err
	}
	h := uint64('[')
	for s.more(']') {
		v, err := s.canonical()
		if err != nil {
			return 0, err
		}
		h = mix(h, v)
	}
	return mix(h, ']'), s.step()
}

func (s *Scanner) canonicalObject() (uint64, error) {
	if err := s.step(); err != nil {
		return 0, err
	}
	var sum, members uint64 // a sum: members come in any order
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return 0, err
		}
		if string(raw) == `"cache_control"` { // moves from turn to turn
			if err := s.skip(); err != nil {
				return 0, err
			}
			continue
		}
		if s.seeking && string(raw) == `"type"` && s.dec.PeekKind() == '"' {
			var kind []byte
			if err := s.str(&kind); err != nil {
				return 0, err
			}
			s.env.Needs |= partNeeds(s.word(kind))
			sum += mix(xxhash.Sum64String("type"), mix('"', s.hashString(kind)))
			members++
			continue
		}
		name := s.hashString(raw)
		v, err := s.canonical()
		if err != nil {
			return 0, err
		}
		sum += mix(name, v)
		members++
	}
	return mix(mix('{', sum), members), s.step()
}

// hashString digests the content of a raw string; nil counts as empty.
func (s *Scanner) hashString(raw []byte) uint64 {
	if len(raw) < 2 {
		return xxhash.Sum64(nil)
	}
	if in := raw[1 : len(raw)-1]; len(in) <= longString && bytes.IndexByte(in, '\\') < 0 {
		return xxhash.Sum64(in)
	}
	s.value.Reset()
	n := s.feed(&s.value, raw, longString)
	if n <= longString {
		return s.value.Sum64()
	}
	return mix(s.value.Sum64(), uint64(n))
}

// sealPart puts the digest of a part that is not text into the text.
func (s *Scanner) sealPart(digest uint64) {
	s.stage[0] = endOfText
	binary.LittleEndian.PutUint64(s.stage[1:], digest)
	s.text.Write(s.stage[:9])
}

// feed writes the content of a raw string, unescaped, to d: at most limit
// bytes of it. It returns the length of the whole content.
func (s *Scanner) feed(d *xxhash.Digest, raw []byte, limit int) (length int) {
	rest := raw[1 : len(raw)-1]
	if bytes.IndexByte(rest, '\\') < 0 {
		d.Write(rest[:min(len(rest), limit)])
		return len(rest)
	}
	for len(rest) > 0 && limit > 0 {
		n, used := unescape(s.stage[:], rest)
		d.Write(s.stage[:min(n, limit)])
		limit -= n
		length += n
		rest = rest[used:]
	}
	return length + contentLen(rest)
}

// textLen is the length of a raw string's content.
func textLen(raw []byte) int { return contentLen(raw[1 : len(raw)-1]) }

func contentLen(content []byte) int {
	n := len(content)
	first := bytes.IndexByte(content, '\\')
	if first < 0 {
		return n
	}
	for i := first; i < len(content); {
		if i+8 <= len(content) {
			found := backslashes(binary.LittleEndian.Uint64(content[i:]))
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		} else if content[i] != '\\' {
			i++
			continue
		}
		if content[i+1] != 'u' {
			n--
			i += 2
			continue
		}
		r, used := escapedRune(content[i:])
		n += utf8.RuneLen(r) - used
		i += used
	}
	return n
}

// backslashes marks the backslashes among 8 bytes: the lowest set bit lies in
// the first of them, 0 is none. Prose has an escape every few dozen bytes:
// calls of bytes.IndexByte would cost more than the bytes they pass over.
func backslashes(word uint64) uint64 {
	const ones = 0x0101010101010101
	word ^= ones * '\\' // a zero byte where there was one
	return (word - ones) &^ word & (ones << 7)
}

// simpleEscape is the byte that an escape of one letter stands for; 0 = none.
var simpleEscape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape decodes as much of src, the content of a valid JSON string, as fits
// into dst. It returns the bytes written and the bytes read.
func unescape(dst, src []byte) (written, read int) {
	for read < len(src) && len(dst)-written >= utf8.UTFMax {
		if read+8 <= len(src) && written+8 <= len(dst) {
			word := binary.LittleEndian.Uint64(src[read:])
			binary.LittleEndian.PutUint64(dst[written:], word)
			found := backslashes(word)
			if found == 0 {
				read += 8
				written += 8
				continue
			}
			n := bits.TrailingZeros64(found) / 8
			read += n
			written += n
		} else if c := src[read]; c != '\\' {
			dst[written] = c
			read++
			written++
			continue
		}
		if len(dst)-written < utf8.UTFMax {
			break
		}
		if c := simpleEscape[src[read+1]]; c != 0 {
			dst[written] = c
			written++
			read += 2
			continue
		}
		r, used := escapedRune(src[read:])
		written += utf8.EncodeRune(dst[written:], r)
		read += used
	}
	return written, read
}

// escapedRune decodes the \u escape, or pair of them, that src begins with. A
// lone surrogate becomes the replacement character.
func escapedRune(src []byte) (r rune, used int) {
	r = hex4(src[2:6])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(src) >= 12 && src[6] == '\\' && src[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(src[8:12])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

func hex4(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// prompts reads prompt or input, whichever the endpoint has. Embeddings have
// no opening.
func (s *Scanner) prompts(name []byte) error {
	switch {
	case string(name) == "prompt" && s.env.API == APICompletions:
		return s.promptValue(openingPrompt)
	case string(name) == "input" && s.env.API == APIEmbeddings:
		return s.promptValue(0)
	}
	return s.skip()
}

// promptValue reads one text, several, token ids, or several lists of them.
// The first opening bytes are the opening.
func (s *Scanner) promptValue(opening int) error {
	s.text.Reset()
	s.texts, s.numbers = 0, 0
	left := opening
	var err error
	switch s.dec.PeekKind() {
	case '"':
		err = s.promptText(&left)
	case '[':
		err = s.promptList(&left)
	case '{':
		err = s.promptObject(&left)
	default:
		err = s.skip()
	}
	// A list with a number in it is one prompt: of token ids, or of both.
	s.env.Several = s.env.Several || s.texts > 1 && s.numbers == 0
	if covers := opening - left; covers > 0 {
		s.opening += s.text.Sum64() // a sum: /infill has two, in any order
		s.openingBytes += covers
	}
	return err
}

// promptText reads one prompt given as text.
func (s *Scanner) promptText(left *int) error {
	raw, err := s.scalar()
	if err != nil {
		return err
	}
	n := s.feed(&s.text, raw, *left)
	*left -= min(n, *left)
	s.env.PromptBytes = max(s.env.PromptBytes, n)
	return nil
}

// promptList reads a list of prompts, or one prompt as token ids.
func (s *Scanner) promptList(left *int) error {
	if err := s.step(); err != nil {
		return err
	}
	s.lists++
	defer func() { s.lists-- }()
	outermost := s.lists == 1
	tokens := 0
	for first := true; s.more(']'); first = false {
		kind := s.dec.PeekKind()
		if !first && kind != '0' {
			s.separate(left, endOfText)
		}
		if outermost && kind != '0' {
			s.texts++
		} else if outermost {
			s.numbers++
		}
		var err error
		switch kind {
		case '"':
			err = s.promptText(left)
		case '0':
			tokens++
			err = s.tokenID(left)
		case '[':
			err = s.promptList(left)
		case '{':
			err = s.promptObject(left)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	s.env.PromptBytes = max(s.env.PromptBytes, min(tokens, math.MaxInt/bytesPerToken)*bytesPerToken)
	return s.step()
}

// promptObject reads llama.cpp's prompt with media beside its text; any other
// object is passed over.
func (s *Scanner) promptObject(left *int) error {
	return s.object(func(name []byte) error {
		switch {
		case string(name) == "prompt_string" && s.dec.PeekKind() == '"':
			return s.promptText(left)
		case string(name) == "multimodal_data":
			return s.media(engine.Vision)
		}
		return s.skip()
	})
}

// tokenID reads one token id.
func (s *Scanner) tokenID(left *int) error {
	raw, err := s.scalar()
	if err != nil || *left == 0 {
		return err
	}
	raw = raw[:min(len(raw), *left)]
	s.text.Write(raw)
	*left -= len(raw)
	s.separate(left, ',')
	return nil
}

func (s *Scanner) separate(left *int, mark byte) {
	if *left > 0 {
		s.stage[0] = mark
		s.text.Write(s.stage[:1])
		*left--
	}
}
