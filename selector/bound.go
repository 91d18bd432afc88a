package selector

import (
	"math"

	"penstock/engine"
	"penstock/route"
)

// Holder is the engine that holds what a request names by an id: the only one
// that can serve it.
type Holder struct {
	Engine *engine.Engine
	// Counted says that the request generates and so takes one of the engine's
	// places. Reading, cancelling or deleting what is there does not: a full
	// engine must still be told to stop.
	Counted bool
}

// reachable reports whether what an engine holds can be asked for: also of one
// that an operator or its breaker keeps new work from.
func reachable(e *engine.Engine) bool {
	switch e.Status().State {
	case engine.Ready, engine.Cordoned, engine.Draining, engine.Drained, engine.Open, engine.HalfOpen:
		return true
	}
	return false
}

// Holder finds the engine with that id among those that may serve the
// request: of the class if it has one, else of all that satisfy the need.
// Nil if it is none of them, or gone.
func (s *Selector) Holder(id uint16, c Class, need Need) *engine.Engine {
	if c.pool != nil {
		if i := c.pool.ByID(id); i != route.None {
			return c.pool.Candidates[i].Engine
		}
		return nil
	}
	e := s.EngineByID(id)
	if e == nil || !serves(e, need) {
		return nil
	}
	return e
}

// EngineByID finds an engine by its id, nil if it is gone.
func (s *Selector) EngineByID(id uint16) *engine.Engine { return s.tables.Load().Engine(id) }

func serves(e *engine.Engine, need Need) bool {
	return e.Can()&need.Caps == need.Caps && route.Satisfies(e, need.Require)
}

// MayHold lists the engines that can be asked and may hold an id of which nobody
// remembers who made it: of the class, else all that satisfy the need. out is
// how many more there are that are out. Not for the hot path.
func (s *Selector) MayHold(c Class, need Need) (engines []*engine.Engine, out int) {
	add := func(e *engine.Engine) {
		if reachable(e) {
			engines = append(engines, e)
		} else {
			out++
		}
	}
	if c.pool != nil {
		for i := range c.pool.Candidates {
			add(c.pool.Candidates[i].Engine)
		}
		return engines, out
	}
	for _, e := range s.tables.Load().Engines {
		if e != nil && serves(e, need) {
			add(e)
		}
	}
	return engines, out
}

// PickHolder takes a place on the engine that holds what the request names.
// The lease's engine is nil where that engine is out or full; the refusal
// then says which.
func (s *Selector) PickHolder(h Holder, c Class, d *Decision) (Lease, *Refusal) {
	d.N, d.Table, d.Why, d.Rule = 0, s.tables.Load().Version, WhyHolder, route.RulePlanned
	e := h.Engine
	l := limit{cap: math.MaxInt32}
	if h.Counted {
		l.cap = int32(e.Cap())
	}
	cand := route.Candidate{Engine: e, Live: e.Live}
	n := e.InFlight()
	switch {
	case h.Counted && !e.Ready(), !reachable(e):
		d.look(&cand, n, l, Out)
		return Lease{}, &Refusal{Why: HolderOut, Model: c.key.Model}
	case !e.Acquire(int64(l.cap)):
		d.look(&cand, n, l, AtCap)
		return Lease{}, &Refusal{Why: AllFull, Model: c.key.Model}
	}
	d.look(&cand, n, l, Picked)
	lease := Lease{Engine: e}
	if c.pool != nil {
		lease.component = c.pool.Component
		lease.component.Add(1)
	}
	return lease, nil
}
