package selector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/route"
)

// fleetOf is a fleet of n ready engines that serve the models, with a table.
func fleetOf(t testing.TB, n int, models ...string) (*engine.Fleet, *route.Published, *balancer.Loop) {
	t.Helper()
	configs := make([]engine.Config, n)
	for i := range configs {
		configs[i] = engine.Config{Name: fmt.Sprintf("e%05d", i), URL: "http://127.0.0.1:1", Models: models}
	}
	return fleetWith(t, configs)
}

func fleetWith(t testing.TB, configs []engine.Config) (*engine.Fleet, *route.Published, *balancer.Loop) {
	t.Helper()
	fleet := engine.NewFleet()
	if err := fleet.Apply(configs); err != nil {
		t.Fatal(err)
	}
	for _, e := range fleet.Set().Engines {
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
	}
	tables := route.NewPublished("here")
	loop := balancer.NewLoop(fleet, tables, discard, nil)
	loop.Cycle(time.Now())
	return fleet, tables, loop
}

// BenchmarkPick is the call that the proxy makes: from class and identity to
// a lease and its release. Sixteen models over all engines, 16,384
// conversations, a hundred requests in flight beside the one measured.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		models := make([]string, 16)
		for i := range models {
			models[i] = fmt.Sprintf("model-%d", i)
		}
		_, tables, _ := fleetOf(b, n, models...)
		s := New(tables, nil)
		busy(s, models, 100)
		swapped := swaps(tables)
		for _, keyed := range []bool{true, false} {
			name := "unkeyed"
			if keyed {
				name = "keyed"
			}
			b.Run(fmt.Sprintf("engines=%d/%s", n, name), func(b *testing.B) { benchPick(b, s, models, keyed, 1) })
			b.Run(fmt.Sprintf("engines=%d/%s/parallel", n, name), func(b *testing.B) {
				benchPick(b, s, models, keyed, runtime.GOMAXPROCS(0))
			})
			b.Run(fmt.Sprintf("engines=%d/%s/parallel/swap-every-ms", n, name), func(b *testing.B) {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { defer close(done); swapped(ctx) }()
				benchPick(b, s, models, keyed, runtime.GOMAXPROCS(0))
				cancel()
				<-done
			})
		}
	}
}

func benchPick(b *testing.B, s *Selector, models []string, keyed bool, procs int) {
	keyer := NewKeyer("", "")
	ids := make([]string, 1<<14)
	for i := range ids {
		ids[i] = fmt.Sprintf("conversation-%08x-%d", rand.Uint32(), i)
	}
	classes := make([]Class, len(models))
	now := time.Now()
	for i, m := range models {
		classes[i], _ = s.Resolve(m, Need{}, now)
	}
	unix := now.Unix()
	one := func(i int, d *Decision) bool {
		k := i % len(models)
		a := Ask{Now: unix}
		if keyed {
			a.Keyed, a.Key = true, keyer.Key(models[k], "", DomainID, ids[i%len(ids)])
		}
		l := s.Pick(classes[k], &a, d)
		ok := l.Engine != nil
		l.Release()
		return ok
	}
	b.ReportAllocs()
	if procs == 1 {
		var d Decision
		i := 0
		for b.Loop() {
			if i++; !one(i, &d) {
				b.Fatal("no engine")
			}
		}
		return
	}
	var failed, start atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		var d Decision
		for i := int(start.Add(7919)); pb.Next(); i++ {
			if !one(i, &d) {
				failed.Add(1)
			}
		}
	})
	if failed.Load() > 0 {
		b.Fatal("no engine")
	}
}

// busy holds n leases for the rest of the process.
func busy(s *Selector, models []string, n int) {
	for i := range n {
		c, _ := s.Resolve(models[i%len(models)], Need{}, time.Now())
		var d Decision
		s.Pick(c, &Ask{Now: time.Now().Unix()}, &d)
	}
}

// swaps returns a loop that publishes the current table's content under a new
// version every millisecond.
func swaps(tables *route.Published) func(context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			next := *tables.Load()
			next.Version++
			tables.Publish(&next)
		}
	}
}
