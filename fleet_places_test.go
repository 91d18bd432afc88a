package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
	"penstock/fleet/nats"
)

// Gateways of a fleet fill an engine together up to its max_in_flight, and not
// each of them; who alone needs it has nearly all of it.
func TestGatewaysFillAnEngineOnce(t *testing.T) {
	t.Parallel()
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	const most = 12
	_, url := startSim(t, enginetest.Config{Name: "e", Models: []string{"m"}, Slots: 64, TTFT: 20 * time.Millisecond, TBOT: 5 * time.Millisecond})
	var all []*running
	for i := range 3 {
		all = append(all, startGateway(t, fmt.Sprintf("[gateway]\nname = \"gw-%d\"\nsource = \"s%d\"\n[fleet]\nurl = \"nats://%s\"\n", i, i%2, address)+
			engineTOML("e", url, fmt.Sprintf("max_in_flight = %d", most)), "e"))
	}
	awaitCond(t, "each to know of the others", func() bool {
		for _, r := range all {
			n := 0
			for _, k := range r.member.Gateways() {
				n += k
			}
			if n != len(all) || r.tables.Load().Plan == nil {
				return false
			}
		}
		return true
	})
	inFlight := func() (sum int64) {
		for _, r := range all {
			sum += r.fleet.Set().ByName("e").InFlight()
		}
		return sum
	}
	c := client(t)
	var clients sync.WaitGroup
	done := make(chan struct{})
	defer clients.Wait()
	defer close(done)
	var idle atomic.Bool // all but the first
	for i, r := range all {
		for range 2 * most {
			clients.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					if i > 0 && idle.Load() {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					r.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("question ", n), false))
				}
			})
		}
	}
	// Its demand is not known yet: each has its part by numbers, and what nobody used.
	awaitCond(t, "the engine to be full", func() bool { return inFlight() >= most-2 })
	// For a word's age they may all take what nobody used; a busy machine is
	// late to tell.
	worst, beyond := int64(0), 0
	for range 400 {
		n := inFlight()
		if worst = max(worst, n); n > 2*most {
			beyond++
		}
		time.Sleep(5 * time.Millisecond)
	}
	if beyond > 200 {
		t.Errorf("%d gateways have up to %d in flight on an engine for %d, and over %d for most of the time", len(all), worst, most, 2*most)
	}
	awaitCond(t, "them to have no more than it takes", func() bool {
		for range 200 {
			if inFlight() > most+2 { // each rounds its part
				return false
			}
			time.Sleep(time.Millisecond)
		}
		return true
	})
	idle.Store(true)
	e := all[0].fleet.Set().ByName("e")
	awaitCond(t, "the only one that needs it to have it", func() bool { return e.InFlight() >= most-1 })
	t.Logf("%d at most while all three were full; alone the first has %d of %d", worst, e.InFlight(), most)
}
