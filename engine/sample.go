package engine

import (
	"strings"
	"time"
)

// Sample is one scrape of an engine's load, in the engine's own words reduced
// to ours. A field that the page did not have is absent, never zero: unknown
// is not idle.
type Sample struct {
	At      time.Time // when the page had been read
	Has     Field     // which of the fields below the page carried
	Running float64   // requests being worked on
	Waiting float64   // requests queued in the engine
	KVUsed  float64   // share of the KV cache in use, 0..1

	PromptTokens    float64 // counter, prompt tokens taken in, cached ones included
	GeneratedTokens float64 // counter, output tokens
	CachedTokens    float64 // counter, prompt tokens served from the prefix cache
	Steps           float64 // counter that moves while the engine works, also within one long answer
	Slots           float64 // requests that it works on at once

	Ours float64 // attempts of this gateway on the engine at that time; of SetSample, not of the page

	Adapters *Adapters // in use; nil = not told
}

// Adapters are the adapters that an engine has in use.
type Adapters struct {
	Running []string // of requests being worked on
	Waiting []string // of queued ones
	Max     int      // how many it holds at once; 0 = not told
}

// Field names one field of a Sample.
type Field uint16

const (
	FieldRunning Field = 1 << iota
	FieldWaiting
	FieldKVUsed
	FieldPromptTokens
	FieldGeneratedTokens
	FieldCachedTokens
	FieldSteps
	FieldSlots
)

// fields lists all fields with their names, in bit order.
var fields = []struct {
	field Field
	name  string
}{
	{FieldRunning, "running"},
	{FieldWaiting, "waiting"},
	{FieldKVUsed, "kv_used"},
	{FieldPromptTokens, "prompt_tokens"},
	{FieldGeneratedTokens, "generated_tokens"},
	{FieldCachedTokens, "cached_tokens"},
	{FieldSteps, "steps"},
	{FieldSlots, "slots"},
}

// String lists the fields in the set, comma separated.
func (f Field) String() string {
	var names []string
	for _, known := range fields {
		if f&known.field != 0 {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ",")
}

// set fills one field. A share of the cache is held to 0..1.
func (s *Sample) set(f Field, v float64) {
	if f == FieldKVUsed {
		v = min(v, 1)
	}
	*s.at(f) = v
	s.Has |= f
}

func (s *Sample) at(f Field) *float64 {
	switch f {
	case FieldRunning:
		return &s.Running
	case FieldWaiting:
		return &s.Waiting
	case FieldKVUsed:
		return &s.KVUsed
	case FieldPromptTokens:
		return &s.PromptTokens
	case FieldGeneratedTokens:
		return &s.GeneratedTokens
	case FieldCachedTokens:
		return &s.CachedTokens
	case FieldSteps:
		return &s.Steps
	default:
		return &s.Slots
	}
}

// Age is the time since the sample was taken.
func (s *Sample) Age(now time.Time) time.Duration { return now.Sub(s.At) }
