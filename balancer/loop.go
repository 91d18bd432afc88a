package balancer

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
	"penstock/route"
)

// Bounds of the time between two control cycles where nothing else starts one.
const (
	DefaultPeriod = time.Second
	MinPeriod     = 100 * time.Millisecond
	MaxPeriod     = time.Minute
)

// Options are what a Loop works with.
type Options struct {
	Fleet    *engine.Fleet
	Tables   *route.Published
	Saved    *route.Saved // to go on from; nil: none
	Policy   Policy
	Period   time.Duration // 0: DefaultPeriod
	Gateway  string        // its name
	Replicas int           // gateways like it at its source, itself included; 0: one
	Network  NetworkConfig
	Peers    Peers // nil: alone
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: none
	Patient  bool                  // waits for its solver for as long as it takes: on virtual time a slow machine is to change nothing
}

// Loop runs the control cycle: on every change of the fleet, on a class that
// has no table yet, and once a period. It alone publishes tables.
type Loop struct {
	fleet   *engine.Fleet
	tables  *route.Published
	log     *slog.Logger
	changed <-chan struct{}
	metrics *metrics
	done    atomic.Pointer[engine.Set] // of the last cycle
	policy  atomic.Uint32              // Policy
	period  atomic.Int64               // time.Duration
	applied chan struct{}              // capacity 1: policy, period or network are new
	network atomic.Pointer[NetworkConfig]
	peers   Peers
	guard   guard
	// decision is of the last cycle in which this gateway planned, nil where it
	// does not.
	decision atomic.Pointer[Decision]
	history  history
	before   *Situation // when the last table was made

	observer *Observer // owned by Run's goroutine, but for its metrics

	// Owned by Run's goroutine.
	saved   *route.Saved // while engines of the process before may still come up
	begun   time.Time
	resumed bool // the last cycle had heard of every engine
	set     *engine.Set
	drift   map[*route.Component]int64

	restored    *route.Plan    // of the process before; nil: none, or others have planned since
	feedback    *FeedbackState // nil under other policies
	corrections corrections
}

// NewLoop returns a loop over the fleet. It starts nothing.
func NewLoop(o Options) *Loop {
	l := &Loop{fleet: o.Fleet, tables: o.Tables, saved: o.Saved, log: o.Log, changed: o.Fleet.Subscribe(),
		applied: make(chan struct{}, 1), peers: o.Peers, drift: make(map[*route.Component]int64)}
	l.guard.budget = func() time.Duration {
		if o.Patient {
			return math.MaxInt64
		}
		return solveBudget(l.Period())
	}
	if l.peers == nil {
		l.peers = &alone{}
	}
	l.network.Store(&o.Network)
	l.policy.Store(uint32(o.Policy))
	l.period.Store(int64(cmp.Or(o.Period, DefaultPeriod)))
	if o.Saved != nil {
		l.restored = o.Saved.Plan(o.Policy.String())
		o.Tables.Continue(o.Saved.Version)
		for _, k := range o.Saved.Classes {
			o.Tables.Load().Wants.Add(k, time.Now())
		}
	}
	l.metrics = newMetrics(o.Registry, o.Tables)
	l.observer = &Observer{Gateway: o.Gateway, Replicas: o.Replicas, Log: o.Log}
	if o.Registry != nil {
		o.Registry.MustRegister(l.observer)
	}
	return l
}

// BeforeSolve has f run before every problem that is solved: tests make the
// solver fail with it.
func (l *Loop) BeforeSolve(f func()) { l.guard.before.Store(&f) }

// Period is the time between two cycles where nothing else starts one.
func (l *Loop) Period() time.Duration { return time.Duration(l.period.Load()) }

// Apply takes another policy, period and network into use.
func (l *Loop) Apply(policy Policy, period time.Duration, network NetworkConfig) {
	l.network.Store(&network)
	l.policy.Store(uint32(policy))
	l.period.Store(int64(period))
	select {
	case l.applied <- struct{}{}:
	default:
	}
}

// Follows reports whether the table in use was built from that set of engines,
// or a newer one.
func (l *Loop) Follows(set *engine.Set) bool {
	done := l.done.Load()
	return done != nil && done.Seq >= set.Seq
}

// Confirmed is when a cycle last published or confirmed the table.
func (l *Loop) Confirmed() time.Time { return time.Unix(0, l.metrics.confirmed.Load()) }

// Run publishes tables until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.NewTicker(l.Period())
	defer tick.Stop()
	for {
		l.Cycle(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.changed:
		case <-l.peers.News():
		case <-l.applied:
			tick.Reset(l.Period())
		case <-l.tables.Load().Wants.Signal:
		case <-tick.C:
		}
	}
}

// Cycle is one control cycle: observe, plan, build, publish if anything changed.
func (l *Loop) Cycle(now time.Time) {
	if shared := l.observer.shares(l.peers.Gateways(), l.tables.Load().Source, now); shared != l.tables.Load().Shared {
		l.tables.Share(shared)
	}
	set, last := l.fleet.Set(), l.tables.Load()
	wanted := last.Wants.Keys(now, func(k route.ClassKey) time.Time {
		if p := last.Classes[k]; p != nil {
			return time.Unix(p.LastUsed(), 0)
		}
		return time.Time{}
	})
	l.resume(set, now)
	plan := l.plan(set, wanted, now)
	l.divide(set, plan, now)
	next, same := Build(set, last, l.saved, plan, wanted, now)
	l.settle(last)
	l.metrics.confirmed.Store(now.Add(-l.unconfirmed(plan)).UnixNano())
	if same {
		l.done.Store(set)
		return
	}
	next.Reason = l.reason(set, last, next)
	l.set = set
	l.tables.Publish(next)
	l.done.Store(set)
	l.metrics.published[next.Reason].Inc()
	l.tell(last, next, now)
}

// unconfirmed is how long nobody who leads has said that the plan holds.
func (l *Loop) unconfirmed(p *route.Plan) time.Duration {
	if _, leads := l.peers.Leads(); leads || p == nil {
		return 0
	}
	return l.peers.PlanAge()
}

// tell notes in history and log what a table changed.
func (l *Loop) tell(last, next *route.Table, now time.Time) {
	var situation *Situation
	if d := l.decision.Load(); d != nil {
		situation = d.Situation
	}
	change := changeOf(last, next, l.before, situation)
	l.history.add(change)
	l.before = situation
	line := []any{"version", next.Version, "reason", next.Reason.String(), "policy", next.Policy, "models", len(next.Models),
		"classes", len(next.Classes), "build_ms", float64(time.Since(now).Microseconds()) / 1000}
	if len(change.Moves) > 0 {
		line = append(line, "moved", change.Moves[0].Share)
	}
	if len(change.Causes) > 0 {
		line = append(line, "because", change.Causes[0])
	}
	if c := change.Certificate; c != nil {
		line = append(line, "objective", c.Objective, "bound", c.Bound, "gap", c.Gap, "method", c.Method, "solve_ms", float64(c.Took.Microseconds())/1000)
	}
	l.log.Info("table", line...)
}

// resumeFor bounds how long the saved table counts. An engine that is there
// again later takes slots like one that was out.
const resumeFor = 30 * time.Second

// resume lets go of the saved table once every engine has been heard of.
// Until then each that comes up gets the slots that it had, in whatever order
// they come.
func (l *Loop) resume(set *engine.Set, now time.Time) {
	if l.saved == nil {
		return
	}
	if l.begun.IsZero() {
		l.begun = now
	}
	waiting := l.fleet.Awaits() || slices.ContainsFunc(set.Engines, func(e *engine.Engine) bool { return e.Status().State == engine.Starting })
	// The cycle at hand still builds from it: the last engine has just come up.
	if l.resumed || now.Sub(l.begun) > resumeFor {
		l.saved = nil
	}
	l.resumed = !waiting
}

// reason names the first thing that differs, widest first.
func (l *Loop) reason(set *engine.Set, last, next *route.Table) route.Reason {
	switch {
	case l.set == nil:
		return route.ReasonStart
	case set != l.set:
		return route.ReasonEngines
	case next.Untold != last.Untold || !sameModels(next.Models, last.Models):
		return route.ReasonModels
	case len(next.Classes) != len(last.Classes):
		return route.ReasonClass
	case next.Policy != last.Policy:
		return route.ReasonPolicy
	}
	for k, p := range next.Classes {
		if prev := last.Classes[k]; prev == nil {
			return route.ReasonClass
		} else if prev != p && !sameWeights(prev.Pool, p.Pool) {
			if next.Plan != last.Plan {
				return route.ReasonPlan
			}
			return route.ReasonState
		}
	}
	if !samePlanAs(next.Plan, last.Plan) {
		return route.ReasonPlan
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
