package engine

import (
	"bytes"
	"strconv"
)

// Bounds of one metrics page. A page beyond either is refused whole: what was
// cut off could be part of a sum, and a partial sum looks like an idle engine.
const (
	maxPageBytes  = 4 << 20
	maxPageSeries = 20_000
)

// scanner walks the series of a page in the Prometheus text format, or in
// OpenMetrics as far as the two agree. It is lenient where engines differ
// (CRLF, no newline at the end, timestamps of either format, exemplars) and
// skips lines that it cannot read, counting them. It does not allocate; name
// and labels point into the page.
type scanner struct {
	rest []byte

	// The series found by the last next.
	name   []byte
	labels []byte // what stood between the braces, checked; read with label
	value  float64

	series    int
	malformed int
	overflow  bool // stopped at maxPageSeries
}

// next advances to the next series that can be read; false at the end.
func (s *scanner) next() bool {
	for len(s.rest) > 0 {
		line := skipBlank(s.line())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if !s.sample(line) {
			s.malformed++
			continue
		}
		if s.series == maxPageSeries {
			s.overflow = true
			return false
		}
		s.series++
		return true
	}
	return false
}

// line cuts the next line off the page, without its end.
func (s *scanner) line() []byte {
	line := s.rest
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line, s.rest = line[:i], line[i+1:]
	} else {
		s.rest = nil
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// sample reads one line: name, labels, value, and an ignored rest.
func (s *scanner) sample(line []byte) bool {
	n := identLen(line)
	s.name, s.labels = line[:n], nil
	rest := skipBlank(line[n:])
	if len(rest) > 0 && rest[0] == '{' {
		n := s.braces(rest)
		if n == 0 {
			return false
		}
		rest = skipBlank(rest[n:])
	}
	return len(s.name) > 0 && s.number(rest)
}

// braces reads {a="b",...} and returns its length, 0 if it is not well
// formed. A quoted member without a value is the metric's name (the spelling
// of names outside the classic alphabet).
func (s *scanner) braces(b []byte) int {
	at := 1
	for {
		at += len(b[at:]) - len(skipBlank(b[at:]))
		if at < len(b) && b[at] == '}' {
			s.labels = b[1:at]
			return at + 1
		}
		name, value, n := member(b[at:])
		switch {
		case n == 0:
			return 0
		case value == nil && len(s.name) > 0:
			return 0
		case value == nil:
			s.name = name
		}
		at += n
		at += len(b[at:]) - len(skipBlank(b[at:]))
		switch {
		case at == len(b):
			return 0
		case b[at] == ',':
			at++
		case b[at] != '}':
			return 0
		}
	}
}

// member reads name="value" or "name"="value" or "name" alone, and returns
// the parts without quotes, still escaped, and the length; 0 if malformed.
// A value is nil only where there is none.
func member(b []byte) (name, value []byte, n int) {
	quoted := len(b) > 0 && b[0] == '"'
	if quoted {
		if n = quotedLen(b); n == 0 {
			return nil, nil, 0
		}
		name = b[1 : n-1]
	} else {
		n = identLen(b)
		name = b[:n]
	}
	if len(name) == 0 {
		return nil, nil, 0
	}
	rest := skipBlank(b[n:])
	if len(rest) == 0 || rest[0] != '=' {
		if !quoted {
			return nil, nil, 0
		}
		return name, nil, n
	}
	rest = skipBlank(rest[1:])
	q := quotedLen(rest)
	if q == 0 {
		return nil, nil, 0
	}
	return name, rest[1 : q-1], len(b) - len(rest) + q
}

// number reads the value and checks that nothing but a timestamp and an
// exemplar follows it.
func (s *scanner) number(b []byte) bool {
	token, rest := cutBlank(b)
	v, ok := parseNumber(token)
	if !ok {
		return false
	}
	s.value = v
	if len(rest) == 0 || rest[0] == '#' {
		return true
	}
	token, rest = cutBlank(rest)
	_, ok = parseNumber(token)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

// parseNumber takes what the format allows: decimal numbers, Inf and NaN, but
// not Go's hexadecimal and underscored ones.
func parseNumber(b []byte) (float64, bool) {
	if len(b) == 0 || bytes.ContainsAny(b, "xXpP_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil
}

// nextLabel cuts the first label off labels, as they stand between braces:
// the name, the value still escaped (nil: the metric's own name in quotes),
// and the whole of both, nil at the end.
func nextLabel(labels []byte) (name, value, whole, rest []byte) {
	labels = skipBlank(labels)
	name, value, n := member(labels)
	if n == 0 {
		return nil, nil, nil, nil
	}
	rest = skipBlank(labels[n:])
	if len(rest) > 0 && rest[0] == ',' {
		rest = rest[1:]
	}
	return name, value, labels[:n], rest
}

// labelValue is the value of the label, still escaped; nil if the series has none.
func (s *scanner) labelValue(label string) []byte {
	for rest := s.labels; ; {
		var name, value, whole []byte
		name, value, whole, rest = nextLabel(rest)
		if whole == nil {
			return nil
		}
		if value != nil && string(name) == label {
			return value
		}
	}
}

// labelIs reports whether the series carries label with that value. As in
// Prometheus a label that is not there has the value "".
func (s *scanner) labelIs(label, want string) bool {
	return equalUnescaped(s.labelValue(label), want)
}

// equalUnescaped compares an escaped label value with a plain one.
func equalUnescaped(escaped []byte, plain string) bool {
	at := 0
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '\\' && i+1 < len(escaped) {
			i++
			c = escaped[i]
			if c == 'n' {
				c = '\n'
			}
		}
		if at == len(plain) || plain[at] != c {
			return false
		}
		at++
	}
	return at == len(plain)
}

// identLen is the length of the metric or label name at the start of b.
func identLen(b []byte) int {
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == ':':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return i
		}
	}
	return len(b)
}

// quotedLen is the length of the quoted string at the start of b, quotes
// included; 0 if there is none or it does not end.
func quotedLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

func skipBlank(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// cutBlank splits b at its first run of blanks.
func cutBlank(b []byte) (token, rest []byte) {
	for i, c := range b {
		if c == ' ' || c == '\t' {
			return b[:i], skipBlank(b[i:])
		}
	}
	return b, nil
}
