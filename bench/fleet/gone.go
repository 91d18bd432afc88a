package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// goneResult is what clients saw with a store, without one, and with one again.
type goneResult struct {
	Gone    float64 `json:"gone_s"`
	With    phase   `json:"with"`
	Without phase   `json:"without"`
	After   phase   `json:"after"`
	Back    float64 `json:"leads_again_after_s"`
}

type phase struct {
	Requests uint64  `json:"requests"`
	Errors   uint64  `json:"errors"`
	PerS     float64 `json:"per_s"`
}

func (r *goneResult) print(w io.Writer) {
	for _, p := range []struct {
		name string
		phase
	}{{"with the store", r.With}, {"without", r.Without}, {"with it again", r.After}} {
		fmt.Fprintf(w, "%-15s %6d answered, %.2f/s, %d errors\n", p.name, p.Requests, p.PerS, p.Errors)
	}
	fmt.Fprintf(w, "The store was gone for %.0f s; a gateway led %.1f s after it was back.\n", r.Gone, r.Back)
}

func (r *goneResult) missed() (all []string) {
	if r.Without.Errors > 0 {
		all = append(all, fmt.Sprintf("%d errors without the store", r.Without.Errors))
	}
	if r.Without.PerS < 0.95*r.With.PerS {
		all = append(all, fmt.Sprintf("goodput %.3f of that with the store", r.Without.PerS/r.With.PerS))
	}
	return all
}

func runStoreGone(ctx context.Context, o options, errs io.Writer) (result, error) {
	w, err := newWorld(ctx, o, plainLayout())
	if err != nil {
		return nil, err
	}
	defer w.close()
	x := newWatcher(w, errs)
	r := &goneResult{Gone: o.gone.Seconds()}
	measured := func(ctx context.Context, d time.Duration) phase {
		served, failed, begin := x.served.Load(), x.failed.Load(), time.Now()
		sleep(ctx, d)
		p := phase{Requests: x.served.Load() - served, Errors: x.failed.Load() - failed}
		p.PerS = float64(p.Requests) / time.Since(begin).Seconds()
		return p
	}
	aside := min(o.gone/2, time.Minute)
	err = x.during(ctx, func(ctx context.Context) error {
		sleep(ctx, 5*time.Second)
		r.With = measured(ctx, aside)
		fmt.Fprintf(errs, "fleet: the store is gone for %s\n", o.gone)
		w.store.halt(true)
		r.Without = measured(ctx, o.gone)
		if err := w.store.start(); err != nil {
			return err
		}
		begin := time.Now()
		if !x.await(ctx, time.Minute, func() bool {
			g := x.leader(nil)
			var page fleetPage
			return g != nil && g.get("/fleet", &page) == nil && page.Leader == g.name && page.Store == "reached"
		}) {
			return fmt.Errorf("no gateway leads a minute after the store is back")
		}
		r.Back = time.Since(begin).Seconds()
		r.After = measured(ctx, aside)
		return ctx.Err()
	})
	return r, err
}
