package engine

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"
)

// roundTripWindow is how long a round trip counts: the floor is the least of
// the last one to two windows, so that a path that became longer is believed.
const roundTripWindow = 5 * time.Minute

// roundTrip is the floor of what it takes to reach the engine, from the set-up
// of connections: what is above it is waiting, not distance. The zero value
// knows nothing. Only dials write it.
type roundTrip struct {
	mu     sync.Mutex // guards what is below
	now    time.Duration
	before time.Duration // of the window before; 0 = nothing was measured in it
	began  time.Time     // of the window at hand
}

// Reached notes that a connection to the engine took that long to be there,
// without the look-up of its name and without TLS: one round trip.
func (l *Live) Reached(took time.Duration, now time.Time) {
	if took <= 0 {
		took = 1 // a clock too coarse for what is near
	}
	r := &l.roundTrip
	r.mu.Lock()
	defer r.mu.Unlock()
	switch age := now.Sub(r.began); {
	case r.now == 0 || age >= 2*roundTripWindow:
		r.now, r.before, r.began = took, 0, now
	case age >= roundTripWindow:
		r.now, r.before, r.began = took, r.now, now
	default:
		r.now = min(r.now, took)
	}
}

// RoundTrip is the floor of the round trip to the engine as far as it was
// measured; a path on which no connection was made lately keeps its last one.
// 0 = never measured.
func (l *Live) RoundTrip() time.Duration {
	r := &l.roundTrip
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before > 0 {
		return min(r.now, r.before)
	}
	return r.now
}

// Timed returns a context under which connections made by a net.Dialer are
// timed for the engine, from the first packet to the answer to it: neither the
// look-up of a name nor TLS is in it.
func (l *Live) Timed(ctx context.Context) context.Context {
	var mu sync.Mutex // a dialer may try two addresses at a time
	started := make(map[string]time.Time, 1)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectStart: func(_, address string) {
			mu.Lock()
			defer mu.Unlock()
			started[address] = time.Now()
		},
		ConnectDone: func(_, address string, err error) {
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if from, ok := started[address]; ok && err == nil {
				l.Reached(now.Sub(from), now)
			}
		},
	})
}
