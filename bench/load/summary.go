package load

import (
	"math"
	"slices"
	"sync"

	"penstock/bench/report"
)

// Tally folds results into a run of a report.
type Tally struct {
	mu    sync.Mutex // guards all below
	run   report.Run
	from  float64 // s, of the measured time
	step  float64
	slots []slot
	flows map[string]*flow
}

// slot is a part of the run's time, by when requests were due.
type slot struct {
	due, ok, good, bad int
	ttft, e2e          float64 // sums over ok, ms
}

type flow struct {
	n   int
	sum float64
}

// series have at most this many values.
const mostSlots = 120

// NewTally begins a run that is measured from a second of it to another.
func NewTally(name, scenario string, seed uint64, from, to float64, slo *report.SLO, settings map[string]string) *Tally {
	step := max(1, math.Ceil((to-from)/mostSlots))
	return &Tally{run: report.Run{Name: name, Scenario: scenario, Seed: seed, Settings: settings, Seconds: to - from, SLO: slo, Outcomes: map[string]int{},
		TTFT: &report.Histogram{}, TBOT: &report.Histogram{}, E2E: &report.Histogram{}, ITL: &report.Histogram{}, Lag: &report.Histogram{}},
		from: from, step: step, slots: make([]slot, max(1, int(math.Ceil((to-from)/step)))), flows: map[string]*flow{}}
}

// Add counts a result. Safe for concurrent use.
func (t *Tally) Add(r Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := &t.run
	if r.outcome == Cut {
		run.Unfinished++
		return
	}
	run.Requests++
	s := &t.slots[min(max(0, int((r.Due-t.from)/t.step)), len(t.slots)-1)]
	s.due++
	if r.outcome != Unsent {
		run.Lag.RecordMS(r.Lag)
	}
	switch r.outcome {
	case OK:
	case Shed:
		run.Shed++
		run.Outcomes[r.Outcome]++
		s.bad++
		return
	default:
		run.Errors++
		run.Outcomes[r.Outcome]++
		s.bad++
		return
	}
	run.OK++
	s.ok++
	if run.SLO.Holds(r.TTFT, r.TBOT, r.E2E) {
		run.Good++
		s.good++
	}
	s.ttft += r.TTFT
	s.e2e += r.E2E
	run.PromptTokens += r.Prompt
	run.CachedTokens += r.Cached
	run.OutputTokens += r.Output
	run.TTFT.RecordMS(r.TTFT)
	run.E2E.RecordMS(r.E2E)
	if r.Output > 1 {
		run.TBOT.RecordMS(r.TBOT)
	}
	for _, g := range r.gaps {
		run.ITL.Record(g)
	}
	if r.Engine != "" {
		f := t.flows[r.Engine]
		if f == nil {
			f = &flow{}
			t.flows[r.Engine] = f
		}
		f.n++
		f.sum += r.E2E
	}
}

// Run is the run so far, of the given length where it was cut short.
func (t *Tally) Run(seconds float64) report.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.run
	run.Seconds = seconds
	n := min(len(t.slots), max(1, int(math.Ceil(seconds/t.step))))
	named := []report.Series{
		{Name: "requests", Unit: "1/s"}, {Name: "good", Unit: "1/s"}, {Name: "shed and errors", Unit: "1/s"},
		{Name: "TTFT", Unit: "ms"}, {Name: "E2E", Unit: "ms"},
	}
	for _, s := range t.slots[:n] {
		for i, v := range []float64{float64(s.due) / t.step, float64(s.good) / t.step, float64(s.bad) / t.step, s.ttft / float64(s.ok), s.e2e / float64(s.ok)} {
			named[i].Values = append(named[i].Values, v) // 0/0: nothing there
		}
	}
	for i := range named {
		named[i].Start, named[i].Step = t.from, t.step
	}
	run.Series = named
	for engine, f := range t.flows {
		run.Flows = append(run.Flows, report.Flow{Source: "clients", Engine: engine, Requests: f.n, Mean: round(f.sum / float64(f.n))})
	}
	slices.SortFunc(run.Flows, func(a, b report.Flow) int {
		if a.Engine < b.Engine {
			return -1
		}
		return 1
	})
	return run
}
