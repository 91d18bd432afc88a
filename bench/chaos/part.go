package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/bench/child"
	"penstock/bench/witness"
	"penstock/engine/enginetest"
)

// part is one gateway with its engines and what is sent through it.
type part struct {
	name, title string
	share       float64 // of all requests
	tls         bool
	engines     []enginetest.Config
	config      string // lines of the gateway's file
	perEngine   string // lines of each engine's table there
	tokens      int    // of an answer, or one more
	refuses     bool   // an engine may stop listening
	seed        uint64
	play        func(ctx context.Context, s *site, n int, r *report) ([]asking, error)
}

// group is the parts of one kind, which run at the same time.
func (p *part) group() string { return strings.TrimRight(p.name, "0123456789") }

// report is what came of a part.
type report struct {
	Part      string         `json:"part"`
	Requests  int            `json:"requests"`
	Seconds   float64        `json:"seconds"`
	Saw       map[string]int `json:"saw"`
	Faults    map[string]int `json:"faults"` // requests that each befell; of states, how often one was set
	Truncated int            `json:"truncated_that_look_complete"`
	Wrong     int            `json:"wrong_answers"`
	Shown     []string       `json:"wrong_shown"` // the first of them
	Forbidden int            `json:"forbidden_duplicates"`
	Twice     int            `json:"delivered_more_than_once"`

	Amplification float64 `json:"amplification"`
	Worst         float64 `json:"amplification_worst_10s"`
	Utilisation   float64 `json:"utilisation_median"`
	Cancels       int     `json:"cancels"`
	CancelP50     float64 `json:"cancel_p50_ms"`
	CancelP99     float64 `json:"cancel_p99_ms"`
	Lag           float64 `json:"machine_lag_p99_ms"` // how late this process woke up

	Base       resources `json:"base"`
	End        resources `json:"end"`
	QuarterRSS float64   `json:"rss_mib_at_a_quarter"`
	RSSPerHour float64   `json:"rss_mib_per_hour"`
	FilesHour  float64   `json:"files_per_hour"`
	GoroutHour float64   `json:"goroutines_per_hour"`
	Accounts   accounts  `json:"accounts"`
	Storms     []storm   `json:"storms,omitempty"`
	Goodput    float64   `json:"goodput_per_second,omitempty"`

	samples []sample
}

// resources are the gateway's when it is quiet.
type resources struct {
	Goroutines float64 `json:"goroutines"`
	Files      float64 `json:"files"`
	RSS        float64 `json:"rss_mib"`
}

// warmUp is how many requests pass before the gateway's resources are looked
// at for the first time.
const warmUp = 200

const wrongShown = 5

// Requests at a time.
const (
	bounded   = 256
	unbounded = 1 << 16
)

// run plays a part to its end.
func (b *bench) run(ctx context.Context, p *part, n int) (*report, error) {
	dir := filepath.Join(b.dir, p.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := newSite(ctx, b, p, dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	r := &report{Part: p.name, Faults: map[string]int{}, Saw: map[string]int{}}
	all := s.atOnce(ctx, 0, warmUp, 8, time.Now(), func(int) {})
	if r.Base, err = s.settled(ctx, nil); err != nil {
		return nil, err
	}
	began := time.Now()
	watching, seen := context.WithCancel(ctx)
	samples, lag := make(chan []sample), make(chan time.Duration)
	go func() { samples <- s.watch(watching, began) }()
	go func() { lag <- lagging(watching) }()
	more, err := p.play(ctx, s, max(0, n-warmUp), r)
	seen()
	r.samples, r.Lag = <-samples, float64((<-lag).Microseconds())/1000
	r.Seconds = time.Since(began).Seconds()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	if r.End, err = s.settled(ctx, &r.Base); err != nil {
		return nil, err
	}
	return r, s.sumUp(r, all)
}

// settled waits until the gateway is quiet and, with a base, until its
// goroutines and files are back there, or it is clear that they are not.
func (s *site) settled(ctx context.Context, base *resources) (r resources, err error) {
	if err := s.quiet(ctx); err != nil {
		return r, err
	}
	for end := time.Now().Add(30 * time.Second); ; {
		page, err := s.page()
		if err != nil {
			return r, err
		}
		at := sampleOf(page, 0)
		r = resources{at.goroutines, at.files, at.rss / (1 << 20)}
		if base == nil || r.backAt(base) || time.Now().After(end) {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// comings is how many goroutines and files come and go with the gateway's own
// looking at eight engines.
const comings = 16

func (r *resources) backAt(base *resources) bool {
	return r.Goroutines <= base.Goroutines+comings && r.Files <= base.Files+comings
}

// sumUp fills in what the parts have in common.
func (s *site) sumUp(r *report, all []asking) (err error) {
	r.Requests = len(all)
	for i := range all {
		q := &all[i]
		r.Saw[q.saw]++
		if q.saw == witness.Truncated {
			r.Truncated++
		}
		if q.wrong != "" {
			if r.Wrong++; len(r.Shown) < wrongShown {
				r.Shown = append(r.Shown, q.wrong)
			}
		}
	}
	for _, sim := range s.sims {
		for kind, n := range sim.Stats().FaultedBy {
			r.Faults[kind] += n
		}
	}
	if r.Accounts, err = s.settle(all); err != nil {
		return err
	}
	page, err := s.page()
	if err != nil {
		return err
	}
	if n := int(sum(page, "penstock_retries_total", `reason="dial_failed"`)); n > 0 {
		r.Faults[enginetest.Refuse.String()] = n
	}
	var again []string
	again, r.Twice = s.duplicates(all, page)
	r.Forbidden = len(again)
	r.Shown = append(r.Shown, again[:min(len(again), wrongShown)]...)
	r.Amplification, r.Worst = amplification(r.samples)
	took := s.cancels(all)
	r.Cancels = len(took)
	r.CancelP50, r.CancelP99 = milliseconds(took, 0.5), milliseconds(took, 0.99)
	busy := []float64{}
	for i := range r.samples {
		busy = append(busy, r.samples[i].utilisation)
	}
	if slices.Sort(busy); len(busy) > 0 {
		r.Utilisation = busy[len(busy)/2]
		r.QuarterRSS = r.samples[len(r.samples)/4].rss / (1 << 20)
	}
	r.RSSPerHour = slope(r.samples, func(s *sample) float64 { return s.rss / (1 << 20) })
	r.FilesHour = slope(r.samples, func(s *sample) float64 { return s.files })
	r.GoroutHour = slope(r.samples, func(s *sample) float64 { return s.goroutines })
	return nil
}

// milliseconds is a quantile of sorted times.
func milliseconds(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Microseconds()) / 1000
}

// playChaos sends requests at a steady rate under weather, for as long as they
// last or for a given time.
func playChaos(rate float64, length time.Duration) func(context.Context, *site, int, *report) ([]asking, error) {
	return func(ctx context.Context, s *site, n int, r *report) ([]asking, error) {
		if length == 0 {
			length = lasts(n, rate)
		}
		under, clears := context.WithCancel(ctx)
		states := make(chan map[string]int, 1)
		go func() { states <- s.weather(under) }()
		all := s.steadily(ctx, warmUp, rate, length, bounded, time.Now(), s.bench.progress(s.part.name, int(rate*length.Seconds())))
		clears()
		maps.Copy(r.Faults, <-states)
		return all, nil
	}
}

func lasts(n int, rate float64) time.Duration {
	return time.Duration(float64(n) / rate * float64(time.Second))
}

// playFull offers twice what the engines take, at a steady rate; all but the
// first fail now and then.
func playFull(rate float64) func(context.Context, *site, int, *report) ([]asking, error) {
	return func(ctx context.Context, s *site, n int, r *report) ([]asking, error) {
		for i, fault := range []string{"status=500@0.03", "reset-before@0.03", "error-first=500@0.03"} {
			f, err := enginetest.ParseFault(fault)
			if err != nil {
				return nil, err
			}
			s.sims[i+1].SetFaults(f)
		}
		length := lasts(n, rate)
		all := s.steadily(ctx, warmUp, rate, length, unbounded, time.Now(), s.bench.progress(s.part.name, n))
		good := 0
		for i := range all {
			if all[i].saw == witness.Complete && all[i].ended <= length {
				good++
			}
		}
		r.Goodput = float64(good) / length.Seconds()
		for _, sim := range s.sims {
			sim.SetFaults()
		}
		return all, nil
	}
}

// partsNamed are those of the command line, in their order here.
func (b *bench) partsNamed() (list []*part, err error) {
	instant := func(n int) (engines []enginetest.Config) {
		for range n {
			engines = append(engines, enginetest.Config{Slots: 64, TBOT: 8 * time.Millisecond})
		}
		return engines
	}
	slow := func(n, slots, queue int) (engines []enginetest.Config) {
		for range n {
			engines = append(engines, enginetest.Config{Slots: slots, TBOT: perToken, QueueLimit: queue, Keep: keepOne})
		}
		return engines
	}
	quick := "[limits]\nfirst_content = \"2s\"\nstall = \"1s\"\n"
	patient := "[limits]\nfirst_content = \"" + firstContent.String() + "\"\nstall = \"1s\"\n"
	perSlot := float64(time.Second) / (serviceTokens * float64(perToken)) // requests/s
	all := []*part{
		{name: "chaos", title: "every fault, HTTP/1.1 and h2c", share: 0.3, engines: instant(8), config: quick, tokens: 6, refuses: true, play: playChaos(1000, 0)},
		{name: "tls", title: "every fault, TLS with h2 and HTTP/1.1", share: 0.16, engines: instant(8), config: quick, tokens: 6, refuses: true, tls: true, play: playChaos(800, 0)},
		{name: "full", title: "twice what four engines take", share: 0.1, engines: slow(4, 8, 1), config: patient, tokens: serviceTokens, play: playFull(2 * 4 * 8 * perSlot)},
		{name: "soak", title: "every fault at a steady rate", engines: slow(8, 8, 0), config: quick, tokens: serviceTokens, refuses: true,
			play: playChaos(0.8*8*8*perSlot, b.length)},
	}
	for i, kinds := range ways {
		all = append(all, &part{name: fmt.Sprint("one", i), title: "one of eight engines fails at a utilisation of 0.7", share: 0.44 / float64(len(ways)),
			engines: slow(8, oneSlots, 0), config: patient, perEngine: fmt.Sprintf("max_in_flight = %d", oneSlots), tokens: serviceTokens, refuses: true,
			play: b.playOne(kinds, oneLoad*8*oneSlots*perSlot)})
	}
	known := map[string]bool{}
	for _, p := range all {
		known[p.group()], known[p.name] = true, true
		if slices.Contains(b.parts, p.group()) || slices.Contains(b.parts, p.name) {
			p.seed = b.seed
			list = append(list, p)
		}
	}
	for _, name := range b.parts {
		if !known[name] {
			return nil, child.Wrong("--parts %s: known are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return list, nil
}

// The engines of the parts in which time counts: an answer takes a fifth of a
// second on an engine that has nothing else to do, so that a slot carries 5
// requests/s at most.
const (
	oneSlots      = 4
	oneLoad       = 0.64 // of what slots carry alone: a batch takes a tenth longer, so that 0.7 of the slots are busy
	serviceTokens = 16
	perToken      = 12500 * time.Microsecond
	firstContent  = 30 * time.Second
	keepOne       = 4000 // arrivals remembered by each
)
