package trace

import (
	"fmt"
	"slices"
	"strings"
)

// Format is one of the forms that traces come in.
type Format uint8

const (
	Unknown Format = iota
	Mooncake
	Azure
	BurstGPT
	Bailian
	RAGPulse
	Weka
	ServeGen
	Access
)

var formatNames = [...]string{"unknown", "mooncake", "azure", "burstgpt", "bailian", "ragpulse", "weka", "servegen", "access"}

func (f Format) String() string { return formatNames[f] }

// Formats are the names that ParseFormat knows.
func Formats() []string { return slices.Clone(formatNames[1:]) }

// ParseFormat finds a format by its name; "" and "auto" are Unknown: look at the content.
func ParseFormat(name string) (Format, error) {
	if name == "" || name == "auto" {
		return Unknown, nil
	}
	if i := slices.Index(formatNames[:], name); i > 0 {
		return Format(i), nil
	}
	return Unknown, fmt.Errorf("%q is no trace format: want auto, %s", name, strings.Join(formatNames[1:], ", "))
}

// signs are the fields by which a format is known. The first row all of whose
// fields are there counts, so a format that adds fields to another comes first.
var signs = []struct {
	format Format
	csv    bool
	fields []string
}{
	{Bailian, false, []string{"chat_id", "timestamp", "input_length", "hash_ids"}},
	{Mooncake, false, []string{"timestamp", "input_length", "output_length"}},
	{RAGPulse, false, []string{"t", "in", "out", "segments"}},
	{Weka, false, []string{"session", "kind"}},
	{Weka, false, []string{"session", "agent", "turn", "blocks"}},
	{Access, false, []string{"time", "level", "msg"}},
	{Azure, true, []string{"arrival_s", "input_tokens", "output_tokens"}},
	{Azure, true, []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}},
	{BurstGPT, true, []string{"Timestamp", "Request tokens", "Response tokens"}},
	{ServeGen, true, []string{"workload", "client", "window_start_s", "rate_rps"}},
}

// detect looks at a file's first line.
func detect(first []byte) (Format, error) {
	var names []string
	isCSV := len(first) == 0 || first[0] != '{'
	if isCSV {
		for name := range strings.SplitSeq(string(first), ",") {
			names = append(names, strings.TrimSpace(name))
		}
	} else {
		r := newObject(first)
		for {
			name, ok, err := r.name()
			if err != nil {
				return Unknown, err
			}
			if !ok {
				break
			}
			names = append(names, name)
			if err := r.skip(); err != nil {
				return Unknown, err
			}
		}
	}
	for _, s := range signs {
		if s.csv == isCSV && !slices.ContainsFunc(s.fields, func(f string) bool { return !slices.Contains(names, f) }) {
			return s.format, nil
		}
	}
	return Unknown, fmt.Errorf("no trace format has these fields: %s; known are %s", shownNames(names), strings.Join(formatNames[1:], ", "))
}

func shownNames(names []string) string {
	const most = 12
	var quoted []string
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, `"`+shown(n)+`"`)
	}
	if len(names) > most {
		quoted = append(quoted, "...")
	}
	return strings.Join(quoted, ", ")
}
