package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"penstock/route"
)

// maxGateways bounds those of a fleet.
const maxGateways = 4096

// ReportEvery is the time between two reports of a gateway, but for jitter;
// one that misses Misses of them is dropped.
const ReportEvery = time.Second

// reportLife is how long a report counts.
const reportLife = Misses*ReportEvery + ReportEvery/2

// Roll is who reports: the last word of every gateway. Freshness is by when it
// came. Not safe for concurrent use.
type Roll struct {
	entries map[string]*entry
}

type entry struct {
	from   Identity
	seq    uint64
	heard  time.Time
	demand *route.Demand // its At is heard; nil: it has left
}

// Hear takes a report that came now. Reports of one process only grow in seq;
// a name belongs to the process that has reported under it until that has been
// silent for long enough to be dropped, or has left.
func (r *Roll) Hear(h Header, report *Report, now time.Time) Refusal {
	if r.entries == nil {
		r.entries = make(map[string]*entry)
	}
	e := r.entries[h.From.Name]
	switch {
	case e == nil && len(r.entries) >= maxGateways:
		if r.forget(now); len(r.entries) >= maxGateways {
			return TooMany
		}
	case e == nil:
	case e.from == h.From && h.Seq <= e.seq:
		return Replayed
	case e.from != h.From && e.demand != nil && now.Sub(e.heard) <= reportLife:
		return NameTaken
	}
	if e == nil {
		e = &entry{}
		r.entries[h.From.Name] = e
	}
	*e = entry{from: h.From, seq: h.Seq, heard: now}
	if !report.Leaves {
		report.Demand.At = now
		e.demand = report.Demand
	}
	return Accepted
}

// Last is what a gateway told last; nil where it has told nothing, or left.
func (r *Roll) Last(name string) *route.Demand {
	if e := r.entries[name]; e != nil {
		return e.demand
	}
	return nil
}

// forget drops those that have been silent for so long that nobody can replay
// what they said and have it count: their numbers are no longer needed.
func (r *Roll) forget(now time.Time) {
	for name, e := range r.entries {
		if now.Sub(e.heard) > 10*time.Minute {
			delete(r.entries, name)
		}
	}
}

// Demands are the reports that count, by name.
func (r *Roll) Demands(now time.Time) []*route.Demand {
	var all []*route.Demand
	for _, e := range r.entries {
		if e.demand != nil && now.Sub(e.heard) <= reportLife {
			all = append(all, e.demand)
		}
	}
	slices.SortFunc(all, func(a, b *route.Demand) int { return strings.Compare(a.Gateway, b.Gateway) })
	return all
}

// DigestOf sums up what gateways tell.
func DigestOf(demands []*route.Demand) Digest {
	gateways, inFlight := make(map[string]int), make(map[string]float64)
	for _, d := range demands {
		n := max(1, d.Replicas)
		gateways[d.Source] += n
		for i := range d.Engines {
			if v := d.Engines[i].InFlight * float64(n); v > 0 {
				inFlight[d.Engines[i].Engine] += v
			}
		}
	}
	var sum Digest
	for source, n := range gateways {
		sum.Gateways = append(sum.Gateways, SourceCount{source, n})
	}
	for name, v := range inFlight {
		sum.InFlight = append(sum.InFlight, EngineCount{name, v})
	}
	slices.SortFunc(sum.Gateways, func(a, b SourceCount) int { return cmp.Compare(a.Source, b.Source) })
	slices.SortFunc(sum.InFlight, func(a, b EngineCount) int { return cmp.Compare(a.Engine, b.Engine) })
	return sum
}

// BySource is how many gateways there are at each source by a digest, and by the
// gateway of which own is, which may not be counted in it yet.
func (s *Digest) BySource(own *route.Demand, counted bool) map[string]int {
	n := make(map[string]int, len(s.Gateways)+1)
	for _, c := range s.Gateways {
		n[c.Source] = c.N
	}
	if !counted {
		n[own.Source] += max(1, own.Replicas)
	}
	n[own.Source] = max(n[own.Source], 1, own.Replicas)
	return n
}

// Others are what a digest says of all gateways but one, as demand that asks
// for nothing: what is in flight from elsewhere.
func (s *Digest) Others(own *route.Demand, at time.Time) []*route.Demand {
	mine := make(map[string]float64, len(own.Engines))
	for i := range own.Engines {
		mine[own.Engines[i].Engine] = own.Engines[i].InFlight * float64(max(1, own.Replicas))
	}
	elsewhere := &route.Demand{Gateway: "(others)", Source: "(others)", Replicas: 1, At: at}
	for _, c := range s.InFlight {
		if v := c.InFlight - mine[c.Engine]; v > 0 {
			elsewhere.Engines = append(elsewhere.Engines, route.Sighting{Engine: c.Engine, InFlight: v, Factor: 1})
		}
	}
	return []*route.Demand{elsewhere}
}
