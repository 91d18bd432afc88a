package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// watcher looks at all gateways and keeps what was seen: who led in which
// epoch, and which tables each process took.
type watcher struct {
	w    *world
	errs io.Writer

	mu                      sync.Mutex
	leaders                 map[uint64]string // by epoch
	last                    map[string]plan   // by process
	rows                    map[plan]string   // of the plans, as JSON
	leading                 map[string]bool   // by gateway, at its last look
	faults                  []string          // of what must never be
	plans                   int
	served, failed, excused atomic.Uint64
}

type plan struct{ epoch, version uint64 }

func newWatcher(w *world, errs io.Writer) *watcher {
	return &watcher{w: w, errs: errs, leaders: make(map[uint64]string), last: make(map[string]plan), rows: make(map[plan]string), leading: make(map[string]bool)}
}

const lookEvery = 100 * time.Millisecond

// run looks until ctx ends.
func (x *watcher) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, g := range x.w.gateways {
		all.Go(func() {
			for sleep(ctx, lookEvery) {
				x.look(g)
			}
		})
	}
	all.Wait()
}

func (x *watcher) look(g *gateway) {
	g.mu.Lock()
	life := g.life
	g.mu.Unlock()
	var page tablePage
	if g.get("/table", &page) != nil || page.Plan == nil {
		x.mu.Lock()
		x.leading[g.name] = false
		x.mu.Unlock()
		return
	}
	p := plan{page.Plan.Epoch, page.Plan.Version}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leading[g.name] = page.Plan.Leads
	if p.epoch == 0 {
		return // of the process before, or of nobody
	}
	process := fmt.Sprint(g.name, "/", life)
	was, known := x.last[process]
	if p.epoch < was.epoch || p.epoch == was.epoch && p.version < was.version {
		x.fault("%s went from plan %d/%d to %d/%d", process, was.epoch, was.version, p.epoch, p.version)
	}
	if !known || p != was {
		x.plans++
	}
	x.last[process] = p
	if page.Plan.Leads {
		if who := x.leaders[p.epoch]; who != "" && who != process {
			x.fault("epoch %d was led by %s and by %s", p.epoch, who, process)
		}
		x.leaders[p.epoch] = process
	}
}

func (x *watcher) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	x.faults = append(x.faults, text)
	fmt.Fprintln(x.errs, "fleet:", text)
}

// leader is the gateway that leads by its own account, of those allowed.
func (x *watcher) leader(not *gateway) *gateway {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.w.gateways {
		if g != not && x.leading[g.name] {
			return g
		}
	}
	return nil
}

func (x *watcher) epochs() map[uint64]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.leaders)
}

// clients ask every gateway, every 100 ms each, until ctx ends.
func (x *watcher) clients(ctx context.Context) {
	var all sync.WaitGroup
	for _, g := range x.w.gateways {
		all.Go(func() {
			var asked sync.WaitGroup
			defer asked.Wait()
			tick := time.NewTicker(100 * time.Millisecond) // as often on a busy machine
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				asked.Go(func() { x.client(g, n) })
			}
		})
	}
	all.Wait()
}

func (x *watcher) client(g *gateway, n int) {
	begin := time.Now()
	switch err := g.ask(n); {
	case err == nil:
		x.served.Add(1)
	case g.wasDown(begin):
		x.excused.Add(1)
	default:
		if x.failed.Add(1) <= 10 {
			fmt.Fprintf(x.errs, "fleet: a client of %s: %v\n", g.name, err)
		}
	}
}

// sleep waits for d; false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
