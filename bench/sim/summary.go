package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/protect"
)

// SLO is what a request has to keep to count as good; 0: whatever.
type SLO struct {
	TTFT time.Duration `json:"ttft_ns,omitempty"`
	E2E  time.Duration `json:"e2e_ns,omitempty"`
	TBOT time.Duration `json:"tbot_ns,omitempty"`
}

// Result is what a run came to: the records, and counts that no record has.
type Result struct {
	policy  Policy
	fleet   *Fleet
	seed    uint64
	records []record
	stats   stats
	until   time.Duration
}

func (w *world) result() *Result {
	return &Result{policy: w.Policy, fleet: w.Fleet, seed: w.Seed, records: w.records, stats: w.stats, until: w.now}
}

// Spread is a distribution in a few numbers, in ms.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Summary is a run as people compare it.
type Summary struct {
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`
	Requests int     `json:"requests"` // that count: after the warm-up
	Seconds  float64 `json:"seconds"`  // from the first of them to the last

	TTFT Spread `json:"ttft_ms"`
	E2E  Spread `json:"e2e_ms"`
	TBOT Spread `json:"tbot_ms"`

	Success float64            `json:"success"` // part of all requests
	Goodput float64            `json:"goodput"` // part of all requests that keeps the SLO
	Rate    float64            `json:"good_per_second"`
	Shed    map[string]float64 `json:"shed"`   // part of all requests of that priority
	Failed  map[string]int     `json:"failed"` // requests, by how they ended
	KVHit   float64            `json:"kv_hit"` // part of prompt tokens that were cached
	Moved   float64            `json:"moved"`  // part of later turns that were elsewhere than the turn before
	Spill   float64            `json:"spill"`  // part of requests with a key that were served beside its engine; NaN-free: 0 under foreign policies
	Remote  float64            `json:"remote"` // part of requests that were served in another region
	// Imbalance is the mean load of the most loaded engine, in requests over
	// slots, over the mean of all.
	Imbalance  float64 `json:"imbalance"`
	Dispatches float64 `json:"dispatches"` // attempts per request
	Peak       int     `json:"peak_open"`  // most requests under way at once
	Bound      int     `json:"bound"`      // requests that had to be served in a certain region
	Fill       float64 `json:"fill,omitempty"`

	Engines []EngineSummary `json:"engines"`
	Flows   []Flow          `json:"flows"`
	Series  []Interval      `json:"series"`

	PromptTokens int `json:"prompt_tokens"` // of whole answers
	CachedTokens int `json:"cached_tokens"`
	OutputTokens int `json:"output_tokens"`
	OK           int `json:"ok"`
	Good         int `json:"good"`
	ShedCount    int `json:"shed_count"`

	ttft, e2e, tbot []float64 // sorted
}

// Times are the times of all whole answers in ms, sorted; not to be changed.
func (s *Summary) Times() (ttft, e2e, tbot []float64) { return s.ttft, s.e2e, s.tbot }

// Flow is what went from a region's gateway to an engine.
type Flow struct {
	Source   string  `json:"source"`
	Engine   string  `json:"engine"`
	Requests int     `json:"requests"`
	Mean     float64 `json:"e2e_ms_mean"`
}

// EngineSummary is what one engine did.
type EngineSummary struct {
	Name     string  `json:"name"`
	Region   string  `json:"region"`
	Requests int     `json:"requests"`
	Load     float64 `json:"load"`
}

// Interval is a stretch of the run.
type Interval struct {
	At      float64 `json:"at_s"`
	Offered float64 `json:"offered_per_second"`
	Done    float64 `json:"done_per_second"`
	TTFT    float64 `json:"ttft_ms_mean"`
	E2E     float64 `json:"e2e_ms_mean"`
	Shed    float64 `json:"shed_per_second"`
}

const intervals = 120

// Summarise counts requests that came from warm on.
func (res *Result) Summarise(slo SLO, warm time.Duration) *Summary {
	s := &Summary{Policy: res.policy.Name, Seed: res.seed, Fill: res.policy.fill, Shed: map[string]float64{}, Failed: map[string]int{}, Peak: res.stats.peak}
	var ttft, e2e, tbot []float64
	var came, shed [int(protect.Sheddable) + 1]float64
	var prompt, cached, later, moved, spill, keyed, remote, good float64
	first, lastAt := time.Duration(math.MaxInt64), time.Duration(0)
	s.Engines = make([]EngineSummary, len(res.fleet.Engines))
	flows := make([]Flow, len(res.fleet.Regions)*len(res.fleet.Engines))
	for i := range res.records {
		c := &res.records[i]
		if c.at < warm {
			continue
		}
		s.Requests++
		first, lastAt = min(first, c.at), max(lastAt, c.at)
		came[c.priority]++
		if c.flags&flagBound != 0 {
			s.Bound++
		}
		if c.how != whole {
			s.Failed[c.how.String()]++
			if c.how.shed() {
				shed[c.priority]++
				s.ShedCount++
			}
			continue
		}
		if c.server >= 0 {
			s.Engines[c.server].Requests++
			f := &flows[int(c.source)*len(res.fleet.Engines)+int(c.server)]
			f.Requests++
			f.Mean += float64(c.e2e)
		}
		ttft, e2e = append(ttft, float64(c.ttft)), append(e2e, float64(c.e2e))
		between := 0.0
		if c.out > 1 {
			between = float64(c.e2e-c.ttft) / float64(c.out-1)
			tbot = append(tbot, between)
		}
		if keeps(float64(c.ttft), slo.TTFT) && keeps(float64(c.e2e), slo.E2E) && keeps(between, slo.TBOT) {
			good++
		}
		s.PromptTokens += int(c.prompt)
		s.CachedTokens += int(c.cached)
		s.OutputTokens += int(c.out)
		prompt += float64(c.prompt)
		cached += float64(c.cached)
		keyed++
		spill += flagged(c, flagSpill)
		later += flagged(c, flagLater)
		moved += flagged(c, flagMoved)
		remote += flagged(c, flagRemote)
	}
	n := float64(max(s.Requests, 1))
	s.Seconds = max(0, (lastAt - first).Seconds())
	s.Success, s.Goodput, s.Rate = float64(len(e2e))/n, good/n, good/max(s.Seconds, 1e-9)
	s.KVHit, s.Moved, s.Spill, s.Remote = cached/max(prompt, 1), moved/max(later, 1), spill/max(keyed, 1), remote/max(float64(len(e2e)), 1)
	s.Dispatches = float64(res.stats.dispatches) / float64(max(len(res.records), 1))
	for p := range came {
		if came[p] > 0 {
			s.Shed[protect.Priority(p).String()] = shed[p] / came[p]
		}
	}
	res.engines(s)
	s.series(res, warm)
	slices.Sort(ttft)
	slices.Sort(e2e)
	slices.Sort(tbot)
	s.TTFT, s.E2E, s.TBOT = spreadOf(ttft), spreadOf(e2e), spreadOf(tbot)
	s.OK, s.Good = len(e2e), int(good)
	s.ttft, s.e2e, s.tbot = ttft, e2e, tbot
	for k := range flows {
		if f := &flows[k]; f.Requests > 0 {
			f.Source, f.Engine = res.fleet.Regions[k/len(res.fleet.Engines)].Name, res.fleet.Engines[k%len(res.fleet.Engines)].Name
			f.Mean /= float64(f.Requests)
			s.Flows = append(s.Flows, *f)
		}
	}
	return s
}

func keeps(ms float64, most time.Duration) bool { return most == 0 || ms <= most.Seconds()*1000 }

func flagged(c *record, f uint8) float64 {
	if c.flags&f != 0 {
		return 1
	}
	return 0
}

func (res *Result) engines(s *Summary) {
	sum, most := 0.0, 0.0
	for i, e := range res.fleet.Engines {
		load := res.stats.load[i] / float64(max(res.stats.looks, 1))
		s.Engines[i].Name, s.Engines[i].Region, s.Engines[i].Load = e.Name, e.Region, load
		sum += load
		most = max(most, load)
	}
	if sum > 0 {
		s.Imbalance = most / (sum / float64(len(res.fleet.Engines)))
	}
}

func (s *Summary) series(res *Result, warm time.Duration) {
	if len(res.records) == 0 || s.Seconds <= 0 {
		return
	}
	width := time.Duration(s.Seconds/intervals*1e9) + 1
	s.Series = make([]Interval, intervals)
	for i := range s.Series {
		s.Series[i].At = (warm + time.Duration(i)*width).Seconds()
	}
	for i := range res.records {
		c := &res.records[i]
		k := int((c.at - warm) / width)
		if c.at < warm || k >= len(s.Series) {
			continue
		}
		v := &s.Series[k]
		v.Offered++
		switch {
		case c.how == whole:
			v.Done++
			v.TTFT += float64(c.ttft)
			v.E2E += float64(c.e2e)
		case c.how.shed():
			v.Shed++
		}
	}
	for i := range s.Series {
		v := &s.Series[i]
		v.TTFT, v.E2E = v.TTFT/max(v.Done, 1), v.E2E/max(v.Done, 1)
		for _, r := range []*float64{&v.Offered, &v.Done, &v.Shed} {
			*r /= width.Seconds()
		}
	}
}

// quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func spreadOf(sorted []float64) Spread {
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	return Spread{Mean: sum / float64(max(len(sorted), 1)), P50: quantile(sorted, 0.5), P95: quantile(sorted, 0.95), P99: quantile(sorted, 0.99)}
}

func spreadOfAny(values []float64) Spread {
	slices.Sort(values)
	return spreadOf(values)
}

// Average is the mean of a policy's runs with several seeds, figure by figure.
func Average(all []*Summary) *Summary {
	m := &Summary{Policy: all[0].Policy, Seed: all[0].Seed, Fill: all[0].Fill, Shed: map[string]float64{}, Failed: map[string]int{}}
	n := float64(len(all))
	for _, s := range all {
		m.Requests += s.Requests
		for _, f := range []struct {
			to *float64
			of float64
		}{
			{&m.TTFT.Mean, s.TTFT.Mean}, {&m.TTFT.P50, s.TTFT.P50}, {&m.TTFT.P95, s.TTFT.P95}, {&m.TTFT.P99, s.TTFT.P99},
			{&m.E2E.Mean, s.E2E.Mean}, {&m.E2E.P50, s.E2E.P50}, {&m.E2E.P95, s.E2E.P95}, {&m.E2E.P99, s.E2E.P99},
			{&m.TBOT.Mean, s.TBOT.Mean}, {&m.Success, s.Success}, {&m.Goodput, s.Goodput}, {&m.KVHit, s.KVHit}, {&m.Moved, s.Moved},
			{&m.Spill, s.Spill}, {&m.Remote, s.Remote}, {&m.Imbalance, s.Imbalance}, {&m.Dispatches, s.Dispatches},
		} {
			*f.to += f.of / n
		}
		for p, part := range s.Shed {
			m.Shed[p] += part / n
		}
		for how, k := range s.Failed {
			m.Failed[how] += k
		}
	}
	return m
}

// Best is the summary with the most good requests, and of those the least mean
// latency: who sheds what is hard has the better latencies.
func Best(all []*Summary) *Summary {
	return slices.MinFunc(all, func(a, b *Summary) int {
		return cmp.Or(cmp.Compare(b.Goodput, a.Goodput), cmp.Compare(a.E2E.Mean, b.E2E.Mean))
	})
}
