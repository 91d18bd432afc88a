package route

import (
	"math"
	"testing"
)

func TestCost(t *testing.T) {
	c := Cost{Alone: 4000, PerSeq: 40, PerToken: 0.15, Slots: 4}
	for _, x := range []struct{ p, n, pending, want float64 }{
		{0, 0, 0, 4000},
		{1000, 0, 0, 4150},             // its own prompt
		{1000, 0, 2000, 4450},          // and those before it
		{1000, 3, 0, 4000 + 120 + 600}, // three others stand still meanwhile
		{0, 4, 0, 4000 + 160 + (4000+60)/4.0},
	} {
		if got := c.Of(x.p, x.n, x.pending); math.Abs(got-x.want) > 0.01 {
			t.Errorf("p %v, n %v, pending %v: %v ms, want %v", x.p, x.n, x.pending, got, x.want)
		}
	}
	if (&Cost{}).Known() {
		t.Error("nothing is known of the zero cost")
	}
}
