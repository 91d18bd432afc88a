package experiments

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"penstock/balancer/solve"
	"penstock/bench/sim"
)

// A3: what of the modelled gain comes true. The same requests on the same
// engines under each policy: three regions, two kinds of GPU, engines that
// batch, cache prefixes and run out of KV memory. The model knows nothing of
// that: it has a curve for each engine. Requests are chats by chance, or a trace.

var (
	a3Utilisations = []float64{0.5, 0.7, 0.9}
	a3Policies     = "optimal,feedback,capacity,nearest,waterfall,waterfall-tuned,round-robin,least-request,p2c,bounded-hash,chwbl,cache-aware,queue-kv-prefix,selective-push,prequal"
)

const (
	a3Realised  = 0.8 // of the modelled gain over the waterfall
	a3Waterfall = 1.5 // mean latency of the waterfall over ours
	a3Warm      = time.Minute
)

// a3Row is one policy at one utilisation: medians over the seeds.
type a3Row struct {
	Policy  string  `json:"policy"`
	TTFT    float64 `json:"ttft_ms"`
	Mean    float64 `json:"e2e_ms"`
	P99     float64 `json:"e2e_p99_ms"`
	Good    float64 `json:"goodput"`
	Shed    float64 `json:"failed_or_shed"`
	KVHit   float64 `json:"kv_hit"`
	Moved   float64 `json:"moved"`
	NoWorse int     `json:"ours_no_worse"`     // seeds in which optimal has a mean no longer, and serves no fewer
	P99OK   int     `json:"ours_no_worse_p99"` // the same of the p99
	GoodOK  int     `json:"ours_no_fewer_good"`
}

type a3Level struct {
	Utilisation   float64 `json:"utilisation"`
	Rate          float64 `json:"rate"`
	ModelOptimal  float64 `json:"model_optimal_ms"`
	ModelFall     float64 `json:"model_waterfall_ms"`
	ModelCapacity float64 `json:"model_capacity_ms"`
	Realised      float64 `json:"realised"` // of the modelled gain over the waterfall
	Rows          []a3Row `json:"rows"`
}

type a3Result struct {
	Trace  string    `json:"trace"`
	Fleet  string    `json:"fleet"`
	Seeds  int       `json:"seeds"`
	Load   sim.Load  `json:"load"`
	Levels []a3Level `json:"levels"`
	short  bool
}

func runA3(o Options) (result, error) {
	seeds, requests := o.Seeds, 12_000
	if o.Short {
		seeds, requests = 1, 8_000
	}
	r := &a3Result{Trace: o.Trace, Seeds: seeds, short: o.Short}
	f := o.Fleet
	if f == nil {
		var err error
		if f, err = sim.ParseFleet(sim.ExampleFleet, "example fleet"); err != nil {
			return nil, err
		}
	}
	r.Fleet = f.Name
	if o.Trace == "" {
		r.Trace = "chats by chance"
	}
	policies, err := sim.ParsePolicies(a3Policies)
	if o.Short {
		policies, err = sim.ParsePolicies("optimal,capacity,waterfall,selective-push")
	}
	if err != nil {
		return nil, err
	}
	feed := func(seed uint64, speed float64) sim.Feed {
		if o.Requests != nil {
			return &sim.List{Requests: o.Requests, Speed: speed}
		}
		return &sim.Traffic{Rate: speed, Requests: requests, Seed: seed, Prompt: 400, PromptSigma: 1, Output: 250, OutputSigma: 0.8, Turns: 5,
			Pause: 20 * time.Second, System: 512, BlockTokens: 16}
	}
	if r.Load, _, err = f.Mean(feed(1, 1)); err != nil {
		return nil, err
	}
	_, carries := f.Capacities(r.Load)
	levels := a3Utilisations
	if o.Short {
		levels = []float64{0.8}
	}
	for at, u := range levels {
		level := a3Level{Utilisation: u, Rate: u * carries}
		level.ModelOptimal, level.ModelFall, level.ModelCapacity = modelled(f, r.Load, level.Rate)
		seen := make([][]*sim.Summary, len(policies))
		for seed := range uint64(seeds) {
			p := &sim.Plan{Fleet: f, Policies: policies, Seed: seed + 1, Warm: a3Warm, Load: r.Load, SLO: sim.SLO{TTFT: 2 * time.Second, TBOT: 100 * time.Millisecond},
				Feed: func() (sim.Feed, error) { return feed(seed+1, level.Rate/r.Load.Rate), nil },
				Progress: func(policy string, _ int) {
					o.progress((float64(at)+float64(seed)/float64(seeds))/float64(len(levels)), fmt.Sprintf("%.2f, seed %d, %s", u, seed+1, policy))
				}}
			if o.Short {
				p.Warm = 40 * time.Second
			}
			all, err := sim.Compare(p)
			if err != nil {
				return nil, err
			}
			for i := range all {
				seen[i] = append(seen[i], all[i])
			}
		}
		for i := range seen {
			level.Rows = append(level.Rows, a3RowOf(seen[i], seen[0]))
		}
		level.realise()
		r.Levels = append(r.Levels, level)
	}
	return r, nil
}

// modelled is the mean latency of the model under optimal weights, a waterfall
// and weights by capacity.
func modelled(f *sim.Fleet, l sim.Load, rate float64) (optimal, fall, capacity float64) {
	m := &fleetMap{rtt: make([][]float64, len(f.Regions))}
	index := make(map[string]int)
	sum := 0.0
	for i, r := range f.Regions {
		index[r.Name] = i
		m.source = append(m.source, i)
		m.demand = append(m.demand, r.Share)
		sum += r.Share
		for j := range f.Regions {
			m.rtt[i] = append(m.rtt[i], f.Network.Trip(i, j).Seconds()*1000)
		}
	}
	for i := range m.demand {
		m.demand[i] /= sum
	}
	curves, each := f.Curves(l)
	for j, e := range f.Engines {
		m.region = append(m.region, index[e.Region])
		m.engine = append(m.engine, curves[j])
		m.cap = append(m.cap, effective*each[j])
		m.total += effective * each[j]
	}
	flows, _ := m.optimal(new(solve.Solver), rate)
	return m.mean(flows), m.mean(m.waterfall(rate, 1)), m.mean(m.spray(rate))
}

func a3RowOf(all, ours []*sim.Summary) a3Row {
	of := func(f func(*sim.Summary) float64) float64 {
		var x []float64
		for _, s := range all {
			x = append(x, f(s))
		}
		return median(x)
	}
	row := a3Row{Policy: all[0].Policy,
		TTFT: of(func(s *sim.Summary) float64 { return s.TTFT.Mean }), Mean: of(func(s *sim.Summary) float64 { return s.E2E.Mean }),
		P99: of(func(s *sim.Summary) float64 { return s.E2E.P99 }), Good: of(func(s *sim.Summary) float64 { return s.Goodput }),
		Shed: of(func(s *sim.Summary) float64 { return 1 - s.Success }), KVHit: of(func(s *sim.Summary) float64 { return s.KVHit }),
		Moved: of(func(s *sim.Summary) float64 { return s.Moved })}
	for i := range all {
		if ours[i].E2E.Mean <= all[i].E2E.Mean && ours[i].Success >= all[i].Success-0.001 {
			row.NoWorse++
		}
		if ours[i].Goodput >= all[i].Goodput {
			row.GoodOK++
		}
		if ours[i].E2E.P99 <= all[i].E2E.P99 && ours[i].Success >= all[i].Success-0.001 {
			row.P99OK++
		}
	}
	return row
}

// realise compares the gain over the waterfall with the model's.
func (l *a3Level) realise() {
	ours, other := l.row("optimal"), l.row("waterfall")
	if gain := 1 - l.ModelOptimal/l.ModelFall; gain > 0 && ours != nil && other != nil {
		l.Realised = (1 - ours.Mean/other.Mean) / gain
	}
}

func (l *a3Level) row(name string) *a3Row {
	if i := slices.IndexFunc(l.Rows, func(r a3Row) bool { return r.Policy == name }); i >= 0 {
		return &l.Rows[i]
	}
	return nil
}

func (r *a3Result) missed() (bad []string) {
	for i := range r.Levels {
		l := &r.Levels[i]
		ours := l.row("optimal")
		if other := l.row("selective-push"); ours.Mean > other.Mean {
			bad = append(bad, fmt.Sprintf("mean latency no worse than selective-push at %.2f: %.0f ms and %.0f", l.Utilisation, ours.Mean, other.Mean))
		}
		if other := l.row("waterfall"); l.Utilisation >= 0.7 && other.Mean < a3Waterfall*ours.Mean {
			bad = append(bad, fmt.Sprintf("waterfall / optimal >= %.1f at %.2f: %.2f", a3Waterfall, l.Utilisation, other.Mean/ours.Mean))
		}
		if !r.short && l.Realised < a3Realised {
			bad = append(bad, fmt.Sprintf("%.0f %% of the modelled gain at %.2f: %.0f %%", 100*a3Realised, l.Utilisation, 100*l.Realised))
		}
	}
	return bad
}

func (r *a3Result) print(w io.Writer) {
	fmt.Fprintf(w, "%s on %s, median of %d seeds; a request has %.0f prompt tokens, %.0f of them seen before, and %.0f of answer\n",
		r.Trace, r.Fleet, r.Seeds, r.Load.Prompt, r.Load.Cached, r.Load.Output)
	for i := range r.Levels {
		l := &r.Levels[i]
		fmt.Fprintf(w, "\nutilisation %.2f, %.3g requests/s; the model has %.0f ms for optimal weights, %.0f for weights by capacity, %.0f for a waterfall; %.0f %% of the gain over that is realised\n",
			l.Utilisation, l.Rate, l.ModelOptimal, l.ModelCapacity, l.ModelFall, 100*l.Realised)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "policy\tTTFT ms\tE2E ms\tp99\tgood\tnot served\tKV hit\tmoved\toptimal no worse: mean\tp99\tgood\t")
		for _, row := range l.Rows {
			fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.1f%%\t%.1f%%\t%.1f%%\t%.1f%%\t%d of %d\t%d of %d\t%d of %d\t\n", row.Policy, row.TTFT, row.Mean, row.P99, 100*row.Good, 100*row.Shed,
				100*row.KVHit, 100*row.Moved, row.NoWorse, r.Seeds, row.P99OK, r.Seeds, row.GoodOK, r.Seeds)
		}
		_ = t.Flush()
	}
}
