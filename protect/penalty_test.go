package protect

import (
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The tables of protection.md 2.2: factors after straight failures, and their
// way back.
func TestPenaltyTables(t *testing.T) {
	now := time.Now()
	var p Penalty
	if f := p.Factor(now); f != 1 {
		t.Fatalf("an engine that did nothing has factor %g", f)
	}
	for i, want := range []float64{.75, .56, .42, .32, .24, .18, .13, .10, .075, .056} {
		p.Failed(Broken, now)
		if f := p.Factor(now); math.Abs(f-want) > 0.006 {
			t.Errorf("after %d failures %g, want %g", i+1, f, want)
		}
	}
	for range 40 {
		p.Failed(Broken, now)
	}
	if f := p.Factor(now); f != leastFactor {
		t.Errorf("at worst %g", f)
	}
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{5 * time.Second, .30}, {15 * time.Second, .64}, {30 * time.Second, .87}, {60 * time.Second, .98}, {5 * time.Minute, 1}} {
		if f := p.Factor(now.Add(c.after)); math.Abs(f-c.want) > 0.01 {
			t.Errorf("%v later %g, want %g", c.after, f, c.want)
		}
	}
}

// First tokens heal, failures of lesser kinds weigh less.
func TestPenaltyHealsBySuccess(t *testing.T) {
	now := time.Now()
	var p, q Penalty
	p.Failed(Broken, now)
	before := p.Factor(now)
	for range 10 {
		p.Answered(now)
	}
	if f := p.Factor(now); f <= before || f < 0.9 {
		t.Errorf("ten first tokens bring %g to %g", before, f)
	}
	for range 100 {
		p.Answered(now)
	}
	if p.word.Load() != 0 {
		t.Error("a penalty that is over still costs every answer an update")
	}
	q.Failed(Busy, now)
	if f := q.Factor(now); math.Abs(f-(1-.25*.3)) > 1e-6 {
		t.Errorf("a busy answer leaves %g", f)
	}
}

// Whatever comes in whatever order: the factor is within its bounds, no
// failure raises it and no success lowers it.
func TestPenaltyBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var p Penalty
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 60).Draw(t, "steps") {
			before := p.Factor(now)
			switch step {
			case 0, 1, 2, 3:
				p.Failed([]Severity{Broken, Malformed, Busy, Slow}[step], now)
				if f := p.Factor(now); f > before {
					t.Fatalf("a failure raises %g to %g", before, f)
				}
			case 4:
				p.Answered(now)
				if f := p.Factor(now); f < before {
					t.Fatalf("a success lowers %g to %g", before, f)
				}
			case 5:
				now = now.Add(time.Duration(rapid.IntRange(0, 60000).Draw(t, "ms")) * time.Millisecond)
				if f := p.Factor(now); f < before {
					t.Fatalf("time lowers %g to %g", before, f)
				}
			}
			if f := p.Factor(now); f < leastFactor || f > 1 {
				t.Fatalf("factor %g", f)
			}
		}
	})
}

// Failures counted at once are all counted.
func TestPenaltyConcurrent(t *testing.T) {
	now := time.Now()
	var p Penalty
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { p.Failed(Broken, now) })
	}
	wg.Wait()
	if f := p.Factor(now); math.Abs(f-0.056) > 0.003 {
		t.Errorf("ten failures at once leave %g", f)
	}
	if n := testing.AllocsPerRun(100, func() { p.Failed(Slow, now); p.Answered(now); p.Factor(now) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}
