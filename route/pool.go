package route

import (
	"math"
	"math/rand/v2"
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
	Cost   Cost    // of one more request, network included; known of all candidates or of none
	Used   bool    // the plan has somebody's requests there, be it another source's; under optimal
	_      [7]byte // a cache line each
}

// Component counts what is in flight over the engines that are connected by
// classes. Two tables with the same components share the counter.
type Component struct {
	Members  string // its engines, as an opaque key
	_        [56]byte
	inflight atomic.Int64
	_        [56]byte
	planned  atomic.Uint64 // float64
}

// NewComponent starts a counter at what is in flight on its engines now.
func NewComponent(members string, inFlight int64) *Component {
	c := &Component{Members: members}
	c.inflight.Store(inFlight)
	return c
}

// InFlight is m of hashing.md 4.
func (c *Component) InFlight() int64 { return c.inflight.Load() }

// Plan notes how many requests the plan in use expects in flight here.
func (c *Component) Plan(inFlight float64) { c.planned.Store(math.Float64bits(inFlight)) }

// HasRoom reports that less is in flight than the plan expects: demand came
// together, or is not what was planned for, and nobody need be refused. Under a
// steady overload it is now and then so by chance; conversations that are
// admitted then come before new ones.
func (c *Component) HasRoom() bool {
	return float64(c.InFlight()) < math.Float64frombits(c.planned.Load())
}

// Add counts a pick (+1) or a release (-1).
func (c *Component) Add(n int64) { c.inflight.Add(n) }

// Pool is one candidate set with its slots. Immutable but for lastUsed and turn.
type Pool struct {
	Candidates []Candidate // sorted by engine name
	Component  *Component
	slots      []Slot      // nil: ad hoc, picks by rendezvous
	shift      uint        // slot of a key = key >> shift
	alias      []aliasCell // draws by weight
	byID       []uint16    // engine.Live.ID -> candidate, None
	home       *rendezvous // of a slot, before chance is corrected
	// Shared is set where other gateways of the same source make slots of their
	// own for the same conversations.
	Shared bool

	takers   []uint16     // those with weight to speak of
	movedAt  int64        // unix seconds of the newest slot move, 0 for none
	lastUsed atomic.Int64 // unix seconds of the last Touch
	_        [56]byte     // what is above is read by all picks, what is below written by each in turn
	turn     atomic.Uint64
}

// NewPool builds a pool. Slots are moved from prev as little as the weights
// allow; without prev they are a function of names and weights alone, so that
// a restart, or another gateway, makes the same ones. now counts in seconds.
func NewPool(cands []Candidate, comp *Component, prev *Pool, now int64) *Pool {
	p := NewAdHoc(cands, comp)
	if prev != nil {
		p.lastUsed.Store(prev.lastUsed.Load())
		p.turn.Store(prev.turn.Load())
	}
	p.fill(prev, now)
	return p
}

// NewSharedPool builds a pool whose slots are a function of names and weights
// alone, whatever was before: gateways with equal weights have equal slots
// without a word between them. prev tells who had a slot before.
func NewSharedPool(cands []Candidate, comp *Component, prev *Pool, now int64) *Pool {
	p := NewAdHoc(cands, comp)
	p.Shared = true
	p.fresh()
	if prev != nil {
		p.lastUsed.Store(prev.lastUsed.Load())
		p.turn.Store(prev.turn.Load())
		p.remember(prev, now)
	}
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
	for i := range cands {
		p.byID[cands[i].Live.ID] = uint16(i)
	}
	heaviest := 0.0
	for i := range cands {
		heaviest = max(heaviest, cands[i].Weight)
	}
	for i := range cands {
		if cands[i].Weight > lastResort*heaviest {
			p.takers = append(p.takers, uint16(i))
		}
	}
	p.turn.Store(rand.Uint64() >> 1) // gateways and pools do not begin at the same one
	p.home = newRendezvous(cands)
	p.alias = newAlias(cands)
	return p
}

// lastResort is the part of the heaviest weight up to which a candidate is
// only there for when all others are full.
const lastResort = 1e-6

// Takers are the candidates that have weight, in order, those of last resort
// left out.
func (p *Pool) Takers() []uint16 { return p.takers }

// Turn counts picks in turn.
func (p *Pool) Turn() uint64 { return p.turn.Add(1) }

// BeginTurns sets where picks in turn begin, for who wants the same run twice.
func (p *Pool) BeginTurns(at uint64) { p.turn.Store(at) }

// ByID finds a candidate by its engine's id; None if it is not one.
func (p *Pool) ByID(id uint16) uint16 {
	if int(id) >= len(p.byID) {
		return None
	}
	return p.byID[id]
}

// idOf is the id of a candidate's engine, one that no engine has for None.
func (p *Pool) idOf(i uint16) uint16 {
	if i == None {
		return None
	}
	return p.Candidates[i].Live.ID
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

// adHocSlot computes what a fresh slot table would hold, but for the few slots
// in which chance is corrected.
func (p *Pool) adHocSlot(key uint64) Slot {
	best, second := p.home.of(key >> p.shift)
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

// MovedFrom is the share of the slots that were another engine's in prev; 0
// where either has no slots.
func (p *Pool) MovedFrom(prev *Pool) float64 {
	if len(p.slots) == 0 || len(prev.slots) == 0 {
		return 0
	}
	moved := 0
	for s := range p.slots {
		old := prev.slots[uint64(s)<<p.shift>>prev.shift]
		if p.idOf(p.slots[s].Engine) != prev.idOf(old.Engine) {
			moved++
		}
	}
	return float64(moved) / float64(len(p.slots))
}
