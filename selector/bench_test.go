package selector

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"penstock/route"
)

// BenchmarkPick is the call that the proxy makes: from class and key to a
// lease and its release. Sixteen models over all engines, 16,384
// conversations, a hundred requests in flight beside the one measured.
// keyed+hash also hashes the identity first, which the proxy does once per
// request and not per pick. new is a conversation that nobody knows, and drawn a
// request without a key, where candidates are compared by what they cost.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		models := make([]string, benchModels)
		for i := range models {
			models[i] = fmt.Sprintf("model-%d", i)
		}
		f := newTestFleet(b, n, models...)
		tables := f.tables
		s := New(tables, nil)
		busy(s, models, 100)
		for _, kind := range []string{"keyed", "unkeyed", "keyed+hash"} {
			name := fmt.Sprintf("engines=%d/%s", n, kind)
			b.Run(name, func(b *testing.B) { benchPick(b, s, models, kind, false) })
			b.Run(name+"/parallel", func(b *testing.B) { benchPick(b, s, models, kind, true) })
			b.Run(name+"/swap-every-ms", func(b *testing.B) {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { defer close(done); swaps(ctx, tables) }()
				benchPick(b, s, models, kind, true)
				cancel()
				<-done
			})
		}
		f.cost = usualCost
		f.publish()
		for _, kind := range []string{"new", "drawn"} {
			b.Run(fmt.Sprintf("engines=%d/%s", n, kind), func(b *testing.B) { benchPick(b, s, models, kind, false) })
		}
	}
}

const (
	benchModels        = 16
	benchConversations = 1 << 14
)

func benchPick(b *testing.B, s *Selector, models []string, kind string, parallel bool) {
	keyer := NewKeyer("", "")
	now := time.Now()
	unix := now.Unix()
	var classes [benchModels]Class
	for i, m := range models {
		classes[i], _ = s.Resolve(m, Need{}, now)
	}
	one := func(i int, d *Decision) bool {
		k := i % benchModels
		a := Ask{Now: unix, Keyed: kind != "unkeyed" && kind != "drawn", Prompt: 1000}
		switch kind {
		case "keyed":
			a.Key = spread(uint64(i%benchConversations), 0)
		case "new":
			a.Key = spread(uint64(i), 7)
		case "keyed+hash":
			// A client's id is fresh from the request's header: in cache.
			id := [32]byte{0: 'c', 1: 'o', 2: 'n', 3: 'v', 30: byte(i >> 7 & 127), 31: byte(i & 127)}
			a.Key = keyer.Key(models[k], "", DomainID, unsafe.String(&id[0], len(id)))
		}
		l := s.Pick(classes[k], &a, d)
		ok := l.Engine != nil
		l.Release()
		return ok
	}
	b.ReportAllocs()
	if !parallel {
		var d Decision
		for i := 0; b.Loop(); i++ {
			if !one(i, &d) {
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

// swaps publishes the current table's content under a new version every
// millisecond.
func swaps(ctx context.Context, tables *route.Published) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		next := *tables.Load()
		next.Version++
		tables.Publish(&next)
	}
}
