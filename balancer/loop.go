package balancer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
	"penstock/route"
)

// Period is the control cycle where nothing else starts one.
const Period = time.Second

// Loop runs the control cycle: on every change of the fleet, on a class that
// has no table yet, and once a period. It alone publishes tables.
type Loop struct {
	fleet   *engine.Fleet
	tables  *route.Published
	log     *slog.Logger
	changed <-chan struct{}
	metrics *metrics
	done    atomic.Pointer[engine.Set] // of the last cycle

	// Owned by Run's goroutine.
	set   *engine.Set
	drift map[*route.Component]int64
}

// NewLoop returns a loop over the fleet. It starts nothing.
func NewLoop(fleet *engine.Fleet, tables *route.Published, log *slog.Logger, reg prometheus.Registerer) *Loop {
	l := &Loop{fleet: fleet, tables: tables, log: log, changed: fleet.Subscribe(), drift: make(map[*route.Component]int64)}
	l.metrics = newMetrics(reg, tables)
	return l
}

// Follows reports whether the table in use was built from that set of engines.
func (l *Loop) Follows(set *engine.Set) bool { return l.done.Load() == set }

// Run publishes tables until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.NewTicker(Period)
	defer tick.Stop()
	for {
		l.Cycle(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.changed:
		case <-l.tables.Load().Wants.Signal:
		case <-tick.C:
		}
	}
}

// Cycle is one control cycle: observe, build, publish if anything changed.
func (l *Loop) Cycle(now time.Time) {
	set, last := l.fleet.Set(), l.tables.Load()
	wanted := last.Wants.Keys(now, func(k route.ClassKey) time.Time {
		if p := last.Classes[k]; p != nil {
			return time.Unix(p.LastUsed(), 0)
		}
		return time.Time{}
	})
	next, same := Build(set, last, wanted, now)
	l.settle(last)
	l.metrics.confirmed.Store(now.UnixNano())
	if same {
		l.done.Store(set)
		return
	}
	next.Reason = l.reason(set, last, next)
	l.set = set
	l.tables.Publish(next)
	l.done.Store(set)
	l.metrics.published[next.Reason].Inc()
	l.log.Info("table", "version", next.Version, "reason", next.Reason.String(), "models", len(next.Models),
		"classes", len(next.Classes), "build_ms", float64(time.Since(now).Microseconds())/1000)
}

// reason names the first thing that differs, widest first.
func (l *Loop) reason(set *engine.Set, last, next *route.Table) route.Reason {
	switch {
	case last.Version == 0:
		return route.ReasonStart
	case set != l.set:
		return route.ReasonEngines
	case next.Untold != last.Untold || !sameModels(next.Models, last.Models):
		return route.ReasonModels
	case len(next.Classes) != len(last.Classes):
		return route.ReasonClass
	}
	for k, p := range next.Classes {
		if prev := last.Classes[k]; prev == nil {
			return route.ReasonClass
		} else if prev != p && !sameWeights(prev, p) {
			return route.ReasonState
		}
	}
	return route.ReasonDrained
}

func sameWeights(a, b *route.Pool) bool {
	if len(a.Candidates) != len(b.Candidates) {
		return false
	}
	for i := range a.Candidates {
		if a.Candidates[i].Weight != b.Candidates[i].Weight {
			return false
		}
	}
	return true
}

// settle corrects the in-flight counters of components. A component made anew
// starts at what its engines carry, but leases taken before it return to the
// old counter. A drift seen in two cycles in a row, the same way, is taken
// out by the smaller of the two; what passing requests make of one reading is
// not.
func (l *Loop) settle(t *route.Table) {
	seen := make(map[*route.Component]int64)
	for _, p := range t.Classes {
		if _, ok := seen[p.Component]; ok || len(p.Component.Members) == 0 {
			continue
		}
		seen[p.Component] = drift(l.fleet.Set(), p.Component)
	}
	for c, now := range seen {
		switch before := l.drift[c]; {
		case before > 0 && now > 0:
			c.Add(min(before, now))
			seen[c] = 0
		case before < 0 && now < 0:
			c.Add(max(before, now))
			seen[c] = 0
		}
	}
	l.drift = seen
}

// drift is how much more the component's engines carry than its counter says.
func drift(set *engine.Set, c *route.Component) int64 {
	ids := make(map[uint16]bool)
	for i := 0; i+1 < len(c.Members); i += 2 {
		ids[uint16(c.Members[i])|uint16(c.Members[i+1])<<8] = true
	}
	sum := -c.InFlight()
	for _, e := range set.Engines {
		if ids[e.ID] {
			sum += e.InFlight()
		}
	}
	return sum
}
