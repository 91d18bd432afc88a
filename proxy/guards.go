package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
	"penstock/protect"
)

const (
	guardEvery    = 250 * time.Millisecond
	poolsEvery    = 5 * time.Second // also when the set of engines has changed
	slowWindow    = 5 * time.Second
	ejectMost     = 0.5 // of a pool's capacity, or one engine, may be out by breakers
	panicBelow    = 0.5 // of a pool's capacity
	panicEnds     = 0.6
	panicEndsFor  = 10 * time.Second
	startingMost  = 0.5 // of a pool's capacity in slow start: more is no start but a new fleet
	attentionFrom = 2 * time.Minute
	lowFactor     = 0.5 // a penalty beyond it is one to look at, if it stays
)

// guards holds the guard of every engine and looks at all of them now and then.
type guards struct {
	fleet  *engine.Fleet // nil: of tests without one
	client engineClient
	memory *protect.Memory
	log    *slog.Logger
	deadly protect.Deadly
	table  atomic.Pointer[[]*guard] // by engine.Live.ID

	mu     sync.Mutex // guards what is below, and how table grows
	set    *engine.Set
	built  time.Time
	stale  bool // an engine has come up since
	pools  []*pool
	window time.Time // begin of the window that slowness is judged by

	blocks prometheus.Counter
	wg     sync.WaitGroup // probes
}

// pool is the engines that serve one model.
type pool struct {
	model   string
	members []poolMember
	panics  bool
	calm    time.Time // since when enough is left to end the panic; zero: it is not
}

type poolMember struct {
	*guard
	capacity float64
}

func newGuards(fleet *engine.Fleet, client engineClient, memory *protect.Memory, log *slog.Logger, reg prometheus.Registerer) *guards {
	gs := &guards{fleet: fleet, client: client, memory: memory, log: log}
	if gs.log == nil {
		gs.log = slog.New(slog.DiscardHandler)
	}
	gs.blocks = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_blocked_requests_total", Help: "Requests refused because they had made two engines reset their connections."})
	if reg != nil {
		reg.MustRegister(gs, gs.blocks)
	}
	return gs
}

// of finds an engine's guard. It costs one load and an index.
func (gs *guards) of(e *engine.Engine) *guard {
	if t := gs.table.Load(); t != nil && int(e.ID) < len(*t) {
		if g := (*t)[e.ID]; g != nil && g.live == e.Live {
			return g
		}
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.addLocked(e)
}

func (gs *guards) addLocked(e *engine.Engine) *guard {
	var old []*guard
	if t := gs.table.Load(); t != nil {
		old = *t
	}
	if int(e.ID) < len(old) && old[e.ID] != nil && old[e.ID].live == e.Live {
		return old[e.ID]
	}
	next := make([]*guard, max(len(old), int(e.ID)+1))
	copy(next, old)
	g := newGuard(e.Live, gs.log.With("engine", e.Name))
	next[e.ID] = g
	gs.table.Store(&next)
	return g
}

// Run looks at the engines until ctx ends, and returns when its probes have.
func (gs *guards) Run(ctx context.Context) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	defer gs.wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			gs.look(ctx, time.Now())
		}
	}
}

// look is one round over all engines.
func (gs *guards) look(ctx context.Context, now time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.buildLocked(now)
	if gs.window.IsZero() {
		gs.window = now
	}
	for _, e := range gs.set.Engines {
		g := gs.addLocked(e)
		gs.stale = g.watch(now) || gs.stale
		if why, frozen := g.frozen(now); frozen {
			gs.tripLocked(g, why)
		}
	}
	gs.buildLocked(now)
	for _, p := range gs.pools {
		for _, m := range p.members {
			if p.silent(m, now) {
				gs.tripLocked(m.guard, protect.TripSilent)
			}
		}
	}
	if now.Sub(gs.window) >= slowWindow {
		gs.judgeSlowLocked()
		gs.window = now
	}
	gs.settleLocked(now)
	gs.startLocked(now)
	for _, e := range gs.set.Engines {
		g := gs.addLocked(e)
		if g.wantsProbe(now) {
			gs.startProbe(ctx, e, g, now)
		}
		g.publish(now)
		g.report(now)
	}
}

// buildLocked finds the pools: who serves which model.
func (gs *guards) buildLocked(now time.Time) {
	set := gs.fleet.Set()
	if set == gs.set && now.Sub(gs.built) < poolsEvery && !gs.stale {
		return
	}
	gs.stale = false
	gs.set, gs.built = set, now
	old := make(map[string]*pool, len(gs.pools))
	for _, p := range gs.pools {
		old[p.model] = p
	}
	byModel := make(map[string]*pool)
	gs.pools = gs.pools[:0]
	for _, e := range set.Engines {
		g := gs.addLocked(e)
		g.watched.name = e.Name
		models, _ := e.Serves()
		for _, m := range models {
			p := byModel[m.ID]
			if p == nil {
				p = &pool{model: m.ID}
				if before := old[m.ID]; before != nil {
					p.panics, p.calm = before.panics, before.calm
				}
				byModel[m.ID] = p
				gs.pools = append(gs.pools, p)
			}
			if n := len(p.members); n > 0 && p.members[n-1].guard == g {
				continue // listed twice
			}
			capacity := float64(e.Cap())
			if e.Capacity != nil {
				capacity = *e.Capacity
			}
			p.members = append(p.members, poolMember{g, capacity})
		}
	}
	for _, p := range gs.pools { // one unit for all of a pool
		rated := true
		for _, e := range p.members {
			rated = rated && set.ByName(e.watched.name).Capacity != nil
		}
		for i := range p.members {
			if !rated {
				p.members[i].capacity = float64(set.ByName(p.members[i].watched.name).Cap())
			}
		}
	}
}

// settle decides at once which open breakers hold, after one has opened.
func (gs *guards) settle(g *guard) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	why, _, _ := g.breaker.Why()
	g.opens[why].Add(1)
	gs.settleLocked(time.Now())
	g.followBreaker(time.Now()) // also of an engine that no pool knows yet
}

func (gs *guards) tripLocked(g *guard, why protect.Trip) {
	if g.breaker.Trip(why) {
		g.opens[why].Add(1)
		g.silentAt.Store(sinceEpoch())
	}
}

// settleLocked says of every open breaker whether it holds: the longest open
// first, while no more than half of any pool is out by breakers, or one engine;
// none where so little of a pool is left that the cause must be a common one.
func (gs *guards) settleLocked(now time.Time) {
	type out struct {
		g     *guard
		since time.Time
	}
	var open []out
	pools := make(map[*guard][]*pool)
	if gs.set == nil && gs.fleet != nil {
		gs.buildLocked(now)
	}
	for _, p := range gs.pools {
		for _, m := range p.members {
			if m.breaker.State() != protect.BreakerClosed {
				if pools[m.guard] == nil {
					open = append(open, out{m.guard, m.watched.openSince(now)})
				}
				pools[m.guard] = append(pools[m.guard], p)
			}
		}
		p.panic(gs.log, now)
	}
	slices.SortStableFunc(open, func(a, b out) int { return cmp.Or(a.since.Compare(b.since), int(a.g.live.ID)-int(b.g.live.ID)) })
	ejected := make(map[*pool]float64)
	for _, o := range open {
		lift := false
		for _, p := range pools[o.g] {
			total, own := p.capacityOf(o.g)
			lift = lift || p.panics || ejected[p] > 0 && ejected[p]+own > ejectMost*total
		}
		if !lift {
			for _, p := range pools[o.g] {
				_, own := p.capacityOf(o.g)
				ejected[p] += own
			}
		}
		o.g.lifted.Store(lift)
	}
	for _, p := range gs.pools {
		for _, m := range p.members {
			if m.breaker.State() == protect.BreakerClosed {
				m.lifted.Store(false)
				m.watched.out = time.Time{}
			}
			m.followBreaker(now)
		}
	}
}

// capacityOf is the pool's capacity and one member's part of it.
func (p *pool) capacityOf(g *guard) (total, own float64) {
	for _, m := range p.members {
		total += m.capacity
		if m.guard == g {
			own = m.capacity
		}
	}
	return total, own
}

// panic begins or ends the pool's panic. What an operator has taken out, and
// what has not come up yet, is not missing.
func (p *pool) panic(log *slog.Logger, now time.Time) {
	configured, admissible := 0.0, 0.0
	for _, m := range p.members {
		h := m.live.Health().State
		if order, _ := m.live.Order(); order != engine.Serve || h == engine.Starting {
			continue
		}
		configured += m.capacity
		if h == engine.Ready && m.breaker.State() != protect.BreakerOpen {
			admissible += m.capacity
		}
	}
	switch {
	case !p.panics && admissible < panicBelow*configured:
		p.panics, p.calm = true, time.Time{}
		log.Warn("panic: less than half of a model's capacity is left, penalties and breakers are ignored", "model", p.model, "left", admissible/configured)
	case !p.panics:
	case admissible < panicEnds*configured:
		p.calm = time.Time{}
	case p.calm.IsZero():
		p.calm = now
	case now.Sub(p.calm) >= panicEndsFor:
		p.panics = false
		log.Info("panic over", "model", p.model)
	}
	for _, m := range p.members {
		m.watched.panicked = m.watched.panicked || p.panics
	}
}

// startLocked follows the slow starts, and tells the guards of panics.
func (gs *guards) startLocked(now time.Time) {
	at := sinceEpoch()
	fresh := func(g *guard) bool { j := g.joined.Load(); return j != 0 && at-j < int64(slowStartFor) }
	for _, p := range gs.pools {
		total, starting := 0.0, 0.0
		for _, m := range p.members {
			if m.live.Ready() {
				total += m.capacity
				if fresh(m.guard) {
					starting += m.capacity
				}
			}
		}
		for _, m := range p.members {
			m.watched.pooled = true
			m.watched.renewed = m.watched.renewed || starting > startingMost*total
		}
	}
	for _, e := range gs.set.Engines {
		g := gs.addLocked(e)
		g.panicked.Store(g.watched.panicked)
		a := engine.Allowance(0)
		switch {
		case !fresh(g):
			g.joined.Store(0)
		case g.watched.pooled && !g.watched.renewed:
			t := float64(at-g.joined.Load()) / float64(slowStartFor)
			a = engine.NewAllowance(max(leastStart, t), max(leastCap, t))
		}
		g.start.Store(uint32(a))
		g.watched.panicked, g.watched.renewed, g.watched.pooled = false, false, false
	}
}

// panics reports whether a model's pool is in panic: then there are no retries.
func (gs *guards) panics(model string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, p := range gs.pools {
		if p.model == model {
			return p.panics
		}
	}
	return false
}
