package enginetest

import "time"

// Plain is how many steps from now on do nothing but decode one token of each
// running sequence, none of which ends: as long as nothing is added or aborted,
// Advance does any number of them at once. Each takes that long. 0 where the
// next step is of another kind. An engine that is simulated on virtual time
// needs no event for any of them. Where two running sequences write the same
// text, another one of them than step by step may be the one that names a block.
func (b *Batch) Plain() (steps int, each time.Duration) {
	n := len(b.running)
	if n == 0 || len(b.waiting) > 0 && n < b.Slots && !b.blocked {
		return 0, 0
	}
	steps = int(^uint(0) >> 1)
	for _, s := range b.running {
		if !s.decoding() {
			return 0, 0
		}
		steps = min(steps, s.Out-s.Generated-1)
		if b.blocked && s.computed/b.BlockTokens < len(s.Chain) { // a block that gets a name may be what the queue waits for
			steps = min(steps, b.BlockTokens-1-s.computed%b.BlockTokens)
		}
	}
	for steps > 0 && b.grows(steps) > b.cache.free.n {
		steps /= 2
	}
	return max(steps, 0), b.Base + time.Duration(n)*b.PerSeq
}

// grows is how many blocks the running sequences take in that many plain steps.
func (b *Batch) grows(steps int) (blocks int) {
	for _, s := range b.running {
		blocks += b.blocksFor(s.computed+steps) - len(s.blocks)
	}
	return blocks
}

// Advance does n plain steps, at most as many as Plain allows.
func (b *Batch) Advance(n int) {
	for _, s := range b.running {
		for b.blocksFor(s.computed+n) > len(s.blocks) {
			id, _ := b.cache.take()
			s.blocks = append(s.blocks, id)
		}
		full := s.computed / b.BlockTokens
		s.computed += n
		s.Generated += n
		for ; full < min(s.computed/b.BlockTokens, len(s.Chain)); full++ {
			b.cache.name(s.blocks[full], s.Chain[full])
		}
	}
	b.totals.Steps += int64(n)
	b.totals.Generated += int64(n) * int64(len(b.running))
}

// Reuse makes a sequence that is over, and of which no event is due any more,
// another one. It keeps the memory that the old one had.
func (s *Seq) Reuse(chain []uint64, prompt, out int) {
	*s = Seq{Chain: chain, Prompt: prompt, Out: out, Owner: s.Owner, blocks: s.blocks[:0]}
}
