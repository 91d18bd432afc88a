package main

import (
	"context"
	"math/rand/v2"
	"time"

	"penstock/engine/enginetest"
)

// storms are the faults of the chaos parts. Refusing, slowing down, and lying
// to probes are states of an engine; all others befall requests.
var storms = []string{
	"reset-before", "reset-headers", "reset-after=0", "reset-after=3", "cut-after=0", "cut-after=3", "no-done=0", "no-done=3", "no-done-finish",
	"error-first=500", "error-first=503", "error-first=429", "error-first=400", "error-after=0", "error-after=3", "silent", "headers-only",
	"stall-after=3", "garbage", "bad-json-after=0", "bad-json-after=3", "html", "status=500", "status=503", "status=429", "status=422",
	"empty", "truncate", "refuse", "slow=30", "health=500", "health-hang", "metrics=500",
}

const (
	calmShare = 0.5 // of the engines at any time
	// stormLasts is short: an engine flaps, and is out by the time that its next
	// fault comes.
	stormLasts = time.Second
)

// weather gives every engine another fault, or none, again and again until ctx
// ends. The first engine is never in a storm: where no engine works nothing
// that clients see tells right from wrong. It returns how often each state was
// set that befalls no single request.
func (s *site) weather(ctx context.Context) map[string]int {
	dice := rand.New(rand.NewPCG(s.part.seed, 11))
	states := map[string]int{}
	tick := time.NewTicker(stormLasts)
	defer tick.Stop()
	for {
		for i, sim := range s.sims {
			if i == 0 || dice.Float64() < calmShare {
				sim.SetFaults()
				continue
			}
			f, err := enginetest.ParseFault(storms[dice.IntN(len(storms))])
			if err != nil {
				panic(err) // storms is a constant
			}
			switch f.Kind {
			case enginetest.Refuse:
				f.For = stormLasts / 2 // how many it befell the gateway counts
			case enginetest.Slow, enginetest.Health, enginetest.HealthHang, enginetest.Metrics:
				states[f.Kind.String()]++
			default:
				f.P = [...]float64{0.05, 0.2, 1}[dice.IntN(3)] // less than what opens a breaker, mostly
			}
			sim.SetFaults(f)
		}
		select {
		case <-ctx.Done():
			for _, sim := range s.sims {
				sim.SetFaults()
			}
			return states
		case <-tick.C:
		}
	}
}
