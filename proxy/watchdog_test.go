package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type endFunc func(why error)

func (f endFunc) end(why error) { f(why) }

func TestWatchdog(t *testing.T) {
	second := errors.New("second")
	for _, c := range []struct {
		name  string
		moves func(d *watchdog)
		ends  time.Duration // 0: never
		cause error
	}{
		{"nothing comes", func(*watchdog) {}, time.Second, errContentTimeout},
		{"moved later", func(d *watchdog) { d.watch(time.Second, &second, false) }, 1500 * time.Millisecond, second},
		{"moved sooner", func(d *watchdog) { d.watch(100*time.Millisecond, &second, true) }, 600 * time.Millisecond, second},
		{"stopped", func(d *watchdog) { d.stop() }, 0, nil},
		{"the client is slow", func(d *watchdog) { d.paused.Store(true) }, 0, nil},
		{"the client was slow", func(d *watchdog) {
			d.paused.Store(true)
			time.AfterFunc(time.Second, func() { d.paused.Store(false) })
		}, 2 * time.Second, errContentTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var d watchdog
				began := time.Now()
				d.start(endFunc(cancel), time.Second, &errContentTimeout)
				time.Sleep(500 * time.Millisecond)
				c.moves(&d)
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				took := time.Since(began)
				d.stop()
				if c.ends == 0 {
					if ctx.Err() != nil {
						t.Fatalf("cancelled after %v: %v", took, context.Cause(ctx))
					}
					return
				}
				// The monotonic clock of sinceEpoch and the timers agree in the bubble.
				if took != c.ends || context.Cause(ctx) != c.cause {
					t.Errorf("ended after %v with %v, want %v with %v", took, context.Cause(ctx), c.ends, c.cause)
				}
			})
		})
	}
}

// What comes too late is told so, and what comes in time is not cancelled for
// the time before it.
func TestWatchdogDecidesOnce(t *testing.T) {
	var d watchdog
	for range 3000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		d.start(endFunc(cancel), 20*time.Microsecond, &errContentTimeout)
		for end := time.Now().Add(20 * time.Microsecond); time.Now().Before(end); {
		}
		inTime := d.watch(time.Hour, &errStalled, true)
		if !inTime {
			<-ctx.Done()
		}
		time.Sleep(time.Microsecond) // a late timer's turn
		if inTime != (ctx.Err() == nil) {
			t.Fatalf("in time: %t, but %v", inTime, context.Cause(ctx))
		}
		d.stop()
		cancel(nil)
	}
}

// A pooled exchange's watchdog never ends the request that comes after it.
func TestWatchdogSparesTheNextRequest(t *testing.T) {
	var d watchdog
	for range 3000 {
		d.start(endFunc(func(error) {}), 10*time.Microsecond, &errContentTimeout)
		for end := time.Now().Add(10 * time.Microsecond); time.Now().Before(end); {
		}
		d.stop()
		ctx, cancel := context.WithCancelCause(t.Context())
		d.start(endFunc(cancel), time.Hour, &errContentTimeout)
		time.Sleep(time.Microsecond)
		if ctx.Err() != nil {
			t.Fatalf("ended by the request before it: %v", context.Cause(ctx))
		}
		d.stop()
		cancel(nil)
	}
}
