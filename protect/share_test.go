package protect

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Over a minute of traffic with conversations that come and go, the planned
// fraction is refused, those under way come first, and none is admitted and
// refused by turns within a rotation.
func TestAdmissionShedsWhatIsPlanned(t *testing.T) {
	for _, fraction := range []float64{0.1, 0.3, 0.5, 0.9} {
		var a Admission
		random := rand.New(rand.NewPCG(1, 2))
		now := t0
		type conversation struct {
			key  uint64
			left int
			seen bool
		}
		var live []*conversation
		var all, refused, going, goingRefused float64
		for tick := range 1200 {
			for range 20 {
				var c *conversation
				if len(live) > 0 && random.Float64() < 0.7 {
					i := random.IntN(len(live))
					c = live[i]
					if c.left--; c.left == 0 {
						live = append(live[:i], live[i+1:]...)
					}
				} else {
					c = &conversation{key: random.Uint64(), left: 4}
					live = append(live, c)
				}
				ok := a.Admits(fraction, true, c.key, c.seen, 0, now.Unix())
				if tick >= 600 {
					all++
					if !ok {
						refused++
					}
					if c.seen {
						going++
						if !ok {
							goingRefused++
						}
					}
				}
				c.seen = c.seen || ok
			}
			now = now.Add(100 * time.Millisecond)
			a.Tick(now)
		}
		if got := refused / all; math.Abs(got-fraction) > 0.05 {
			t.Errorf("%g refused, planned %g", got, fraction)
		}
		if fraction <= 0.3 && goingRefused > 0.02*going {
			t.Errorf("at %g: %g of %g of conversations under way refused", fraction, goingRefused, going)
		}
	}
}

// The first look comes after a request or two. What became of those says
// nothing about the plan, and moves nobody's answer.
func TestAdmissionBeginsWithoutCorrection(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for first := range uint64(20) {
		var a, untouched Admission
		a.Admits(0.5, true, first*0x9e3779b97f4a7c15, false, 0, now.Unix())
		a.Tick(now)
		for key := range uint64(1000) {
			key = (key + 100) * 0x9e3779b97f4a7c15
			if is, was := a.Admits(0.5, true, key, false, 0, now.Unix()), untouched.Admits(0.5, true, key, false, 0, now.Unix()); is != was {
				t.Fatalf("after request %d conversation %x is admitted: %t, before: %t", first, key, is, was)
			}
		}
	}
}

// The same conversation has the same answer until the hash rotates; the next
// ten minutes refuse others.
func TestAdmissionIsSteady(t *testing.T) {
	var a Admission
	now := int64(1_700_000_400)
	now -= now % admissionRotates
	same, turned := 0, 0
	for key := range uint64(4000) {
		key *= 0x9e3779b97f4a7c15
		first := a.Admits(0.5, true, key, false, 0, now)
		if a.Admits(0.5, true, key, false, 0, now+admissionRotates-1) != first {
			t.Fatal("admitted and refused by turns")
		}
		if !first && a.Admits(0.7, true, key, false, 0, now) {
			t.Fatal("a higher shed admits what a lower one refuses")
		}
		if a.Admits(0.5, true, key, false, 0, now+admissionRotates) == first {
			same++
		} else {
			turned++
		}
	}
	if turned < 1800 || same < 1800 {
		t.Errorf("%d turned with the hash, %d did not", turned, same)
	}
	// A shed takes the same part of each slot's keys.
	var slots [8]float64
	for range 80000 {
		key := rand.Uint64()
		if !a.Admits(0.5, true, key, false, 0, now) {
			slots[key>>61]++
		}
	}
	for i, n := range slots {
		if n < 4700 || n > 5300 {
			t.Errorf("%g of the 10000 keys of slot %d refused", n, i)
		}
	}
	if a.Admits(0.5, false, 0, false, 0.6, now) != true || a.Admits(0.5, false, 0, false, 0.4, now) != false || !a.Admits(0, true, 1, false, 1, now) || a.Admits(1, true, 1, false, 0, now) {
		t.Error("the edges")
	}
	if n := testing.AllocsPerRun(100, func() { a.Admits(0.5, true, 7, true, 0, now) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// A full pool refuses more than planned, one with room what is planned, and one
// of which nothing is to be refused nothing.
func TestDrained(t *testing.T) {
	for _, c := range []struct{ fraction, utilisation, want float64 }{
		{0, 2, 0}, {-1, 1, 0}, {math.NaN(), 1, 0}, {0.4, 0, 0.4}, {0.4, 0.8, 0.4}, {0.4, 1, 0.55}, {0.4, 1.7, 0.55}, {1, 1, 1},
	} {
		if got := Drained(c.fraction, c.utilisation); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v of a pool at %v: %v, want %v", c.fraction, c.utilisation, got, c.want)
		}
	}
	last := 0.0
	for u := 0.0; u < 1.2; u += 0.01 {
		got := Drained(0.3, u)
		if got < last {
			t.Fatalf("at %v less is refused than below it", u)
		}
		last = got
	}
}
