package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// object reads one line of JSON lines, member by member.
type object struct {
	dec   *jsontext.Decoder
	field string // whose value comes next
	begun bool
}

func newObject(line []byte) *object { return &object{dec: jsontext.NewDecoder(bytes.NewReader(line))} }

// reset turns to another line.
func (o *object) reset(line []byte) {
	o.dec.Reset(bytes.NewReader(line))
	o.begun, o.field = false, ""
}

// name returns the next member's name; not ok: the object ended, and nothing follows it.
func (o *object) name() (name string, ok bool, err error) {
	if !o.begun {
		t, err := o.dec.ReadToken()
		if err != nil {
			return "", false, notJSON(err)
		}
		if t.Kind() != '{' {
			return "", false, &Fault{Reason: "want one JSON object on a line"}
		}
		o.begun = true
	}
	t, err := o.dec.ReadToken()
	if err != nil {
		return "", false, notJSON(err)
	}
	if t.Kind() == '}' {
		if _, err := o.dec.ReadToken(); err != io.EOF {
			return "", false, &Fault{Reason: "something follows the JSON object on its line"}
		}
		return "", false, nil
	}
	o.field = t.String()
	return o.field, true, nil
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Fault{Reason: "not JSON: the line ends too early"}
	}
	return &Fault{Reason: "not JSON: " + shownUpTo(strings.TrimPrefix(err.Error(), "jsontext: "), 160)}
}

// skip passes over a value.
func (o *object) skip() error {
	if err := o.dec.SkipValue(); err != nil {
		return notJSON(err)
	}
	return nil
}

// number reads a value that is a number of at least 0.
func (o *object) number() (float64, error) {
	v, err := o.dec.ReadValue()
	if err != nil {
		return 0, notJSON(err)
	}
	return parseNumber(o.field, string(v))
}

// count reads a value that is a whole number of at least 0.
func (o *object) count() (int, error) {
	v, err := o.dec.ReadValue()
	if err != nil {
		return 0, notJSON(err)
	}
	return parseCount(o.field, v)
}

// text reads a string.
func (o *object) text() (string, error) {
	v, err := o.dec.ReadToken()
	if err != nil {
		return "", notJSON(err)
	}
	if v.Kind() != '"' {
		return "", bad(o.field, v.String(), "want text")
	}
	return v.String(), nil
}

// ids reads an array of whole numbers.
func (o *object) ids() ([]uint64, error) {
	v, err := o.dec.ReadValue()
	if err != nil {
		return nil, notJSON(err)
	}
	if v.Kind() != '[' {
		return nil, bad(o.field, string(v), "want an array of whole numbers")
	}
	return o.list(make([]uint64, 0, 1+bytes.Count(v, []byte{','})), v)
}

// list reads the numbers of an array.
func (o *object) list(list []uint64, v jsontext.Value) ([]uint64, error) {
	rest := bytes.TrimSpace(v[1 : len(v)-1])
	for len(rest) > 0 {
		one := rest
		if i := bytes.IndexByte(rest, ','); i >= 0 {
			one, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		one = bytes.TrimSpace(one)
		n, err := strconv.ParseUint(string(one), 10, 64)
		if err != nil {
			return nil, bad(fmt.Sprintf("%s[%d]", o.field, len(list)), string(one), "want a whole number, 0 or more")
		}
		list = append(list, n)
	}
	return list, nil
}

// Bounds of what a request of a trace can be. The longest prompts of engines
// are of ten million tokens, and no trace goes over years.
const (
	mostTokens = 100_000_000
	longest    = 10 * 365 * 24 * time.Hour
)

func parseNumber(field, text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, bad(field, text, "want a number, 0 or more")
	}
	return v, nil
}

func parseCount[T string | []byte | jsontext.Value](field string, text T) (int, error) {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || v > math.MaxInt64/2 {
		return 0, bad(field, string(text), "want a whole number, 0 or more")
	}
	return int(v), nil
}

// tokens checks a number of tokens.
func tokens(field string, n int) error {
	if n > mostTokens {
		return bad(field, strconv.Itoa(n), "want at most %d tokens", mostTokens)
	}
	return nil
}

// instant is a time from the trace's start; unit is that of v.
func instant(field string, v float64, unit time.Duration) (time.Duration, error) {
	if v < 0 || v*float64(unit) > float64(longest) {
		return 0, bad(field, strconv.FormatFloat(v, 'g', -1, 64), "want a time between 0 and ten years")
	}
	return time.Duration(math.Round(v * float64(unit))), nil
}

func missing(field string) error { return &Fault{Field: field, Reason: "missing"} }
