package sim

import (
	"errors"
	"io"
	"time"
)

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Plan is what is to be compared: policies on the same requests.
type Plan struct {
	Fleet    *Fleet
	Policies []Policy
	Feed     func() (Feed, error) // anew for each run
	Load     Load                 // of what it gives
	Seed     uint64
	SLO      SLO
	Warm     time.Duration
	Clients  *Clients
	Progress func(policy string, requests int)
}

// Play runs one policy.
func (p *Plan) Play(policy Policy, reweigh func(n int) []float64, every time.Duration) (*Summary, error) {
	feed, err := p.Feed()
	if err != nil {
		return nil, err
	}
	r, err := Run(Options{Fleet: p.Fleet, Policy: policy, Seed: p.Seed, Clients: p.Clients, Reweigh: reweigh, ReweighEvery: every}, feed)
	if err != nil {
		return nil, err
	}
	return r.Summarise(p.SLO, p.Warm), nil
}

// tunedFills are the thresholds that the tuned waterfall tries.
var tunedFills = []float64{0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}

// Compare runs all policies, one after the other.
func Compare(p *Plan) (all []*Summary, err error) {
	for _, policy := range p.Policies {
		if policy.Name != waterfallTuned {
			s, err := p.run(policy)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
			continue
		}
		var tries []*Summary
		for _, fill := range tunedFills {
			policy.fill = fill / 0.95 // what the planner leaves free comes on top
			policy.capacity, _ = p.Fleet.Capacities(p.Load)
			s, err := p.run(policy)
			if err != nil {
				return nil, err
			}
			s.Fill = fill
			tries = append(tries, s)
		}
		all = append(all, Best(tries))
	}
	return all, nil
}

func (p *Plan) run(policy Policy) (*Summary, error) {
	feed, err := p.Feed()
	if err != nil {
		return nil, err
	}
	o := Options{Fleet: p.Fleet, Policy: policy, Seed: p.Seed, Clients: p.Clients}
	if p.Progress != nil {
		o.Progress = func(n int) { p.Progress(policy.Name, n) }
	}
	r, err := Run(o, feed)
	if err != nil {
		return nil, err
	}
	return r.Summarise(p.SLO, p.Warm), nil
}
