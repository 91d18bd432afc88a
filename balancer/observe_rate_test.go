package balancer

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The average is what its definition says, computed another way: each event
// weighs exp(-age/memory), and so does each second.
func TestEWMA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := time.Duration(rapid.IntRange(1, 60).Draw(t, "memory")) * time.Second
		gap := rapid.IntRange(1, 90_000)
		type span struct {
			from, to float64
			events   int
		}
		var spans []span
		var e ewma
		at := 0.0
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			dt := time.Duration(gap.Draw(t, "gap")) * time.Millisecond
			n := rapid.IntRange(0, 500).Draw(t, "events")
			e.add(float64(n), dt, memory)
			spans = append(spans, span{at, at + dt.Seconds(), n})
			at += dt.Seconds()
		}
		events, seconds, squares := 0.0, 0.0, 0.0
		for _, s := range spans {
			const steps = 20_000
			each := (s.to - s.from) / steps
			for i := range steps {
				w := math.Exp(-(at - s.from - (float64(i)+0.5)*each) / memory.Seconds())
				events += w * float64(s.events) / steps
				seconds += w * each
				squares += w * w * each
			}
		}
		for _, c := range []struct {
			what      string
			got, want float64
		}{{"events", e.events, events}, {"seconds", e.seconds, seconds}, {"squares", e.squares, squares},
			{"rate", e.rate(), events / (seconds * max(1, 1/at))}, {"deviation", e.deviation(3), math.Sqrt(3*squares) / (seconds * max(1, 1/at))}} {
			if math.Abs(c.got-c.want) > 1e-4*(1e-6+c.want) {
				t.Fatalf("%s %g, want %g", c.what, c.got, c.want)
			}
		}
	})
}

// Lengths are means of what came, older ones counting less, and outlive a
// pause; what requests say of themselves holds where nothing else is known.
func TestLengths(t *testing.T) {
	var l lengths
	guess := lengths{prompt: 100, cached: 0, output: 256}
	if got := l.with(guess, guessCounts); got.prompt != 100 || got.output != 256 {
		t.Errorf("of nothing: %+v", got)
	}
	for range 100 {
		l.add(lengths{answers: 10, prompt: 5000, cached: 2000, output: 300}, time.Second)
	}
	if got := l.with(guess, guessCounts); math.Abs(got.output-30) > 2 || math.Abs(got.prompt-500) > 3 || math.Abs(got.cached-200) > 2 {
		t.Errorf("%+v", got)
	}
	l.add(lengths{}, 24*time.Hour)
	if got := l.with(guess, guessCounts); l.answers < lengthKeeps-0.1 || math.Abs(l.output/l.answers-30) > 1e-9 {
		t.Errorf("after a day: %+v, %+v", got, l)
	}
	for range 100 { // the new mix replaces it
		l.add(lengths{answers: 10, output: 900}, time.Minute)
	}
	if got := l.output / l.answers; math.Abs(got-90) > 1 {
		t.Errorf("after the mix has changed: %g", got)
	}
}

func TestAsks(t *testing.T) {
	var a asks
	if g := a.guess(); g.prompt != unknownPrompt || g.output != unknownOutput || !math.IsInf(a.bound(), 1) {
		t.Errorf("%+v", g)
	}
	a.add(asks{offered: 10, prompt: 1000, limited: 5, limit: 80}, time.Second)
	if g := a.guess(); g.prompt != 100 || g.output != (16+unknownOutput)/2 || !math.IsInf(a.bound(), 1) {
		t.Errorf("half of them bounded by 16: %+v", g)
	}
	for range 600 {
		a.add(asks{offered: 10, prompt: 1000, limited: 10, limit: 160}, time.Minute)
	}
	if b := a.bound(); math.Abs(b-16) > 1e-6 {
		t.Errorf("all of them bounded by 16: %g", b)
	}
}
