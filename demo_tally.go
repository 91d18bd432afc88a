package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// tally counts what the demo's clients saw. Safe for concurrent use.
type tally struct {
	errs io.Writer

	mu       sync.Mutex
	requests int
	errors   int
	all      samples
	engines  []*engineTally // as configured
}

type engineTally struct {
	name     string
	requests int
	first    samples
}

const (
	engineSamples = 512     // latest times to first word of one engine
	allSamples    = 1 << 16 // and of all together
	errorsShown   = 5
)

func newTally(engines []demoEngine, errs io.Writer) *tally {
	t := &tally{errs: errs, all: samples{most: allSamples}}
	for _, e := range engines {
		t.engines = append(t.engines, &engineTally{name: e.Name, first: samples{most: engineSamples}})
	}
	return t
}

// add counts one request.
func (t *tally) add(a told, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	if err != nil {
		if t.errors++; t.errors <= errorsShown {
			fmt.Fprintf(t.errs, "penstock: demo: %v\n", err)
		}
		return
	}
	t.all.add(a.first)
	for _, e := range t.engines {
		if e.name == a.engine {
			e.requests++
			e.first.add(a.first)
		}
	}
}

// used reports whether every one of the engines has served a request.
func (t *tally) used(engines []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.engines {
		if e.requests == 0 && slices.Contains(engines, e.name) {
			return false
		}
	}
	return true
}

// demoReport is what demo --json prints.
type demoReport struct {
	Requests int                `json:"requests"`
	Errors   int                `json:"errors"`
	Engines  []demoEngineReport `json:"engines"`
	TTFT     demoTTFT           `json:"ttft_ms"`
}

type demoEngineReport struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`

	p50, p95 float64 // of the time to the first word in ms, of the latest answers
}

// demoTTFT is the time from a request to the first word of its answer, in ms.
type demoTTFT struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func (t *tally) report() *demoReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all.sorted()
	r := &demoReport{Requests: t.requests, Errors: t.errors, TTFT: demoTTFT{quantile(all, 0.50), quantile(all, 0.95), quantile(all, 0.99)}}
	for _, e := range t.engines {
		first := e.first.sorted()
		r.Engines = append(r.Engines, demoEngineReport{e.name, e.requests, quantile(first, 0.50), quantile(first, 0.95)})
	}
	return r
}

// samples are the latest durations, up to most.
type samples struct {
	most   int
	values []time.Duration
	oldest int
}

func (s *samples) add(d time.Duration) {
	if len(s.values) < s.most {
		s.values = append(s.values, d)
		return
	}
	s.values[s.oldest] = d
	s.oldest = (s.oldest + 1) % s.most
}

func (s *samples) sorted() []time.Duration { return slices.Sorted(slices.Values(s.values)) }

// quantile is the nearest rank in sorted values, in ms; 0 without values.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1].Microseconds()) / 1000
}
