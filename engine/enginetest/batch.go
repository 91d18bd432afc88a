package enginetest

import (
	"errors"
	"slices"
	"time"
)

const (
	// BlockTokens is the size of one KV block where the Model names none.
	BlockTokens = 16
	// DefaultChunkTokens bounds the prompt tokens computed in one step.
	DefaultChunkTokens = 512
	// referencePrompt is the prompt that a configured TTFT speaks of.
	referencePrompt = 1000
	// perSeqShare is what each further decoding sequence adds to a step, as
	// a share of its base.
	perSeqShare = 0.035
)

// Model is the size and speed of an engine.
type Model struct {
	Slots       int // sequences computed at once
	Blocks      int // KV blocks
	BlockTokens int // tokens of a block; 0 = BlockTokens
	ChunkTokens int // prompt tokens a step

	Base        time.Duration // of a step in which something decodes
	PrefillBase time.Duration // of a step that computes prompts only
	PerSeq      time.Duration // for each decoding sequence
	PerPrefill  time.Duration // for each prompt token
}

// Speed sets the step times from two figures of an engine that has nothing
// else to do: ttft, from a prompt of 1,000 tokens to the first token of its
// answer, and tbot, from one token to the next.
func (m *Model) Speed(ttft, tbot time.Duration) {
	steps := time.Duration((referencePrompt + m.ChunkTokens - 1) / m.ChunkTokens)
	m.Base = time.Duration(float64(tbot) / (1 + perSeqShare))
	m.PerSeq = tbot - m.Base
	m.PrefillBase = min(m.Base, ttft/steps)
	m.PerPrefill = (ttft - steps*m.PrefillBase) / referencePrompt
}

// Seq is one sequence: a prompt and the answer that grows behind it. The
// caller fills in the first four fields; a Seq is used once.
type Seq struct {
	Chain  []uint64 // for each full block of prompt and answer, the hash of all text up to its end
	Prompt int      // tokens, at least 1
	Out    int      // tokens of the answer; 0 computes the prompt only
	Owner  any      // the caller's, never looked at

	Cached    int // prompt tokens found in the prefix cache when it was first admitted
	Generated int // tokens of the answer so far

	admitted bool // at least once
	place    place
	computed int // tokens whose KV is there; preemption sets it back
	work     int // tokens of the current step
	blocks   []int32
}

type place uint8

const (
	nowhere place = iota
	waiting
	running
)

func (s *Seq) total() int     { return s.Prompt + s.Generated }
func (s *Seq) decoding() bool { return s.Generated > 0 && s.computed == s.total()-1 }

func (b *Batch) blocksFor(tokens int) int { return (tokens + b.BlockTokens - 1) / b.BlockTokens }

// Event is what a step did for one sequence: its Generated-th token is there,
// or, with Out = 0, its prompt is computed.
type Event struct {
	Seq      *Seq
	Finished bool
}

// Step is the work of one iteration. Its events are due Elapsed after the
// step began and are valid until the next one.
type Step struct {
	Elapsed  time.Duration
	Decoding int // sequences that decoded a token
	Prefill  int // prompt tokens computed
	Events   []Event
}

// Totals are counters since the batch was made.
type Totals struct {
	Steps       int64
	Prompt      int64 // prompt tokens of admitted sequences, cached ones included
	Cached      int64 // those of them that the prefix cache had
	Generated   int64
	Preemptions int64
}

// Batch is the engine's scheduler: values in, values out, no clock. The owner
// calls Step while Busy and lets Elapsed pass before it uses the events. Not
// safe for concurrent use.
type Batch struct {
	Model
	cache   *cache
	waiting []*Seq // in order of arrival; preempted ones in front
	running []*Seq // in order of admission
	blocked bool   // the head of the queue found too few blocks, and none have come free or been named since
	totals  Totals
	events  []Event
	hits    []int32 // of the match at hand
}

// NewBatch returns an idle engine of that size.
func NewBatch(m Model) *Batch {
	if m.BlockTokens == 0 {
		m.BlockTokens = BlockTokens
	}
	return &Batch{Model: m, cache: newCache(m.Blocks)}
}

// ErrNeverFits is the answer to a sequence that needs more blocks than there are.
var ErrNeverFits = errors.New("prompt and answer exceed the KV cache")

// Add puts a sequence at the end of the queue.
func (b *Batch) Add(s *Seq) error {
	if b.blocksFor(s.Prompt+s.Out) > b.Blocks {
		return ErrNeverFits
	}
	if len(b.waiting) == 0 {
		b.blocked = false
	}
	s.place = waiting
	b.waiting = append(b.waiting, s)
	return nil
}

// Abort removes a sequence at once, wherever it is. Events of the step that
// is under way may still name it.
func (b *Batch) Abort(s *Seq) {
	switch s.place {
	case waiting:
		i := slices.Index(b.waiting, s)
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.blocked = false
	case running:
		i := slices.Index(b.running, s)
		b.running = slices.Delete(b.running, i, i+1)
		b.release(s)
	}
	s.place = nowhere
}

// Busy reports whether there is anything to compute.
func (b *Batch) Busy() bool { return len(b.running)+len(b.waiting) > 0 }

// Running is the number of sequences that hold a slot.
func (b *Batch) Running() int { return len(b.running) }

// Waiting is the number of sequences in the queue.
func (b *Batch) Waiting() int { return len(b.waiting) }

// Excess is the number of waiting sequences beyond the free slots.
func (b *Batch) Excess() int { return max(0, len(b.waiting)-(b.Slots-len(b.running))) }

// KVUsed is the share of blocks that sequences hold, 0..1. Cached blocks that
// nobody uses count as free.
func (b *Batch) KVUsed() float64 {
	return float64(b.Blocks-b.cache.free.n) / float64(max(1, b.Blocks))
}

// Totals returns the counters.
func (b *Batch) Totals() Totals { return b.totals }

// Step computes one iteration.
func (b *Batch) Step() Step {
	st := Step{}
	budget := b.ChunkTokens
	preempted := b.plan(&st, &budget)
	if !preempted {
		b.admit(&st, &budget)
	}
	b.totals.Steps++
	st.Elapsed = time.Duration(st.Decoding)*b.PerSeq + time.Duration(st.Prefill)*b.PerPrefill
	if st.Decoding > 0 {
		st.Elapsed += b.Base
	} else {
		st.Elapsed += b.PrefillBase
	}
	st.Events = b.compute()
	return st
}

// plan gives every running sequence its work, the earliest admitted first, so
// that the oldest always gets on and everything finishes in the end.
func (b *Batch) plan(st *Step, budget *int) (preempted bool) {
	for i := 0; i < len(b.running); i++ {
		s := b.running[i]
		if !s.decoding() {
			s.work = min(s.total()-s.computed, *budget)
			*budget -= s.work
			st.Prefill += s.work
			continue
		}
		for b.blocksFor(s.computed+1) > len(s.blocks) && s.place == running {
			if id, ok := b.cache.take(); ok {
				s.blocks = append(s.blocks, id)
				continue
			}
			b.preempt(b.running[len(b.running)-1])
			preempted = true
		}
		if s.place == running {
			s.work = 1
			st.Decoding++
		}
	}
	return preempted
}

// preempt takes the blocks of a running sequence, which is the last of the
// list, and puts it in front of the queue: all its tokens are computed again,
// but for those that the prefix cache still has by then.
func (b *Batch) preempt(s *Seq) {
	b.running = b.running[:len(b.running)-1]
	b.release(s)
	s.computed, s.work = 0, 0
	s.place = waiting
	b.waiting = slices.Insert(b.waiting, 0, s)
	b.totals.Preemptions++
}

// admit moves sequences from the queue into free slots, strictly in order:
// one whose blocks are not there holds up those behind it.
func (b *Batch) admit(st *Step, budget *int) {
	for len(b.waiting) > 0 && len(b.running) < b.Slots && *budget > 0 {
		s := b.waiting[0]
		// The last token is always computed: its KV alone does not tell the next one.
		hits := b.cache.match(b.hits[:0], s.Chain, (s.total()-1)/b.BlockTokens)
		b.hits = hits
		blocks, ok := b.cache.acquire(s.blocks[:0], hits, b.blocksFor(s.total())-len(hits))
		if !ok {
			b.blocked = true
			return
		}
		b.waiting = b.waiting[1:]
		b.running = append(b.running, s)
		s.place, s.blocks = running, blocks
		s.computed = len(hits) * b.BlockTokens
		if !s.admitted {
			s.admitted = true
			s.Cached = min(s.computed, s.Prompt)
			b.totals.Prompt += int64(s.Prompt)
			b.totals.Cached += int64(s.Cached)
		}
		s.work = min(s.total()-s.computed, *budget)
		if s.decoding() {
			st.Decoding++
			continue
		}
		*budget -= s.work
		st.Prefill += s.work
	}
}

// compute does the planned work and tells what came of it.
func (b *Batch) compute() []Event {
	b.events = b.events[:0]
	left := b.running[:0]
	for _, s := range b.running {
		full := s.computed / b.BlockTokens
		s.computed += s.work
		s.work = 0
		for ; full < min(s.computed/b.BlockTokens, len(s.Chain)); full++ {
			b.cache.name(s.blocks[full], s.Chain[full])
			b.blocked = false // what the queue waits for may be there already
		}
		if s.computed < s.total() {
			left = append(left, s)
			continue
		}
		if s.Out > 0 {
			s.Generated++
			b.totals.Generated++
		}
		done := s.Generated >= s.Out
		b.events = append(b.events, Event{Seq: s, Finished: done})
		if !done {
			left = append(left, s)
			continue
		}
		b.release(s)
		s.place = nowhere
	}
	clear(b.running[len(left):])
	b.running = left
	return b.events
}

func (b *Batch) release(s *Seq) {
	b.cache.release(s.blocks)
	s.blocks = s.blocks[:0]
	b.blocked = false
}
