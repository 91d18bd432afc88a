package sim

import (
	"testing"
	"time"
)

// The known overload table of a slot model (8 engines of 16 slots, twice what they
// carry for 300 s): each figure within 5 % of it.
func TestOverloadTable(t *testing.T) {
	play := func(name string, zombies bool, after time.Duration) *OverloadResult {
		o := &Overload{Times: 2, For: 300 * time.Second, After: after, Zombies: zombies, Seed: 1}
		r, err := o.Play(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", *r)
		return r
	}
	near := func(what string, got, low, high float64) {
		t.Helper()
		if got < 0.95*low || got > 1.05*high {
			t.Errorf("%s: %.3f, the table has %.3g to %.3g", what, got, low, high)
		}
	}
	naive := play(fiveRetries, false, 120*time.Second)
	near("five retries: goodput", naive.Goodput, 0.57, 0.57)
	zombies := play(fiveRetries, true, 400*time.Second)
	// The table's engines keep a queue of which it does not say how long. With 116
	// the figure above is its own; this one is then 0.02 more, all of it from the
	// first minute: after that nobody is served in time.
	if zombies.Goodput < 0.12 || zombies.Goodput > 0.16 || zombies.Settled > 0.01 {
		t.Errorf("five retries and zombies: goodput %.3f, %.3f from the second minute on; the table has 0.13", zombies.Goodput, zombies.Settled)
	}
	if zombies.Recovery >= 0 {
		t.Errorf("five retries and zombies: recovered after %.0f s, the table has not within 400 s", zombies.Recovery)
	}
	for _, name := range []string{"capacity", "optimal"} {
		ours := play(name, false, 120*time.Second)
		near(name+": goodput", ours.Goodput, 1.02, 1.04)
		near(name+": critical", ours.Success[0], 0.998, 0.998)
		if ours.Recovery < 0 || ours.Recovery > 30 {
			t.Errorf("%s: recovered after %.0f s, the table has 10 to 30", name, ours.Recovery)
		}
	}
}
