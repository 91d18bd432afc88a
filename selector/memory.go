package selector

import (
	"sync/atomic"

	"penstock/route"
)

// memory remembers where conversations were placed: a bounded set-associative
// table of one-word entries, read and written without a lock. An entry packs
// a tag of the key, the engine's id and the second of the last use. Losing an
// entry to a race or to a full set costs a cache hit, never an answer.
//
// It begins small, so that a few conversations do not spread over more memory
// than a processor's cache, and doubles when it has had to forget too many
// conversations that were in use, up to 2^20 entries of 8 bytes: 8 MiB, whatever clients send.
type memory struct {
	table   atomic.Pointer[memoryTable]
	evicted atomic.Int64 // conversations in use that had to go since the table last grew
	growing atomic.Bool
}

type memoryTable struct {
	bits uint // log2 of the sets
	sets []set
}

const (
	minSetBits = 12
	maxSetBits = 17
	setWays    = 8
	// One forgotten conversation per evictedShare sets makes the table grow.
	evictedShare = 32
	tagBits      = 28 // key bits from minSetBits on; a larger table takes its set from them
	timeBits     = 20 // seconds, wraps after 12 days
	timeMask     = 1<<timeBits - 1
)

// set is one cache line.
type set [setWays]atomic.Uint64

func newMemory() *memory {
	m := &memory{}
	m.table.Store(newMemoryTable(minSetBits))
	return m
}

func newMemoryTable(bits uint) *memoryTable {
	return &memoryTable{bits: bits, sets: make([]set, 1<<bits)}
}

// An entry is tag:28 | engine+1:16 | second:20; the zero word is empty.
func pack(tag uint64, engine uint16, now int64) uint64 {
	return tag<<(16+timeBits) | (uint64(engine)+1)<<timeBits | uint64(now)&timeMask
}

func tagOf(key uint64) uint64 { return key >> minSetBits & (1<<tagBits - 1) }

func (t *memoryTable) set(key uint64) *set { return &t.sets[key&(1<<t.bits-1)] }

func age(word uint64, now int64) int64 {
	return int64((uint64(now) - word) & timeMask)
}

// get finds the engine of a key that was used within the KV lifetime.
func (m *memory) get(key uint64, now int64) (engine uint16, ok bool) {
	s, tag := m.table.Load().set(key), tagOf(key)
	for i := range s {
		w := s[i].Load()
		if w>>(16+timeBits) != tag || w == 0 {
			continue
		}
		old := age(w, now)
		if old > route.KVLifetime {
			return 0, false
		}
		engine = uint16(w>>timeBits) - 1
		if old > route.KVLifetime/32 { // seldom: a write per turn would bounce the line
			s[i].CompareAndSwap(w, pack(tag, engine, now))
		}
		return engine, true
	}
	return 0, false
}

// seen reports whether a key was used lately, without using it.
func (m *memory) seen(key uint64, now int64) bool {
	s, tag := m.table.Load().set(key), tagOf(key)
	for i := range s {
		if w := s[i].Load(); w != 0 && w>>(16+timeBits) == tag {
			return age(w, now) <= seenLately
		}
	}
	return false
}

// seenLately is for how many seconds a conversation counts as under way.
const seenLately = 600

// put remembers the engine of a key, in place of an older word of the same
// key, an expired one, or the one longest unused.
func (m *memory) put(key uint64, engine uint16, now int64) {
	t := m.table.Load()
	s, tag := t.set(key), tagOf(key)
	victim, oldest := 0, int64(-1)
	for i := range s {
		w := s[i].Load()
		if w == 0 || w>>(16+timeBits) == tag {
			victim, oldest = i, timeMask
			break
		}
		if a := age(w, now); a > oldest {
			victim, oldest = i, a
		}
	}
	if oldest <= route.KVLifetime && t.bits < maxSetBits && m.evicted.Add(1) > int64(len(t.sets))/evictedShare {
		m.grow(t)
		s = m.table.Load().set(key)
		for i := range s {
			if s[i].Load() == 0 {
				victim = i
				break
			}
		}
	}
	s[victim].Store(pack(tag, engine, now))
}

// grow doubles the table. It happens a handful of times in the life of a
// process, inside the request that found its set full; what others store in
// the old table meanwhile is forgotten.
func (m *memory) grow(from *memoryTable) {
	if m.growing.Swap(true) {
		return
	}
	defer m.growing.Store(false)
	if m.table.Load() != from {
		return
	}
	to := newMemoryTable(from.bits + 1)
	var filled [2]int
	for i := range from.sets {
		filled = [2]int{}
		for k := range from.sets[i] {
			w := from.sets[i][k].Load()
			if w == 0 {
				continue
			}
			half := int(w >> (16 + timeBits) >> (from.bits - minSetBits) & 1)
			to.sets[i|half<<from.bits][filled[half]].Store(w)
			filled[half]++
		}
	}
	m.evicted.Store(0)
	m.table.Store(to)
}
