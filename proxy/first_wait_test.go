package proxy

import (
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"penstock/engine"
	"penstock/protect"
)

// When an attempt is cut, and when everything is ended, by what else happens
// at the engine. Times are from the beginning of the exchange.
func TestWaitForFirstContent(t *testing.T) {
	const limit = 10 * time.Minute
	const short = 0 // class of a body under 1 KiB, streamed
	const long = sizeClasses - 1
	answer := func(g *guard, class int, every, took, until time.Duration) {
		for began := time.Now(); time.Since(began) < until; time.Sleep(every) {
			g.began(class)
			g.answered(class, took, nil)
		}
	}
	open := func(g *guard) { g.breaker.Trip(protect.TripSilent) }
	for _, c := range []struct {
		name    string
		class   int
		bytes   int64
		fixed   bool    // no other engine may have it
		busy    float64 // utilisation
		denied  bool    // the budget is spent
		limit   time.Duration
		engine  func(g *guard)
		cut     time.Duration // 0: not
		ends    time.Duration // the exchange; 0: not before it is cut
		content time.Duration // comes then
	}{
		{name: "nobody is answered", ends: limit},
		{name: "later ones are answered", engine: func(g *guard) { answer(g, short, time.Second, 100*time.Millisecond, limit) }, cut: 15 * time.Second},
		{name: "later ones are answered, and it has content", engine: func(g *guard) { answer(g, short, time.Second, 100*time.Millisecond, limit) }, content: 14 * time.Second},
		{name: "later ones take long too", engine: func(g *guard) { answer(g, short, time.Second, 10*time.Second, limit) }, cut: 35 * time.Second},
		{name: "later ones of another size", class: 3, engine: func(g *guard) { answer(g, short, time.Second, 100*time.Millisecond, limit) }, ends: limit},
		{name: "a very long prompt", class: long, bytes: 20 * topClassBytes, engine: func(g *guard) { answer(g, long, time.Second, time.Second, limit) }, cut: 65 * time.Second},
		{name: "an answer in one piece", class: sizeClasses, engine: func(g *guard) { answer(g, sizeClasses, time.Second, 100*time.Millisecond, limit) }, ends: limit},
		{name: "nowhere else to go", fixed: true, engine: func(g *guard) { answer(g, short, time.Second, 100*time.Millisecond, limit) }, ends: limit},
		{name: "no room elsewhere", busy: 0.9, engine: func(g *guard) { answer(g, short, time.Second, 100*time.Millisecond, limit) }, ends: limit},
		{name: "the engine is out", engine: open, cut: 15 * time.Second},
		{name: "the engine is out, and nowhere else to go", fixed: true, engine: open, cut: 15 * time.Second},
		{name: "the engine is out, and little room elsewhere", busy: 0.85, engine: open, cut: 15 * time.Second},
		{name: "the engine is out, and no room elsewhere", busy: 0.9, engine: open, cut: 30 * time.Second},
		{name: "the engine is out, and the budget is spent", denied: true, engine: open, cut: 30 * time.Second},
		{name: "the engine was out, and does nothing since it is back", engine: func(g *guard) {
			time.Sleep(time.Second)
			g.silentAt.Store(sinceEpoch())
			time.Sleep(10 * time.Second)
			g.backAt.Store(sinceEpoch())
		}, class: sizeClasses, cut: 26 * time.Second},
		{name: "the engine goes out later", engine: func(g *guard) { time.Sleep(time.Minute + time.Millisecond); open(g) }, cut: 61 * time.Second},
		{name: "the limit is short", limit: 3 * time.Second, engine: open, ends: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(engine.NewLive(1), slog.New(slog.DiscardHandler))
				for i := range g.loads {
					g.loads[i].newest.Store(math.MinInt64) // a bubble's time is before that of the process
				}
				var h halt
				var f firstWait
				var d watchdog
				var payer repeater
				if !c.fixed {
					payer = room{c.busy, !c.denied}
				}
				if c.limit == 0 {
					c.limit = limit
				}
				began := time.Now()
				over := make(chan time.Duration, 2)
				d.start(&f, f.start(&h, c.limit, time.Minute), &errContentTimeout)
				g.began(c.class)
				f.attempt(g, c.class, c.bytes, payer)
				if !h.hold(func() { over <- time.Since(began) }) {
					t.Fatal("not begun")
				}
				if c.engine != nil {
					go c.engine(g)
				}
				if c.content > 0 {
					time.Sleep(c.content)
					if !d.watch(time.Hour, &errStalled, true) {
						t.Error("content in time counts as late")
					}
				}
				var at time.Duration
				select {
				case at = <-over:
				case <-time.After(2 * limit):
				}
				switch {
				case c.content > 0 && (at != 0 || h.wasCut() || h.ended()):
					t.Errorf("cut after %v although its content had come", at)
				case c.cut > 0 && (!h.wasCut() || h.ended() || at < c.cut || at > c.cut+waitStep):
					t.Errorf("cut %t after %v, ended %t; want it cut after %v", h.wasCut(), at, h.ended(), c.cut)
				case c.ends > 0 && (h.wasCut() || h.reason() != errContentTimeout || at != c.ends):
					t.Errorf("ended by %v after %v, cut %t; want it ended after %v", h.reason(), at, h.wasCut(), c.ends)
				}
				if c.cut > 0 {
					again(t, &h, &f, &d, g, !c.fixed && c.busy < fullFrom && !c.denied, began.Add(c.limit))
				}
				d.stop()
				time.Sleep(2 * limit) // until those of the engine are done
			})
		})
	}
}

// room pays for repeats below a utilisation.
type room struct {
	busy float64
	pays bool
}

func (r room) payRepeat(below float64) bool { return r.pays && r.busy < below }

// An answer in one piece that has begun and does not go on is cut; one that
// goes on, for as slowly as it comes, is not while nothing else is wrong with
// its engine, but ends with the client's time.
func TestWaitForTheWholeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		parts int
		out   bool
		cut   time.Duration
		ends  time.Duration
	}{
		"begun and no more":                   {every: time.Second, parts: 3, cut: 8 * time.Second},
		"a byte now and then":                 {every: 4 * time.Second, parts: 1000, ends: time.Minute},
		"a byte now and then, and engine out": {every: 4 * time.Second, parts: 1000, out: true, cut: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(engine.NewLive(1), slog.New(slog.DiscardHandler))
				if c.out {
					g.breaker.Trip(protect.TripSilent)
				}
				var h halt
				var f firstWait
				var d watchdog
				began := time.Now()
				d.start(&f, f.start(&h, time.Minute, 5*time.Second), &errContentTimeout)
				f.attempt(g, sizeClasses, 100, room{0, true})
				var at time.Duration
				h.hold(func() { at = time.Since(began) })
				for range c.parts {
					time.Sleep(c.every)
					if h.ended() || h.wasCut() {
						break
					}
					if first, soon := f.part(); first {
						d.watch(soon, &errContentTimeout, true)
					}
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				switch {
				case c.cut > 0 && (!h.wasCut() || h.ended() || at < c.cut || at > c.cut+waitStep || f.wasStalled() == c.out):
					t.Errorf("cut %t after %v, stalled %t, ended %t; want it cut after %v", h.wasCut(), at, f.wasStalled(), h.ended(), c.cut)
				case c.ends > 0 && (h.wasCut() || at != c.ends):
					t.Errorf("cut %t, ended after %v; want it ended after %v", h.wasCut(), at, c.ends)
				}
				d.stop()
			})
		})
	}
}

// again is another attempt after a cut, on an engine that is as it was: it has
// its own time, and the client's limit holds over both.
func again(t *testing.T, h *halt, f *firstWait, d *watchdog, g *guard, pays bool, limit time.Time) {
	t.Helper()
	if h.hold(func() {}) || h.letGo() {
		t.Error("what was cut goes on")
	}
	more, paid := f.over()
	if more != waitStep || paid != pays {
		t.Errorf("the next look is in %v, a repeat is paid for: %t", more, paid)
	}
	if more, paid := f.over(); more != 0 || paid {
		t.Errorf("what is over is over again: %v, %t", more, paid)
	}
	d.watch(more, &errContentTimeout, true)
	f.attempt(newGuard(engine.NewLive(1), g.log), 0, 0, nil)
	ended := make(chan struct{})
	if !h.hold(func() { close(ended) }) {
		t.Fatal("a cut attempt ends those after it")
	}
	<-ended
	if h.wasCut() || h.reason() != errContentTimeout || time.Now() != limit {
		t.Errorf("ended %v before the limit by %v, cut %t", time.Until(limit), h.reason(), h.wasCut())
	}
}
