package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

// watchHealth probes the engine and owns its state.
func (w *watch) watchHealth(ctx context.Context) {
	h := newHealth(w.Status(), time.Now())
	viaModels := false // the engine has no health page: its model list stands in
	for ctx.Err() == nil {
		asked := time.Now()
		v, err := w.probe(ctx, &viaModels)
		if ctx.Err() != nil {
			return
		}
		w.polls.probes[v].Add(1)
		h.observe(v, time.Now())
		joins := h.state == Ready && !w.Ready()
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

// probe asks once. An engine without a health page (404, 405, 501) is as
// healthy as its model list.
func (w *watch) probe(ctx context.Context, viaModels *bool) (verdict, error) {
	e := w.engine.Load()
	d := w.dialectNow()
	if d == nil {
		d = dialectByName(DialectOpenAI)
	}
	ctx, cancel := context.WithTimeout(ctx, d.healthTimeout)
	defer cancel()
	if !*viaModels {
		ans, err := w.ask.get(ctx, w.ask.fresh, e, d.healthPath, maxHealthBytes)
		defer w.ask.put(ans)
		if err != nil || !ans.missing() {
			return w.judge(ans, err), ans.problem(d.healthPath, err)
		}
	}
	ans, err := w.ask.get(ctx, w.ask.fresh, e, modelsPath, maxListBytes)
	defer w.ask.put(ans)
	v := w.judge(ans, err)
	*viaModels = v == healthy || v == excused
	return v, ans.problem(modelsPath, err)
}

// judge is verdictOf, with what is known of the engine's work for us.
func (w *watch) judge(ans answer, err error) verdict {
	if err == nil {
		w.note(func(ev *evidence) { ev.server = ans.server })
	}
	v := verdictOf(ans, err)
	if v == timedOut && w.working(time.Now()) {
		return excused
	}
	return v
}

// welcome is called when the engine is about to become ready. The program that
// answers now may be another than the one before: what was known of it is asked
// again, and its models, if they come quickly, before the first request does.
func (w *watch) welcome(ctx context.Context) {
	w.note(func(ev *evidence) { *ev = evidence{server: ev.server} })
	w.SetSample(nil)
	ctx, cancel := context.WithTimeout(ctx, listAtReady)
	defer cancel()
	_ = w.list(ctx) // a failure is counted there, and the list is asked for again at once
}

// publishState tells the world of a change of state or reason, and the log of
// a change of state.
func (w *watch) publishState(h health, err error) {
	was := w.Status()
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
