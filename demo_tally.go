package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// tally counts what clients saw. Safe for concurrent use.
type tally struct {
	errs    io.Writer
	engines []string

	mu       sync.Mutex // guards what is below
	requests int
	errors   int
	shed     int
	moved    int               // turns that another engine took than the one before
	served   map[string]int    // answers by engine
	last     map[string]string // engine of a conversation's latest answer
	sum      time.Duration     // of the answers' times
	total    samples           // request to last word
	first    samples           // request to first word
}

const (
	latestAnswers = 1 << 16 // of which times are kept
	errorsShown   = 5
)

func newTally(engines []string, errs io.Writer) *tally {
	return &tally{errs: errs, engines: engines, served: make(map[string]int), last: make(map[string]string),
		total: samples{most: latestAnswers}, first: samples{most: latestAnswers}}
}

// add counts one request.
func (t *tally) add(a told, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	switch {
	case errors.Is(err, errShed):
		t.shed++
	case err != nil:
		if t.errors++; t.errors <= errorsShown {
			fmt.Fprintf(t.errs, "penstock: demo: %v\n", err)
		}
	default:
		t.first.add(a.first)
		t.total.add(a.total)
		t.sum += a.total
		t.served[a.engine]++
	}
}

// turn counts where a conversation's latest turn was answered; none follows
// the last.
func (t *tally) turn(conversation, engine string, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, ok := t.last[conversation]; ok && before != engine {
		t.moved++
	}
	t.last[conversation] = engine
	if last {
		delete(t.last, conversation)
	}
}

// used reports whether every engine has served a request.
func (t *tally) used() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.engines, func(name string) bool { return t.served[name] == 0 })
}

// figures are a tally at one moment; times in ms.
type figures struct {
	requests, errors, shed, moved int
	served                        map[string]int
	mean, p99                     float64
	first                         []time.Duration // sorted
}

func (t *tally) figures() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := figures{requests: t.requests, errors: t.errors, shed: t.shed, moved: t.moved, served: make(map[string]int),
		p99: quantile(t.total.sorted(), 0.99), first: t.first.sorted()}
	answers := 0
	for name, n := range t.served {
		f.served[name] = n
		answers += n
	}
	if answers > 0 {
		f.mean = t.sum.Seconds() * 1000 / float64(answers)
	}
	return f
}

// demoReport is what demo --json prints.
type demoReport struct {
	Requests int                `json:"requests"`
	Errors   int                `json:"errors"`
	Engines  []demoEngineReport `json:"engines"`
	TTFT     demoTTFT           `json:"ttft_ms"`
	Policies []demoPolicyReport `json:"policies,omitempty"`
	Fleet    *joinedReport      `json:"fleet,omitempty"` // of demo --fleet
}

type demoEngineReport struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
}

// demoTTFT is the time from a request to the first word of its answer, in ms.
type demoTTFT struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// demoPolicyReport is one policy's run.
type demoPolicyReport struct {
	Name           string  `json:"name"`
	Requests       int     `json:"requests"`
	Errors         int     `json:"errors"`
	MeanMS         float64 `json:"mean_ms"` // from request to last word
	P99MS          float64 `json:"p99_ms"`
	MaxUtilisation float64 `json:"max_utilisation"`
	Shed           int     `json:"shed"`
	Moved          int     `json:"moved"`
	// Weights by cluster and engine at the end; of requests that need more
	// than the model under "CLUSTER, NEED".
	Weights map[string]map[string]float64 `json:"weights"`
}

// reportOf sums up all tallies; engines have the same names in all.
func reportOf(tallies []*tally) *demoReport {
	r := &demoReport{}
	served := make(map[string]int)
	var first []time.Duration
	for _, t := range tallies {
		f := t.figures()
		r.Requests += f.requests
		r.Errors += f.errors
		first = append(first, f.first...)
		for name, n := range f.served {
			served[name] += n
		}
	}
	slices.Sort(first)
	r.TTFT = demoTTFT{quantile(first, 0.50), quantile(first, 0.95), quantile(first, 0.99)}
	if len(tallies) > 0 {
		for _, name := range tallies[0].engines {
			r.Engines = append(r.Engines, demoEngineReport{name, served[name]})
		}
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
