package selector

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The short cut never lets through what the bound would stop, and the bound is
// the formula of the paper (hashing.md 4) for any shares and loads.
func TestSurelyIsWithinBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limit{q: rapid.Float64Range(0, 1).Draw(t, "q"), m: rapid.Int32Range(0, 1<<20).Draw(t, "m"), cap: rapid.Int32Range(0, 4096).Draw(t, "cap")}
		if l.surely() > l.bound() {
			t.Fatalf("surely %d is above the bound %d", l.surely(), l.bound())
		}
		if l.bound() > int64(l.cap) {
			t.Fatalf("bound %d is above the cap", l.bound())
		}
		if l.q < 1e-6 || l.m == 0 {
			return
		}
		eps := math.Max(0.10, 3/math.Sqrt(l.q*float64(l.m)))
		want := math.Min(math.Max(1, math.Ceil((1+eps)*l.q*float64(l.m+1))), float64(l.cap))
		if math.Abs(float64(l.bound())-want) > 1 {
			t.Fatalf("bound %d, want %g", l.bound(), want)
		}
	})
}
