package config

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxNesting bounds brackets within brackets and the parts of a dotted key:
// the TOML library's time grows with the square of both.
const maxNesting = 32

// lineIndex says on which line of a TOML text each key, table and array
// element stands. It reads any text without failing; what it says of a text
// that is not TOML means nothing but tooDeep.
//
// A place is a path such as engine[0].labels.region: array elements count from
// 0, keys that are not bare are quoted as Go quotes.
type lineIndex struct {
	at      map[string]int
	tooDeep int // line where maxNesting is passed; 0: nowhere
}

// line is the place's line, else that of what holds it, else 1.
func (x *lineIndex) line(place string) int {
	for place != "" {
		if n, ok := x.at[place]; ok {
			return n
		}
		place = holder(place)
	}
	return 1
}

// holder is the path of the table or array that place is in.
func holder(place string) string {
	quoted := false
	for i := len(place) - 1; i > 0; i-- {
		switch c := place[i]; {
		case c == '"' && !escaped(place, i):
			quoted = !quoted
		case !quoted && (c == '.' || c == '['):
			return place[:i]
		}
	}
	return ""
}

func escaped(s string, i int) bool {
	n := 0
	for i-1-n >= 0 && s[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

func member(place, key string) string {
	if !isBare(key) {
		key = strconv.Quote(key)
	}
	if place == "" {
		return key
	}
	return place + "." + key
}

func element(place string, i int) string { return place + "[" + strconv.Itoa(i) + "]" }

func isBare(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	})
}

// lineScanner walks a TOML text and fills a lineIndex.
type lineScanner struct {
	lineIndex
	text   string
	pos    int
	now    int            // line of pos
	arrays map[string]int // elements so far of each [[array of tables]]
}

func indexLines(text string) *lineIndex {
	s := &lineScanner{lineIndex: lineIndex{at: map[string]int{}}, text: text, now: 1, arrays: map[string]int{}}
	s.take("\ufeff")
	table := ""
	for s.blank(); s.pos < len(s.text) && s.tooDeep == 0; s.blank() {
		if s.peek() == '[' {
			table = s.header()
		} else if !s.keyValue(table, 0) {
			s.pos++
		}
		s.restOfLine()
	}
	return &s.lineIndex
}

// header reads [table] or [[table]] and returns the path its keys are under.
// A name on the way that is an array of tables means its latest element.
func (s *lineScanner) header() string {
	s.pos++
	double := s.take("[")
	keys := s.dottedKey()
	path := ""
	for i, key := range keys {
		path = member(path, key)
		s.note(path)
		switch n := s.arrays[path]; {
		case double && i == len(keys)-1:
			s.arrays[path]++
			path = element(path, n)
			s.note(path)
		case n > 0:
			path = element(path, n-1)
		}
	}
	return path
}

// keyValue reads key = value within table; false if there is no key here.
func (s *lineScanner) keyValue(table string, depth int) bool {
	keys := s.dottedKey()
	if len(keys) == 0 {
		return false
	}
	path := table
	for _, key := range keys {
		path = member(path, key)
		s.note(path)
	}
	s.spaces()
	if s.take("=") {
		s.spaces()
		s.value(path, depth)
	}
	return true
}

// value skips one value and notes what is inside it.
func (s *lineScanner) value(path string, depth int) {
	if depth == maxNesting {
		s.tooDeep = s.now
		s.pos = len(s.text)
		return
	}
	switch s.peek() {
	case '"', '\'':
		s.str()
	case '[':
		s.pos++
		for i := 0; s.more(']'); i++ {
			path := element(path, i)
			s.note(path)
			before := s.pos
			if s.value(path, depth+1); s.pos == before {
				s.pos++
			}
		}
	case '{':
		s.pos++
		for s.more('}') {
			if !s.keyValue(path, depth+1) {
				s.pos++
			}
		}
	default:
		s.skipTo(",]}#\n")
	}
}

// more moves to the next member of a list that ends with closing, and past
// the end; it is false there.
func (s *lineScanner) more(closing byte) bool {
	for s.blank(); s.take(","); s.blank() {
	}
	return s.pos < len(s.text) && !s.take(string(closing))
}

// dottedKey reads a.b."c d"; nil if there is no key here.
func (s *lineScanner) dottedKey() []string {
	var keys []string
	for {
		s.spaces()
		start := s.pos
		switch s.peek() {
		case '"', '\'':
			s.str()
			keys = append(keys, unquote(s.text[start:s.pos]))
		default:
			s.skipTo(" \t\r\n.=[]{},\"'#")
			if s.pos == start {
				return keys
			}
			keys = append(keys, s.text[start:s.pos])
		}
		if len(keys) > maxNesting {
			s.tooDeep = s.now
			s.pos = len(s.text)
			return keys
		}
		s.spaces()
		if !s.take(".") {
			return keys
		}
	}
}

// unquote reads a quoted key; one that the library refuses stays as it is.
func unquote(raw string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K="+raw, &v); err != nil {
		return raw
	}
	return v.K
}

// str skips a string of any of the four kinds.
func (s *lineScanner) str() {
	mark := s.text[s.pos : s.pos+1]
	if long := strings.Repeat(mark, 3); s.take(long) {
		s.untilMark(mark, long)
		for n := 0; n < 2 && s.take(mark); n++ { // """two quotes may end the text"""""
		}
		return
	}
	s.pos++
	s.untilMark(mark, mark)
}

// untilMark skips past the closing mark; a short string ends with its line at
// the latest.
func (s *lineScanner) untilMark(kind, closing string) {
	for s.pos < len(s.text) {
		switch {
		case s.take(closing):
			return
		case s.text[s.pos] == '\\' && kind == `"` && s.pos+1 < len(s.text) && s.text[s.pos+1] != '\n':
			s.pos += 2
		case s.text[s.pos] == '\n':
			if len(closing) == 1 {
				return
			}
			s.newline()
		default:
			s.pos++
		}
	}
}

// blank skips spaces, line ends and comments.
func (s *lineScanner) blank() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r':
			s.pos++
		case '\n':
			s.newline()
		case '#':
			s.skipTo("\n")
		default:
			return
		}
	}
}

func (s *lineScanner) spaces() {
	for s.pos < len(s.text) && (s.text[s.pos] == ' ' || s.text[s.pos] == '\t') {
		s.pos++
	}
}

func (s *lineScanner) restOfLine() { s.skipTo("\n") }

// skipTo stops at the first of the bytes in stops, none of which is skipped.
func (s *lineScanner) skipTo(stops string) {
	if n := strings.IndexAny(s.text[s.pos:], stops); n >= 0 {
		s.pos += n
		return
	}
	s.pos = len(s.text)
}

func (s *lineScanner) newline() { s.pos++; s.now++ }

func (s *lineScanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *lineScanner) take(token string) bool {
	if !strings.HasPrefix(s.text[s.pos:], token) {
		return false
	}
	s.pos += len(token)
	return true
}

// note remembers where path was first seen.
func (s *lineScanner) note(path string) {
	if _, known := s.at[path]; !known {
		s.at[path] = s.now
	}
}
