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
// 2^20 entries of 8 bytes: 8 MiB, whatever clients send.
type memory struct {
	sets []set
}

const (
	setBits  = 17 // 2^17 sets of 8 entries
	setWays  = 8
	tagBits  = 28
	timeBits = 20 // seconds, wraps after 12 days
	timeMask = 1<<timeBits - 1
)

// set is one cache line.
type set [setWays]atomic.Uint64

func newMemory() *memory { return &memory{sets: make([]set, 1<<setBits)} }

// An entry is tag:28 | engine:16 | second:20; the zero word is empty, because
// the tag is never zero.
func pack(tag uint64, engine uint16, now int64) uint64 {
	return tag<<(16+timeBits) | uint64(engine)<<timeBits | uint64(now)&timeMask
}

func tagOf(key uint64) uint64 { return key>>setBits&(1<<tagBits-1) | 1 }

func age(word uint64, now int64) int64 {
	return int64((uint64(now) - word) & timeMask)
}

// get finds the engine of a key that was used within the KV lifetime.
func (m *memory) get(key uint64, now int64) (engine uint16, ok bool) {
	s, tag := &m.sets[key&(1<<setBits-1)], tagOf(key)
	for i := range s {
		w := s[i].Load()
		if w>>(16+timeBits) != tag {
			continue
		}
		old := age(w, now)
		if old > route.KVLifetime {
			return 0, false
		}
		engine = uint16(w >> timeBits)
		if old > route.KVLifetime/32 { // seldom: a write per turn would bounce the line
			s[i].CompareAndSwap(w, pack(tag, engine, now))
		}
		return engine, true
	}
	return 0, false
}

// put remembers the engine of a key, in place of an older word of the same
// key, an expired one, or the one longest unused.
func (m *memory) put(key uint64, engine uint16, now int64) {
	s, tag := &m.sets[key&(1<<setBits-1)], tagOf(key)
	victim, oldest := 0, int64(-1)
	for i := range s {
		w := s[i].Load()
		if w == 0 || w>>(16+timeBits) == tag {
			victim = i
			break
		}
		if a := age(w, now); a > oldest {
			victim, oldest = i, a
		}
	}
	s[victim].Store(pack(tag, engine, now))
}
