package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// rollingResult is what clients saw while every gateway was replaced in turn.
type rollingResult struct {
	Restarts int      `json:"restarts"`
	Requests uint64   `json:"requests"`
	Errors   uint64   `json:"errors"`
	Slowest  float64  `json:"slowest_restart_s"` // from the signal to the new process in service
	Epochs   int      `json:"epochs"`
	Faults   []string `json:"faults"`
	Keys     int      `json:"keys"`   // conversations that asked both gateways of a source and followed their slots
	Same     int      `json:"same"`   // of those, how many have one engine by the slots of both
	Served   int      `json:"served"` // how many were served by one, which was at its bound for none
}

func (r *rollingResult) print(w io.Writer) {
	fmt.Fprintf(w, "%d gateways replaced, one by one, %.1f s each at most: %d requests, %d errors, %d epochs\n", r.Restarts, r.Slowest, r.Requests, r.Errors, r.Epochs)
	fmt.Fprintf(w, "%d of %d conversations have one engine by the slots of both gateways of their source; %d were served by one, the others by another that had room\n", r.Same, r.Keys, r.Served)
}

func (r *rollingResult) missed() (all []string) {
	all = append(all, r.Faults...)
	if r.Errors > 0 {
		all = append(all, fmt.Sprintf("%d errors at clients", r.Errors))
	}
	if r.Same < r.Keys || r.Keys == 0 {
		all = append(all, fmt.Sprintf("%d of %d conversations have one engine", r.Same, r.Keys))
	}
	return all
}

// rollingLayout has two gateways at one source.
func rollingLayout() layout {
	l := plainLayout()
	l.sources = []string{"c0", "c0", "c2"}
	return l
}

// front is the load balancer in front of gateways: it sends to those that say
// they are ready.
type front struct {
	gateways []*gateway
	ready    []atomic.Bool
	turn     atomic.Uint64
}

func (f *front) run(ctx context.Context) {
	var all sync.WaitGroup
	for i, g := range f.gateways {
		all.Go(func() {
			probe := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for ok := true; ok; ok = sleep(ctx, 500*time.Millisecond) {
				resp, err := probe.Get("http://" + g.admin + "/readyz")
				if err == nil {
					resp.Body.Close()
				}
				f.ready[i].Store(err == nil && resp.StatusCode == http.StatusOK)
			}
		})
	}
	all.Wait()
}

func (f *front) pick() *gateway {
	at := f.turn.Add(1)
	for k := range f.gateways {
		if i := (int(at) + k) % len(f.gateways); f.ready[i].Load() {
			return f.gateways[i]
		}
	}
	return f.gateways[int(at)%len(f.gateways)]
}

func runRolling(ctx context.Context, o options, errs io.Writer) (result, error) {
	w, err := newWorld(ctx, o, rollingLayout())
	if err != nil {
		return nil, err
	}
	defer w.close()
	x, r := newWatcher(w, errs), &rollingResult{Faults: []string{}}
	for _, g := range w.gateways {
		if err := g.awaitReady(ctx); err != nil {
			return nil, err
		}
	}
	f := &front{gateways: w.gateways, ready: make([]atomic.Bool, len(w.gateways))}
	life, stop := context.WithCancel(ctx)
	var served, failed atomic.Uint64
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { x.run(life) })
	running.Go(func() { f.run(life) })
	if !x.await(ctx, 30*time.Second, func() bool { return x.leader(nil) != nil && f.ready[0].Load() }) {
		return nil, errors.New("no gateway leads after 30 s")
	}
	running.Go(func() { f.clients(life, &served, &failed, errs) })
	dice := rand.New(rand.NewPCG(o.seed, 3))
	for round := range o.rounds {
		for _, i := range dice.Perm(len(w.gateways)) {
			g, begin := w.gateways[i], time.Now()
			if err := g.replace(ctx); err != nil {
				return nil, err
			}
			r.Restarts++
			r.Slowest = max(r.Slowest, time.Since(begin).Seconds())
			fmt.Fprintf(errs, "fleet: round %d, %s replaced after %.1f s, %d requests, %d errors\n", round+1, g.name, time.Since(begin).Seconds(), served.Load(), failed.Load())
			if !x.await(ctx, 30*time.Second, w.oneplan) {
				return nil, errors.New("30 s after a restart the gateways do not have one plan")
			}
			if err := w.askBoth(r, fmt.Sprint(round, "-", i)); err != nil {
				return nil, err
			}
		}
	}
	stop()
	running.Wait()
	r.Requests, r.Errors, r.Epochs, r.Faults = served.Load(), failed.Load(), len(x.epochs()), append(r.Faults, x.faults...)
	return r, ctx.Err()
}

// clients ask 30 times a second, every other one for a stream of a second.
func (f *front) clients(ctx context.Context, served, failed *atomic.Uint64, errs io.Writer) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for n := 0; sleep(ctx, 33*time.Millisecond); n++ {
		asked.Go(func() {
			g := f.pick()
			body := fmt.Sprintf(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"question %d"}]}`, n)
			if n%2 == 1 {
				body = fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":150,"messages":[{"role":"user","content":"question %d"}]}`, n)
			}
			if _, err := g.askAs(body, ""); err == nil {
				served.Add(1)
			} else if failed.Add(1) <= 10 {
				fmt.Fprintf(errs, "fleet: a client of %s: %v\n", g.name, err)
			}
		})
	}
}

// replace asks a gateway to end, as a rollout does, and starts another process.
func (g *gateway) replace(ctx context.Context) error {
	g.signal(syscall.SIGTERM)
	g.mu.Lock()
	cmd := g.cmd
	g.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	case <-time.After(time.Minute):
		return errors.New(g.name + " does not end")
	}
	if err := g.start(); err != nil {
		return err
	}
	return g.awaitReady(ctx)
}

// oneplan reports whether all gateways follow one plan, and those of one source
// have equal slots to show for it.
func (w *world) oneplan() bool {
	pages := make([]tablePage, len(w.gateways))
	for i, g := range w.gateways {
		if g.get("/table", &pages[i]) != nil || pages[i].Plan == nil || pages[i].Plan.Epoch == 0 ||
			pages[i].Plan.Epoch != pages[0].Plan.Epoch || pages[i].Plan.Version != pages[0].Plan.Version {
			return false
		}
	}
	return slices.Equal(pages[0].Weights, pages[1].Weights)
}

// planOfBoth is the plan of the first source's gateways, where it is one.
func (w *world) planOfBoth() (p plan, one bool) {
	var pages [2]tablePage
	for i := range pages {
		if w.gateways[i].get("/table", &pages[i]) != nil || pages[i].Plan == nil {
			return plan{}, false
		}
	}
	p = plan{pages[0].Plan.Epoch, pages[0].Plan.Version}
	return p, p == plan{pages[1].Plan.Epoch, pages[1].Plan.Version} && slices.Equal(pages[0].Weights, pages[1].Weights)
}

// askBoth asks both gateways of the first source in new conversations: the one
// that comes second is told by nobody where the first one went.
func (w *world) askBoth(r *rollingResult, round string) error {
	for k := range 40 {
		before, one := w.planOfBoth()
		if !one {
			continue // one of them is about to have the other's
		}
		key := fmt.Sprint("conversation-", round, "-", k)
		var by, home, why [2]string
		for i := range by {
			g := w.gateways[(i+k)%2]
			var err error
			if by[i], err = g.askAs(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`, key); err != nil {
				return err
			}
			var record struct {
				Why        string
				Candidates []struct{ Engine string } // that the pick looked at: its slot's first
			}
			if err := g.get("/requests/"+key, &record); err != nil {
				return err
			}
			if len(record.Candidates) == 0 {
				return errors.New("a decision record without a candidate")
			}
			home[i] = record.Candidates[0].Engine
			why[i] = record.Why
		}
		if after, one := w.planOfBoth(); !one || after != before {
			continue // the weights have moved meanwhile
		}
		if slices.Contains(why[:], "placed") {
			continue // its slot's engine was busier than the alternate: the record begins with that one
		}
		r.Keys++
		if home[0] == home[1] {
			r.Same++
		} else {
			r.Faults = append(r.Faults, fmt.Sprintf("%s: %v by %v", key, home, why))
		}
		if by[0] == by[1] {
			r.Served++
		}
	}
	return nil
}
