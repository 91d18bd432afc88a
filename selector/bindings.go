package selector

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Binding is what is known of an id that an engine made: a response, a
// conversation, a session. Only that engine can go on from it.
type Binding struct {
	Engine uint16 // engine.Live.ID
	Mark   uint16 // the caller's own
}

// Bindings remembers which engine made which id, for later requests that name
// it. Ids are keyed hashes that cover the tenant (Keyer, DomainBound), so that
// one tenant's id is unknown to another. It is bounded: 2^18 ids of 16 bytes,
// 4 MiB; where a set is full, the id longest unused is forgotten. A shard's
// lock is held for a walk over one set. The zero value is ready.
type Bindings struct {
	shards [bindingShards]bindingShard
	puts   atomic.Uint64
}

const (
	bindingShards = 64
	bindingSets   = 512 // in a shard
	bindingWays   = 8
)

type bindingShard struct {
	mu   sync.Mutex
	sets []bindingSet // guarded by mu; nil until the first id
}

type bindingSet [bindingWays]bindingEntry

// bindingEntry is one id; used 0 is none.
type bindingEntry struct {
	key  uint64
	used uint32 // seconds since 1970
	Binding
}

// at is the shard of a key and the set in it. Slots take a key's high bits;
// these are others.
func (b *Bindings) at(key uint64) (s *bindingShard, set uint64) {
	return &b.shards[key%bindingShards], key / bindingShards % bindingSets
}

// Puts counts what was ever put: what is kept of b elsewhere is as b while it
// stands still.
func (b *Bindings) Puts() uint64 { return b.puts.Load() }

// All gives every id with the second of its last use, in no order.
func (b *Bindings) All(yield func(key uint64, used int64, to Binding)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		sets := slices.Clone(s.sets)
		s.mu.Unlock()
		for _, set := range sets {
			for _, e := range set {
				if e.used != 0 {
					yield(e.key, int64(e.used), e.Binding)
				}
			}
		}
	}
}

// Put remembers which engine made the id.
func (b *Bindings) Put(key uint64, to Binding, now int64) {
	b.puts.Add(1)
	s, n := b.at(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil {
		s.sets = make([]bindingSet, bindingSets)
	}
	set := &s.sets[n]
	victim := 0
	for i := range set {
		if set[i].used == 0 || set[i].key == key {
			victim = i
			break
		}
		if set[i].used < set[victim].used {
			victim = i
		}
	}
	set[victim] = bindingEntry{key: key, used: uint32(max(1, now)), Binding: to}
}

// Get finds what is known of an id.
func (b *Bindings) Get(key uint64, now int64) (Binding, bool) {
	s, n := b.at(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil {
		return Binding{}, false
	}
	set := &s.sets[n]
	for i := range set {
		if set[i].used != 0 && set[i].key == key {
			set[i].used = uint32(max(1, now))
			return set[i].Binding, true
		}
	}
	return Binding{}, false
}
