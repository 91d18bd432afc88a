package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxDepth bounds the nesting of a body, the top-level object included.
	maxDepth = 64
	// maxOpenNames bounds the member names of the objects that are open at one
	// time: the decoder remembers them, at about 60 bytes each, to find
	// duplicates. The widest real object is a logit_bias.
	maxOpenNames = 1 << 16
)

// BadRequest is a request that no engine needs to see: status 400.
type BadRequest struct {
	Message string
	Param   string // the member or header at fault; "" = the body as a whole
	Code    string
}

func (e *BadRequest) Error() string { return e.Message }

func badRequest(param, format string, args ...any) error {
	return &BadRequest{Message: fmt.Sprintf(format, args...), Param: param, Code: "invalid_request"}
}

// quoteName spells a member name for a message: escaped, and never long.
func quoteName[T string | []byte](name T) string {
	const longest = 64
	if len(name) > longest {
		return fmt.Sprintf("of %d bytes", len(name))
	}
	return strconv.QuoteToASCII(string(name))
}

// step reads one token of any kind. All tokens that are not read as a value
// pass through here, so that the bounds hold in skipped parts too.
func (s *Scanner) step() error {
	before := s.dec.InputOffset()
	tok, err := s.dec.ReadToken()
	if err != nil {
		return s.syntaxError(err)
	}
	depth := s.dec.StackDepth()
	switch tok.Kind() {
	case '{', '[':
		if depth > maxDepth {
			return badRequest("", "nested deeper than %d levels, at byte %d", maxDepth, s.dec.InputOffset()-1)
		}
		s.names[depth] = 0
	case '}':
		s.openNames -= s.names[depth+1]
	case '"':
		if kind, n := s.dec.StackIndex(depth); kind == '{' && n&1 == 1 {
			return s.countName(depth, int(s.dec.InputOffset()-before))
		}
	}
	return nil
}

// countName accounts for a name of n bytes in the object at depth.
func (s *Scanner) countName(depth, n int) error {
	s.names[depth]++
	s.openNames++
	s.nameBytes += n
	if s.openNames > maxOpenNames {
		return badRequest("", "objects with more than %d members, at byte %d", maxOpenNames, s.dec.InputOffset())
	}
	return nil
}

// more reports whether the array or object at hand goes on: what comes next is
// not its end. At an error it reports false, and the next read returns it.
func (s *Scanner) more(end jsontext.Kind) bool {
	k := s.dec.PeekKind()
	return k != end && k != jsontext.KindInvalid
}

// name reads a member name and returns it as it is spelt, quotes included.
func (s *Scanner) name() ([]byte, error) {
	if s.dec.PeekKind() != '"' {
		return nil, s.notAName()
	}
	raw, err := s.dec.ReadValue()
	if err != nil {
		return nil, s.syntaxError(err)
	}
	return raw, s.countName(s.dec.StackDepth(), len(raw))
}

// notAName is the error of reading on where a name must stand.
func (s *Scanner) notAName() error {
	_, err := s.dec.ReadToken()
	return s.syntaxError(err)
}

// skip passes over one value, whatever it is.
func (s *Scanner) skip() error {
	base := s.dec.StackDepth()
	for {
		if err := s.step(); err != nil {
			return err
		}
		if s.dec.StackDepth() <= base {
			return nil
		}
	}
}

// scalar reads a string or number and returns it as it is spelt. The bytes
// belong to the body.
func (s *Scanner) scalar() ([]byte, error) {
	raw, err := s.dec.ReadValue()
	if err != nil {
		return nil, s.syntaxError(err)
	}
	return raw, nil
}

// str stores a string value as it is spelt; other values are passed over.
func (s *Scanner) str(dst *[]byte) (err error) {
	if s.dec.PeekKind() != '"' {
		return s.skip()
	}
	*dst, err = s.scalar()
	return err
}

// boolean stores whether the value is true.
func (s *Scanner) boolean(dst *bool) error {
	*dst = s.dec.PeekKind() == 't'
	return s.skip()
}

// integer stores a value that is a non-negative integer.
func (s *Scanner) integer(dst *int) error {
	if s.dec.PeekKind() != '0' {
		return s.skip()
	}
	raw, err := s.scalar()
	*dst = parseInteger(raw)
	return err
}

// largest stores a value as integer does, if it is more than what is there.
func (s *Scanner) largest(dst *int) error {
	n := 0
	err := s.integer(&n)
	*dst = max(*dst, n)
	return err
}

// word is the content of a short raw string, unescaped; a long one with
// escapes is cut at len(s.short). The bytes last until the next call.
func (s *Scanner) word(raw []byte) []byte {
	if raw == nil {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	n, _ := unescape(s.short[:], raw)
	return s.short[:n]
}

// wheres are the places that the decoder names in its messages. Only these
// are repeated to the client: the rest of a message may quote the body.
var wheres = []string{
	"at start of value", "at start of string (expecting '\"')", "in string (expecting non-control character)",
	"after object name (expecting ':')", "after object value (expecting ',' or '}')", "after array element (expecting ',' or ']')",
	"in literal", "in number",
}

// syntaxError turns an error of the decoder into one of ours.
func (s *Scanner) syntaxError(err error) error {
	var syn *jsontext.SyntacticError
	if !errors.As(err, &syn) {
		return badRequest("", "invalid JSON: the text ends at byte %d", s.rest())
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return badRequest("", "duplicate member name %s, at byte %d", quoteName(syn.JSONPointer.LastToken()), syn.ByteOffset)
	case errors.Is(err, jsontext.ErrNonStringName):
		return badRequest("", "invalid JSON: a member name is not a string, at byte %d", syn.ByteOffset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("", "invalid JSON: the text ends inside a value, at byte %d", s.rest())
	}
	message := syn.Err.Error()
	if strings.HasPrefix(message, "invalid escape sequence") {
		return badRequest("", "invalid JSON: invalid escape sequence, at byte %d", syn.ByteOffset)
	}
	for _, where := range wheres {
		if strings.Contains(message, where) {
			return badRequest("", "invalid JSON: unexpected text %s, at byte %d", where, syn.ByteOffset)
		}
	}
	return badRequest("", "invalid JSON at byte %d", syn.ByteOffset)
}

// rest is the offset of the end of the body.
func (s *Scanner) rest() int64 {
	return s.dec.InputOffset() + int64(len(s.dec.UnreadBuffer()))
}
