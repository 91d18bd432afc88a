package engine

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

const (
	modelsPath  = "/v1/models"
	propsPath   = "/props"
	versionPath = "/version"

	listEvery   = 5 * time.Second // +-20 %
	listTimeout = 5 * time.Second
	listAtReady = 500 * time.Millisecond // how long an engine waits for its list before it is ready without
	askTimeout  = 2 * time.Second        // for /props and /version

	lookupEvery   = 5 * time.Second
	lookupTimeout = 2 * time.Second
)

// watchModels asks a ready engine for its models, and for what else tells its
// kind while that is open.
func (w *watch) watchModels(ctx context.Context) {
	unreadable := false
	for {
		if w.Ready() {
			listCtx, cancel := context.WithTimeout(ctx, listTimeout)
			err := w.list(listCtx)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if unreadable != (err != nil) {
				unreadable = err != nil
				w.logReadable("model list", err)
			}
			w.identify(ctx)
		}
		if !pause(ctx, spread(listEvery, rand.Float64()), w.listNow) {
			return
		}
	}
}

// logReadable logs that a page can no longer be read, or can again.
func (w *watch) logReadable(page string, err error) {
	if err != nil {
		w.log.Warn(page+" unreadable", "error", err)
		return
	}
	w.log.Info(page + " readable")
}

// list asks for the models once. A list that cannot be read leaves the last.
func (w *watch) list(ctx context.Context) error {
	ans, err := w.ask.get(ctx, w.ask.kept, w.engine.Load(), modelsPath, maxListBytes)
	if err != nil {
		w.polls.lists.Add(1)
		return err
	}
	defer w.ask.put(ans)
	var l listed
	if err = ans.problem(modelsPath, nil); err == nil {
		l, err = parseModels(ans.body)
	}
	if err != nil {
		w.polls.lists.Add(1)
		if ans.definite(nil) {
			w.note(func(ev *evidence) { ev.asked |= askedModels })
		}
		return err
	}
	changed := w.publishModels(l.models)
	w.note(func(ev *evidence) {
		if changed { // perhaps another program
			*ev = evidence{server: ev.server}
		}
		ev.ownedBy = l.ownedBy
		ev.asked |= askedModels
	})
	return nil
}

// publishModels makes models the engine's list. It reports whether an earlier
// list said something else.
func (w *watch) publishModels(models []Model) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = models
	models = slices.Clone(models)
	if n := w.evidence.slotContext; n > 0 {
		for i := range models {
			models[i].ContextTokens = n
		}
	}
	old := w.Models()
	same := settle(old, models)
	w.SetModels(&ModelList{Models: models, At: time.Now()})
	if same {
		return false
	}
	w.log.Info("engine serves", "models", ids(models))
	w.fleet.Touch()
	return old != nil
}

// identify asks llama.cpp for its slots, and an engine of unknown kind for
// what only one of the kinds has.
func (w *watch) identify(ctx context.Context) {
	d := w.dialectNow()
	if d != nil && d.name != DialectLlamaCpp {
		w.mu.Lock()
		_, decided := w.evidence.conclude(w.engine.Load().Dialect)
		w.mu.Unlock()
		if decided {
			return
		}
	}
	w.question(ctx, propsPath, askedProps, func(ev *evidence, ans answer) {
		ev.slots, ev.slotContext, ev.props = parseProps(ans.body)
	})
	w.mu.Lock()
	n := w.evidence.slotContext
	_, decided := w.evidence.conclude(w.engine.Load().Dialect)
	listed := w.listed
	w.mu.Unlock()
	if n > 0 && listed != nil {
		w.publishModels(listed)
	}
	if !decided {
		w.question(ctx, versionPath, askedVersion, func(ev *evidence, ans answer) { ev.version = parseVersion(ans) })
	}
}

// question asks for one page and notes its answer; without one it stays open.
func (w *watch) question(ctx context.Context, path string, q question, read func(*evidence, answer)) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ans, err := w.ask.get(ctx, w.ask.kept, w.engine.Load(), path, maxListBytes)
	defer w.ask.put(ans)
	if !ans.definite(err) {
		return
	}
	w.note(func(ev *evidence) {
		ev.asked |= q
		read(ev, ans)
	})
}

// watchAddress looks up the engine's host name and tells when it leads elsewhere.
func (w *watch) watchAddress(ctx context.Context, host string) {
	var known []netip.Addr
	failing := false
	for {
		lookupCtx, cancel := context.WithTimeout(ctx, lookupTimeout)
		addrs, err := w.lookup(lookupCtx, host)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if failing != (err != nil) {
			failing = err != nil
			w.logReadable("address of "+host, err)
		}
		if err == nil {
			slices.SortFunc(addrs, netip.Addr.Compare)
			addrs = slices.Compact(addrs)
			if known != nil && !slices.Equal(known, addrs) {
				w.log.Info("engine address changed", "host", host, "addresses", addrs)
				w.ask.kept.CloseIdleConnections()
				if w.moved != nil {
					w.moved(w.engine.Load())
				}
			}
			known = addrs
		}
		if !pause(ctx, lookupEvery, nil) {
			return
		}
	}
}
