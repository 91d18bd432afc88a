package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// faultsResult is that of suite O.
type faultsResult struct {
	Events    map[string]int `json:"events"`
	Epochs    int            `json:"epochs"`
	Plans     int            `json:"plans_taken"`
	Faults    []string       `json:"faults"` // two leaders of an epoch, plans that went back
	Failovers []float64      `json:"failover_s"`
	Requests  uint64         `json:"requests"`
	Errors    uint64         `json:"errors"`
	Excused   uint64         `json:"errors_of_dead_gateways"`
	Seconds   float64        `json:"seconds"`
}

func (r *faultsResult) print(w io.Writer) {
	n := 0
	for _, name := range eventNames() {
		fmt.Fprintf(w, "%5d  %s\n", r.Events[name], name)
		n += r.Events[name]
	}
	slices.Sort(r.Failovers)
	fmt.Fprintf(w, "%d events in %.0f s: %d epochs, %d plans taken, %d faults\n", n, r.Seconds, r.Epochs, r.Plans, len(r.Faults))
	if k := len(r.Failovers); k > 0 {
		fmt.Fprintf(w, "%d leaders lost: another plans after %.1f s (median), %.1f s at most\n", k, r.Failovers[k/2], r.Failovers[k-1])
	}
	fmt.Fprintf(w, "%d requests answered, %d errors, %d more of gateways that were dead or stopped\n", r.Requests, r.Errors, r.Excused)
}

// failoverGoal is that of fleet.md 9.
const failoverGoal = 10.0 // seconds

func (r *faultsResult) missed() (all []string) {
	all = append(all, r.Faults...)
	if r.Errors > 0 {
		all = append(all, fmt.Sprintf("%d errors at clients", r.Errors))
	}
	if k := len(r.Failovers); k > 0 && slices.Max(r.Failovers) > failoverGoal {
		all = append(all, fmt.Sprintf("a failover of %.1f s", slices.Max(r.Failovers)))
	}
	return all
}

// event is a kind of fault: it begins, lasts, and ends.
type event struct {
	name   string
	weight int
	least  time.Duration // it lasts from this
	most   time.Duration // to this
	do     func(s *suite, g *gateway) (undo func() error)
}

func events() []event {
	line := func(on func(g *gateway), off func(g *gateway)) func(*suite, *gateway) func() error {
		return func(_ *suite, g *gateway) func() error {
			on(g)
			return func() error { off(g); return nil }
		}
	}
	return []event{
		{"way cut", 20, 100 * time.Millisecond, 2 * time.Second, line(func(g *gateway) { g.cut(true) }, func(g *gateway) { g.cut(false) })},
		{"way swallows everything", 20, 200 * time.Millisecond, 4 * time.Second, line(func(g *gateway) { g.freeze(true) }, func(g *gateway) { g.freeze(false) })},
		{"way is slow", 15, 200 * time.Millisecond, 2 * time.Second, line(func(g *gateway) { g.slow(400 * time.Millisecond) }, func(g *gateway) { g.slow(0) })},
		{"gateway stopped for a while", 12, 200 * time.Millisecond, 8 * time.Second, (*suite).pause},
		{"gateway killed and started", 10, 100 * time.Millisecond, time.Second, (*suite).restart},
		{"all ways cut", 6, 200 * time.Millisecond, 2 * time.Second, (*suite).cutAll},
		{"store started again", 6, 100 * time.Millisecond, time.Second, func(s *suite, _ *gateway) func() error {
			s.w.store.halt(false)
			return s.w.store.start
		}},
		{"store wiped", 5, 100 * time.Millisecond, time.Second, func(s *suite, _ *gateway) func() error {
			s.w.store.halt(true)
			return s.w.store.start
		}},
		{"one server of the store killed", 8, 200 * time.Millisecond, 5 * time.Second, func(s *suite, _ *gateway) func() error {
			srv := s.w.store.servers[s.dice.IntN(len(s.w.store.servers))]
			srv.halt(false)
			return srv.start
		}},
		{leaderLost, 6, 0, 0, nil},
	}
}

const leaderLost = "leader lost until another plans"

func eventNames() (names []string) {
	for _, e := range events() {
		names = append(names, e.name)
	}
	return names
}

// suite is one run.
type suite struct {
	w    *world
	x    *watcher
	dice *rand.Rand
	errs io.Writer
	res  *faultsResult
}

func runFaults(ctx context.Context, o options, errs io.Writer) (result, error) {
	w, err := newWorld(ctx, o, plainLayout())
	if err != nil {
		return nil, err
	}
	defer w.close()
	s := &suite{w: w, x: newWatcher(w, errs), dice: rand.New(rand.NewPCG(o.seed, 8)), errs: errs, res: &faultsResult{Events: make(map[string]int)}}
	began := time.Now()
	err = s.x.during(ctx, func(ctx context.Context) error {
		for n := range o.events {
			if err := s.event(ctx); err != nil {
				return fmt.Errorf("event %d: %w", n+1, err)
			}
			if (n+1)%25 == 0 {
				fmt.Fprintf(errs, "fleet: %d of %d events after %.0f s, %d epochs, %d requests, %d errors\n", n+1, o.events, time.Since(began).Seconds(),
					len(s.x.epochs()), s.x.served.Load(), s.x.failed.Load())
			}
		}
		return s.healed(ctx)
	})
	if err != nil {
		return nil, err
	}
	s.res.Seconds = time.Since(began).Seconds()
	s.res.Epochs, s.res.Plans, s.res.Faults = len(s.x.epochs()), s.x.plans, append([]string{}, s.x.faults...)
	s.res.Requests, s.res.Errors, s.res.Excused = s.x.served.Load(), s.x.failed.Load(), s.x.excused.Load()
	return s.res, nil
}

// during runs do once the fleet is in service, with clients and watchers.
func (x *watcher) during(ctx context.Context, do func(context.Context) error) error {
	for _, g := range x.w.gateways {
		if err := g.awaitReady(ctx); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { x.run(ctx) })
	defer running.Wait()
	defer stop()
	if !x.await(ctx, 30*time.Second, func() bool { return x.leader(nil) != nil }) {
		return errors.New("no gateway leads after 30 s")
	}
	running.Go(func() { x.clients(ctx) })
	return do(ctx)
}

// await polls ok until it holds; false where it does not in time.
func (x *watcher) await(ctx context.Context, within time.Duration, ok func() bool) bool {
	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) || !sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

// event is one fault, from its beginning to its end and a little after.
func (s *suite) event(ctx context.Context) error {
	all := events()
	sum := 0
	for _, e := range all {
		sum += e.weight
	}
	pick := s.dice.IntN(sum)
	for _, e := range all {
		if pick -= e.weight; pick >= 0 {
			continue
		}
		s.res.Events[e.name]++
		g := s.w.gateways[s.dice.IntN(len(s.w.gateways))]
		if e.do == nil {
			return s.loseLeader(ctx)
		}
		undo := e.do(s, g)
		// Short ones are more frequent: the square of an even draw.
		part := s.dice.Float64()
		lasts := e.least + time.Duration(part*part*float64(e.most-e.least))
		sleep(ctx, lasts)
		if err := undo(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		sleep(ctx, time.Duration(s.dice.IntN(600))*time.Millisecond)
		return ctx.Err()
	}
	return nil
}

// pause stops a process as a machine that hangs does.
func (s *suite) pause(g *gateway) func() error {
	g.setDown(true)
	g.signal(syscall.SIGSTOP)
	return func() error {
		g.signal(syscall.SIGCONT)
		time.Sleep(200 * time.Millisecond)
		g.setDown(false)
		return nil
	}
}

func (s *suite) restart(g *gateway) func() error {
	g.setDown(true)
	g.kill()
	return func() error {
		if err := g.start(); err != nil {
			return err
		}
		if err := g.awaitReady(context.Background()); err != nil {
			return err
		}
		g.setDown(false)
		return nil
	}
}

func (s *suite) cutAll(*gateway) func() error {
	for _, g := range s.w.gateways {
		g.cut(true)
	}
	return func() error {
		for _, g := range s.w.gateways {
			g.cut(false)
		}
		return nil
	}
}

// loseLeader waits for a leader whom all can hear, takes its way or its life,
// and measures until another plans.
func (s *suite) loseLeader(ctx context.Context) error {
	var g *gateway
	if !s.x.await(ctx, 30*time.Second, func() bool { g = s.x.leader(nil); return g != nil && s.reached() }) {
		return errors.New("no gateway leads 30 s after the last fault")
	}
	sleep(ctx, 2*time.Second)
	if g = s.x.leader(nil); g == nil {
		return nil
	}
	kill := s.dice.IntN(2) == 0
	begin := time.Now()
	undo := func() error { g.cut(false); return nil }
	if kill {
		undo = s.restart(g)
	} else {
		g.cut(true)
	}
	if !s.x.await(ctx, 30*time.Second, func() bool { return s.x.leader(g) != nil }) {
		return errors.New("no other gateway leads after 30 s")
	}
	s.res.Failovers = append(s.res.Failovers, time.Since(begin).Seconds())
	return undo()
}

// reached reports whether all gateways reach the store.
func (s *suite) reached() bool {
	for _, g := range s.w.gateways {
		var page fleetPage
		if g.get("/fleet", &page) != nil || page.Store != "reached" {
			return false
		}
	}
	return true
}

// healed is the end of the run: with all faults gone there is one leader, and
// all have its plan.
func (s *suite) healed(ctx context.Context) error {
	if !s.x.await(ctx, 30*time.Second, s.agreed) {
		return errors.New("30 s after the last fault the gateways do not have one plan")
	}
	return nil
}

func (s *suite) agreed() bool {
	if s.x.leader(nil) == nil {
		return false
	}
	var first tablePage
	for i, g := range s.w.gateways {
		var page tablePage
		if g.get("/table", &page) != nil || page.Plan == nil {
			return false
		}
		if i == 0 {
			first = page
		} else if page.Plan.Epoch != first.Plan.Epoch || page.Plan.Version != first.Plan.Version {
			return false
		}
	}
	return true
}
