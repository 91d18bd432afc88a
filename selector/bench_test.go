package selector

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"penstock/route"
)

// BenchmarkPick is the call that the proxy makes: from class and identity to
// a lease and its release. Sixteen models over all engines, 16,384
// conversations, a hundred requests in flight beside the one measured.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		models := make([]string, 16)
		for i := range models {
			models[i] = fmt.Sprintf("model-%d", i)
		}
		tables := newTestFleet(b, n, models...).tables
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
	classes := make([]Class, len(models))
	now := time.Now()
	for i, m := range models {
		classes[i], _ = s.Resolve(m, Need{}, now)
	}
	unix := now.Unix()
	one := func(i int, d *Decision) bool {
		k := i & 15
		a := Ask{Now: unix}
		if keyed {
			// A client's id is fresh from the request's header: in cache.
			id := [32]byte{0: 'c', 1: 'o', 2: 'n', 3: 'v', 30: byte(i >> 7 & 127), 31: byte(i & 127)}
			a.Keyed, a.Key = true, keyer.Key(models[k], "", DomainID, unsafe.String(&id[0], len(id)))
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
