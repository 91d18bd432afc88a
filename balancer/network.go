package balancer

import (
	"math"
	"slices"

	"penstock/route"
)

// NetworkConfig is [network] of the configuration file.
type NetworkConfig struct {
	RTT map[string]map[string]float64 `toml:"rtt_ms"` // by source and cluster, in ms; absent: measured
}

// maxRTT is longer than a connection may take to be there, in ms.
const maxRTT = 10_000

// WantRTT is what a round trip has to be.
const WantRTT = "0 to 10000 milliseconds"

// GoodRTT reports whether a round trip can be configured.
func GoodRTT(ms float64) bool { return ms >= 0 && ms <= maxRTT && !math.IsNaN(ms) }

// between is the configured round trip from a source to an engine; ok is false
// where the configuration says nothing.
func (c *NetworkConfig) between(source string, e *EngineView) (ms float64, ok bool) {
	ms, ok = c.RTT[source][e.Cluster]
	return ms, ok
}

// Round trips of which nothing is known: a cluster is near to itself, and as
// far from another as the farthest that is known, or farRTT where none is. An
// engine that nobody has reached yet must not look nearer than it may be.
const (
	nearRTT = 1  // ms
	farRTT  = 50 // ms
)

// tripsOf is the round trip of every source and engine: what is configured,
// else the least that a gateway of the source measured, else what another
// engine of the same cluster has, else a guess by rule, which is counted. What
// was measured is in whole ms, and within one of its cluster's least is that
// least: finer differences are not worth a move, and engines of one cluster
// stay equal. Nor is a source's own cluster left for one that looks nearer by
// less than that.
func tripsOf(in *Inputs, s *Situation, demands []*route.Demand, index map[string]int) (trips [][]float64, guessed int) {
	trips = make([][]float64, len(s.Sources))
	for i := range trips {
		trips[i] = slices.Repeat([]float64{math.NaN()}, len(s.Engines))
	}
	for _, d := range demands {
		at, _ := slices.BinarySearch(s.Sources, d.Source)
		for _, seen := range d.Engines {
			j, ok := index[seen.Engine]
			if ok && seen.RTT >= 0 && !(trips[at][j] <= seen.RTT) {
				trips[at][j] = seen.RTT
			}
		}
	}
	for i, source := range s.Sources {
		guessed += in.completeTrips(source, s.Engines, trips[i])
	}
	return trips, guessed
}

// completeTrips turns what one source has measured to each engine, NaN where
// it has not, into its round trips.
func (in *Inputs) completeTrips(source string, engines []EngineView, trips []float64) (guessed int) {
	least := make(map[string]float64) // by cluster
	for j := range engines {
		if known, ok := least[engines[j].Cluster]; trips[j] >= 0 && (!ok || trips[j] < known) {
			least[engines[j].Cluster] = trips[j]
		}
	}
	whole := make(map[string]float64, len(least)) // least in whole ms
	for cluster, ms := range least {
		whole[cluster] = math.Round(ms)
	}
	for _, ms := range least {
		if own, ok := least[source]; ok && own-ms < 1 {
			whole[source] = min(whole[source], math.Round(ms))
		}
	}
	farthest := math.NaN()
	for j := range engines {
		e := &engines[j]
		trips[j] = whole[e.Cluster] + math.Floor(trips[j]-least[e.Cluster])
		if in.Network != nil {
			if ms, ok := in.Network(source, e); ok {
				trips[j] = ms
			}
		}
		if trips[j] >= 0 && !(farthest >= trips[j]) {
			farthest = trips[j]
		}
	}
	if math.IsNaN(farthest) {
		farthest = farRTT
	}
	for j := range engines {
		e := &engines[j]
		if !math.IsNaN(trips[j]) {
			continue
		}
		ms, ok := whole[e.Cluster]
		switch {
		case ok:
		case e.Cluster == source:
			ms = min(nearRTT, farthest)
			guessed++
		default:
			ms = farthest
			guessed++
		}
		trips[j] = ms
	}
	return guessed
}
