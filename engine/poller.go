package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Poller keeps asking the engines of a fleet how they are and publishes the
// answers in their Live parts: health, signals, models, dialect. Every engine
// has loops of its own, so that none waits for another.
type Poller struct {
	Fleet    *Fleet
	Log      *slog.Logger  // changes only; nil: silent
	Resolver *net.Resolver // nil: the system's

	// OnAddressChange is called, from the engine's own loop, when the host name
	// of an engine's URL leads to other addresses than before. May be nil.
	OnAddressChange func(*Engine)

	// Connecting, if not nil, is called with an engine's address before each
	// connection to it, which waits: the demo puts distance there.
	Connecting func(address string)

	dial dialer // nil: a real one
}

// staggerPerEngine spreads the first probes of a large fleet, up to staggerMax.
const (
	staggerPerEngine = 100 * time.Microsecond
	staggerMax       = time.Second
)

// Run polls until ctx is done, following the fleet's changes. It returns nil
// after all of its goroutines have ended.
func (p *Poller) Run(ctx context.Context) error {
	news := p.Fleet.Subscribe()
	log := p.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ask := newAsker(p.dial, p.Resolver, p.Connecting)
	defer ask.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	watches := make(map[*Live]*watch)
	for {
		set := p.Fleet.Set()
		current := make(map[*Live]bool, len(set.Engines))
		for _, e := range set.Engines {
			current[e.Live] = true
			if w := watches[e.Live]; w != nil {
				w.engine.Store(e)
				continue
			}
			w := newWatch(p, ask, log, e)
			watches[e.Live] = w
			delay := time.Duration(rand.Int64N(int64(min(staggerMax, staggerPerEngine*time.Duration(len(set.Engines))))))
			w.start(ctx, &wg, delay)
		}
		for live, w := range watches {
			if !current[live] {
				w.stop()
				delete(watches, live)
			}
		}
		for p.Fleet.Set() == set {
			var again <-chan time.Time
			if p.lookAtDrains(set, log) {
				again = time.After(idleFor)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-news:
			case <-again:
			}
		}
	}
}

// lookAtDrains tells when the last attempt on a draining engine has ended. It
// reports whether some engine is to be looked at again.
func (p *Poller) lookAtDrains(set *Set, log *slog.Logger) (more bool) {
	for _, e := range set.Engines {
		if !e.Leaving() {
			continue
		}
		if e.lookIdle(time.Now()) && e.Status().State == Drained {
			log.Info("engine drained", "engine", e.Name)
		}
		more = more || e.Status().State == Draining
	}
	return more
}

// watch is the polling of one engine.
type watch struct {
	*Live
	fleet  *Fleet
	ask    *asker
	log    *slog.Logger
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	moved  func(*Engine)
	engine atomic.Pointer[Engine] // as configured now
	stop   context.CancelFunc

	listNow   chan struct{} // capacity 1: ask for the models at once
	scrapeNow chan struct{} // capacity 1: read the metrics page at once

	mu       sync.Mutex // guards what is below
	evidence evidence
	tried    map[question]int // failures of questions without a definite answer
	listed   listed           // the last list as the engine gave it
	named    string           // the dialect that the log was told of
	told     about            // version and slots that the log was told of
}

func newWatch(p *Poller, ask *asker, log *slog.Logger, e *Engine) *watch {
	resolver := p.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	w := &watch{
		Live: e.Live, fleet: p.Fleet, ask: ask, log: log.With("engine", e.Name), moved: p.OnAddressChange,
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return resolver.LookupNetIP(ctx, "ip", host)
		},
		listNow: make(chan struct{}, 1), scrapeNow: make(chan struct{}, 1),
	}
	w.engine.Store(e)
	return w
}

// start begins the loops; they end with ctx or stop.
func (w *watch) start(ctx context.Context, wg *sync.WaitGroup, delay time.Duration) {
	ctx, w.stop = context.WithCancel(ctx)
	wg.Go(func() {
		if pause(ctx, delay, nil) {
			w.watchHealth(ctx)
		}
	})
	wg.Go(func() { w.watchMetrics(ctx) })
	wg.Go(func() { w.watchModels(ctx) })
	host := w.engine.Load().Base.Hostname()
	if _, err := netip.ParseAddr(host); err != nil {
		wg.Go(func() { w.watchAddress(ctx, host) })
	}
}

// dialectNow is the dialect to read the engine by; nil while it is not told.
func (w *watch) dialectNow() *dialect {
	if d := dialectByName(w.engine.Load().Dialect); d != nil {
		return d
	}
	if d := w.Detected(); d != nil {
		return dialectByName(d.Dialect)
	}
	return nil
}

// pause waits for d, or less if wake fires first. It returns false when ctx is
// done.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

// ring wakes the loop that waits on c; never blocks.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
