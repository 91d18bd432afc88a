package selector

import (
	"testing"

	"pgregory.net/rapid"
)

// The bound of a look follows from what it tells of itself.
func TestBasisGivesTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Look{limit: limit{q: rapid.Float64Range(0, 1).Draw(t, "share"), m: rapid.Int32Range(0, 1e6).Draw(t, "m"), cap: rapid.Int32Range(0, 1e4).Draw(t, "cap")}}
		share, component, most := l.Basis()
		if got := Bound(share, component, most, l.Factor()); got != l.Bound() {
			t.Errorf("bound %d, was %d", got, l.Bound())
		}
	})
}
