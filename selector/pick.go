package selector

import (
	"math/rand/v2"
	"time"

	"penstock/engine"
	"penstock/route"
)

// Lease is the place that a pick took. Released exactly once, by Release.
type Lease struct {
	Engine    *engine.Engine
	Trial     *engine.Trial // nil but on an engine whose breaker is half open
	component *route.Component
	prompt    int64 // tokens that the engine counts until it answers
}

// Release gives the place back; further calls do nothing. Not safe for
// concurrent use: a lease has one owner.
func (l *Lease) Release() {
	if l.Engine == nil {
		return
	}
	if l.Trial != nil {
		l.Trial.Drop() // what has not been told by now never will be
	}
	l.Began()
	l.Engine.Live.Release()
	if l.component != nil { // of a class; a request without a model has none
		l.component.Add(-1)
	}
	l.Engine = nil
}

// Began says that the engine has begun to answer: it has computed the prompt.
// Further calls do nothing.
func (l *Lease) Began() {
	if l.prompt != 0 && l.Engine != nil {
		l.Engine.Live.AddPrompts(-l.prompt)
		l.prompt = 0
	}
}

// Abandon gives up a request whose engine may work on without us: then its
// place stays taken until that is over. Else it is Release.
func (l *Lease) Abandon(now time.Time) {
	if l.Engine != nil && l.Engine.Live.Abandon(now) {
		l.Trial.Drop()
		l.Began()
		l.Engine = nil // the component's count is put right by its next cycles
		return
	}
	l.Release()
}

// picking is one pick under way.
type picking struct {
	p *route.Pool
	a *Ask
	d *Decision
	m int64 // in flight over the component, before this pick
	t *engine.Trial

	// What a comparison by cost came to; a cost of 0: there was none.
	cheap     uint16
	cheapCost float32
}

// Pick chooses an engine of the class and takes a place on it. The lease's
// engine is nil where no candidate has room; Refuse then says why.
func (s *Selector) Pick(c Class, a *Ask, d *Decision) Lease {
	if c.table.Rule != route.RulePlanned {
		return pickBy(c, a, d)
	}
	d.N, d.Table, d.Rule = 0, c.table.Version, route.RulePlanned // Looks beyond N are stale and not read
	k := picking{p: c.pool, a: a, d: d, m: c.pool.Component.InFlight()}
	var i uint16
	if a.Keyed {
		i = s.pickKeyed(&k)
	} else {
		i = k.lighterOfTwo(WhyDraw)
	}
	return k.lease(i)
}

// lease counts the place that the pick took on candidate i.
func (k *picking) lease(i uint16) Lease {
	if i == route.None {
		return Lease{}
	}
	k.p.Component.Add(1)
	if k.cheapCost > 0 && k.cheap == i {
		k.d.Looks[k.d.N-1].Cost = k.cheapCost
	}
	l := Lease{Engine: k.p.Candidates[i].Engine, Trial: k.t, component: k.p.Component}
	if k.a.Prompt > 0 && k.p.Candidates[i].Cost.Known() { // else nobody looks at it
		l.prompt = int64(k.a.Prompt)
		if k.d.Why == WhyRemembered {
			l.prompt /= laterFresh
		}
		l.Engine.Live.AddPrompts(l.prompt)
	}
	return l
}

// pickKeyed goes to the engine that is remembered for the conversation, within
// its bound. Nearly every turn ends here, without a look at the slot.
func (s *Selector) pickKeyed(k *picking) uint16 {
	id, known := s.memory.get(k.a.Key, k.a.Now)
	full := uint16(route.None)
	if known {
		// Where its engine is out or gone it follows its slot meanwhile, and
		// returns with the engine: the stand-in is not remembered.
		switch at := k.p.ByID(id); {
		case k.usable(at):
			if k.takeWithinBound(at, WhyRemembered) {
				return at
			}
			full = at
		case at != route.None && k.p.Candidates[at].Live.Leaving():
			known = false // it is to settle elsewhere
		}
	}
	return s.pickSlot(k, known, full)
}

// pickSlot goes to the home that the slot gives, its alternates within their
// bounds, then draws. full is the remembered engine if it was at its bound.
func (s *Selector) pickSlot(k *picking, known bool, full uint16) uint16 {
	key, now := k.a.Key, k.a.Now
	slot := k.p.Slot(key)
	home, why := slot.Engine, WhySlot
	switch {
	case full != route.None:
	case k.a.EarlierTurns && slot.Draining(now) && k.usable(slot.Previous):
		home, why = slot.Previous, WhyPrevious
	case known || k.a.EarlierTurns || k.p.Shared:
	default:
		if at := k.placed(slot); at != slot.Engine {
			home, why = at, WhyPlaced
		}
	}
	if home != full && k.takeWithinBound(home, why) {
		if !known {
			s.memory.put(key, k.p.Candidates[home].Live.ID, now)
		}
		return home
	}
	if slot.Engine != home && slot.Engine != full && k.takeWithinBound(slot.Engine, WhySlot) {
		return slot.Engine
	}
	if slot.Alternate != home && slot.Alternate != full && k.takeWithinBound(slot.Alternate, WhyAlternate) {
		// Its engine is gone, or is not to have it while it has no cache there:
		// the alternate is its new home.
		if !known && (!k.usable(slot.Engine) || !k.a.EarlierTurns && !k.keeps(slot.Engine)) {
			s.memory.put(key, k.p.Candidates[slot.Alternate].Live.ID, now)
		}
		return slot.Alternate
	}
	// Further alternates are drawn by weight from the slot's own sequence, so
	// that the overflow of one conversation keeps landing on the same few.
	for n := uint64(1); n <= furtherAlternates; n++ {
		i := k.p.Draw(spread(k.p.SlotIndex(key), n))
		if i != home && i != slot.Engine && i != slot.Alternate && i != full && k.takeWithinBound(i, WhyAlternate) {
			return i
		}
	}
	return k.lighterOfTwo(WhySpillDraw)
}

const furtherAlternates = 4

// spread is the n-th draw of a slot, a fixed sequence.
func spread(slot, n uint64) uint64 {
	h := (slot*0x9e3779b97f4a7c15 + n) * 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// usable reports whether a candidate takes traffic, if only a few requests to
// show that it has recovered, and was not tried yet.
func (k *picking) usable(i uint16) bool {
	if i == route.None {
		return false
	}
	c := &k.p.Candidates[i]
	return c.Weight > 0 && (c.Live.Ready() || c.Live.OnTrial()) && !k.a.tried(c.Live)
}

// placed is where a new conversation belongs: its slot's engine, unless another
// of those that the slot gives is lighter.
func (k *picking) placed(slot route.Slot) uint16 {
	if k.a.Key%plannedPart != 0 && k.priced(slot.Engine) {
		return k.cheapest(slot)
	}
	if k.lighter(slot.Alternate, slot.Engine) {
		return slot.Alternate
	}
	return slot.Engine
}

// lighter reports whether a new conversation belongs on alternate instead of
// home: two requests fewer in flight, measured against their planned shares,
// or home cannot take it at all (hashing.md 5).
func (k *picking) lighter(alternate, home uint16) bool {
	if !k.usable(alternate) {
		return false
	}
	if !k.usable(home) {
		return true
	}
	a, h := &k.p.Candidates[alternate], &k.p.Candidates[home]
	if !k.keeps(home) || !k.keeps(alternate) {
		return k.keeps(alternate)
	}
	// Two requests of the larger of both: two on a large engine are little, and
	// to take them for much would drain it into the small ones.
	ratio := h.Share / a.Share
	return float64(h.Live.InFlight())-float64(a.Live.InFlight())*ratio >= 2*max(1, ratio)
}

// takeWithinBound takes candidate i if that keeps it within its bound.
func (k *picking) takeWithinBound(i uint16, why Why) bool {
	if i == route.None {
		return false
	}
	c := &k.p.Candidates[i]
	return k.take(c, limit{q: c.Share, m: int32(k.m), cap: int32(c.Cap)}, why, AtBound)
}

// takeWithinCap takes a candidate if its cap allows it.
func (k *picking) takeWithinCap(c *route.Candidate, why Why) bool {
	return k.take(c, limit{cap: int32(c.Cap)}, why, AtCap)
}

// take looks at a candidate and acquires it if it is usable and below limit.
func (k *picking) take(c *route.Candidate, l limit, why Why, full Fit) bool {
	n := c.Live.InFlight()
	fit := Picked
	switch {
	case c.Weight <= 0 || !c.Live.Ready():
		return k.takeTrial(c, l, why)
	case c.Live.Allowance() != 0:
		return k.takeAllowed(c, l, why, full)
	case k.a.tried(c.Live):
		fit = TriedYet
	case c.Live.Acquire(l.surely()) || c.Live.Acquire(l.bound()):
		k.d.Why = why
	default:
		fit = full
	}
	k.d.look(c, n, l, fit)
	return fit == Picked
}

// takeTrial is take for a candidate that takes no traffic, unless its breaker
// is half open and has a place left for a trial.
func (k *picking) takeTrial(c *route.Candidate, l limit, why Why) bool {
	n := c.Live.InFlight()
	fit := Out
	switch {
	case c.Weight <= 0 || !c.Live.OnTrial():
	case k.a.tried(c.Live):
		fit = TriedYet
	case c.Live.Acquire(int64(l.cap)):
		if k.t = c.Live.Try(); k.t == nil {
			c.Live.Release()
			break
		}
		fit, k.d.Why = Picked, why
	}
	k.d.look(c, n, l, fit)
	return fit == Picked
}

// tie is how much two loads may differ by rounding and be equal: 7 x 0.3 is
// more than 3 x 0.7 in floating point.
const tie = 1e-9

// chance is 64 random bits: the ask's, so that a pick can be repeated, else drawn.
func (a *Ask) chance() uint64 {
	if a.Chance != 0 {
		return a.Chance
	}
	return rand.Uint64()
}

// lighterOfTwo draws two candidates by weight and takes the one
// with the lower in-flight over planned share; a tie keeps the first. Only in
// flight over share holds the weights (hashing.md 5).
func (k *picking) lighterOfTwo(why Why) uint16 {
	r := k.a.chance()
	i, j := k.p.Draw(r), k.p.Draw(spread(r, 1)) // a second draw out of the same bits, well mixed
	if i == route.None {
		return route.None
	}
	if spread(r, plannedPart)%plannedPart != 0 && k.priced(i) {
		if at := k.cheapestDrawn(i, j); at != route.None && k.takeWithinCap(&k.p.Candidates[at], why) {
			return at
		}
	}
	a, b := &k.p.Candidates[i], &k.p.Candidates[j]
	na, nb := a.Live.InFlight(), b.Live.InFlight()
	if a.Live.Allowance()|b.Live.Allowance() != 0 {
		return k.lighterAllowed(why, r, i, j)
	}
	if i != j && float64(na)*b.Share > float64(nb)*a.Share*(1+tie) && k.usable(j) {
		k.d.look(a, na, limit{cap: int32(a.Cap)}, Heavier)
		i, j = j, i
		a, b = b, a
	}
	if k.takeWithinCap(a, why) {
		return i
	}
	if i != j && k.takeWithinCap(b, why) {
		return j
	}
	return k.anyRoom(r)
}

// anyRoom takes any candidate with room, whatever protection leaves of it: the
// one walk over the pool that a pick can make (but for fewest), and only when
// the alternative is to refuse.
func (k *picking) anyRoom(r uint64) uint16 {
	n := len(k.p.Candidates)
	start := int(r % uint64(n))
	for step := range n {
		i := uint16((start + step) % n)
		c := &k.p.Candidates[i]
		switch {
		case !k.usable(i):
		case !c.Live.Ready():
			if k.takeTrial(c, limit{cap: int32(c.Cap)}, WhyAnyRoom) {
				return i
			}
		case c.Live.Acquire(c.Cap):
			k.d.look(c, c.Live.InFlight()-1, limit{cap: int32(c.Cap)}, Picked)
			k.d.Why = WhyAnyRoom
			return i
		}
	}
	return route.None
}

// Count adds a pick to the metrics; the caller does it with its other
// accounting, away from the pick.
func (s *Selector) Count(d *Decision) { s.metrics.picks[d.Why].Inc() }

// Refuse says why Pick returned no engine.
func (c Class) Refuse(a *Ask) *Refusal {
	full, tried := false, false
	for i := range c.pool.Candidates {
		cand := &c.pool.Candidates[i]
		if cand.Weight <= 0 || !cand.Live.Ready() {
			continue
		}
		if a.tried(cand.Live) {
			tried = true
		} else {
			full = true
		}
	}
	switch {
	case full:
		return &Refusal{Why: AllFull, Model: c.key.Model}
	case tried:
		return &Refusal{Why: NoOtherEngine, Model: c.key.Model}
	default:
		return c.refuse()
	}
}
