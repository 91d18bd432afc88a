package main

import (
	"slices"
	"time"
)

// tail is how long load goes on behind the measured time, so that the last
// measured answers meet the same company as the others.
const tail = 5 * time.Second

// seen is one measured turn as its client saw it. Times count from when it was due.
type seen struct {
	due            time.Duration
	engine         string
	late           time.Duration // how long after it could have been sent it was
	first, total   time.Duration
	out            int
	prompt, cached int
	fault          string // "" = a whole answer
}

// Limits of a good answer.
const (
	goodFirst   = time.Second
	goodBetween = 60 * time.Millisecond
)

// between is the mean time from token to token.
func (r *seen) between() time.Duration {
	if r.out < 2 {
		return 0
	}
	return (r.total - r.first) / time.Duration(r.out-1)
}

func (r *seen) good(stretch float64) bool {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * stretch) }
	return r.fault == "" && r.first <= scale(goodFirst) && r.between() <= scale(goodBetween)
}

// figures are what a run comes to. Times in seconds, with stretch taken out.
type figures struct {
	Turns    int                `json:"turns"`
	Faults   map[string]int     `json:"faults,omitempty"`
	Mean     float64            `json:"mean_s"` // end to end, of whole answers
	P99      float64            `json:"p99_s"`
	First    float64            `json:"ttft_mean_s"`
	FirstP99 float64            `json:"ttft_p99_s"`
	Between  float64            `json:"tbot_mean_s"`
	Good     float64            `json:"goodput"`    // share of all turns
	GoodRate float64            `json:"good_per_s"` // good answers per second
	Hit      float64            `json:"prefix_hit"` // share of prompt tokens
	Share    map[string]float64 `json:"share"`      // of turns by engine
	Late     float64            `json:"late_p99_s"` // of the load generator
}

func sum(all []seen, stretch float64, measure time.Duration) figures {
	f := figures{Turns: len(all), Faults: make(map[string]int), Share: make(map[string]float64)}
	var totals, firsts, lates []float64
	prompt, cached, placed := 0, 0, 0
	sec := func(d time.Duration) float64 { return d.Seconds() / stretch }
	good := 0
	for i := range all {
		r := &all[i]
		if r.engine != "" {
			f.Share[r.engine]++
			placed++
		}
		lates = append(lates, sec(r.late))
		if r.fault != "" {
			f.Faults[r.fault]++
			continue
		}
		if r.good(stretch) {
			good++
		}
		totals, firsts = append(totals, sec(r.total)), append(firsts, sec(r.first))
		f.Between += sec(r.between())
		prompt += r.prompt
		cached += r.cached
	}
	for e := range f.Share {
		f.Share[e] /= float64(placed)
	}
	n := float64(max(1, len(totals)))
	f.Mean, f.P99 = mean(totals), quantile(totals, 0.99)
	f.First, f.FirstP99 = mean(firsts), quantile(firsts, 0.99)
	f.Between /= n
	f.Good = float64(good) / float64(max(1, len(all)))
	f.GoodRate = float64(good) / measure.Seconds() * stretch
	f.Hit = float64(cached) / float64(max(1, prompt))
	f.Late = quantile(lates, 0.99)
	return f
}

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(q*float64(len(x))))]
}
