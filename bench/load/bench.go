package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"penstock/bench/report"
)

// Bench measures targets in rounds: in each, all play the same plan, one after
// the other. Who is first changes from round to round, so that what drifts (a
// machine that warms up, a neighbour) strikes all alike.
type Bench struct {
	Targets  []*Target
	Scenario string
	Settings map[string]string
	SLO      *report.SLO
	Seed     uint64 // of the first round
	Rounds   int
	Pause    time.Duration // between plays
	Play     Play
	Plan     func(seed uint64) (*Plan, error)
	Raw      func(Result) error // hears of every measured request, one at a time; may be nil
	Progress func(Progress)     // a few times a second; may be nil
}

// Progress is how far a bench is.
type Progress struct {
	Share       float64 // of all plays' time
	Target      string
	Round       int // from 1
	Sent, Ended int64
	Bad         int64
}

// Run plays all rounds. Where ctx ends before, it returns what was measured by
// then, with interrupted true.
func (b *Bench) Run(ctx context.Context) (runs []report.Run, interrupted bool, err error) {
	plays := b.Rounds * len(b.Targets)
	for round := range b.Rounds {
		seed := b.Seed + uint64(round)
		plan, err := b.Plan(seed)
		if err != nil {
			return runs, false, err
		}
		for i := range b.Targets {
			target := b.Targets[(round+i)%len(b.Targets)]
			run, err := b.play(ctx, target, plan, seed, round, round*len(b.Targets)+i, plays)
			if err != nil {
				return runs, false, err
			}
			if run.Requests+run.Unfinished > 0 {
				runs = append(runs, run)
			}
			if !sleep(ctx, b.Pause, round == b.Rounds-1 && i == len(b.Targets)-1) {
				return runs, true, nil
			}
		}
	}
	return runs, false, nil
}

// sleep waits between plays; false: ctx ended.
func sleep(ctx context.Context, length time.Duration, last bool) bool {
	if last || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (b *Bench) play(ctx context.Context, target *Target, plan *Plan, seed uint64, round, number, plays int) (report.Run, error) {
	r := b.Play
	tally := NewTally(target.Name, b.Scenario, seed, r.Warm.Seconds(), r.Length.Seconds(), b.SLO, b.Settings)
	var mu sync.Mutex // guards rawErr, and lets one at a time write
	var rawErr error
	play := &Round{Play: b.Play, Target: target, Plan: plan, Seed: seed, Done: func(res Result) {
		tally.Add(res)
		if b.Raw == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if rawErr == nil {
			rawErr = b.Raw(res)
		}
	}}
	began := time.Now()
	over, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		b.show(play, began, over, Progress{Target: target.Name, Round: round + 1}, number, plays)
	}()
	play.Run(ctx)
	close(over)
	<-shown
	seconds := (r.Length - r.Warm).Seconds()
	if ctx.Err() != nil {
		seconds = min(seconds, max(0.001, (time.Since(began)-r.Warm).Seconds()))
	}
	if rawErr != nil {
		return report.Run{}, fmt.Errorf("writing raw results: %w", rawErr)
	}
	return tally.Run(seconds), nil
}

// show reports progress until the play is over.
func (b *Bench) show(play *Round, began time.Time, over <-chan struct{}, p Progress, number, plays int) {
	if b.Progress == nil {
		return
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case now := <-tick.C:
			p.Sent, p.Ended, p.Bad = play.Sent.Load(), play.Ended.Load(), play.Bad.Load()
			p.Share = (float64(number) + min(1, now.Sub(began).Seconds()/play.Length.Seconds())) / float64(plays)
			b.Progress(p)
		}
	}
}
