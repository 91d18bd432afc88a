package enginetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func testModel(slots, blocks int) Model {
	m := Model{Slots: slots, Blocks: blocks, ChunkTokens: DefaultChunkTokens}
	m.Speed(30*time.Millisecond, 10*time.Millisecond)
	return m
}

// words is text of that many tokens which begins alike for equal seeds.
func words(seed uint64, tokens int) []byte {
	return pad([]byte(Answer(seed, "", max(tokens, 8)))[:tokens*tokenBytes-1])
}

func seqOf(seed uint64, prompt, out int) *Seq {
	return &Seq{Chain: Chain(0, words(seed, prompt+out)), Prompt: prompt, Out: out}
}

// play runs a batch until it is idle and returns when each sequence had its
// first and its last token.
func play(t *testing.T, b *Batch) (first, last map[*Seq]time.Duration) {
	t.Helper()
	first, last = make(map[*Seq]time.Duration), make(map[*Seq]time.Duration)
	now := time.Duration(0)
	for steps := 0; b.Busy(); steps++ {
		if steps > 1_000_000 {
			t.Fatal("the batch does not get on")
		}
		st := b.Step()
		now += st.Elapsed
		for _, ev := range st.Events {
			if ev.Seq.Generated <= 1 {
				first[ev.Seq] = now
			}
			if ev.Finished {
				last[ev.Seq] = now
			}
		}
	}
	return first, last
}

func TestSpeedIsThatOfALoneRequest(t *testing.T) {
	for _, c := range []struct{ ttft, tbot time.Duration }{
		{30 * time.Millisecond, 10 * time.Millisecond},
		{81380 * time.Microsecond, 10350 * time.Microsecond}, // (10 + 0.35 n + 0.06 p) ms a step
		{5 * time.Millisecond, 10 * time.Millisecond},        // less than two steps of decoding
		{0, 10 * time.Millisecond},
		{30 * time.Millisecond, 0},
		{0, 0},
	} {
		b := NewBatch(func() Model { m := testModel(8, 4096); m.Speed(c.ttft, c.tbot); return m }())
		s := seqOf(1, 1000, 101)
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
		first, last := play(t, b)
		if d := (first[s] - c.ttft).Abs(); d > time.Microsecond {
			t.Errorf("ttft %v, tbot %v: first token after %v", c.ttft, c.tbot, first[s])
		}
		if d := ((last[s]-first[s])/100 - c.tbot).Abs(); d > time.Microsecond {
			t.Errorf("ttft %v, tbot %v: %v a token", c.ttft, c.tbot, (last[s]-first[s])/100)
		}
	}
}

func TestDecodeSlowsWithTheBatch(t *testing.T) {
	var previous time.Duration
	for _, n := range []int{1, 2, 8, 32} {
		b := NewBatch(testModel(32, 4096))
		for i := range n {
			if err := b.Add(seqOf(uint64(i), 16, 200)); err != nil {
				t.Fatal(err)
			}
		}
		_, last := play(t, b)
		total := time.Duration(0)
		for _, at := range last {
			total = max(total, at)
		}
		if total <= previous {
			t.Errorf("%d answers at once take %v, fewer took %v", n, total, previous)
		}
		// 3.5 % of the base for each further one.
		want := time.Duration(float64(b.Base) * (1 + perSeqShare*float64(n)) * 200)
		if total < want*98/100 || total > want*103/100 {
			t.Errorf("%d answers at once take %v, want about %v", n, total, want)
		}
		previous = total
	}
}

func TestPrefillIsChunked(t *testing.T) {
	b := NewBatch(testModel(8, 4096))
	for i := range 3 {
		if err := b.Add(seqOf(uint64(i), 700, 1)); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for b.Busy() {
		st := b.Step()
		if st.Prefill > DefaultChunkTokens {
			t.Errorf("%d prompt tokens in a step", st.Prefill)
		}
		total += st.Prefill
	}
	if total != 2100 {
		t.Errorf("%d prompt tokens computed, want 2100", total)
	}
}

func TestSecondTurnFindsItsPrefix(t *testing.T) {
	b := NewBatch(testModel(8, 4096))
	text := words(7, 1300)
	first := &Seq{Chain: Chain(0, text[:1100*tokenBytes]), Prompt: 1000, Out: 100}
	if err := b.Add(first); err != nil {
		t.Fatal(err)
	}
	play(t, b)
	// The next turn holds the prompt, the answer and 100 new tokens.
	second := &Seq{Chain: Chain(0, text), Prompt: 1200, Out: 100}
	if err := b.Add(second); err != nil {
		t.Fatal(err)
	}
	alone, _ := play(t, b)
	// All full blocks of the first turn but its last token, which was never computed.
	if want := 1099 / BlockTokens * BlockTokens; second.Cached != want {
		t.Errorf("%d tokens cached, want %d", second.Cached, want)
	}
	cold := seqOf(8, 1200, 100)
	if err := b.Add(cold); err != nil {
		t.Fatal(err)
	}
	before, _ := play(t, b)
	if cold.Cached != 0 || before[cold] < 2*alone[second] {
		t.Errorf("first token after %v with the cache, %v without", alone[second], before[cold])
	}
}

func TestLeastRecentlyUsedIsEvicted(t *testing.T) {
	b := NewBatch(testModel(1, 30)) // three conversations of ten blocks
	turn := func(seed uint64) int {
		s := seqOf(seed, 159, 1)
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
		play(t, b)
		return s.Cached
	}
	turn(1)
	turn(2)
	turn(3)
	if turn(1) == 0 {
		t.Fatal("conversation 1 was evicted while there was room")
	}
	// Takes 10 blocks: the 3 that are free, then 7 of conversation 2, the one
	// not used for longest, from its end.
	turn(4)
	for _, c := range []struct {
		seed uint64
		want int
	}{{1, 9 * BlockTokens}, {3, 9 * BlockTokens}, {2, 2 * BlockTokens}} {
		if got := turn(c.seed); got != c.want {
			t.Errorf("conversation %d has %d tokens left, want %d", c.seed, got, c.want)
		}
	}
}

func TestWhatNeverFitsIsRefused(t *testing.T) {
	b := NewBatch(testModel(4, 10))
	if err := b.Add(seqOf(1, 150, 11)); err != ErrNeverFits {
		t.Errorf("161 tokens into 160: %v", err)
	}
	s := seqOf(1, 150, 10)
	if err := b.Add(s); err != nil {
		t.Fatal(err)
	}
	play(t, b)
	if s.Generated != 10 {
		t.Errorf("160 tokens into 160: %d of 10 generated", s.Generated)
	}
}

func TestDecodePreemptsTheYoungest(t *testing.T) {
	b := NewBatch(testModel(4, 20))
	var order []*Seq
	for i := range 4 {
		s := seqOf(uint64(i), 64, 64) // 4 blocks each to begin with, 8 at the end
		order = append(order, s)
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	_, last := play(t, b)
	if b.Totals().Preemptions == 0 {
		t.Error("32 blocks were needed of 20 and nothing was preempted")
	}
	for i, s := range order {
		if s.Generated != s.Out {
			t.Errorf("answer %d has %d of %d tokens", i, s.Generated, s.Out)
		}
		if i > 0 && last[s] < last[order[0]] {
			t.Errorf("answer %d overtook the oldest", i)
		}
	}
}

// check compares the batch's books with a count from scratch.
func check(t *rapid.T, b *Batch) {
	holders := make([]int32, b.Blocks)
	for _, s := range b.running {
		if s.place != running || len(s.blocks) < b.blocksFor(s.computed) {
			t.Fatalf("a running sequence has %d blocks for %d tokens", len(s.blocks), s.computed)
		}
		for _, id := range s.blocks {
			holders[id]++
		}
	}
	used := 0
	for id, n := range holders {
		if b.cache.blocks[id].holders != n {
			t.Fatalf("block %d: %d holders, counted %d", id, b.cache.blocks[id].holders, n)
		}
		if n > 0 {
			used++
		}
	}
	free := 0
	for id := b.cache.free.head; id != none; id = b.cache.blocks[id].next {
		free++
	}
	if used+free != b.Blocks || free != b.cache.free.n {
		t.Fatalf("%d blocks used and %d free (%d counted) of %d", used, free, b.cache.free.n, b.Blocks)
	}
	named := 0
	for _, first := range b.cache.buckets {
		for id := first; id != none; id = b.cache.blocks[id].more {
			named++
			if bl := b.cache.blocks[id]; !bl.isNamed {
				t.Fatalf("block %d is found under a name that it does not have", id)
			}
		}
	}
	for id, bl := range b.cache.blocks {
		if bl.isNamed {
			named--
			if at, ok := b.cache.named(bl.hash); !ok || at != int32(id) {
				t.Fatalf("block %d is not found under its name", id)
			}
		}
	}
	if named != 0 {
		t.Fatalf("%d names too many", named)
	}
	if len(b.running) > b.Slots {
		t.Fatalf("%d running in %d slots", len(b.running), b.Slots)
	}
}

// Whatever arrives and leaves: neither slots nor blocks are exceeded, nothing
// leaks, and what is not aborted is answered in full.
func TestBatchKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.IntRange(4, 60).Draw(t, "blocks")
		b := NewBatch(testModel(rapid.IntRange(1, 6).Draw(t, "slots"), blocks))
		b.ChunkTokens = rapid.IntRange(1, 200).Draw(t, "chunk")
		var live []*Seq
		tokens := make(map[*Seq]int)
		step := func() {
			st := b.Step()
			if st.Elapsed <= 0 || st.Prefill > b.ChunkTokens {
				t.Fatalf("a step of %v with %d prompt tokens", st.Elapsed, st.Prefill)
			}
			for _, ev := range st.Events {
				if ev.Seq.Generated > 0 {
					tokens[ev.Seq]++
				}
				if ev.Finished != (ev.Seq.Generated == ev.Seq.Out) {
					t.Fatalf("finished at %d of %d", ev.Seq.Generated, ev.Seq.Out)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { check(t, b) },
			"add": func(t *rapid.T) {
				// Few seeds: many share a beginning.
				s := seqOf(rapid.Uint64Range(0, 3).Draw(t, "seed"), rapid.IntRange(1, 300).Draw(t, "prompt"), rapid.IntRange(0, 80).Draw(t, "out"))
				fits := b.blocksFor(s.Prompt+s.Out) <= blocks
				if err := b.Add(s); (err == nil) != fits {
					t.Fatalf("%d + %d tokens into %d blocks: %v", s.Prompt, s.Out, blocks, err)
				}
				if fits {
					live = append(live, s)
				}
			},
			"abort": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("nothing to abort")
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				b.Abort(live[i])
				live = append(live[:i], live[i+1:]...)
			},
			"step": func(t *rapid.T) {
				if b.Busy() {
					step()
				}
			},
		})
		for n := 0; b.Busy(); n++ {
			if n > 1_000_000 {
				t.Fatal("the batch does not get on")
			}
			step()
		}
		check(t, b)
		if b.KVUsed() != 0 {
			t.Fatalf("idle with %v of the KV memory in use", b.KVUsed())
		}
		for _, s := range live {
			if s.Generated != s.Out || tokens[s] != s.Out {
				t.Fatalf("%d of %d tokens, %d told", s.Generated, s.Out, tokens[s])
			}
		}
	})
}

func TestAnswerTellsWhatHappenedToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "tokens")
		nonce := rapid.String().Draw(t, "nonce")
		a := Answer(rapid.Uint64().Draw(t, "seed"), nonce, n)
		if len(a) != n*tokenBytes-1 || !Complete(a) {
			t.Fatalf("%q is not a complete answer of %d tokens", a, n)
		}
		if n >= minNonceTokens && !Carries(a, nonce) {
			t.Fatalf("%q does not carry %q", a, nonce)
		}
		cut := rapid.IntRange(0, len(a)-1).Draw(t, "cut")
		if Complete(a[:cut]) {
			t.Fatalf("%q, a piece of %q, looks complete", a[:cut], a)
		}
		if Complete(a+a) || Complete(a+" "+a) {
			t.Fatalf("%q twice looks complete", a)
		}
	})
	a, b := Answer(1, "one", 40), Answer(1, "two", 40)
	if Carries(a, "two") || Complete(a[:80]+b[80:]) {
		t.Error("answers of two requests cannot be told apart")
	}
	if lost := a[:40] + a[44:]; Complete(lost) {
		t.Error("an answer without one of its words looks complete")
	}
}
