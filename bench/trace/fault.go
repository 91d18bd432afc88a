package trace

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Fault is what is wrong with a trace file, and where.
type Fault struct {
	File   string
	Line   int    // 0: the file as a whole
	Field  string // empty: the line as a whole
	Value  string // as it stands there, shortened
	Reason string // what is wrong, or what would be right
}

func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	b.WriteString(": ")
	if f.Field != "" {
		b.WriteString(f.Field)
		if f.Value != "" {
			b.WriteString(" = " + f.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Reason)
	return b.String()
}

// bad is a fault of a field whose place is filled in later (see place).
func bad(field, value, reason string, args ...any) *Fault {
	if len(args) > 0 {
		reason = fmt.Sprintf(reason, args...)
	}
	return &Fault{Field: field, Value: shown(value), Reason: reason}
}

// place says where a fault is. Another error becomes one.
func place(err error, file string, line int) error {
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*Fault](err)
	if !ok {
		f = &Fault{Reason: err.Error()}
	}
	if f.File == "" {
		f.File, f.Line = file, line
	}
	return f
}

// shown makes a value of a file fit for a message: one line, not too long.
func shown(s string) string { return shownUpTo(s, 40) }

func shownUpTo(s string, most int) string {
	var b strings.Builder
	for i, r := range s {
		if i >= most {
			b.WriteString("...")
			break
		}
		if !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
