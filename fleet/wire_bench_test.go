package fleet

import (
	"math/rand/v2"
	"testing"
)

// What a gateway pays for each table of 16 KiB: signature, inflating, reading.
func BenchmarkOpenSnapshot(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	p := testPlan(r, 20, 100, 29)
	message, err := testKey.SealSnapshot(Header{From: alice, Epoch: 7, Seq: 5}, &Snapshot{Version: 1, Plan: p}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, why := testKey.OpenSnapshot(message, &Gate{}, nil); why != Accepted {
			b.Fatal(why)
		}
	}
}
