package engine

import (
	"context"
	"net"
	"testing"
	"time"
)

// The floor is the least of the last one to two windows: a longer path is
// believed within two, a shorter one at once, and a pause changes nothing.
func TestRoundTripFloor(t *testing.T) {
	l, at := NewLive(1), time.Unix(1000, 0)
	if l.RoundTrip() != 0 {
		t.Error("a round trip that nobody measured")
	}
	for _, c := range []struct {
		after      time.Duration
		took, want time.Duration
	}{
		{0, 40, 40},
		{time.Second, 90, 40},                      // waiting, not distance
		{time.Second, 30, 30},                      // nearer than thought
		{roundTripWindow, 80, 30},                  // the window before still counts
		{time.Second, 70, 30},                      //
		{roundTripWindow, 75, 70},                  // the path has become longer
		{10 * roundTripWindow, 200, 200},           // nothing of before counts
		{2*roundTripWindow - time.Second, 5, 5},    //
		{roundTripWindow + time.Second, 500, 5},    //
		{time.Second, 0, 1 * time.Nanosecond},      // a coarse clock
		{time.Hour, 400 * time.Millisecond, 4e8},   //
		{time.Second, 300 * time.Millisecond, 3e8}, //
	} {
		at = at.Add(c.after)
		l.Reached(c.took, at)
		if got := l.RoundTrip(); got != c.want {
			t.Errorf("at %s: %d, want %d", at.UTC().Format("15:04:05"), got, c.want)
		}
	}
}

// A dial is timed from the first packet to the answer, whatever else its
// context carries; one that fails tells nothing.
func TestDialsAreTimed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLive(1)
	conn, err := new(net.Dialer).DialContext(l.Timed(context.Background()), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := l.RoundTrip(); got <= 0 || got > 10*time.Second {
		t.Errorf("%s", got)
	}
	ln.Close()
	other := NewLive(2)
	if _, err := new(net.Dialer).DialContext(other.Timed(context.Background()), "tcp", ln.Addr().String()); err == nil || other.RoundTrip() != 0 {
		t.Errorf("%v, %s", err, other.RoundTrip())
	}
}

// An engine of several replicas has room for all of them, unless it is told
// how much that is in all.
func TestReplicasMultiplyWhatIsLearned(t *testing.T) {
	e := New(Config{Name: "a", URL: "http://127.0.0.1:1", Replicas: 3}, NewLive(1))
	if e.Cap() != 3*capFor(DefaultSlots) {
		t.Errorf("cap %d", e.Cap())
	}
	e.SetDetected(&Detected{Dialect: DialectVLLM, Cap: 10})
	if e.Cap() != 30 {
		t.Errorf("cap %d of one with 10 each", e.Cap())
	}
	e = New(Config{Name: "a", URL: "http://127.0.0.1:1", Replicas: 3, MaxInFlight: 12}, e.Live)
	if e.Cap() != 12 {
		t.Errorf("cap %d where 12 are configured", e.Cap())
	}
}
