package proxy

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonReader skims one JSON value of an engine: it finds members and skips
// the rest, in place and without allocating. It checks the grammar, and so
// that nothing is cut off, but not what is inside strings and numbers: an
// engine's odd escape is none of the gateway's business, and strings, which
// are nearly all of an answer, are crossed by searching for their end. Clients'
// bodies are read by jsontext, which checks all.
type jsonReader struct {
	data   []byte
	at     int
	opened bool           // the last token opened an object or array: no comma is due
	raw    jsontext.Value // the last value read, valid until the next begin
	name   []byte         // an object name that had escapes
}

// maxSkimDepth bounds the nesting, as encoding/json does.
const maxSkimDepth = 10000

// begin starts on data.
func (j *jsonReader) begin(data []byte) { j.data, j.at, j.opened, j.raw = data, 0, false, nil }

// release lets go of the data of the last begin.
func (j *jsonReader) release() { j.begin(nil) }

// kind is the first byte of the next token, 0 at the end.
func (j *jsonReader) kind() byte {
	for ; j.at < len(j.data); j.at++ {
		switch c := j.data[j.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// enter steps into the object or array that kind told of.
func (j *jsonReader) enter() {
	j.at++
	j.opened = true
}

// more reports whether another element follows; after the last one it steps
// out over the closing bracket.
func (j *jsonReader) more(closing byte) (bool, error) {
	c := j.kind()
	opened := j.opened
	j.opened = false
	switch {
	case c == closing:
		j.at++
		return false, nil
	case opened:
		return true, nil
	case c != ',':
		return false, errNotOneValue
	}
	j.at++
	return true, nil
}

// value reads one value of any kind into raw.
func (j *jsonReader) value() error {
	j.kind()
	start := j.at
	err := j.skip(maxSkimDepth)
	j.raw = j.data[start:j.at]
	return err
}

// end reports whether nothing follows.
func (j *jsonReader) end() error {
	if j.kind() != 0 || j.at < len(j.data) {
		return errNotOneValue
	}
	return nil
}

// readWhole checks data as one value.
func (j *jsonReader) readWhole(data []byte) error {
	j.begin(data)
	if err := j.value(); err != nil {
		return err
	}
	return j.end()
}

// next returns the next member's name, or nil after the object's end. The
// name is valid until the next read.
func (j *jsonReader) next() ([]byte, error) {
	if more, err := j.more('}'); err != nil || !more {
		return nil, err
	}
	raw, err := j.memberName()
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	j.name, err = jsontext.AppendUnquote(j.name[:0], raw)
	if j.name == nil || err != nil {
		return []byte{}, nil // a name that cannot be spelled is none of ours
	}
	return j.name, nil
}

// memberName reads a name and the colon after it.
func (j *jsonReader) memberName() ([]byte, error) {
	if j.kind() != '"' {
		return nil, errNotOneValue
	}
	start := j.at
	if err := j.skipString(); err != nil {
		return nil, err
	}
	raw := j.data[start:j.at]
	if j.kind() != ':' {
		return nil, errNotOneValue
	}
	j.at++
	return raw, nil
}

// skip moves over one value.
func (j *jsonReader) skip(depth int) error {
	j.opened = false
	switch c := j.kind(); {
	case c == '"':
		return j.skipString()
	case c == '{' && depth > 0:
		j.enter()
		for {
			if more, err := j.more('}'); err != nil || !more {
				return err
			}
			if _, err := j.memberName(); err != nil {
				return err
			}
			if err := j.skip(depth - 1); err != nil {
				return err
			}
		}
	case c == '[' && depth > 0:
		j.enter()
		for {
			if more, err := j.more(']'); err != nil || !more {
				return err
			}
			if err := j.skip(depth - 1); err != nil {
				return err
			}
		}
	case c == '-' || c >= '0' && c <= '9':
		return j.skipNumber()
	case c == 't':
		return j.skipWord("true")
	case c == 'f':
		return j.skipWord("false")
	case c == 'n':
		return j.skipWord("null")
	}
	return errNotOneValue
}

// skipString moves over a string: to the next quote that an even number of
// backslashes stands before.
func (j *jsonReader) skipString() error {
	start := j.at + 1
	for at := start; ; {
		i := bytes.IndexByte(j.data[at:], '"')
		if i < 0 {
			j.at = len(j.data)
			return errNotOneValue
		}
		at += i
		slashes := 0
		for k := at - 1; k >= start && j.data[k] == '\\'; k-- {
			slashes++
		}
		at++
		if slashes%2 == 0 {
			j.at = at
			return nil
		}
	}
}

// skipNumber moves over a number's bytes; a digit must end it.
func (j *jsonReader) skipNumber() error {
	last := byte(0)
	for ; j.at < len(j.data); j.at++ {
		c := j.data[j.at]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		last = c
	}
	if last < '0' || last > '9' {
		return errNotOneValue
	}
	return nil
}

func (j *jsonReader) skipWord(word string) error {
	if end := j.at + len(word); end <= len(j.data) && string(j.data[j.at:end]) == word {
		j.at = end
		return nil
	}
	return errNotOneValue
}
