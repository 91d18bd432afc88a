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
	metricsPath = "/metrics"
	propsPath   = "/props"
	versionPath = "/version"
	infoPath    = "/info"

	listEvery   = 5 * time.Second // +-20 %
	listTimeout = 5 * time.Second
	listAtReady = 500 * time.Millisecond // how long an engine waits for its list before it is ready without

	lookupEvery   = 5 * time.Second
	lookupTimeout = 2 * time.Second
)

// watchModels asks a ready engine for its models, and for what else tells its
// kind while that is open.
func (w *watch) watchModels(ctx context.Context) {
	unreadable := false
	for {
		if w.Healthy() {
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
	d := w.dialectNow()
	if d == nil {
		d = dialectByName(DialectOpenAI)
	}
	l, definite, err := w.readList(ctx, d)
	if err != nil {
		w.polls.lists.Add(1)
		w.answered(askedModels, definite, func(*evidence) {})
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.listed.at.IsZero() && !listedSame(w.listed, l) {
		w.forgetLocked()
	}
	w.listed = l
	w.evidence.ownedBy = l.ownedBy
	w.evidence.asked |= askedModels
	w.concludeLocked()
	w.publishModelsLocked()
	return nil
}

// readList reads the first of the dialect's lists that the engine has.
func (w *watch) readList(ctx context.Context, d *dialect) (l listed, definite bool, err error) {
	for i, from := range d.lists {
		ans, err := w.ask.get(ctx, w.ask.kept, w.engine.Load(), from.page, maxListBytes)
		if err != nil {
			return listed{}, false, err
		}
		if ans.missing() && i+1 < len(d.lists) {
			w.ask.put(ans)
			continue
		}
		definite = ans.definite(nil)
		if err = ans.problem(from.page, nil); err == nil {
			l, err = from.read(ans.body)
			l.at = time.Now()
		}
		w.ask.put(ans)
		return l, definite, err
	}
	return listed{}, false, nil
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
				w.ask.closeIdle()
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
