package enginetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An engine that does its plain steps together does the same at the same time
// as one that does each of them alone, whatever is added in between.
func TestPlainStepsTogetherAreThoseAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testModel(rapid.IntRange(1, 6).Draw(t, "slots"), rapid.IntRange(8, 60).Draw(t, "blocks"))
		m.ChunkTokens = rapid.IntRange(1, 200).Draw(t, "chunk")
		m.BlockTokens = rapid.SampledFrom([]int{4, 16, 32}).Draw(t, "block")
		alone, together := NewBatch(m), NewBatch(m)
		added := uint64(0)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				seed, prompt, out := rapid.Uint64Range(0, 3).Draw(t, "seed"), rapid.IntRange(1, 200).Draw(t, "prompt"), rapid.IntRange(1, 90).Draw(t, "out")
				one, other := seqOf(seed, prompt, out), seqOf(seed, prompt, out)
				for i := prompt / m.BlockTokens; i < len(one.Chain); i++ { // no two answers are equal
					added++
					one.Chain[i] = added << 32
				}
				other.Chain = one.Chain
				if a, b := alone.Add(one), together.Add(other); (a == nil) != (b == nil) {
					t.Fatalf("one takes the sequence, the other not: %v, %v", a, b)
				}
			}
			for steps := rapid.IntRange(1, 60).Draw(t, "steps"); steps > 0 && together.Busy(); {
				n, each := together.Plain()
				if n = min(n, steps); n == 0 {
					steps--
					sameStep(t, alone.Step(), together.Step())
					continue
				}
				steps -= n
				for range n {
					st := alone.Step()
					if st.Elapsed != each || st.Prefill != 0 || st.Decoding != len(alone.running) {
						t.Fatalf("a plain step of %v is one of %v with %d prompt tokens", each, st.Elapsed, st.Prefill)
					}
					for _, ev := range st.Events {
						if ev.Finished {
							t.Fatal("a sequence ended in a plain step")
						}
					}
				}
				together.Advance(n)
			}
			check(t, together)
			if alone.totals != together.totals || alone.KVUsed() != together.KVUsed() || alone.Waiting() != together.Waiting() {
				t.Fatalf("%+v, %v used, %d waiting; together %+v, %v used, %d waiting", alone.totals, alone.KVUsed(), alone.Waiting(),
					together.totals, together.KVUsed(), together.Waiting())
			}
		}
	})
}

func sameStep(t *rapid.T, a, b Step) {
	if a.Elapsed != b.Elapsed || a.Decoding != b.Decoding || a.Prefill != b.Prefill || len(a.Events) != len(b.Events) {
		t.Fatalf("a step of %v with %d decoding, %d prompt tokens and %d events; together %v, %d, %d, %d",
			a.Elapsed, a.Decoding, a.Prefill, len(a.Events), b.Elapsed, b.Decoding, b.Prefill, len(b.Events))
	}
	for i := range a.Events {
		if a.Events[i].Finished != b.Events[i].Finished || a.Events[i].Seq.Prompt != b.Events[i].Seq.Prompt || a.Events[i].Seq.Cached != b.Events[i].Seq.Cached {
			t.Fatal("other sequences got on")
		}
	}
}

func TestMostStepsOfLongAnswersArePlain(t *testing.T) {
	b := NewBatch(testModel(8, 4096))
	for i := range 4 {
		if err := b.Add(seqOf(uint64(i), 100, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	events, took := 0, time.Duration(0)
	for b.Busy() {
		events++
		if n, each := b.Plain(); n > 0 {
			b.Advance(n)
			took += time.Duration(n) * each
			continue
		}
		took += b.Step().Elapsed
	}
	if events > 20 {
		t.Errorf("%d events for four answers of 1,000 tokens", events)
	}
	if b.Totals().Generated != 4000 {
		t.Errorf("%d tokens generated", b.Totals().Generated)
	}
}
