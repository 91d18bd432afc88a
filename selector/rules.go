package selector

import (
	"math"
	"math/bits"

	"penstock/route"
)

// The pick rules beside the planned one, for policies whose idea is how they
// pick and not which weights they pick by. Lease, caps, candidates, engines
// tried before and the last resort are those of every pick. They remember no
// conversation.

// pickBy picks by a rule other than the planned one.
func pickBy(c Class, a *Ask, d *Decision) Lease {
	d.N, d.Table, d.Rule = 0, c.table.Version, c.table.Rule
	k := picking{p: c.pool, a: a, d: d, m: c.pool.Component.InFlight()}
	r := a.chance()
	var i uint16
	switch d.Rule {
	case route.RuleRandom:
		i = k.random(r)
	case route.RuleRoundRobin:
		i = k.inTurn(r)
	case route.RuleLeastRequest:
		i = k.fewest(r)
	case route.RuleP2C:
		i = k.lighterOfAnyTwo(r)
	default:
		i = k.hashed(r)
	}
	return k.lease(i)
}

// ByOpening reports whether the class is picked by the opening of the prompt,
// whatever ids a request has: then its key is to be that of the opening.
func (c Class) ByOpening() bool { return c.table.Rule == route.RulePrefix }

// someMore is how many further candidates a rule looks at when its own choice
// cannot take the request, before the last resort.
const someMore = 4

// random draws by weight.
func (k *picking) random(r uint64) uint16 {
	for n := range uint64(1 + someMore) {
		i := k.p.Draw(spread(r, n))
		if i == route.None {
			return i
		}
		if k.takeWithinCap(&k.p.Candidates[i], WhyRandom) {
			return i
		}
	}
	return k.anyRoom(r)
}

// inTurn takes the next of those that take traffic, evenly.
func (k *picking) inTurn(r uint64) uint16 {
	takers := k.p.Takers()
	if len(takers) == 0 {
		return route.None
	}
	turn := k.p.Turn()
	for n := range uint64(min(len(takers), 1+someMore)) {
		i := takers[(turn+n)%uint64(len(takers))]
		if k.takeWithinCap(&k.p.Candidates[i], WhyTurn) {
			return i
		}
	}
	return k.anyRoom(r)
}

// fewest looks at every engine: the one with the fewest in flight of those
// with room. Among equals chance decides, so that gateways do not all go to
// the same one.
func (k *picking) fewest(r uint64) uint16 {
	takers := k.p.Takers()
	best, second := uint16(route.None), uint16(route.None)
	least, next := int64(math.MaxInt64), int64(math.MaxInt64)
	start := below(r, len(takers))
	for n := range takers {
		at := start + n
		if at >= len(takers) {
			at -= len(takers)
		}
		i := takers[at]
		c := &k.p.Candidates[i]
		in := c.Live.InFlight()
		if in >= next || in >= c.Cap || !k.usable(i) {
			continue
		}
		if in < least {
			best, second, least, next = i, best, in, least
		} else {
			second, next = i, in
		}
	}
	if best == route.None {
		return k.anyRoom(r)
	}
	if second != route.None {
		c := &k.p.Candidates[second]
		k.d.look(c, next, limit{cap: int32(c.Cap)}, Heavier)
	}
	if k.takeWithinCap(&k.p.Candidates[best], WhyFewest) {
		return best
	}
	return k.anyRoom(r)
}

// lighterOfAnyTwo draws two evenly, whatever their weights, and takes the one
// with fewer in flight.
func (k *picking) lighterOfAnyTwo(r uint64) uint16 {
	takers := k.p.Takers()
	if len(takers) == 0 {
		return route.None
	}
	i, j := below(r, len(takers)), 0
	if len(takers) > 1 {
		if j = below(spread(r, 1), len(takers)-1); j >= i {
			j++
		}
	}
	a, b := takers[i], takers[j]
	ca, cb := &k.p.Candidates[a], &k.p.Candidates[b]
	if na := ca.Live.InFlight(); a != b && cb.Live.InFlight() < na && k.usable(b) {
		k.d.look(ca, na, limit{cap: int32(ca.Cap)}, Heavier)
		a, b, ca, cb = b, a, cb, ca
	}
	if k.takeWithinCap(ca, WhyLighter) {
		return a
	}
	if a != b && k.takeWithinCap(cb, WhyLighter) {
		return b
	}
	return k.anyRoom(r)
}

// below maps random bits to 0..n-1.
func below(r uint64, n int) int {
	hi, _ := bits.Mul64(r, uint64(n))
	return int(hi)
}

// hashed takes the engine of the key's slot while that holds no more than the
// bound, then the next ones of the slot's own sequence. Consistent hashing with
// bounded loads (Mirrokni, Thorup and Zadimoghaddam 2016); a request without a
// key has a slot by chance.
func (k *picking) hashed(r uint64) uint16 {
	key := k.a.Key
	if !k.a.Keyed {
		key = r
	}
	slot := k.p.Slot(key)
	if k.takeBelow(slot.Engine, WhyHashed) {
		return slot.Engine
	}
	if slot.Alternate != slot.Engine && k.takeBelow(slot.Alternate, WhyNext) {
		return slot.Alternate
	}
	for n := range uint64(nextMore) {
		i := k.p.Draw(spread(k.p.SlotIndex(key), n+1))
		if i != slot.Engine && i != slot.Alternate && k.takeBelow(i, WhyNext) {
			return i
		}
	}
	return k.lighterOfTwo(WhySpillDraw)
}

// nextMore is how many of the slot's sequence are looked at beyond its engine
// and its alternate. Some engine is always below the bound; a fleet so uneven
// that none of these is takes the lighter of two.
const nextMore = 8

// overMean is how far above its planned part of all that is in flight an
// engine may be under the bounded hash.
const overMean = 1.25

// takeBelow takes candidate i if that keeps it within the bound of hashed.
func (k *picking) takeBelow(i uint16, why Why) bool {
	if i == route.None {
		return false
	}
	c := &k.p.Candidates[i]
	bound := max(1, math.Ceil(overMean*c.Share*float64(k.m+1)))
	return k.take(c, limit{cap: int32(min(float64(c.Cap), bound))}, why, AtBound)
}
