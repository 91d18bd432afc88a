package route

import (
	"sync/atomic"

	"penstock/engine"
)

// None is the candidate index that means no candidate.
const None = 1<<16 - 1

// Candidate is one engine of a pool with what a pick needs of it.
type Candidate struct {
	Engine *engine.Engine
	Live   *engine.Live
	Weight float64 // x_j: share of the class's demand; 0 = takes none
	Share  float64 // q_j: share of the component's in-flight it should hold
	Cap    int64   // K_j: attempts at once
}

// Component counts what is in flight over the engines that are connected by
// classes. Two tables with the same components share the counter.
type Component struct {
	Members  string // its engines, as an opaque key
	_        [56]byte
	inflight atomic.Int64
	_        [56]byte
}

// NewComponent starts a counter at what is in flight on its engines now.
func NewComponent(members string, inFlight int64) *Component {
	c := &Component{Members: members}
	c.inflight.Store(inFlight)
	return c
}

// InFlight is m of hashing.md 4.
func (c *Component) InFlight() int64 { return c.inflight.Load() }

// Add counts a pick (+1) or a release (-1).
func (c *Component) Add(n int64) { c.inflight.Add(n) }

// Pool is one candidate set with its slots. Immutable but for lastUsed.
type Pool struct {
	Candidates []Candidate // sorted by engine name
	Component  *Component
	slots      []Slot      // nil: ad hoc, picks by rendezvous
	shift      uint        // slot of a key = key >> shift
	alias      []aliasCell // draws by weight
	byID       []uint16    // engine.Live.ID -> candidate, None
	seeds      []uint64    // rendezvous seed of each candidate

	movedAt  int64        // unix seconds of the newest slot move, 0 for none
	lastUsed atomic.Int64 // unix seconds of the last Touch
}

// NewPool builds a pool. Slots are moved from prev as little as the weights
// allow; without prev they are a function of names and weights alone, so that
// a restart, or another gateway, makes the same ones. now counts in seconds.
func NewPool(cands []Candidate, comp *Component, prev *Pool, now int64) *Pool {
	p := NewAdHoc(cands, comp)
	p.fill(prev, now)
	return p
}

// NewAdHoc builds a pool without slots, for a class that has no table yet.
func NewAdHoc(cands []Candidate, comp *Component) *Pool {
	p := &Pool{Candidates: cands, Component: comp, shift: 64 - slotBits(len(cands))}
	maxID := 0
	for i := range cands {
		maxID = max(maxID, int(cands[i].Live.ID))
	}
	p.byID = make([]uint16, maxID+1)
	for i := range p.byID {
		p.byID[i] = None
	}
	p.seeds = make([]uint64, len(cands))
	for i := range cands {
		p.byID[cands[i].Live.ID] = uint16(i)
		p.seeds[i] = seedOf(cands[i].Engine.Name)
	}
	p.alias = newAlias(cands)
	return p
}

// ByID finds a candidate by its engine's id; None if it is not one.
func (p *Pool) ByID(id uint16) uint16 {
	if int(id) >= len(p.byID) {
		return None
	}
	return p.byID[id]
}

// Slot is what the pool says about a key: its engine, its fixed alternate and,
// for a while after a move, the engine it had before.
func (p *Pool) Slot(key uint64) Slot {
	if p.slots == nil {
		return p.adHocSlot(key)
	}
	return p.slots[key>>p.shift]
}

// SlotIndex is the number of the key's slot; it seeds further alternates.
func (p *Pool) SlotIndex(key uint64) uint64 { return key >> p.shift }

// adHocSlot computes what a fresh slot table would hold.
func (p *Pool) adHocSlot(key uint64) Slot {
	var g *groups
	if len(p.Candidates) > groupAbove {
		g = p.newGroups()
	}
	best, second := p.rendezvousOf(g, int(key>>p.shift))
	return Slot{Engine: best, Alternate: second, Previous: None}
}

// HasSlots reports whether the pool has a slot table.
func (p *Pool) HasSlots() bool { return p.slots != nil }

// Slots is the number of slots, 0 for an ad hoc pool.
func (p *Pool) Slots() int { return len(p.slots) }

// SlotCounts tells how many slots each candidate has.
func (p *Pool) SlotCounts() []int {
	n := make([]int, len(p.Candidates))
	for _, s := range p.slots {
		if s.Engine != None {
			n[s.Engine]++
		}
	}
	return n
}

// Drained reports whether all moved slots have had their KV lifetime: a pool
// built anew then forgets who had them before.
func (p *Pool) Drained(now int64) bool {
	return p.movedAt > 0 && now-p.movedAt > KVLifetime+tick
}

// Touch notes that a request used the pool; seconds need not be exact.
func (p *Pool) Touch(unix int64) {
	if p.lastUsed.Load() != unix {
		p.lastUsed.Store(unix)
	}
}

// LastUsed is the second of the last Touch, 0 for never.
func (p *Pool) LastUsed() int64 { return p.lastUsed.Load() }

// aliasCell is one column of Walker's alias table (Vose 1991): the column's
// own candidate below the threshold, the alias above it.
type aliasCell struct {
	threshold uint32
	alias     uint16
}

// newAlias builds the O(1) draw by weight; nil where no candidate has weight.
func newAlias(cands []Candidate) []aliasCell {
	n := len(cands)
	sum := 0.0
	for i := range cands {
		sum += cands[i].Weight
	}
	if !(sum > 0) {
		return nil
	}
	cells := make([]aliasCell, n)
	scaled := make([]float64, n)
	var small, large []int
	for i := range cands {
		scaled[i] = cands[i].Weight / sum * float64(n)
		if scaled[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		cells[s] = aliasCell{threshold: uint32(scaled[s] * (1<<32 - 1)), alias: uint16(l)}
		if scaled[l] -= 1 - scaled[s]; scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What rounding left over is a full column of its own; a candidate of
	// weight 0 must not be, whatever rounding did.
	heavy := 0
	for i := range cands {
		if cands[i].Weight > cands[heavy].Weight {
			heavy = i
		}
	}
	for _, i := range append(small, large...) {
		if cands[i].Weight > 0 {
			cells[i] = aliasCell{threshold: 1<<32 - 1, alias: uint16(i)}
		} else {
			cells[i] = aliasCell{threshold: 0, alias: uint16(heavy)}
		}
	}
	return cells
}

// Draw turns 64 random bits into a candidate by weight; None where no
// candidate has weight.
func (p *Pool) Draw(r uint64) uint16 {
	if p.alias == nil {
		return None
	}
	i := uint16((r >> 32) * uint64(len(p.alias)) >> 32)
	if c := p.alias[i]; uint32(r) >= c.threshold {
		return c.alias
	}
	return i
}
