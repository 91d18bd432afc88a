package problem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// document reads JSON strictly: every value has the one type that is wanted,
// every member is known and there once, and nothing follows. The first fault
// ends it, with the path of its value.
type document struct {
	data []byte
	dec  *jsontext.Decoder
}

func newDocument(data []byte) *document {
	return &document{data, jsontext.NewDecoder(bytes.NewBuffer(data))}
}

// end wants nothing more.
func (d *document) end() error {
	_, err := d.dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.As(err, new(*jsontext.SyntacticError)):
		return err
	}
	return Faults{{fmt.Sprintf("line %d", d.line()), "text after the document"}}
}

// line is that of the last value read.
func (d *document) line() int { return 1 + bytes.Count(d.data[:d.dec.InputOffset()], []byte("\n")) }

// fault is about the value read last.
func (d *document) fault(format string, args ...any) error {
	return Faults{{fieldOf(d.dec.StackPointer()), fmt.Sprintf(format, args...) + fmt.Sprintf(" (line %d)", d.line())}}
}

// fieldOf is a JSON pointer as people write it: /demand/2/rate is demand[2].rate.
func fieldOf(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	if b.Len() == 0 {
		return "the document"
	}
	return b.String()
}

// read is the next token, with syntax errors in the form of faults.
func (d *document) read() (jsontext.Token, error) {
	t, err := d.dec.ReadToken()
	if err == nil {
		return t, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return t, d.fault("the document ends here")
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		line := 1 + bytes.Count(d.data[:min(int(syntax.ByteOffset), len(d.data))], []byte("\n"))
		reason := syntax.Err.Error()
		if errors.Is(err, jsontext.ErrDuplicateName) {
			reason = "is there twice"
		}
		return t, Faults{{fieldOf(syntax.JSONPointer), fmt.Sprintf("%s (line %d)", reason, line)}}
	}
	return t, err
}

var kindNames = map[jsontext.Kind]string{'n': "null", 'f': "false", 't': "true", '"': "a string", '0': "a number", '{': "an object", '[': "an array"}

func (d *document) want(kind jsontext.Kind) (jsontext.Token, error) {
	t, err := d.read()
	if err == nil && t.Kind() != kind {
		err = d.fault("is %s: want %s", kindNames[t.Kind()], kindNames[kind])
	}
	return t, err
}

func (d *document) text() (string, error) {
	t, err := d.want('"')
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// name is a text that something can be called by.
func (d *document) name() (string, error) {
	s, err := d.text()
	if err == nil && s == "" {
		err = d.fault("is empty: want a name")
	}
	return s, err
}

func (d *document) number() (float64, error) {
	t, err := d.want('0')
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(t.String(), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, d.fault("%s is not a finite number", t.String())
	}
	return v, nil
}

func (d *document) into(v *float64) (err error) {
	*v, err = d.number()
	return err
}

// array calls item for each element, which it has to read.
func (d *document) array(item func(i int) error) error {
	if _, err := d.want('['); err != nil {
		return err
	}
	for i := 0; d.dec.PeekKind() != ']'; i++ {
		if d.dec.PeekKind() == 0 {
			_, err := d.read()
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
	_, err := d.read()
	return err
}

// members calls member for each, which has to read its value.
func (d *document) members(member func(name string) error) error {
	if _, err := d.want('{'); err != nil {
		return err
	}
	for {
		t, err := d.read()
		if err != nil {
			return err
		}
		if t.Kind() == '}' {
			return nil
		}
		if err := member(t.String()); err != nil {
			return err
		}
	}
}

// field is a member that an object may have.
type field struct {
	name     string
	required bool
	read     func() error
}

// object reads an object that has these fields and no others.
func (d *document) object(fields ...field) error {
	seen := make([]bool, len(fields))
	err := d.members(func(name string) error {
		for i, f := range fields {
			if f.name == name {
				seen[i] = true
				return f.read()
			}
		}
		known := make([]string, len(fields))
		for i, f := range fields {
			known[i] = f.name
		}
		return d.fault("is no field: there are %s", strings.Join(known, ", "))
	})
	if err != nil {
		return err
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			return d.fault("has no %q", f.name)
		}
	}
	return nil
}
