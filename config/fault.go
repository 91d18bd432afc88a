package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Fault is one thing wrong with a file.
type Fault struct {
	File   string `json:"file"`
	Line   int    `json:"line"`            // from 1
	Key    string `json:"key"`             // dotted; empty where the file's syntax is at fault
	Value  string `json:"value,omitempty"` // as TOML writes it, without secrets; empty where there is none
	Reason string `json:"reason"`          // what is wrong or would be right
}

func (f Fault) String() string {
	if f.Value == "" {
		return f.WithoutValue()
	}
	return fmt.Sprintf("%s:%d: %s = %s: %s", f.File, f.Line, f.Key, f.Value, f.Reason)
}

// WithoutValue is the fault for places that outlive the file, such as a log.
func (f Fault) WithoutValue() string {
	if f.Key == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Reason)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Key, f.Reason)
}

// Faults is every fault of one file in the order of its lines, as an error.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func (fs Faults) sort() {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Key, b.Key)
	})
}

// longestShown bounds a value in a fault, in bytes.
const longestShown = 80

// show writes a decoded TOML value on one line, tables and lists in short.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.Format(time.RFC3339)
	case map[string]any:
		return "{...}"
	case []any, []map[string]any:
		return "[...]"
	}
	return fmt.Sprint(v)
}

func quote(s string) string { return strconv.Quote(shorten(withoutPassword(s))) }

func shorten(s string) string {
	if len(s) <= longestShown {
		return s
	}
	cut := longestShown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// printable is what a package's own Validate shows, fit for a terminal line.
func printable(value string) string {
	if len(value) > 2*longestShown || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(value)
	}
	return value
}

// withoutPassword blanks what stands between :// and @ in a URL.
func withoutPassword(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		return s
	}
	authority, path, slash := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return s
	}
	s = scheme + "://…" + authority[at:]
	if slash {
		s += "/" + path
	}
	return s
}
