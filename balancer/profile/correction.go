package profile

import (
	"math"
	"time"

	"penstock/route"
)

// Correction is what the capacity of the profile that was configured for an
// engine is multiplied with: slowly, and within bounds, since who configured it
// had a reason. The zero value corrects nothing.
type Correction struct{ off float64 } // from 1

const (
	// mostOff bounds a correction to a quarter.
	mostOff = 0.25
	// slowly is its time constant: ten times as long as it takes from a change of
	// weights until the answers that it changed have been learned from.
	slowly = 3 * time.Minute
	// nearFull is a predicted load, as a share of the capacity, from which on
	// nothing is corrected: there a queue tells more of chance than of speed.
	nearFull = 0.9
)

// Observe moves the correction toward ratio, what an engine at that share of its
// capacity has shown over the time to carry of what its profile tells.
func (c *Correction) Observe(ratio, rho float64, over time.Duration) {
	if !(rho < nearFull) || !(ratio > 0) || math.IsInf(ratio, 0) || over <= 0 {
		return
	}
	target := min(max(ratio-1, -mostOff), mostOff)
	c.off += (target - c.off) * (1 - math.Exp(-float64(over)/float64(slowly)))
}

// Factor is between 0.75 and 1.25.
func (c *Correction) Factor() float64 { return 1 + c.off }

// Shown is what an engine's answers show it to carry of what its configured
// profile tells; 0 while they do not say. Where nobody knows its slots, their
// latency without load says it: as much slower, as much less.
func (k Known) Shown(speed route.Speed, mean Request) float64 {
	if k.Profile == nil || speed.Answers < Calibrating {
		return 0
	}
	curve, capacity := learned(speed, mean.usable(), Known{Slots: k.Slots, KVTokens: k.KVTokens})
	if speed.Slots > 0 {
		return capacity / most(*k.Profile)
	}
	return k.Profile.Zero() / curve.Zero()
}
