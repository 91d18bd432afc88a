package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Why an exchange was halted, beside the client's leaving.
var (
	errBodySlow       = errors.New("the request body comes too slowly")
	errContentTimeout = errors.New("no first content in time")
	errStalled        = errors.New("no event in time")
	errDrained        = errors.New("nothing but the end was left to read")
	// ErrDraining is the cause to cancel the server's base context with when
	// the drain is over.
	ErrDraining = errors.New("gateway draining")
)

// watchdog ends an exchange that makes no progress. Moving its deadline is one
// atomic store; the timer looks again when it fires, so that a stream pays for
// a timer about once per limit and not once per event. It belongs to a pooled
// exchange: a timer that fires late finds a later deadline, or none, and after
// stop has returned nobody is ended for the time before it.
type watchdog struct {
	timer    *time.Timer
	deadline atomic.Int64 // nanoseconds since epoch, 0 = off
	limit    atomic.Int64 // the time that led to deadline
	paused   atomic.Bool  // the exchange waits for its client: no time of the engine's
	cause    atomic.Pointer[error]

	mu    sync.Mutex // guards ender, and is held while it is called
	ender ender
}

// ender is what a watchdog ends.
type ender interface{ end(why error) }

// waiter is an ender with a say in how long is too long: a deadline that has
// passed is moved by more; 0 ends it.
type waiter interface {
	ender
	more(why error) time.Duration
}

var epoch = time.Now()

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// start arms the watchdog: cause ends the exchange unless watch moves the
// deadline first.
func (d *watchdog) start(e ender, limit time.Duration, cause *error) {
	d.mu.Lock()
	d.ender = e
	d.mu.Unlock()
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
// passed and the exchange is being ended.
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
	d.mu.Lock()
	d.deadline.Store(0)
	d.ender = nil
	d.mu.Unlock()
	d.timer.Stop()
}

// fire ends the exchange if the deadline has passed. Why is read before the
// deadline is taken, which shows that it is still the same.
func (d *watchdog) fire() {
	for {
		deadline := d.deadline.Load()
		if deadline == 0 {
			return
		}
		left := deadline - sinceEpoch()
		if left <= 0 {
			cause := d.cause.Load()
			if left = d.postpones(*cause); left <= 0 {
				if d.take(deadline, cause) {
					return
				}
				continue
			}
			later := sinceEpoch() + left
			if !d.deadline.CompareAndSwap(deadline, later) {
				continue
			}
			deadline = later
		}
		d.timer.Reset(time.Duration(left))
		if d.deadline.Load() == deadline {
			return
		} // else it was moved meanwhile, and the timer with it
	}
}

// postpones is for how long more to wait.
func (d *watchdog) postpones(why error) int64 {
	if d.paused.Load() {
		return d.limit.Load()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w, ok := d.ender.(waiter); ok {
		return int64(w.more(why))
	}
	return 0
}

// take ends it at a deadline, if that is still the deadline.
func (d *watchdog) take(deadline int64, cause *error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.deadline.CompareAndSwap(deadline, 0) {
		return false
	}
	d.ender.end(*cause)
	return true
}
