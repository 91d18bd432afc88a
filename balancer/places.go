package balancer

import (
	"math"
	"time"

	"penstock/engine"
	"penstock/route"
)

// Several gateways fill one engine: they divide its places, so that all of them
// together send it what it takes, and not each of them. A gateway's share of an
// engine is that of its source in what the plan has in flight there, divided
// among the gateways of the source, and a little of every engine for what
// nobody planned. It has that many places whatever others do; those that nobody
// uses go to who uses the others, and come back within some seconds. Without the leader's word shares stay, and what others
// use is not known: then each has its share and no more.
const (
	// unplannedPart of each engine is divided evenly among all gateways.
	unplannedPart = 0.1
	// wordFor is how long the last word of what others have in flight counts: as
	// long as a gateway's report does.
	wordFor = 3500 * time.Millisecond
	// wordAge is how old that word may be when it comes: a report's wait and a
	// snapshot's. What a gateway adds to is what it had then, not what it has taken
	// since, or each would take what is free several times before others know.
	wordAge = 1250 * time.Millisecond
)

// lately is the least that a gateway had in flight on an engine since between one
// and two wordAges ago.
type lately struct {
	since     time.Time
	was, last float64
}

// least takes what is in flight now.
func (l *lately) least(inFlight float64, now time.Time) float64 {
	switch {
	case l.since.IsZero():
		l.since, l.was, l.last = now, inFlight, inFlight
	case now.Sub(l.since) >= wordAge:
		l.since, l.was, l.last = now, l.last, inFlight
	default:
		l.last = min(l.last, inFlight)
	}
	return min(l.was, l.last)
}

// sharing is how places are divided for one gateway.
type sharing struct {
	gateways int                // of all sources
	even     float64            // its share of an engine of which nothing is planned
	share    map[string]float64 // of those where something is
}

// sharesOf divides places by a plan for a gateway of that source. gateways are
// those that there are, by source.
func sharesOf(p *route.Plan, source string, gateways map[string]int) *sharing {
	s := &sharing{gateways: max(1, gateways[source])}
	for other, n := range gateways {
		if other != source {
			s.gateways += n
		}
	}
	s.even = 1 / float64(s.gateways)
	if s.gateways == 1 || p == nil {
		return s
	}
	own, all := make(map[string]float64), make(map[string]float64)
	for i := range p.Rows {
		row := &p.Rows[i]
		for _, w := range row.Weights {
			all[w.Engine] += w.InFlight
			if row.Source == source {
				own[w.Engine] += w.InFlight
			}
		}
	}
	s.share = make(map[string]float64, len(all))
	near := float64(max(1, gateways[source]))
	for name, planned := range all {
		if planned > 0 {
			s.share[name] = unplannedPart*s.even + (1-unplannedPart)*own[name]/planned/near
		}
	}
	return s
}

// of is the share of one engine.
func (s *sharing) of(name string) float64 {
	if v, ok := s.share[name]; ok {
		return v
	}
	return s.even
}

// allowed is how many attempts at once a gateway may have on an engine that
// takes so many, with its own there as of the last word of all, where that is
// known. At least one: else it could never find out that the engine is there.
func allowed(places int64, share, own, all float64, known bool) int64 {
	n := share * float64(places)
	switch free := float64(places) - all; {
	case !known:
	case free < 0: // whoever has more than its share gives back what is too much
		n = max(n, own+free)
	default:
		if all > 0 { // who uses it needs it
			share = max(share, min(own/all, 1))
		}
		n = max(n, own+share*free)
	}
	return max(1, int64(math.Round(n)))
}

// divide bounds what this gateway sends to each engine to its part.
func (l *Loop) divide(set *engine.Set, p *route.Plan, now time.Time) {
	s := sharesOf(p, l.tables.Load().Source, l.peers.Gateways())
	heard := l.peers.PlanAge() <= wordFor
	for _, e := range set.Engines {
		if s.gateways == 1 {
			e.Allow(0, now)
			continue
		}
		elsewhere := -1.0
		if heard {
			elsewhere = l.observer.elsewhereOn(e)
		}
		inFlight := float64(e.InFlight())
		e.Allow(allowed(e.Places(), s.of(e.Name), l.observer.leastOn(e, inFlight, now), inFlight+elsewhere, elsewhere >= 0), now)
	}
}
