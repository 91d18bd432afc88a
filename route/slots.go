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

// fill makes the slots: those of prev as far as its engines still have
// weight, the rest by rendezvous, then as many moves as the weights need.
func (p *Pool) fill(prev *Pool, now int64) {
	n := len(p.Candidates)
	p.slots = make([]Slot, 1<<(64-p.shift))
	best := make([]uint16, len(p.slots))
	var g *groups
	if n > groupAbove {
		g = p.newGroups()
	}
	for s := range p.slots {
		b, second := p.rendezvousOf(g, s)
		best[s] = b
		p.slots[s] = Slot{Engine: b, Alternate: second, Previous: None}
	}
	if p.alias == nil {
		return
	}
	kept := prev != nil && prev.slots != nil
	if kept {
		p.keep(prev, now)
	}
	p.balance(best, kept, now)
	if kept {
		p.noteMoves(prev, now)
	}
	for s := range p.slots {
		if slot := &p.slots[s]; slot.Alternate == slot.Engine || slot.Alternate == None {
			slot.Alternate = best[s]
			if best[s] == slot.Engine {
				slot.Alternate = None
			}
		}
	}
}

// keep gives every slot the engine it had in prev where that one still takes
// traffic, and remembers who had it where not.
func (p *Pool) keep(prev *Pool, now int64) {
	from := make([]uint16, len(prev.Candidates)+1) // prev's index -> ours
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
		old, slot := prev.slots[uint64(s)<<p.shift>>prev.shift], &p.slots[s]
		had := index(old.Engine)
		if had == None || p.Candidates[had].Weight <= 0 {
			slot.moved(had, now)
			continue
		}
		if old.Draining(now) {
			slot.Previous, slot.MovedAt = index(old.Previous), old.MovedAt
		}
		if slot.Alternate == had { // the rendezvous winner lost the slot to its runner-up
			slot.Alternate = slot.Engine
		}
		slot.Engine = had
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

// balance moves slots until each engine is within the tolerance of its quota.
// First to the slot's rendezvous winner, so that an engine that comes back
// gets the slots it had, then to whoever has too few.
func (p *Pool) balance(best []uint16, kept bool, now int64) {
	count := p.SlotCounts()
	quota := quotas(p.Candidates, len(p.slots))
	lo, hi := make([]int, len(count)), make([]int, len(count))
	under, over := 0, 0
	for i, q := range quota {
		lo[i], hi[i] = q-int(tolerance*float64(q)), q+int(tolerance*float64(q))
		under += max(0, lo[i]-count[i])
		over += max(0, count[i]-hi[i])
	}
	if under == 0 && over == 0 {
		return
	}
	move := func(s int, to uint16) {
		slot := &p.slots[s]
		count[slot.Engine]--
		count[to]++
		if kept {
			slot.moved(slot.Engine, now)
		}
		slot.Engine, slot.Alternate = to, slot.Engine
	}
	for s := range p.slots {
		e, b := p.slots[s].Engine, best[s]
		if e != b && count[e] > lo[e] && count[b] < hi[b] && (count[e] > hi[e] || count[b] < lo[b]) {
			move(s, b)
		}
	}
	// Whoever is still out of the band is brought to its edge: givers by how
	// much they have too many, takers by how much they lack.
	takers := make([]uint16, 0, len(count))
	for i := range count {
		if count[i] < quota[i] {
			takers = append(takers, uint16(i))
		}
	}
	slices.SortFunc(takers, func(a, b uint16) int {
		return cmp.Compare(count[a]-quota[a], count[b]-quota[b])
	})
	p.level(count, quota, lo, hi, takers, move)
}

// level walks the slots once and moves those of engines above their band to
// takers, and, while some taker is below its band, those of any engine above
// its quota.
func (p *Pool) level(count, quota, lo, hi []int, takers []uint16, move func(int, uint16)) {
	starving := 0
	for _, t := range takers {
		starving += max(0, lo[t]-count[t])
	}
	next := 0
	for s := range p.slots {
		e := p.slots[s].Engine
		if count[e] <= quota[e] || (count[e] <= hi[e] && starving == 0) {
			continue
		}
		for next < len(takers) && count[takers[next]] >= quota[takers[next]] {
			next++
		}
		if next == len(takers) {
			return
		}
		t := takers[next]
		if starving > 0 && count[t] < lo[t] {
			starving--
		}
		move(s, t)
	}
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
