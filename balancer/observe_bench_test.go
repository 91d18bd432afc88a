package balancer

import (
	"fmt"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// BenchmarkObserve is one look at a fleet with answers on every engine and
// demand in every class, per cycle.
func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			configs := make([]engine.Config, n)
			for i := range configs {
				configs[i] = engine.Config{Name: fmt.Sprintf("e%d", i), URL: "http://127.0.0.1:1", Models: []string{fmt.Sprintf("m%d", i%16)}}
			}
			f := engine.NewFleet()
			if err := f.Apply(configs); err != nil {
				b.Fatal(err)
			}
			now := time.Unix(10_000, 0)
			table, _ := Build(f.Set(), route.NewPublished("here").Load(), nil, nil, nil, now)
			o := &Observer{Gateway: "gw"}
			page := engine.Sample{Has: everything, Running: 3}
			for b.Loop() {
				b.StopTimer()
				now = now.Add(time.Second)
				page.At = now
				page.Steps++
				for _, e := range f.Set().Engines {
					s := page
					e.SetSample(&s)
					for range 4 {
						e.Answered(engine.Answer{At: now, Total: 2 * time.Second, TTFT: 100 * time.Millisecond, TBOT: 20 * time.Millisecond, Prompt: 200, Output: 90,
							Counted: true, InFlightFrom: 2, InFlightTo: 2})
					}
				}
				for _, c := range table.Classes {
					c.Traffic.Offer(1, 200, 0)
					c.Traffic.Answer(1, 200, 0, 90)
				}
				b.StartTimer()
				o.Demand(f.Set(), table, nil, now)
			}
		})
	}
}
