package engine

import (
	"math/rand/v2"
	"testing"
)

// A penalty moves the share of keys that it takes, and those of a smaller one
// are among those of a larger.
func TestAllowanceKeepsTheShareItLeaves(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, m := range []float64{0.02, 0.3, 0.75, 1} {
		a, more := NewAllowance(m, 1), NewAllowance(m/2, 1)
		kept := 0
		for range 20000 {
			h := dice.Uint64()
			if a.Keeps(h) {
				kept++
			} else if more.Keeps(h) {
				t.Fatalf("a key stays under the heavier penalty of %g alone", m/2)
			}
		}
		if got := float64(kept) / 20000; got < m-0.02 || got > m+0.02 {
			t.Errorf("factor %g keeps %g of the keys", m, got)
		}
	}
	if a := NewAllowance(1, 0.25); a.Factor() != 1 || a.Cap(8) != 2 || a.Cap(1) != 1 || NewAllowance(1, 1) != 0 {
		t.Errorf("%x: factor %g, caps %d %d", uint32(a), a.Factor(), a.Cap(8), a.Cap(1))
	}
}
