package main

import (
	"context"
	"io"
	"sync"
	"testing"

	"penstock/balancer"
	"penstock/route"
)

// Gateways of one process plan together: one leads, all follow its plan, each
// with a table for its own source; another leads when it goes.
func TestGatewaysOfOneProcessPlanTogether(t *testing.T) {
	t.Parallel()
	f, err := newDemoFleet(demoWorld, contestant{name: "optimal", policy: balancer.Optimal}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, e := range f.engines {
		running.Go(func() { _ = e.sim.Serve(ctx, e.ln) })
	}
	for _, w := range f.ways {
		running.Go(func() { _ = w.Run(ctx) })
	}
	stop := make([]context.CancelFunc, len(f.gateways))
	gone := make([]chan struct{}, len(f.gateways))
	for i, g := range f.gateways {
		own, cancel := context.WithCancel(ctx)
		stop[i], gone[i] = cancel, make(chan struct{})
		running.Go(func() {
			defer close(gone[i])
			if err := g.run(own, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if err := f.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// leader is who leads by all accounts, -1 while those that are there differ.
	leader := func(there []*gateway) (at int, epoch uint64) {
		at = -1
		for i, g := range f.gateways {
			if e, leads := g.member.Leads(); leads {
				if at >= 0 {
					t.Fatalf("gateways %d and %d lead", at, i)
				}
				at, epoch = i, e
			}
		}
		for _, g := range there {
			if p := g.member.Plan(); p == nil || p.Epoch != epoch || g.tables.Load().Policy != "optimal" {
				return -1, 0
			}
		}
		return at, epoch
	}
	at, first := -1, uint64(0)
	awaitCond(t, "one to lead and all to follow", func() bool { at, first = leader(f.gateways); return at >= 0 })
	for i, g := range f.gateways {
		tables := g.tables.Load()
		if tables.Source != f.world.clusters[i].name || tables.Classes[route.ClassKey{Model: demoModel}] == nil {
			t.Errorf("the table of %s is for %s", f.world.clusters[i].name, tables.Source)
		}
	}
	stop[at]()
	<-gone[at]
	left := append(append([]*gateway(nil), f.gateways[:at]...), f.gateways[at+1:]...)
	var next int
	var second uint64
	awaitCond(t, "another to lead", func() bool { next, second = leader(left); return next >= 0 })
	if next == at || second <= first {
		t.Errorf("gateway %d leads in epoch %d after %d in epoch %d", next, second, at, first)
	}
	if n := len(left[0].member.Status().Gateways); n != len(left) {
		t.Errorf("%d gateways are there, want %d", n, len(left))
	}
}
