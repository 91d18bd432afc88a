package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// watchHealth probes the engine and owns its state.
func (w *watch) watchHealth(ctx context.Context) {
	h := newHealth(w.Health(), time.Now())
	var at healthPage
	var looked time.Time
	for ctx.Err() == nil {
		asked := time.Now()
		v, err := w.probe(ctx, &at, h.fresh)
		if ctx.Err() != nil {
			return
		}
		if v != healthy && v != refused && v != unreachable && w.Detected() == nil && asked.Sub(looked) >= lookEvery {
			looked = asked
			w.look(ctx)
		}
		w.polls.probes[v].Add(1)
		w.detail.Store(tlsDetail(err))
		h.observe(v, time.Now())
		joins := h.state == Ready && !w.Healthy()
		if joins {
			w.welcome(ctx)
		}
		w.publishState(h, err)
		if joins { // only now do the other loops find it ready
			ring(w.listNow)
			ring(w.scrapeNow)
		}
		if !w.awaitProbe(ctx, asked, h.next(time.Now(), rand.Float64())) {
			return
		}
	}
}

// awaitProbe waits for the next probe's time, or until the proxy suspects the
// engine, but never less than suspectEvery from the last probe's start.
func (w *watch) awaitProbe(ctx context.Context, asked time.Time, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-w.suspect:
	}
	ring(w.listNow)
	return pause(ctx, suspectEvery-time.Since(asked), nil)
}

// healthPage is the page that an engine's health was last found on.
type healthPage struct {
	of *dialect
	at int // of its health pages; their number: its model list stands in
}

// probe asks once. The first of its pages that the engine has (that is not
// 404, 405 or 501) tells its health; without one it is as healthy as its model
// list. fresh says that it has not been ready yet.
func (w *watch) probe(ctx context.Context, page *healthPage, fresh bool) (verdict, error) {
	e := w.engine.Load()
	d := w.dialectNow()
	if d == nil {
		d = dialectByName(DialectOpenAI)
	}
	if page.of != d {
		*page = healthPage{of: d}
	}
	for ; page.at < len(d.health); page.at++ {
		v, has, err := w.probePage(ctx, e, d, d.health[page.at], maxHealthBytes, fresh)
		if has {
			if v != healthy && v != excused {
				page.at = 0 // perhaps another program by now
			}
			return v, err
		}
	}
	v, _, err := w.probePage(ctx, e, d, d.lists[0].page, maxListBytes, fresh)
	if v != healthy && v != excused {
		page.at = 0
	}
	return v, err
}

// probePage asks one page; has is false where the engine says that it has none.
func (w *watch) probePage(ctx context.Context, e *Engine, d *dialect, page string, limit int64, fresh bool) (v verdict, has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.healthTimeout)
	defer cancel()
	ans, err := w.ask.get(w.Timed(ctx), w.ask.fresh, e, page, limit)
	defer w.ask.put(ans)
	if err == nil {
		w.note(func(ev *evidence) { ev.server = ans.server })
	}
	v = verdictOf(ans, err)
	switch {
	case v == timedOut && w.working(time.Now()):
		v = excused
	case v == unhealthy && fresh && slices.Contains(d.loads, ans.status):
		v = loading
	}
	return v, err != nil || !ans.missing(), ans.problem(page, err)
}

// welcome is called when the engine is about to become ready. The program that
// answers now may be another than the one before: what was known of it is asked
// again, and its models, if they come quickly, before the first request does.
func (w *watch) welcome(ctx context.Context) {
	w.mu.Lock()
	w.forgetLocked()
	w.mu.Unlock()
	w.SetSample(nil)
	ctx, cancel := context.WithTimeout(ctx, listAtReady)
	defer cancel()
	_ = w.list(ctx) // a failure is counted there, and the list is asked for again at once
}

// publishState tells the world of a change of state or reason, and the log of
// a change of state.
func (w *watch) publishState(h health, err error) {
	was := w.Health()
	if !w.SetStatus(h.state, h.reason, time.Now()) {
		return
	}
	if was.State != h.state {
		attrs := []any{"state", h.state.String(), "was", was.State.String(), "reason", h.reason.String()}
		if err != nil {
			attrs = append(attrs, "error", err)
		}
		if h.state == Down {
			w.log.Warn("engine state", attrs...)
		} else {
			w.log.Info("engine state", attrs...)
		}
	}
	w.fleet.Touch()
}
