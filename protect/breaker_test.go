package protect

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBreakerOpensAndComesBackByTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker()
		b.jitter = func() float64 { return 0.5 } // the gate's own length
		for range 4 {
			if b.Failed() {
				t.Fatal("open after fewer than five failures")
			}
		}
		b.Answered()
		for i := range 5 {
			if opened := b.Failed(); opened != (i == 4) {
				t.Fatalf("failure %d in a row: opened %v", i+1, opened)
			}
		}
		for _, gate := range []time.Duration{5, 10, 20, 40, 60, 60} {
			gate *= time.Second
			time.Sleep(gate - time.Millisecond)
			if _, ok := b.Try(); ok || b.Due(time.Now()) {
				t.Fatalf("a trial before the gate of %v has passed", gate)
			}
			time.Sleep(2 * time.Millisecond)
			end, ok := b.Try()
			if !ok || b.State() != BreakerHalfOpen {
				t.Fatalf("no trial after %v: %v", gate, b.State())
			}
			end(errFailed)
			if b.State() != BreakerOpen {
				t.Fatal("a failed trial leaves it half open")
			}
		}
		time.Sleep(61 * time.Second)
		for range 10 { // what says nothing takes no place
			end, ok := b.Try()
			if !ok {
				t.Fatal("a place leaked")
			}
			end(ErrNoVerdict)
		}
		var ends []func(error)
		for range trialsAtOnce {
			end, ok := b.Try()
			if !ok {
				t.Fatal("fewer places than it has")
			}
			ends = append(ends, end)
		}
		if _, ok := b.Try(); ok {
			t.Fatal("more trials at once than it has places")
		}
		for _, end := range ends {
			end(nil)
		}
		if b.State() != BreakerClosed {
			t.Fatalf("state %d after three good trials", b.State())
		}
	})
}

func TestBreakerCountsBrokenStreamsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker()
		for i := range 10 { // three of ten broke, whatever first contents say
			b.Answered()
			if i < 2 && b.BrokeOff() {
				t.Fatal("open after two")
			}
			b.Ended()
		}
		if !b.BrokeOff() {
			t.Fatal("closed with three of ten streams broken")
		}
		if why, _, _ := b.Why(); why != TripStreams {
			t.Errorf("opened for %v", why)
		}
	})
}

// An engine that breaks off every stream is not saved by those before it.
func TestBreakerCountsStreamsBrokenInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker()
		for range 200 {
			b.Answered()
			b.Ended()
		}
		for i := range 10 {
			b.Answered()
			if b.BrokeOff() {
				t.Fatalf("open after %d of %d, with whole ones between them", i+1, 200+i)
			}
			if i%2 == 1 {
				b.Ended()
			}
		}
		for i := range streamsLeast {
			b.Answered()
			if b.BrokeOff() != (i == streamsLeast-1) {
				t.Fatalf("open %t after %d in a row", b.State() == BreakerOpen, i+1)
			}
		}
		b.Reset()
		if b.BrokeOff() {
			t.Error("what was before counts on")
		}
	})
}

func TestDeadlyRequestsAreBlockedForAMinute(t *testing.T) {
	var d Deadly
	now := time.Now()
	body := []byte(`{"model":"m"}`)
	for range 2 {
		if d.Reset("a", body, 1, now) || d.Blocked("a", body, now) {
			t.Error("blocked after one engine")
		}
	}
	if !d.Reset("a", body, 2, now) || !d.Blocked("a", body, now) {
		t.Error("not blocked after two engines")
	}
	if d.Blocked("b", body, now) || d.Blocked("a", []byte(`{"model":"n"}`), now) {
		t.Error("another tenant's, or another request, is blocked")
	}
	if d.Blocked("a", body, now.Add(deadlyFor)) || d.count.Load() != 0 {
		t.Error("still blocked after a minute")
	}
}
