package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/fleet/nats"
	"penstock/route"
)

// What one gateway learned of an engine, here that it is full, reaches another
// one that has never asked that engine: as less capacity in the plan. That one
// holds nothing against the engine: it is ready there, without a penalty and
// without a bound of its own.
func TestWhatOneGatewayLearnedReachesTheOthers(t *testing.T) {
	t.Parallel()
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	_, small := startSim(t, enginetest.Config{Name: "small", Models: []string{"m"}, Slots: 2, QueueLimit: 1, TTFT: 20 * time.Millisecond, TBOT: 5 * time.Millisecond})
	_, large := startSim(t, enginetest.Config{Name: "large", Models: []string{"m"}, Slots: 64, TTFT: 20 * time.Millisecond, TBOT: 5 * time.Millisecond})
	text := func(name string) string {
		return fmt.Sprintf("[gateway]\nname = %q\nsource = %q\n[fleet]\nurl = \"nats://%s\"\n", name, "of-"+name, address) + engineTOML("small", small) + engineTOML("large", large)
	}
	asked, other := startGateway(t, text("gw-1"), "small", "large"), startGateway(t, text("gw-2"), "small", "large")
	// capacities are those of the plan that a gateway follows.
	capacities := func(r *running) (of map[string]float64) {
		of = make(map[string]float64)
		if p := r.tables.Load().Plan; p != nil && p.Epoch > 0 {
			for _, e := range p.Engines {
				of[e.Name] = e.Capacity
			}
		}
		return of
	}
	awaitCond(t, "both to follow one plan, with equal engines", func() bool {
		a, b := capacities(asked), capacities(other)
		return a["small"] > 0.8*a["large"] && b["small"] > 0.8*b["large"] && b["small"] > 0
	})
	c := client(t)
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
					asked.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("question ", i, n), false))
				}
			}
		})
	}
	defer clients.Wait()
	defer close(done)
	awaitCond(t, "the first one to learn what the engine holds", func() bool { return asked.fleet.Set().ByName("small").HeldOfOurs() > 0 })
	learned := time.Now()
	awaitCond(t, "the other's plan to say so", func() bool {
		of := capacities(other)
		return of["small"] > 0 && of["small"] < 0.5*of["large"]
	})
	t.Logf("in the other's plan %s after it was learned: %v", time.Since(learned).Round(time.Millisecond), capacities(other))
	e := other.fleet.Set().ByName("small")
	if e.Status().State != engine.Ready || e.Protection().Lasting != 1 || e.HeldOfOurs() != 0 {
		t.Errorf("the other holds it against the engine: %+v, protection %+v, held %d", e.Status(), e.Protection(), e.HeldOfOurs())
	}
	if k := (route.ClassKey{Model: "m"}); other.tables.Load().Classes[k] == nil {
		t.Error("the other has no table")
	}
	if log := other.logs.String(); strings.Contains(log, "breaker") {
		t.Error("the other's log speaks of a breaker")
	}
}
