package protect

import "testing"

func TestPressure(t *testing.T) {
	var p Pressure
	for _, step := range []struct {
		live int64
		want Strained
	}{{0, Relaxed}, {849, Relaxed}, {850, ShedSheddable}, {835, ShedSheddable}, {829, Relaxed}, {845, Relaxed}, {925, CloseIdle}, {905, CloseIdle},
		{899, ShedSheddable}, {951, ShedAll}, {940, ShedAll}, {925, CloseIdle}, {2000, ShedAll}, {100, Relaxed}} {
		if got := p.Set(step.live, 1000); got != step.want || p.Level() != got {
			t.Errorf("at %d: %v, want %v", step.live, got, step.want)
		}
	}
	if got := p.Set(1<<40, 0); got != Relaxed {
		t.Errorf("%v without a limit", got)
	}
	// Whatever is refused, what matters less is too.
	for s := Relaxed; s <= ShedAll; s++ {
		for q := Critical; q < Sheddable; q++ {
			if s.Refuses(q) && !s.Refuses(q+1) {
				t.Errorf("%v refuses %v and not %v", s, q, q+1)
			}
		}
	}
	if Relaxed.Refuses(Sheddable) || ShedSheddable.Refuses(Standard) || CloseIdle.Refuses(Standard) || !ShedAll.Refuses(Critical) {
		t.Error("the levels")
	}
}
