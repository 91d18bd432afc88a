package protect

import (
	"math"
	"testing"
	"time"
)

func TestUtilisationFollowsWithinASecond(t *testing.T) {
	var u Utilisation
	now := t0
	u.Update(0, 10, now)
	for range 10 {
		now = now.Add(100 * time.Millisecond)
		u.Update(10, 10, now)
	}
	if v := u.Value(); math.Abs(v-(1-1/math.E)) > 1e-9 {
		t.Errorf("%g a second after a step to 1", v)
	}
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		u.Update(1000, 10, now)
	}
	if v := u.Value(); v > 2 || v < 1.99 {
		t.Errorf("%g at a hundred times the room", v)
	}
	u.Update(0, 0, now.Add(time.Minute))
	if v := u.Value(); !(v < 1e-9) {
		t.Errorf("%g without load and room", v)
	}
}

// The pace is what begins while others wait; idle times do not lower it.
func TestPace(t *testing.T) {
	var p Pace
	now := t0
	tick := func(n int, crowded bool) {
		now = now.Add(100 * time.Millisecond)
		for range n {
			p.Began(50)
			p.Came(2)
		}
		p.Tick(crowded, now)
	}
	p.Tick(false, now)
	tick(4, false)
	if w := p.Wait(1e9); w != 0 {
		t.Errorf("a wait of %v was foretold of nothing", w)
	}
	for range 20 {
		tick(4, true) // 40/s, 2000 of cost
	}
	if w := p.Wait(1000); w < 490*time.Millisecond || w > 510*time.Millisecond {
		t.Errorf("1000 take %v at 2000/s", w)
	}
	if o := p.Over(); o < 0.9 || o > 2.1 {
		t.Errorf("twice the capacity is %g times", o)
	}
	for range 100 {
		tick(0, false)
	}
	if w := p.Wait(1000); w < 490*time.Millisecond || w > 510*time.Millisecond {
		t.Errorf("after an idle time 1000 take %v", w)
	}
	if o := p.Over(); o != 0 {
		t.Errorf("%g times over with nobody waiting", o)
	}
}

// A queue that has not been empty for half the limit is kept short.
func TestWorth(t *testing.T) {
	var p Pace
	const limit = 8 * time.Second
	now := t0
	tick := func() {
		now = now.Add(100 * time.Millisecond)
		for range 3 {
			p.Began(1)
		}
		p.Tick(true, now)
	}
	p.Tick(true, now)
	for range 39 {
		tick()
		if w := p.Worth(limit, now); w != limit {
			t.Fatalf("%v after %v", w, now.Sub(t0))
		}
	}
	tick()
	if w := p.Worth(limit, now); w != limit/shortWait {
		t.Errorf("%v while an overload lasts", w)
	}
	p.Tick(false, now.Add(time.Second))
	p.Tick(true, now.Add(2*time.Second))
	if w := p.Worth(limit, now.Add(2*time.Second)); w != limit {
		t.Errorf("%v after the queue was empty", w)
	}
	slow := Pace{}
	slow.Tick(true, t0)
	for i := 1; i <= 100; i++ {
		if i%10 == 0 {
			slow.Began(1) // one a second
		}
		slow.Tick(true, t0.Add(time.Duration(i)*100*time.Millisecond))
	}
	if w := slow.Worth(limit, t0.Add(10*time.Second)); w < time.Second || w > 3*time.Second {
		t.Errorf("%v where one begins each second", w)
	}
}
