package proxy

import (
	"net/http"
	"testing"
	"time"

	"penstock/engine"
)

// A full engine is left alone for as long as it says, to the millisecond where
// it says so: clients that obey it come back then, and are not to wait longer.
func TestFullEnginesAreHeldAsLongAsTheySay(t *testing.T) {
	for _, c := range []struct {
		said http.Header
		want time.Duration
	}{
		{http.Header{"Retry-After-Ms": {"200"}}, 200 * time.Millisecond},
		{http.Header{"Retry-After-Ms": {"2500"}, "Retry-After": {"7"}}, 2500 * time.Millisecond},
		{http.Header{"Retry-After": {"2"}}, 2 * time.Second},
		{http.Header{"Retry-After": {"121"}}, 5 * time.Second},
		{http.Header{"Retry-After": {"soon"}}, 10 * time.Millisecond},
		{nil, 10 * time.Millisecond},
	} {
		e := &engine.Engine{Live: engine.NewLive(1)}
		x := &exchange{h: &Handler{gates: newGates(nil)}}
		x.fault.advice = adviceOf(c.said)
		now := time.Now()
		e.Acquire(1)
		x.learnRoom(e, 1, OutcomeNotProcessed, CauseBusy, now)
		if until, _ := e.Held(); until.Sub(now) != c.want {
			t.Errorf("%v: held for %v, want %v", c.said, until.Sub(now), c.want)
		}
	}
}
