package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"penstock/bench/witness"
	"penstock/engine/enginetest"
)

// Ways to fail of the one engine: by when clients and gateway notice.
type noticed uint8

const (
	atOnce noticed = iota // before any content, in no time
	late                  // by its silence alone
	midway                // after content
)

type way struct {
	fault string
	when  noticed
}

// ways are those of each gateway of this part; they run at the same time.
var ways = [][]way{
	{{"reset-before", atOnce}, {"reset-after=3", midway}, {"status=500", atOnce}, {"silent", late}},
	{{"error-first=500", atOnce}, {"cut-after=3", midway}, {"refuse", atOnce}, {"headers-only", late}},
	{{"html", atOnce}, {"no-done=3", midway}, {"empty", atOnce}, {"error-after=3", midway}},
	{{"garbage", atOnce}, {"stall-after=3", midway}, {"reset-headers", atOnce}, {"bad-json-after=3", midway}},
}

// storm is what came of one engine's failing in one way.
type storm struct {
	Fault    string  `json:"fault"`
	When     noticed `json:"-"`
	Requests int     `json:"requests"` // repeatable ones that came meanwhile, of clients that stayed
	Failed   int     `json:"failed"`   // of them
	Met      int     `json:"met"`      // requests at the engine until it was out
	OutAfter float64 `json:"out_after_seconds"`
	Later    float64 `json:"later_per_10s"`          // requests at the engine after that
	Healed   float64 `json:"healed_share,omitempty"` // of an equal share, 35 to 45 s after it
}

const (
	// outGap is a pause in an engine's requests that its share of them makes
	// out of the question: it is out.
	outGap = time.Second
	// healedFrom and healedUntil bound when the engine that failed last must
	// have its share again.
	healedFrom  = 35 * time.Second
	healedUntil = 45 * time.Second
	stormMost   = 10 * time.Second
	stormLeast  = 3 * time.Second
	stormShare  = 3 // one part of so many of the time is storm: engines that come back start slowly
)

// playOne lets one engine fail in one way after the other, a different engine
// each time, and then waits for the last one to be back.
func (b *bench) playOne(ways []way, rate float64) func(context.Context, *site, int, *report) ([]asking, error) {
	return func(ctx context.Context, s *site, n int, r *report) ([]asking, error) {
		length := lasts(n, rate)
		each := max(stormLeast, length/time.Duration(len(ways)))
		heal := each >= healedUntil+stormLeast
		count := min(len(ways), int(length/each))
		lasting := min(stormMost, max(stormLeast*2/3, each/stormShare))
		began := time.Now()
		type span struct {
			engine      int
			from, until time.Time
		}
		var spans []span
		calm := make(chan struct{})
		go func() {
			defer close(calm)
			for k := range count {
				f, err := enginetest.ParseFault(ways[k].fault)
				if err != nil {
					panic(err) // ways is a constant
				}
				sp := span{engine: 1 + k%(len(s.sims)-1), from: began.Add(time.Duration(k) * each)}
				sp.until = sp.from.Add(lasting)
				sleepUntil(ctx, sp.from)
				s.sims[sp.engine].SetFaults(f)
				sp.from = time.Now()
				sleepUntil(ctx, sp.until)
				s.sims[sp.engine].SetFaults()
				spans = append(spans, sp)
			}
		}()
		all := s.steadily(ctx, warmUp, rate, length, unbounded, began, b.progress(s.part.name, n))
		<-calm
		for k, sp := range spans {
			st := storm{Fault: ways[k].fault, When: ways[k].when}
			st.Met, st.OutAfter, st.Later = s.metBy(sp.engine, sp.from, sp.until)
			for i := range all {
				q := &all[i]
				at := began.Add(q.begun)
				if at.Before(sp.from) || at.After(sp.until) || !q.stays || q.inner || q.kind == witness.Response {
					continue
				}
				if st.Requests++; q.saw != witness.Complete {
					st.Failed++
				}
			}
			r.Storms = append(r.Storms, st)
		}
		if heal {
			for k, sp := range spans {
				from, until := sp.until.Add(healedFrom), sp.until.Add(healedUntil)
				whole := 0
				for i := range s.sims {
					whole += len(s.arrivals(i, from, until))
				}
				if until.Before(began.Add(length)) {
					r.Storms[k].Healed = float64(len(s.arrivals(sp.engine, from, until))*len(s.sims)) / float64(max(whole, 1))
				}
			}
		}
		return all, nil
	}
}

func sleepUntil(ctx context.Context, at time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(at)):
	}
}

// arrivals are the times at which the part's requests came to an engine.
func (s *site) arrivals(engine int, from, until time.Time) (at []time.Time) {
	for _, req := range s.sims[engine].Requests() {
		if strings.HasPrefix(req.ID, s.part.name+"-") && !req.At.Before(from) && !req.At.After(until) {
			at = append(at, req.At)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// metBy says how many requests came to an engine that fails until it was out,
// when that was, counted from the first, and how many came later.
func (s *site) metBy(engine int, from, until time.Time) (met int, out, later float64) {
	at := s.arrivals(engine, from, until)
	if len(at) == 0 {
		return 0, 0, 0
	}
	last := 0
	for last+1 < len(at) && at[last+1].Sub(at[last]) < outGap {
		last++
	}
	rest := until.Sub(at[last]).Seconds()
	return last + 1, at[last].Sub(at[0]).Seconds(), float64(len(at)-last-1) * 10 / cmp.Or(max(rest, 10), 10)
}
