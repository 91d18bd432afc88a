package enginetest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// FaultKind is one way in which an engine can fail.
type FaultKind uint8

const (
	Refuse FaultKind = iota
	ResetBefore
	ResetHeaders
	ResetAfter
	CutAfter
	NoDone
	NoDoneFinish
	ErrorFirst
	ErrorAfter
	Silent
	HeadersOnly
	StallAfter
	Garbage
	BadJSONAfter
	HTML
	Status
	Empty
	Truncate
	Health
	HealthHang
	Metrics
	Slow
	noFault
)

// argument says what may stand behind a fault's '='.
type argument uint8

const (
	argNone argument = iota
	argEvents
	argCode
	argCodeOptional
	argFactor
	argDurationOptional
)

var argumentNames = [...]string{"", "=N", "=CODE", "[=CODE]", "=FACTOR", "[=DURATION]"}

// target says what a fault befalls.
type target uint8

const (
	onGeneration target = iota // chat/completions, completions, embeddings
	onHealth
	onMetrics
	onListener
	onSpeed
)

var faultTable = [noFault]struct {
	name string
	arg  argument
	on   target
	what string
}{
	Refuse:       {"refuse", argDurationOptional, onListener, "connections are refused, for DURATION or until cleared from within"},
	ResetBefore:  {"reset-before", argNone, onGeneration, "the request is read, then TCP RST before any byte of an answer"},
	ResetHeaders: {"reset-headers", argNone, onGeneration, "200 and headers, then TCP RST"},
	ResetAfter:   {"reset-after", argEvents, onGeneration, "TCP RST after N content events"},
	CutAfter:     {"cut-after", argEvents, onGeneration, "connection closed (FIN) without the final chunk after N content events"},
	NoDone:       {"no-done", argEvents, onGeneration, "clean end after N content events, without finish_reason and [DONE]"},
	NoDoneFinish: {"no-done-finish", argNone, onGeneration, "the whole answer with finish_reason, without [DONE]"},
	ErrorFirst:   {"error-first", argCodeOptional, onGeneration, "200, the first event is an error with CODE (500), then [DONE]"},
	ErrorAfter:   {"error-after", argEvents, onGeneration, "error event after N content events, then [DONE]: an engine being terminated"},
	Silent:       {"silent", argNone, onGeneration, "the request is read and never answered"},
	HeadersOnly:  {"headers-only", argNone, onGeneration, "200 and headers, then nothing: a frozen engine"},
	StallAfter:   {"stall-after", argEvents, onGeneration, "nothing more after N content events, the connection stays open"},
	Garbage:      {"garbage", argNone, onGeneration, "bytes that are not HTTP"},
	BadJSONAfter: {"bad-json-after", argEvents, onGeneration, "the event after N content events is cut within its JSON; the rest follows"},
	HTML:         {"html", argNone, onGeneration, "502 with an HTML page"},
	Status:       {"status", argCode, onGeneration, "an error answer with that status"},
	Empty:        {"empty", argNone, onGeneration, "200 with an empty body"},
	Truncate:     {"truncate", argNone, onGeneration, "a body shorter than its Content-Length"},
	Health:       {"health", argCode, onHealth, "GET /health answers that status"},
	HealthHang:   {"health-hang", argNone, onHealth, "GET /health never answers"},
	Metrics:      {"metrics", argCode, onMetrics, "GET /metrics answers that status"},
	Slow:         {"slow", argFactor, onSpeed, "every step takes FACTOR times as long"},
}

func (k FaultKind) String() string {
	if k >= noFault {
		return "none"
	}
	return faultTable[k].name
}

// FaultHelp lists every fault with its argument and what it does, one a line.
func FaultHelp() string {
	var b strings.Builder
	for _, f := range faultTable {
		fmt.Fprintf(&b, "  %-22s %s\n", f.name+argumentNames[f.arg], f.what)
	}
	return b.String()
}

func faultNames() string {
	names := make([]string, 0, noFault)
	for _, f := range faultTable {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// Fault is one fault that is set. A count beyond an answer's length befalls
// its last content event.
type Fault struct {
	Kind   FaultKind
	N      int           // content events, or the status code
	Factor float64       // Slow
	For    time.Duration // Refuse; 0 = until cleared
	P      float64       // probability per request, in (0, 1]
}

// ParseFault reads KIND[=VALUE][@PROBABILITY].
func ParseFault(text string) (Fault, error) {
	f := Fault{P: 1}
	spec, prob, hasProb := strings.Cut(text, "@")
	name, value, hasValue := strings.Cut(spec, "=")
	for f.Kind = 0; f.Kind < noFault && faultTable[f.Kind].name != name; f.Kind++ {
	}
	if f.Kind == noFault {
		return Fault{}, fmt.Errorf("unknown fault %q, known are %s", name, faultNames())
	}
	if err := f.parseValue(value, hasValue); err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	if !hasProb {
		return f, nil
	}
	if on := faultTable[f.Kind].on; on == onListener || on == onSpeed {
		return Fault{}, fmt.Errorf("fault %q: %s takes no probability", text, f.Kind)
	}
	var err error
	if f.P, err = strconv.ParseFloat(prob, 64); err != nil || !(f.P > 0 && f.P <= 1) {
		return Fault{}, fmt.Errorf("fault %q: the probability must be above 0 and at most 1", text)
	}
	return f, nil
}

func (f *Fault) parseValue(value string, given bool) (err error) {
	arg := faultTable[f.Kind].arg
	if !given {
		switch arg {
		case argEvents, argCode, argFactor:
			return fmt.Errorf("needs a value: %s%s", f.Kind, argumentNames[arg])
		case argCodeOptional:
			f.N = 500
		}
		return nil
	}
	switch arg {
	case argNone:
		return fmt.Errorf("%s takes no value", f.Kind)
	case argEvents:
		if f.N, err = strconv.Atoi(value); err != nil || f.N < 0 {
			return fmt.Errorf("the number of events must be 0 or more")
		}
	case argCode, argCodeOptional:
		if f.N, err = strconv.Atoi(value); err != nil || f.N < 200 || f.N > 599 {
			return fmt.Errorf("the code must be between 200 and 599")
		}
	case argFactor:
		if f.Factor, err = strconv.ParseFloat(value, 64); err != nil || !(f.Factor > 0 && f.Factor <= 1e6) {
			return fmt.Errorf("the factor must be above 0 and at most 1e6")
		}
	case argDurationOptional:
		if f.For, err = time.ParseDuration(value); err != nil || f.For <= 0 {
			return fmt.Errorf("the duration must be above 0, for example 5s")
		}
	}
	return nil
}

// String is the form that ParseFault reads.
func (f Fault) String() string {
	text := f.Kind.String()
	if f.Kind >= noFault {
		return text
	}
	switch faultTable[f.Kind].arg {
	case argEvents, argCode, argCodeOptional:
		text += "=" + strconv.Itoa(f.N)
	case argFactor:
		text += "=" + strconv.FormatFloat(f.Factor, 'g', -1, 64)
	case argDurationOptional:
		if f.For > 0 {
			text += "=" + f.For.String()
		}
	}
	if f.P < 1 {
		text += "@" + strconv.FormatFloat(f.P, 'g', -1, 64)
	}
	return text
}

// ParseFaults reads a list of them.
func ParseFaults(texts []string) ([]Fault, error) {
	faults := make([]Fault, 0, len(texts))
	for _, t := range texts {
		f, err := ParseFault(t)
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// draw returns the first fault on that target which the dice let through,
// else one of kind noFault.
func draw(faults []Fault, on target, dice *rand.Rand) Fault {
	for _, f := range faults {
		if faultTable[f.Kind].on == on && (f.P >= 1 || dice.Float64() < f.P) {
			return f
		}
	}
	return Fault{Kind: noFault}
}
