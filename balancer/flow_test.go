package balancer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/route"
)

// arrivals makes counts of a Poisson process for cycles of a second.
func arrivals(r *rand.Rand, rate float64) float64 {
	n := 0.0
	for t := r.ExpFloat64() / rate; t < 1; t += r.ExpFloat64() / rate {
		n++
	}
	return n
}

// Chance is no peak: a steady rate is told as it is, small or large, from
// the first seconds on.
func TestFlowOfASteadyRate(t *testing.T) {
	for _, rate := range []float64{0.05, 0.5, 5, 50, 500} {
		r := rand.New(rand.NewPCG(1, uint64(rate*100)))
		sum, early, n := 0.0, 0.0, 0.0
		for range 200 {
			var f flow
			for s := range 120 {
				f.add(arrivals(r, rate), time.Second)
				if s == 2 {
					early += f.rate() / 200
				}
				if s >= 30 {
					sum += f.rate()
					n++
				}
			}
		}
		if mean := sum / n; mean < 0.97*rate || mean > 1.06*rate {
			t.Errorf("rate %g is told as %g", rate, mean)
		}
		if early < 0.9*rate || early > 1.2*rate {
			t.Errorf("rate %g is told as %g after three seconds", rate, early)
		}
	}
}

// A step of demand shows within two cycles, counts for a while after it is
// over, and is forgotten.
func TestFlowOfAStep(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var f flow
	run := func(seconds int, rate float64) float64 {
		for range seconds {
			f.add(arrivals(r, rate), time.Second)
		}
		return f.rate()
	}
	run(120, 400)
	if got := run(2, 600); got < 480 {
		t.Errorf("two seconds after a step from 400 to 600: %g", got)
	}
	if got := run(5, 600); got < 540 {
		t.Errorf("seven seconds after: %g", got)
	}
	run(10, 600)
	if got := run(8, 400); got < 520 {
		t.Errorf("eight seconds after its end the peak is gone: %g", got)
	}
	if got := run(120, 400); got < 370 || got > 430 {
		t.Errorf("long after: %g", got)
	}
	if got := run(300, 1e-9); got > 0.01 {
		t.Errorf("after five minutes of nothing: %g", got)
	}
}

// What is told does not depend on how often it is looked at, but for noise.
func TestFlowOfOddCycles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var even, odd flow
		for range rapid.IntRange(1, 60).Draw(t, "seconds") {
			even.add(40, time.Second)
			cut := time.Duration(rapid.IntRange(1, 999).Draw(t, "cut")) * time.Millisecond
			odd.add(40*cut.Seconds(), cut)
			odd.add(40*(1-cut.Seconds()), time.Second-cut)
		}
		if a, b := even.rate(), odd.rate(); math.Abs(a-b) > 1e-6*a {
			t.Fatalf("%g and %g", a, b)
		}
	})
}

// The longer a rate stays the better it is known.
func TestFlowOfARateThatStays(t *testing.T) {
	for _, rate := range []float64{5, 50, 500} {
		r := rand.New(rand.NewPCG(4, uint64(rate)))
		squares, n := 0.0, 0.0
		for range 20 {
			var f flow
			for s := range 900 {
				f.add(arrivals(r, rate), time.Second)
				if s >= 300 && s%10 == 0 {
					off := f.rate()/rate - 1
					squares, n = squares+off*off, n+1
				}
			}
		}
		// A fifth of what the average over rateMemory has, and what is left of drifts
		// that were none.
		if off, of20 := math.Sqrt(squares/n), math.Sqrt(1/(2*rate*rateMemory.Seconds())); off > 0.75*of20 {
			t.Errorf("rate %g: %.3f of it off, the average of 20 s is %.3f off", rate, off, of20)
		}
	}
}

// A step after quiet is known within seconds, as are its end and a slow rise.
func TestFlowAfterQuiet(t *testing.T) {
	for _, quiet := range []time.Duration{20 * time.Second, time.Minute, 10 * time.Minute} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 5))
			var f flow
			run := func(d time.Duration, rate float64) float64 {
				for range int(d / time.Second) {
					f.add(arrivals(r, rate), time.Second)
				}
				return f.rate()
			}
			run(time.Minute, 20)
			run(quiet, 0.05)
			if got := run(3*time.Second, 20); got < 11 || got > 33 {
				t.Errorf("seed %d: three seconds after %v of quiet 20 a second are told as %.1f", seed, quiet, got)
			}
			if got := run(20*time.Second, 20); got < 16 || got > 26 {
				t.Errorf("seed %d: twenty seconds later as %.1f", seed, got)
			}
			for rate := 20.0; rate < 60; rate += 0.5 {
				if got := run(time.Second, rate); rate > 40 && (got < 0.6*rate || got > 1.5*rate) {
					t.Errorf("seed %d: on the way up %.1f are told as %.1f", seed, rate, got)
				}
			}
			if got := run(2*time.Minute, 5); got > 8 {
				t.Errorf("seed %d: two minutes after its end it is %.1f", seed, got)
			}
		}
	}
}

// Requests that come in bunches scatter more than a Poisson process, and are no
// steps.
func TestFlowOfBunches(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 5))
	most, n, sum := 0.0, 0.0, 0.0
	for range 10 {
		var f flow
		for s := range 600 {
			f.add(8*arrivals(r, 5), time.Second) // eight at once
			if s >= 60 {
				most, sum, n = max(most, f.rate()), sum+f.rate(), n+1
			}
		}
	}
	if mean := sum / n; mean < 38 || mean > 44 || most > 100 {
		t.Errorf("40 a second in bunches are told as %.1f, at most %.1f", mean, most)
	}
}

// A step at many sources that none of them is sure of shows in all together
// within two seconds, and chance does not.
func TestSurge(t *testing.T) {
	late, raised, n := 0, 0.0, 0.0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 8))
		flows := make([]flow, 5)
		all := func(rate float64) (told, factor float64) {
			var lately [][route.LatelyWindows]route.Lately
			for i := range flows {
				flows[i].add(arrivals(r, rate), time.Second)
				told += flows[i].rate()
				lately = append(lately, flows[i].lately())
			}
			return told, Surge(lately...)
		}
		for s := range 300 {
			if _, factor := all(12); s >= 60 {
				raised, n = raised+factor-1, n+1
			}
		}
		all(18)
		if told, factor := all(18); told*factor < 0.8*5*18 {
			late++
		}
	}
	if raised/n > 0.002 {
		t.Errorf("a demand that stays is raised by %.4f on average", raised/n)
	}
	if late > 4 {
		t.Errorf("of 40 steps %d are not known two seconds later", late)
	}
	if f := Surge(); f != 1 {
		t.Errorf("of nothing: %v", f)
	}
}
