package enginetest

import "math/bits"

// cache is the KV memory: a fixed number of blocks, each held by any number
// of sequences or free. A block that is named by the hash of its text keeps
// that name while it is free and can be found again until it is taken for
// something else, so the free list is also the eviction order: nameless
// blocks in front, then the least recently used.
type cache struct {
	blocks  []block
	buckets []int32 // of names: the first block of each, the rest by block.more
	shift   uint
	free    list
}

type block struct {
	holders    int32
	prev, next int32 // in the free list, while holders is 0
	more       int32 // next of its bucket, while it is named
	isNamed    bool
	hash       uint64
}

// list is a doubly linked list of block numbers through block.prev and next;
// none ends it.
type list struct {
	head, tail int32
	n          int
}

const none int32 = -1

func newCache(n int) *cache {
	size := bits.Len(uint(max(n, 1)))
	c := &cache{blocks: make([]block, n), buckets: make([]int32, 1<<size), shift: uint(64 - size), free: list{head: none, tail: none}}
	for i := range c.buckets {
		c.buckets[i] = none
	}
	for i := range c.blocks {
		c.pushBack(int32(i))
	}
	return c
}

// bucket is where the block of a name is, if any.
func (c *cache) bucket(hash uint64) *int32 {
	return &c.buckets[hash*0x9e3779b97f4a7c15>>c.shift]
}

// named finds the block of a name.
func (c *cache) named(hash uint64) (id int32, ok bool) {
	for id = *c.bucket(hash); id != none; id = c.blocks[id].more {
		if c.blocks[id].hash == hash {
			return id, true
		}
	}
	return none, false
}

// forget takes a block's name away.
func (c *cache) forget(id int32) {
	b := &c.blocks[id]
	at := c.bucket(b.hash)
	for *at != id {
		at = &c.blocks[*at].more
	}
	*at = b.more
	b.isNamed = false
}

// match appends the longest run of blocks, at most limit, that chain names from
// its beginning.
func (c *cache) match(hits []int32, chain []uint64, limit int) []int32 {
	for _, h := range chain[:min(limit, len(chain))] {
		id, ok := c.named(h)
		if !ok {
			break
		}
		hits = append(hits, id)
	}
	return hits
}

// acquire appends to held the blocks in hits and fresh more, which it holds, or
// changes nothing if there are not enough.
func (c *cache) acquire(held, hits []int32, fresh int) ([]int32, bool) {
	idle := 0
	for _, id := range hits {
		if c.blocks[id].holders == 0 {
			idle++
		}
	}
	if c.free.n-idle < fresh {
		return held, false
	}
	for _, id := range hits {
		if c.blocks[id].holders == 0 {
			c.unlink(id)
		}
		c.blocks[id].holders++
		held = append(held, id)
	}
	for range fresh {
		id, _ := c.take()
		held = append(held, id)
	}
	return held, true
}

// take holds one block for new text and forgets what it was named.
func (c *cache) take() (int32, bool) {
	id := c.free.head
	if id == none {
		return none, false
	}
	c.unlink(id)
	b := &c.blocks[id]
	b.holders = 1
	if b.isNamed {
		c.forget(id)
	}
	return id, true
}

// name lets a held block be found by the hash of its text. Of two blocks with
// the same text only the first is.
func (c *cache) name(id int32, hash uint64) {
	b := &c.blocks[id]
	if _, taken := c.named(hash); taken || b.isNamed {
		return
	}
	at := c.bucket(hash)
	b.hash, b.isNamed, b.more = hash, true, *at
	*at = id
}

// release lets go of a sequence's blocks, the last first: the end of a text is
// useless without its beginning, so it is evicted before it.
func (c *cache) release(held []int32) {
	for i := len(held) - 1; i >= 0; i-- {
		b := &c.blocks[held[i]]
		b.holders--
		switch {
		case b.holders > 0:
		case b.isNamed:
			c.pushBack(held[i])
		default:
			c.pushFront(held[i])
		}
	}
}

func (c *cache) pushBack(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = c.free.tail, none
	if c.free.tail == none {
		c.free.head = id
	} else {
		c.blocks[c.free.tail].next = id
	}
	c.free.tail = id
	c.free.n++
}

func (c *cache) pushFront(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = none, c.free.head
	if c.free.head == none {
		c.free.tail = id
	} else {
		c.blocks[c.free.head].prev = id
	}
	c.free.head = id
	c.free.n++
}

func (c *cache) unlink(id int32) {
	b := &c.blocks[id]
	if b.prev == none {
		c.free.head = b.next
	} else {
		c.blocks[b.prev].next = b.next
	}
	if b.next == none {
		c.free.tail = b.prev
	} else {
		c.blocks[b.next].prev = b.prev
	}
	c.free.n--
}
