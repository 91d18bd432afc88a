package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// toyEngine refuses beyond its slots; a place is free there lag after it is here.
type toyEngine struct {
	slots int64
	lag   time.Duration
	busy  []time.Time // until when, of those it works on
}

func (t *toyEngine) take(now time.Time, service time.Duration) bool {
	kept := t.busy[:0]
	for _, until := range t.busy {
		if until.Add(t.lag).After(now) {
			kept = append(kept, until)
		}
	}
	t.busy = kept
	if int64(len(t.busy)) >= t.slots {
		return false
	}
	t.busy = append(t.busy, now.Add(service))
	return true
}

// overfill keeps an engine under more demand than it takes and counts what it served.
func overfill(l *Live, toy *toyEngine, from time.Time, length time.Duration) (served, refused int) {
	const step, service = 5 * time.Millisecond, 400 * time.Millisecond
	type sent struct {
		end   time.Time
		level int64
	}
	var ends []sent
	var later []time.Time
	for now := from; now.Before(from.Add(length)); now = now.Add(step) {
		for len(ends) > 0 && !ends[0].end.After(now) {
			l.Took(ends[0].level, now.Add(-service), now)
			ends = ends[1:]
			later = append(later, now.Add(l.Lag()))
			served++
		}
		for len(later) > 0 && !later[0].After(now) {
			later = later[1:]
			l.Release()
		}
		l.Regrow(now)
		for range 4 { // as many as could come within a step
			if !l.Acquire(1000) {
				break
			}
			if toy.take(now, service) {
				ends = append(ends, sent{now.Add(service), l.InFlight()})
				continue
			}
			refused++
			l.Full(l.InFlight()-1, now, 0, now)
			later = append(later, now.Add(l.Lag()))
			if l.Lag() == 0 {
				later = later[:len(later)-1]
				l.Release()
			}
		}
	}
	for range len(ends) + len(later) {
		l.Release()
	}
	return served, refused
}

// Whatever the slots, at lasting overload an engine that refuses is kept full,
// with few refusals, also where its places are free a little later than here.
func TestFullEngineIsKeptFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLive(1)
		toy := &toyEngine{slots: rapid.Int64Range(1, 64).Draw(t, "slots"), lag: time.Duration(rapid.IntRange(0, 3).Draw(t, "lag")) * time.Millisecond}
		start := time.Now()
		served, refused := overfill(l, toy, start, 10*time.Second)
		possible := float64(toy.slots) * 10 / 0.4
		least := 0.95
		if toy.lag > 0 { // the worst case: all end at once, and none is free in time for the next
			least = 0.75
		}
		if float64(served) < least*possible-float64(toy.slots) {
			t.Errorf("%d slots: served %d of %.0f", toy.slots, served, possible)
		}
		if float64(refused) > 0.1*float64(served)+30 {
			t.Errorf("%d slots: %d refused, %d served", toy.slots, refused, served)
		}
	})
}

// An engine that is refused by is back within moments once it takes requests
// again, and one whose slots became fewer is followed.
func TestFullEngineComesBack(t *testing.T) {
	l, now := NewLive(1), time.Now()
	toy := &toyEngine{slots: 16}
	overfill(l, toy, now, 5*time.Second)
	now = now.Add(5 * time.Second)
	toy.slots = 0
	if _, refused := overfill(l, toy, now, 3*time.Second); refused > 24 {
		t.Errorf("%d refused in 3 s by an engine that takes none", refused)
	}
	now = now.Add(3 * time.Second)
	toy.slots, toy.busy = 16, nil
	if served, _ := overfill(l, toy, now, 3*time.Second); served < 40 {
		t.Errorf("served %d in the 3 s after, of at most 112", served)
	}
	now = now.Add(3 * time.Second)
	toy.slots = 8
	overfill(l, toy, now, 20*time.Second)
	if m := l.Most(); m < 7 || m > 9 {
		t.Errorf("a cap of %d for what has 8 slots now", m)
	}
	now = now.Add(20 * time.Second)
	toy.slots = 24
	overfill(l, toy, now, 5*time.Minute)
	if m := l.Most(); m < 22 || m > 25 {
		t.Errorf("a cap of %d for what has 24 slots now", m)
	}
}

// A hold is what the engine asks for, within five seconds; else a moment, and
// longer each time.
func TestFullHolds(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		after, want time.Duration
	}{{0, 10 * time.Millisecond}, {2 * time.Second, 2 * time.Second}, {time.Hour, 5 * time.Second}} {
		l := NewLive(1)
		l.Full(0, now, c.after, now)
		if l.Acquire(1) {
			t.Error("it was asked at once again")
		}
		if until, _ := l.Held(); until.Sub(now) != c.want {
			t.Errorf("held for %v, want %v", until.Sub(now), c.want)
		}
		if l.Regrow(now.Add(c.want - 1)); l.Acquire(1) {
			t.Error("asked before its time")
		}
		if l.Regrow(now.Add(c.want)); !l.Acquire(10) || l.Acquire(10) {
			t.Error("after its time it is asked by one")
		}
	}
	l := NewLive(1)
	for i, at := 0, now; i < 9; i++ {
		l.Full(0, at, 0, at)
		until, _ := l.Held()
		if want := min(holdLeast<<i, holdMost); until.Sub(at) != want {
			t.Errorf("hold %d lasts %v, want %v", i, until.Sub(at), want)
		}
		at = until
	}
	l.Full(0, now, time.Minute, now)
	if l.LetGo(now); l.Most() != 1 {
		t.Errorf("%d after a hold was ended", l.Most())
	}
}

// The running gauge gives the slots while requests wait, not in the first
// moments of a burst, and a cap that binds with nothing waiting grows.
func TestCapFromGauges(t *testing.T) {
	e := New(Config{Name: "e", URL: "http://h"}, NewLive(1))
	poll := func(running, waiting float64) int64 {
		e.learnFromGauges(&Sample{At: time.Now(), Has: FieldRunning | FieldWaiting, Running: running, Waiting: waiting})
		return e.Most()
	}
	for _, r := range []float64{5, 30} {
		if m := poll(r, 90); m != noCap {
			t.Fatalf("a cap of %d after a moment", m)
		}
	}
	if m := poll(48, 90); m != 56 {
		t.Errorf("a cap of %d for 48 slots, want 56", m)
	}
	for range 50 {
		poll(20, 10)
	}
	if m := e.Most(); m != 24 && m != 23 {
		t.Errorf("a cap of %d for 20 slots", m)
	}
	for e.Acquire(1000) {
	}
	before := e.Most()
	if m := poll(23, 0); m <= before {
		t.Errorf("%d, though it binds and nothing waits", m)
	}
	e.Config.MaxInFlight = 7
	if m := poll(3, 100); m != poll(3, 100) || m < before {
		t.Errorf("%d learned against the configuration", m)
	}
	if n := testing.AllocsPerRun(100, func() { e.Acquire(1); e.Most() }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// What a fleet leaves a gateway of an engine bounds its attempts beside what the
// engine has shown; gauges tell of the engine as a whole.
func TestAllowedPlaces(t *testing.T) {
	e := New(Config{Name: "e", URL: "http://127.0.0.1:1"}, NewLive(1))
	now := time.Now()
	fill := func() (n int64) {
		for e.Acquire(e.Cap()) {
			n++
		}
		for range n {
			e.Release()
		}
		return n
	}
	e.Allow(5, now)
	if n := fill(); n != 5 || e.Places() != e.Cap() {
		t.Errorf("%d attempts of 5 that are allowed, %d places", n, e.Places())
	}
	const gauges = FieldRunning | FieldWaiting
	for range gaugePolls {
		e.learnFromGauges(&Sample{At: now, Has: gauges, Running: 20, Waiting: 3})
	}
	if n := fill(); n != 5 || e.Places() != 23 {
		t.Errorf("%d attempts, %d places of an engine with 20 slots", n, e.Places())
	}
	for range 5 {
		e.Acquire(e.Cap())
	}
	e.learnFromGauges(&Sample{At: now, Has: gauges, Running: 6})
	if e.Places() != 23 {
		t.Errorf("%d places after 5 of ours, all that we may, ran with one of another's", e.Places())
	}
	e.learnFromGauges(&Sample{At: now, Has: gauges, Running: 23})
	if e.Places() <= 23 {
		t.Errorf("%d places after 23 ran and nothing waited", e.Places())
	}
	e.Full(4, now, 0, now)
	if most, held := e.Most(), e.HeldOfOurs(); most != 4 || held != 4 {
		t.Errorf("it takes %d after it refused a fifth, and held %d", most, held)
	}
	for range 5 {
		e.Release()
	}
	e.Allow(0, now)
	if most := e.Most(); most != 4 {
		t.Errorf("alone again it takes %d", most)
	}
}
