package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Why an exchange's context ended, beside the client's leaving.
var (
	errBodySlow       = errors.New("the request body comes too slowly")
	errContentTimeout = errors.New("no first content in time")
	errStalled        = errors.New("no event in time")
	errDrained        = errors.New("nothing but the end was left to read")
	// ErrDraining is the cause to cancel the server's base context with when
	// the drain is over.
	ErrDraining = errors.New("gateway draining")
)

// watchdog cancels an exchange that makes no progress. Moving its deadline is
// one atomic store; the timer looks again when it fires, so that a stream pays
// for a timer about once per limit and not once per event. It belongs to a
// pooled exchange: a timer that fires late finds a later deadline, or none.
type watchdog struct {
	timer    *time.Timer
	deadline atomic.Int64 // nanoseconds since epoch, 0 = off
	limit    atomic.Int64 // the time that led to deadline
	paused   atomic.Bool  // the exchange waits for its client: no time of the engine's
	cause    atomic.Pointer[error]
	cancel   atomic.Pointer[context.CancelCauseFunc]
}

var epoch = time.Now()

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// start arms the watchdog: cause ends the exchange unless watch moves the
// deadline first.
func (d *watchdog) start(cancel context.CancelCauseFunc, limit time.Duration, cause *error) {
	d.cancel.Store(&cancel)
	d.cause.Store(cause)
	d.set(limit)
	if d.timer == nil {
		d.timer = time.AfterFunc(limit, d.fire)
	} else {
		d.timer.Reset(limit)
	}
}

// watch sets another deadline and cause. An earlier deadline than the one the
// timer runs to needs sooner = true. False means that the deadline before has
// passed and the exchange is being cancelled.
func (d *watchdog) watch(limit time.Duration, cause *error, sooner bool) (inTime bool) {
	d.cause.Store(cause)
	inTime = d.set(limit)
	if sooner {
		d.timer.Reset(limit)
	}
	return inTime
}

func (d *watchdog) set(limit time.Duration) (inTime bool) {
	d.limit.Store(int64(limit))
	return d.deadline.Swap(sinceEpoch()+int64(limit)) != 0
}

func (d *watchdog) stop() {
	d.deadline.Store(0)
	d.timer.Stop()
}

// fire cancels if the deadline has passed. What to cancel, and why, is read
// before the deadline is taken, which shows that it is still the same: by then
// the exchange may belong to another request.
func (d *watchdog) fire() {
	for {
		deadline := d.deadline.Load()
		if deadline == 0 {
			return
		}
		left := deadline - sinceEpoch()
		if left <= 0 && d.paused.Load() {
			left = d.limit.Load()
			later := sinceEpoch() + left
			if !d.deadline.CompareAndSwap(deadline, later) {
				continue
			}
			deadline = later
		}
		if left > 0 {
			d.timer.Reset(time.Duration(left))
			if d.deadline.Load() == deadline {
				return
			}
			continue // it was moved meanwhile, and the timer with it
		}
		cancel, cause := d.cancel.Load(), d.cause.Load()
		if d.deadline.CompareAndSwap(deadline, 0) {
			(*cancel)(*cause)
			return
		}
	}
}
