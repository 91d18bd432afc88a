package engine

import (
	"context"
	"slices"
	"time"
)

const (
	askTimeout    = 2 * time.Second // for one about page
	maxAboutBytes = 1 << 20
	vainAsks      = 3               // failures after which a question is taken as answered with no
	lookEvery     = 5 * time.Second // at an engine of unknown kind that is not ready
)

// note adds to what is known of the engine's kind and publishes what follows.
func (w *watch) note(add func(*evidence)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add(&w.evidence)
	w.concludeLocked()
}

// concludeLocked publishes what the evidence says. The log is told once of
// each kind that the engine turns out to be, and when a sign is not firm yet
// it waits.
func (w *watch) concludeLocked() {
	d, firm := w.evidence.conclude(w.engine.Load().Dialect)
	if d == nil || d.Dialect == DialectOpenAI && d.How != howConfigured && !w.Healthy() {
		return // an engine that is still starting shows nothing: that is no sign
	}
	old := w.Detected()
	if old != nil {
		d.How = d.howAfter(old)
	}
	if firm && w.named != d.Dialect {
		w.named = d.Dialect
		w.log.Info("engine identified", "dialect", d.Dialect, "by", d.How)
	}
	if old != nil && *old == *d {
		return
	}
	w.SetDetected(d)
	if told := (about{version: d.Version, slots: d.Slots}); told != w.told && told != (about{}) && w.evidence.describedBy(d.Dialect) {
		w.told = told
		w.log.Info("engine describes itself", "version", d.Version, "slots", d.Slots)
	}
	if old == nil || old.Dialect != d.Dialect {
		ring(w.scrapeNow)
		if w.listed.at.IsZero() {
			ring(w.listNow) // perhaps this kind's models are elsewhere
		}
	}
	w.publishModelsLocked()
	w.fleet.Touch()
}

// look asks an engine that does not become ready, and whose kind is not
// known, what it is: kinds differ in where and how long their health is asked.
func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if ans, err := w.ask.get(ctx, w.ask.kept, w.engine.Load(), modelsPath, maxListBytes); err == nil {
		if l, err := parseModels(ans.body); err == nil && ans.ok() {
			w.note(func(ev *evidence) { ev.ownedBy = l.ownedBy })
		}
		w.ask.put(ans)
	}
	w.identify(ctx)
}

// identify asks for what is still open about the engine's kind, the most
// likely first, until it is certain; and, once it is, for what the engine says
// of itself.
func (w *watch) identify(ctx context.Context) {
	var now question // asked in this call
	for ctx.Err() == nil {
		d, q := w.nextQuestion(now)
		if d == nil {
			return
		}
		now |= q
		w.askAbout(ctx, d, q)
	}
}

// nextQuestion is the dialect whose about page is to be asked for next, nil if none.
func (w *watch) nextQuestion(now question) (*dialect, question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, firm := w.evidence.conclude(w.engine.Load().Dialect)
	if found != nil {
		for i := range dialects {
			d, q := &dialects[i], aboutQuestion(i)
			if d.name == found.Dialect && d.about.read != nil && now&q == 0 && (w.evidence.asked&q == 0 || d.about.again) {
				return d, q
			}
		}
	}
	// The pages of other kinds are only asked for where the metrics page leaves
	// it open; an engine that is not ready is asked for none.
	if firm || w.Healthy() && w.evidence.asked&askedMetrics == 0 || !w.Healthy() && found != nil {
		return nil, 0
	}
	for i := range dialects {
		if d, q := &dialects[i], aboutQuestion(i); d.about.read != nil && (now|w.evidence.asked)&q == 0 {
			return d, q
		}
	}
	return nil, 0
}

// askAbout asks for one dialect's about page and notes what it says; without
// an answer the question stays open, but not forever.
func (w *watch) askAbout(ctx context.Context, d *dialect, q question) {
	for i, page := range d.about.pages {
		done := func() bool {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			ans, err := w.ask.get(ctx, w.ask.kept, w.engine.Load(), page, maxAboutBytes)
			defer w.ask.put(ans)
			if ans.missing() && i+1 < len(d.about.pages) {
				return false
			}
			var a about
			is := false
			if err == nil && ans.ok() {
				a, is = d.about.read(ans)
				a.page = page
			}
			w.answered(q, ans.definite(err), func(ev *evidence) { ev.sawAbout(d, a, is) })
			return true
		}()
		if done {
			return
		}
	}
}

// answered notes the answer to a question, or that there was none.
func (w *watch) answered(q question, definite bool, add func(*evidence)) {
	w.note(func(ev *evidence) {
		open := ev.asked&q == 0
		switch {
		case definite:
			ev.asked |= q
			delete(w.tried, q)
			add(ev)
		case w.Healthy():
			if w.tried == nil {
				w.tried = make(map[question]int)
			}
			if w.tried[q]++; w.tried[q] >= vainAsks {
				ev.asked |= q
			}
		}
		if q == askedMetrics && open && ev.asked&q != 0 && ev.families == 0 {
			ring(w.listNow) // the questions that waited for it are due
		}
	})
}

// forgetLocked drops what is known of the engine's kind: perhaps another
// program answers now.
func (w *watch) forgetLocked() {
	w.evidence = evidence{server: w.evidence.server}
	clear(w.tried)
}

// publishModelsLocked makes the engine's list, under the names by which it
// serves, its published one.
func (w *watch) publishModelsLocked() {
	if w.listed.at.IsZero() {
		return
	}
	d := w.dialectNow()
	adapters := adapterByID
	if d != nil {
		adapters = d.adapter
	}
	models := asServed(w.listed.models, adapters, w.evidence.context(d))
	old := w.Models()
	same := settle(old, models) && old.Native == w.listed.native
	if same && old.At.Equal(w.listed.at) {
		return
	}
	w.SetModels(&ModelList{Models: models, At: w.listed.at, Native: w.listed.native})
	if same {
		return
	}
	if w.listed.native {
		w.log.Warn("engine serves no OpenAI API", "models", ids(models))
	} else {
		w.log.Info("engine serves", "models", ids(models))
	}
	w.fleet.Touch()
}

// listedSame reports whether two lists name the same models of the same owner.
func listedSame(a, b listed) bool {
	return a.ownedBy == b.ownedBy &&
		slices.EqualFunc(a.models, b.models, func(x, y Model) bool { return x.ID == y.ID && x.Parent == y.Parent })
}
