package trace

import (
	"bytes"
	"slices"
	"strings"
)

// table reads a CSV file with a line of column names. No trace has quoted
// fields, so a quote is no more than a character that makes a number bad.
type table struct {
	lines   *lines
	columns []string
	fields  [][]byte
}

// newTable reads the line of names. It is an error if one of those that are
// needed is not there.
func newTable(l *lines, need ...string) (*table, error) {
	head, err := l.next()
	if err != nil {
		return nil, err
	}
	t := &table{lines: l}
	for name := range strings.SplitSeq(string(head), ",") {
		name = strings.TrimSpace(name)
		if slices.Contains(t.columns, name) {
			return nil, bad(name, "", "two columns have this name")
		}
		t.columns = append(t.columns, name)
	}
	for _, name := range need {
		if !slices.Contains(t.columns, name) {
			return nil, bad(name, "", "no such column; there are %s", shownNames(t.columns))
		}
	}
	return t, nil
}

// index of a column, -1 where it is not there.
func (t *table) index(column string) int { return slices.Index(t.columns, column) }

// next goes to the next line.
func (t *table) next() error {
	line, err := t.lines.next()
	if err != nil {
		return err
	}
	t.fields = t.fields[:0]
	for {
		one, rest, more := bytes.Cut(line, []byte{','})
		t.fields = append(t.fields, bytes.TrimSpace(one))
		if !more {
			break
		}
		line = rest
	}
	if len(t.fields) != len(t.columns) {
		return bad("", "", "%d fields, want the %d of the first line", len(t.fields), len(t.columns))
	}
	return nil
}

func (t *table) text(column int) string { return string(t.fields[column]) }

func (t *table) number(column int) (float64, error) {
	return parseNumber(t.columns[column], string(t.fields[column]))
}

func (t *table) tokens(column int) (int, error) {
	n, err := parseCount(t.columns[column], t.fields[column])
	if err != nil {
		return 0, err
	}
	return n, tokens(t.columns[column], n)
}
