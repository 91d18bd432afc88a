package route

import (
	"cmp"
	"math/bits"
	"slices"
)

// Slot is one entry of a slot table, 8 bytes.
type Slot struct {
	Engine    uint16 // the candidate that the slot's conversations belong to; None: nobody has weight
	Alternate uint16 // where they spill; also who gets the slot if its engine goes
	Previous  uint16 // the candidate before the last move, None if there is none to remember
	MovedAt   uint16 // when that was, in ticks
}

const (
	// minSlots keeps the split of a small fleet fine: with 10 engines a slot
	// count of 65,536 puts chance alone within about 1.2 % of each weight.
	minSlots             = 1 << 16
	slotsPerEngine       = 64
	tick                 = 2   // seconds per tick of MovedAt; wraps after 36 hours
	KVLifetime     int64 = 300 // seconds a conversation's cache is worth returning to
	// tolerance is how far an engine's slots may be from its weight,
	// relatively, before slots are moved to correct chance. Moving less keeps
	// a restarted gateway, and one that saw every change, on the same slots.
	tolerance = 0.02
)

// slotBits is log2 of the slots for n candidates.
func slotBits(n int) uint {
	want := max(minSlots, n*slotsPerEngine)
	return uint(bits.Len(uint(want - 1)))
}

// Draining reports whether a conversation with earlier turns may still have
// its cache on the slot's previous engine. now counts in seconds.
func (s Slot) Draining(now int64) bool {
	return s.Previous != None && uint16(now/tick)-s.MovedAt < uint16(KVLifetime/tick)
}

// fill makes the slots. Without prev they are the fresh ones; with it, those
// of prev, moved towards the fresh ones by no more than the weights need.
func (p *Pool) fill(prev *Pool, now int64) {
	p.fresh()
	if p.alias == nil || prev == nil || prev.slots == nil {
		return
	}
	target := p.slots
	p.slots = make([]Slot, len(target))
	p.keep(prev, target, now)
	p.follow(target, now)
	p.noteMoves(prev, now)
}

// fresh makes the slots by rendezvous, then moves what chance put too far
// from the weights. Its result depends on names and weights alone.
func (p *Pool) fresh() {
	p.slots = make([]Slot, 1<<(64-p.shift))
	var g *groups
	if len(p.Candidates) > groupAbove {
		g = p.newGroups()
	}
	for s := range p.slots {
		best, second := p.rendezvousOf(g, s)
		p.slots[s] = Slot{Engine: best, Alternate: second, Previous: None}
	}
	if p.alias != nil {
		p.correct()
	}
}

// keep gives every slot the engine it had in prev where that one still takes
// traffic, else the target's, remembering who had it.
func (p *Pool) keep(prev *Pool, target []Slot, now int64) {
	from := make([]uint16, len(prev.Candidates)) // prev's index -> ours
	for i := range prev.Candidates {
		from[i] = p.ByID(prev.Candidates[i].Live.ID)
	}
	index := func(i uint16) uint16 {
		if i == None {
			return None
		}
		return from[i]
	}
	for s := range p.slots {
		// A pool that outgrew its table halves or doubles the slots: the key
		// keeps its high bits and so its engine.
		old, slot := prev.slots[uint64(s)<<p.shift>>prev.shift], target[s]
		had := index(old.Engine)
		if had == None || p.Candidates[had].Weight <= 0 {
			slot.moved(had, now)
			p.slots[s] = slot
			continue
		}
		if old.Draining(now) {
			slot.Previous, slot.MovedAt = index(old.Previous), old.MovedAt
		}
		slot.take(had)
		p.slots[s] = slot
	}
}

// take gives the slot another engine; its alternate stays another one.
func (s *Slot) take(engine uint16) {
	if s.Alternate == engine {
		s.Alternate = s.Engine
	}
	s.Engine = engine
}

// follow moves slots until each engine has as many as in the target, first
// those that are its own there. Every move brings two engines one slot nearer,
// so that none is wasted. Nothing moves while all are within the tolerance.
func (p *Pool) follow(target []Slot, now int64) {
	count, want := p.SlotCounts(), make([]int, len(p.Candidates))
	for s := range target {
		want[target[s].Engine]++
	}
	if p.withinTolerance(count) {
		return
	}
	move := func(s int, to uint16) {
		slot := &p.slots[s]
		count[slot.Engine]--
		count[to]++
		slot.moved(slot.Engine, now)
		slot.take(to)
	}
	for s := range p.slots {
		if e, t := p.slots[s].Engine, target[s].Engine; count[e] > want[e] && count[t] < want[t] {
			move(s, t)
		}
	}
	taker := 0
	for s := range p.slots {
		if e := p.slots[s].Engine; count[e] > want[e] {
			for count[taker] >= want[taker] {
				taker++
			}
			move(s, uint16(taker))
		}
	}
}

// band is the slots an engine of that quota may have too few or too many.
func band(quota int) int { return int(tolerance * float64(quota)) }

func (p *Pool) withinTolerance(count []int) bool {
	for i, q := range quotas(p.Candidates, len(p.slots)) {
		if off := count[i] - q; off > band(q) || -off > band(q) {
			return false
		}
	}
	return true
}

// correct brings engines that chance left outside the tolerance back into it:
// those above it give, the neediest take; and while some engine is below it,
// whoever is above its quota gives.
func (p *Pool) correct() {
	count := p.SlotCounts()
	if p.withinTolerance(count) {
		return
	}
	quota := quotas(p.Candidates, len(p.slots))
	var takers []uint16
	starving := 0
	for i, q := range quota {
		if count[i] < q {
			takers = append(takers, uint16(i))
			starving += max(0, q-band(q)-count[i])
		}
	}
	slices.SortStableFunc(takers, func(a, b uint16) int { return cmp.Compare(count[a]-quota[a], count[b]-quota[b]) })
	for s := range p.slots {
		slot := &p.slots[s]
		e := slot.Engine
		if over := count[e] - quota[e]; over <= 0 || over <= band(quota[e]) && starving == 0 {
			continue
		}
		for len(takers) > 0 && count[takers[0]] >= quota[takers[0]] {
			takers = takers[1:]
		}
		if len(takers) == 0 {
			return
		}
		t := takers[0]
		if count[t] < quota[t]-band(quota[t]) {
			starving--
		}
		count[e]--
		count[t]++
		slot.take(t)
	}
}

// noteMoves sets movedAt: now if this fill moved a slot, else prev's while
// slots of its are still draining.
func (p *Pool) noteMoves(prev *Pool, now int64) {
	for s := range p.slots {
		if !p.slots[s].Draining(now) {
			continue
		}
		if p.movedAt = prev.movedAt; p.slots[s].MovedAt == uint16(now/tick) {
			p.movedAt = now
			return
		}
	}
}

func (s *Slot) moved(from uint16, now int64) {
	s.Previous, s.MovedAt = from, uint16(now/tick)
}

// quotas splits the slots by weight, the rest by largest remainder.
func quotas(cands []Candidate, slots int) []int {
	sum := 0.0
	for i := range cands {
		sum += cands[i].Weight
	}
	quota, left := make([]int, len(cands)), slots
	rest := make([]int, 0, len(cands))
	frac := make([]float64, len(cands))
	for i := range cands {
		x := cands[i].Weight / sum * float64(slots)
		quota[i] = int(x)
		frac[i] = x - float64(quota[i])
		left -= quota[i]
		if cands[i].Weight > 0 {
			rest = append(rest, i)
		}
	}
	slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(frac[b], frac[a]) })
	for k := 0; left > 0 && len(rest) > 0; k, left = k+1, left-1 {
		quota[rest[k%len(rest)]]++
	}
	return quota
}
