package main

import (
	"fmt"
	"strings"
	"time"

	"penstock/engine/enginetest"
)

// scenario is a fleet and what it is asked for.
type scenario struct {
	name, title string
	speeds      []float64 // by engine; 1 = the reference engine
	far         []bool    // engines behind farAway; nil: none
	u           float64   // offered load over what the engines carry
	hot         float64   // share of conversations that begin with the same long prompt
	queue       int       // waiting requests from which on an engine says 503; 0 = no limit
	step        float64   // factor on the load from changeAt on; 0 = none
	kill        int       // engine that ends at changeAt, counted from 1; 0 = none
}

// The reference engine: 15 requests/s of these conversations where they stay
// on their engine, a step of (10 + 0.35 x decoding + 0.06 x prompt tokens) ms.
const (
	fullRate = 15.0
	slots    = 48

	stepBase     = 10 * time.Millisecond
	stepSequence = 350 * time.Microsecond
	stepToken    = 60 * time.Microsecond

	// farAway is the round trip to engines of another site.
	farAway = 40 * time.Millisecond
	// changeAt is the part of the measured time after which load or fleet change.
	changeAt = 0.25
)

var scenarios = []scenario{
	{name: "s1", title: "four equal engines", speeds: []float64{1, 1, 1, 1}, u: 0.85},
	{name: "s2", title: "speeds 1, 1, 0.5, 0.25", speeds: []float64{1, 1, 0.5, 0.25}, u: 0.7},
	{name: "s2-high", title: "speeds 1, 1, 0.5, 0.25", speeds: []float64{1, 1, 0.5, 0.25}, u: 0.85},
	{name: "s3", title: "two of half speed here, two 40 ms away", speeds: []float64{0.5, 0.5, 1, 1}, far: []bool{false, false, true, true}, u: 0.8},
	{name: "s4", title: "four equal engines, a hot shared prompt", speeds: []float64{1, 1, 1, 1}, u: 0.8, hot: 0.7},
	{name: "s5-step", title: "four equal engines, 60 % more load after a quarter", speeds: []float64{1, 1, 1, 1}, u: 0.5, step: 1.6},
	{name: "s5-kill", title: "four equal engines, one dies after a quarter", speeds: []float64{1, 1, 1, 1}, u: 0.6, kill: 4},
	{name: "s6", title: "two equal engines, 1.5 times what they carry, 503 beyond a queue", speeds: []float64{1, 1}, u: 1.5, queue: 32},
}

// scenariosNamed finds scenarios by a list of names; "s2" is both of that fleet.
func scenariosNamed(list string) (found []scenario, err error) {
	for name := range strings.SplitSeq(list, ",") {
		n := len(found)
		for _, s := range scenarios {
			if name == "all" || s.name == name || strings.HasPrefix(s.name, name+"-") {
				found = append(found, s)
			}
		}
		if len(found) == n {
			return nil, fmt.Errorf("--scenario %q: there are %s", name, scenarioNames())
		}
	}
	return found, nil
}

func scenarioNames() string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// rate is the offered load in requests/s.
func (s *scenario) rate() float64 {
	sum := 0.0
	for _, v := range s.speeds {
		sum += v
	}
	return s.u * fullRate * sum
}

func (s *scenario) engineName(i int) string { return fmt.Sprintf("e%d", i+1) }

func (s *scenario) rtt(i int) time.Duration {
	if s.far != nil && s.far[i] {
		return farAway
	}
	return 0
}

// kvBlocks is the KV memory of engine i: slower ones have less.
func (s *scenario) kvBlocks(i int) int {
	switch v := s.speeds[i]; {
	case v <= 0.25:
		return 4096
	case v <= 0.5:
		return 6144
	default:
		return 8192
	}
}

// model is engine i with all its times stretched.
func (s *scenario) model(i int, stretch float64) enginetest.Model {
	f := stretch / s.speeds[i]
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * f) }
	return enginetest.Model{Slots: slots, Blocks: s.kvBlocks(i), ChunkTokens: enginetest.DefaultChunkTokens,
		Base: scale(stepBase), PrefillBase: scale(stepBase), PerSeq: scale(stepSequence), PerPrefill: scale(stepToken)}
}

// simFlags are those of `penstock sim` that make the same engine.
func (s *scenario) simFlags(i int, stretch float64) []string {
	m := s.model(i, stretch)
	steps := time.Duration((1000 + m.ChunkTokens - 1) / m.ChunkTokens)
	flags := []string{"--name", s.engineName(i), "--model", modelName, "--slots", fmt.Sprint(m.Slots),
		"--kv-tokens", fmt.Sprint(m.Blocks * enginetest.BlockTokens),
		"--tbot", (m.Base + m.PerSeq).String(), "--ttft", (steps*m.PrefillBase + 1000*m.PerPrefill).String()}
	if s.queue > 0 {
		flags = append(flags, "--queue-limit", fmt.Sprint(s.queue))
	}
	return flags
}

const modelName = "m"
