package selector

import (
	"math"
	"math/rand/v2"

	"penstock/engine"
	"penstock/route"
)

// Why says by which rule an engine was picked.
type Why uint8

const (
	WhySlot       Why = iota // the slot of its key
	WhyRemembered            // where the conversation was before
	WhyPrevious              // its slot moved, the cache is still on the engine before
	WhyPlaced                // a new conversation, placed on the alternate, which is lighter
	WhyAlternate             // spilled to a fixed alternate of its slot
	WhySpillDraw             // spilled to the lighter of two draws
	WhyDraw                  // no key: the lighter of two draws by weight
	WhyAnyRoom               // the one candidate with room that was found
	whyCount
)

func (w Why) String() string {
	return [...]string{"slot", "remembered", "previous", "placed", "alternate", "spill_draw", "draw", "any_room"}[w]
}

// Ask is what a pick depends on beside the class.
type Ask struct {
	Key          uint64 // slot key, of Keyer
	Keyed        bool
	EarlierTurns bool // the request shows turns before this one
	Now          int64
	Tried        [3]*engine.Live // engines of earlier attempts of the request
	Tries        int
}

func (a *Ask) tried(l *engine.Live) bool {
	for _, t := range a.Tried[:a.Tries] {
		if t == l {
			return true
		}
	}
	return false
}

// AddTried excludes an engine from the request's later picks.
func (a *Ask) AddTried(e *engine.Engine) {
	if a.Tries < len(a.Tried) {
		a.Tried[a.Tries] = e.Live
		a.Tries++
	}
}

// Fit is what became of a candidate that a pick looked at.
type Fit uint8

const (
	Picked   Fit = iota
	AtBound      // in flight at its bound
	AtCap        // in flight at its cap
	Out          // takes no traffic, or weight 0
	TriedYet     // an earlier attempt of this request was on it
	Heavier      // the other one was lighter
)

func (f Fit) String() string {
	return [...]string{"picked", "at_bound", "at_cap", "out", "tried", "heavier"}[f]
}

// Look is one candidate that a pick considered.
type Look struct {
	Engine   *engine.Engine
	Weight   float32
	InFlight int32 // before the pick
	Bound    int32 // what it was held to
	Fit      Fit
}

// Decision is the record of a pick: what was looked at, in order, and the rule
// that decided. It is filled in place and holds no memory of its own.
type Decision struct {
	Why   Why
	Looks [6]Look
	N     int
	Table uint64 // version
}

func (d *Decision) look(c *route.Candidate, n, bound int64, f Fit) {
	if d.N < len(d.Looks) {
		d.Looks[d.N] = Look{Engine: c.Engine, Weight: float32(c.Weight), InFlight: int32(n), Bound: int32(bound), Fit: f}
		d.N++
	}
}

// Lease is the place that a pick took. Released exactly once, by Release.
type Lease struct {
	Engine    *engine.Engine
	component *route.Component
}

// Release gives the place back; further calls do nothing. Not safe for
// concurrent use: a lease has one owner.
func (l *Lease) Release() {
	if l.Engine == nil {
		return
	}
	l.Engine.Live.Release()
	l.component.Add(-1)
	l.Engine = nil
}

// picking is one pick under way.
type picking struct {
	p *route.Pool
	a *Ask
	d *Decision
	m int64 // in flight over the component, before this pick
}

// Pick chooses an engine of the class and takes a place on it. The lease's
// engine is nil where no candidate has room; Refuse then says why.
func (s *Selector) Pick(c Class, a *Ask, d *Decision) Lease {
	d.N, d.Table = 0, c.table.Version // Looks beyond N are stale and not read
	k := picking{p: c.pool, a: a, d: d, m: c.pool.Component.InFlight()}
	var i uint16
	if a.Keyed {
		i = s.pickKeyed(&k)
	} else {
		i = k.lighterOfTwo(WhyDraw)
	}
	if i == route.None {
		return Lease{}
	}
	k.p.Component.Add(1)
	return Lease{Engine: k.p.Candidates[i].Engine, component: k.p.Component}
}

// pickKeyed goes to the engine that is remembered for the conversation, within
// its bound. Nearly every turn ends here, without a look at the slot.
func (s *Selector) pickKeyed(k *picking) uint16 {
	id, known := s.memory.get(k.a.Key, k.a.Now)
	full := uint16(route.None)
	if known {
		// Where its engine is out or gone it follows its slot meanwhile, and
		// returns with the engine: the stand-in is not remembered.
		if at := k.p.ByID(id); k.usable(at) {
			if k.takeWithinBound(at, WhyRemembered) {
				return at
			}
			full = at
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
	case !known && !k.a.EarlierTurns && k.lighter(slot.Alternate, slot.Engine):
		home, why = slot.Alternate, WhyPlaced
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
		if !known && !k.usable(slot.Engine) { // its engine is gone: the alternate is its new home
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

// usable reports whether a candidate takes traffic and was not tried yet.
func (k *picking) usable(i uint16) bool {
	if i == route.None {
		return false
	}
	c := &k.p.Candidates[i]
	return c.Weight > 0 && c.Live.Ready() && !k.a.tried(c.Live)
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
	// Two requests of the larger of both: two on a large engine are little, and
	// to take them for much would drain it into the small ones.
	ratio := h.Share / a.Share
	return float64(h.Live.InFlight())-float64(a.Live.InFlight())*ratio >= 2*max(1, ratio)
}

// bound is the Little's-law bound of hashing.md 4 on a candidate's in-flight
// including this pick, never above its cap and never under 1:
// ceil((1+eps) q (m+1)), eps = max(0.10, 3/sqrt(q m)). With little in flight
// eps grows beyond measure, as it should: two conversations alone on the
// fleet are no reason to move one of them off its cache.
func (k *picking) bound(c *route.Candidate) int64 {
	q, m := c.Share, float64(k.m)
	eps := 0.10
	if qm := q * m; qm < 900 { // 3/sqrt(900) = 0.10
		eps = 3 / math.Sqrt(max(qm, 1e-9))
	}
	b := math.Ceil((1 + eps) * q * (m + 1))
	return int64(min(float64(c.Cap), max(1, b)))
}

// takeWithinBound takes candidate i if that keeps it within its bound. The
// bound is in the record of the decision, and so computed for every look.
func (k *picking) takeWithinBound(i uint16, why Why) bool {
	if i == route.None {
		return false
	}
	c := &k.p.Candidates[i]
	return k.take(c, k.bound(c), why, AtBound)
}

// take looks at a candidate and acquires it if it is usable and below limit.
func (k *picking) take(c *route.Candidate, limit int64, why Why, full Fit) bool {
	n := c.Live.InFlight()
	switch {
	case c.Weight <= 0 || !c.Live.Ready():
		k.d.look(c, n, limit, Out)
	case k.a.tried(c.Live):
		k.d.look(c, n, limit, TriedYet)
	case !c.Live.Acquire(limit):
		k.d.look(c, n, limit, full)
	default:
		k.d.look(c, n, limit, Picked)
		k.d.Why = why
		return true
	}
	return false
}

// tie is how much two loads may differ by rounding and be equal: 7 x 0.3 is
// more than 3 x 0.7 in floating point.
const tie = 1e-9

// lighterOfTwo draws two candidates by weight and takes the one
// with the lower in-flight over planned share; a tie keeps the first. Only in
// flight over share holds the weights (hashing.md 5). Where both are full it
// takes any candidate with room: the one walk over the pool that a pick can
// make, and only when the alternative is to refuse.
func (k *picking) lighterOfTwo(why Why) uint16 {
	r := rand.Uint64()
	i, j := k.p.Draw(r), k.p.Draw(spread(r, 1)) // a second draw out of the same bits, well mixed
	if i == route.None {
		return route.None
	}
	a, b := &k.p.Candidates[i], &k.p.Candidates[j]
	na, nb := a.Live.InFlight(), b.Live.InFlight()
	if i != j && float64(na)*b.Share > float64(nb)*a.Share*(1+tie) && k.usable(j) {
		k.d.look(a, na, a.Cap, Heavier)
		i, j = j, i
		a, b = b, a
	}
	if k.take(a, a.Cap, why, AtCap) {
		return i
	}
	if i != j && k.take(b, b.Cap, why, AtCap) {
		return j
	}
	n := len(k.p.Candidates)
	start := int(r % uint64(n))
	for step := range n {
		i := uint16((start + step) % n)
		c := &k.p.Candidates[i]
		if k.usable(i) && c.Live.Acquire(c.Cap) {
			k.d.look(c, c.Live.InFlight()-1, c.Cap, Picked)
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
