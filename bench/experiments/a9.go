package experiments

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"penstock/bench/sim"
)

// A9: what reweighting costs the engines' prefix caches: conversations on
// engines with KV memory, once with weights that stay and once with twenty
// others, one after the other.

type a9Result struct {
	Reweights int     `json:"reweights"`
	Steady    float64 `json:"kv_hit_steady"`
	Moving    float64 `json:"kv_hit_reweighted"`
	Moved     float64 `json:"moved"`
	E2E       float64 `json:"e2e_over_steady"`
}

const (
	a9Reweights = 20
	a9Keeps     = 0.95
	a9Wander    = 0.2 // of a weight's logarithm, each time anew
)

func runA9(o Options) (result, error) {
	requests, every := 20_000, 30*time.Second
	if o.Short {
		requests, every = 5_000, 12*time.Second
	}
	f, err := sim.ParseFleet(sim.ExampleFleet, "example fleet")
	if err != nil {
		return nil, err
	}
	policies, err := sim.ParsePolicies("capacity")
	if err != nil {
		return nil, err
	}
	rate := float64(requests) / (every.Seconds() * (a9Reweights + 2))
	p := &sim.Plan{Fleet: f, Seed: 1, Warm: every, Feed: func() (sim.Feed, error) {
		return &sim.Traffic{Rate: rate, Requests: requests, Seed: 1, Prompt: 300, PromptSigma: 0.7, Output: 150, OutputSigma: 0.5, Turns: 8,
			Pause: 15 * time.Second, System: 256, BlockTokens: 16}, nil
	}}
	weights := func(n int) []float64 {
		dice := rand.New(rand.NewPCG(uint64(n), 0xa9))
		w := make([]float64, len(f.Engines))
		for j := range w {
			w[j] = 10 * math.Exp(a9Wander*dice.NormFloat64())
		}
		return w
	}
	r := &a9Result{}
	var steady *sim.Summary
	if steady, err = p.Play(policies[0], func(int) []float64 { return weights(1) }, every); err != nil {
		return nil, err
	}
	o.progress(0.5, "with other weights")
	moving, err := p.Play(policies[0], func(n int) []float64 { r.Reweights = n; return weights(n) }, every)
	if err != nil {
		return nil, err
	}
	r.Steady, r.Moving, r.Moved, r.E2E = steady.KVHit, moving.KVHit, moving.Moved, moving.E2E.Mean/steady.E2E.Mean
	return r, nil
}

func (r *a9Result) missed() (bad []string) {
	if r.Reweights < a9Reweights {
		bad = append(bad, fmt.Sprintf("%d reweights: the run is too short", r.Reweights))
	}
	if r.Moving < a9Keeps*r.Steady {
		bad = append(bad, fmt.Sprintf("KV hits with reweights >= 0.95 of those without: %.3f of %.3f", r.Moving, r.Steady))
	}
	return bad
}

func (r *a9Result) print(w io.Writer) {
	fmt.Fprintf(w, "KV hits %.2f %% with weights that stay, %.2f %% (%.1f %% of it) with %d others; %.2f %% of later turns elsewhere than the turn before, mean latency %+.1f %%\n",
		100*r.Steady, 100*r.Moving, 100*r.Moving/r.Steady, r.Reweights, 100*r.Moved, 100*(r.E2E-1))
}
