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
	// Slots move when an engine's are further than looseEngine from its weight,
	// relatively, or when looseAll of all slots are with another engine than
	// the weights want; then all are set right. Less is not worth a cache.
	looseEngine = 0.02
	looseAll    = 0.001
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

// fill makes the slots. Without prev they are the fresh ones. Where engines
// came, slots move towards the fresh ones, by no more than the weights need:
// gateways that saw different pasts meet there. Where engines left or weights
// changed, slots move from who has too many to who has too few.
func (p *Pool) fill(prev *Pool, now int64) {
	if p.alias == nil || prev == nil || prev.slots == nil {
		p.fresh()
		return
	}
	var target []Slot
	if p.newcomers(prev) {
		p.fresh()
		target = p.slots
	}
	p.slots = make([]Slot, 1<<(64-p.shift))
	p.keep(prev, target, now)
	count, quota := p.SlotCounts(), quotas(p.Candidates, len(p.slots))
	if !settled(count, quota) {
		p.settle(target, count, quota, now)
	}
	p.noteMoves(prev, now)
}

// newcomers reports whether a candidate takes traffic that took none in prev.
func (p *Pool) newcomers(prev *Pool) bool {
	return slices.ContainsFunc(p.Candidates, func(c Candidate) bool {
		i := prev.ByID(c.Live.ID)
		return c.Weight > 0 && (i == None || prev.Candidates[i].Weight <= 0)
	})
}

// fresh makes the slots by rendezvous, then moves what chance put elsewhere
// than the weights. Its result depends on names and weights alone.
func (p *Pool) fresh() {
	p.slots = make([]Slot, 1<<(64-p.shift))
	for s := range p.slots {
		best, second := p.home.of(uint64(s))
		p.slots[s] = Slot{Engine: best, Alternate: second, Previous: None}
	}
	if p.alias != nil {
		p.correct()
	}
}

// keep gives every slot the engine it had in prev where that one still takes
// traffic. The others go where the target says while that engine has room,
// then to their alternate, then to whoever has room; they remember who had them.
// target is nil where no fresh slots were made.
func (p *Pool) keep(prev *Pool, target []Slot, now int64) {
	from := make([]uint16, len(prev.Candidates)+1) // prev's index -> ours
	for i := range prev.Candidates {
		if from[i] = p.ByID(prev.Candidates[i].Live.ID); from[i] != None && p.Candidates[from[i]].Weight <= 0 {
			from[i] = None
		}
	}
	from[len(prev.Candidates)] = None
	index := func(i uint16) uint16 { return from[min(int(i), len(prev.Candidates))] }
	room := quotas(p.Candidates, len(p.slots))
	var orphans []int
	for s := range p.slots {
		// A pool that outgrew its table halves or doubles the slots: the key
		// keeps its high bits and so its engine.
		old := prev.slots[uint64(s)<<p.shift>>prev.shift]
		slot := Slot{Engine: index(old.Engine), Alternate: index(old.Alternate), Previous: None}
		if target != nil {
			slot.Alternate = other(target[s], slot.Engine)
		} else if slot.Alternate == None {
			best, second := p.home.of(uint64(s))
			slot.Alternate = other(Slot{Engine: best, Alternate: second}, slot.Engine)
		}
		if slot.Engine == None {
			slot.moved(p.ByID(prev.idOf(old.Engine)), now)
			orphans = append(orphans, s)
		} else {
			room[slot.Engine]--
			if old.Draining(now) {
				slot.Previous, slot.MovedAt = p.ByID(prev.idOf(old.Previous)), old.MovedAt
			}
		}
		p.slots[s] = slot
	}
	taker := 0
	for _, s := range orphans {
		slot := &p.slots[s]
		to := slot.Alternate // the target's engine, where there is one
		if target != nil && room[to] <= 0 {
			to = target[s].Alternate
		}
		if to == None || room[to] <= 0 {
			for room[taker] <= 0 {
				taker++
			}
			to = uint16(taker)
		}
		room[to]--
		if slot.Engine = to; slot.Alternate == to {
			best, second := p.home.of(uint64(s))
			slot.Alternate = other(Slot{Engine: best, Alternate: second}, to)
		}
	}
}

// remember notes in every slot that prev had with another engine who that was.
func (p *Pool) remember(prev *Pool, now int64) {
	if prev.slots == nil {
		return
	}
	for s := range p.slots {
		slot, old := &p.slots[s], prev.slots[uint64(s)<<p.shift>>prev.shift]
		if was := p.ByID(prev.idOf(old.Engine)); was != None && was != slot.Engine {
			slot.moved(was, now)
		} else if old.Draining(now) {
			slot.Previous, slot.MovedAt = p.ByID(prev.idOf(old.Previous)), old.MovedAt
		}
	}
	p.noteMoves(prev, now)
}

// other is a slot's engine, or its alternate where that is engine already.
func other(s Slot, engine uint16) uint16 {
	if s.Engine == engine {
		return s.Alternate
	}
	return s.Engine
}

// take gives the slot another engine; its alternate stays another one.
func (s *Slot) take(engine uint16) {
	if s.Alternate == engine {
		s.Alternate = s.Engine
	}
	s.Engine = engine
}

// settle moves slots until each engine has its quota: first to who has them in
// the target, or else to their alternate, where spilled conversations have
// their cache already; then to whoever needs some. Every move brings two
// engines one slot nearer, so that none is wasted.
func (p *Pool) settle(target []Slot, count, quota []int, now int64) {
	move := p.mover(count, now)
	for s := range p.slots {
		e, to := p.slots[s].Engine, p.slots[s].Alternate
		if target != nil {
			to = target[s].Engine
		}
		if to != None && count[e] > quota[e] && count[to] < quota[to] {
			move(s, to)
		}
	}
	taker := 0
	for s := range p.slots {
		if e := p.slots[s].Engine; count[e] > quota[e] {
			for count[taker] >= quota[taker] {
				taker++
			}
			move(s, uint16(taker))
		}
	}
}

// mover moves a slot, keeps count and notes who had it.
func (p *Pool) mover(count []int, now int64) func(s int, to uint16) {
	return func(s int, to uint16) {
		slot := &p.slots[s]
		count[slot.Engine]--
		count[to]++
		slot.moved(slot.Engine, now)
		slot.take(to)
	}
}

// settled reports whether the counts are near enough to what is wanted.
func settled(count, want []int) bool {
	slots, misplaced := 0, 0
	for i, w := range want {
		off := count[i] - w
		slots += w
		misplaced += max(0, off)
		if n := max(off, -off); n > 1 && float64(n) > looseEngine*float64(w) {
			return false
		}
	}
	return float64(misplaced) <= looseAll*float64(slots)
}

// correct moves slots from engines to which chance gave more than their quota
// to those that have less, the neediest first.
func (p *Pool) correct() {
	count, quota := p.SlotCounts(), quotas(p.Candidates, len(p.slots))
	var takers []uint16
	for i, q := range quota {
		if count[i] < q {
			takers = append(takers, uint16(i))
		}
	}
	slices.SortStableFunc(takers, func(a, b uint16) int { return cmp.Compare(count[a]-quota[a], count[b]-quota[b]) })
	for s := range p.slots {
		slot := &p.slots[s]
		if e := slot.Engine; count[e] > quota[e] {
			for count[takers[0]] >= quota[takers[0]] {
				takers = takers[1:]
			}
			count[e]--
			count[takers[0]]++
			slot.take(takers[0])
		}
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
