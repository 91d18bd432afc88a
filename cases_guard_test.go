package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// askedOf are the posts that a test's clients made, without the gateway's own
// trial requests to an engine that is out.
func askedOf(e *enginetest.Script) (all []*enginetest.Exchange) {
	for _, x := range posts(e) {
		if strings.Contains(string(x.Body), "asked ") {
			all = append(all, x)
		}
	}
	return all
}

// steadily asks so many times a second for that long, each request in a
// goroutine of its own, and returns the answers in order.
func steadily(g *running, perSecond int, length time.Duration, stream bool) []answered {
	n := perSecond * int(length/time.Millisecond) / 1000
	all := make([]answered, n)
	cl := over1(g.t)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			all[i] = g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("asked ", i), stream), off...)
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	running.Wait()
	return all
}

// onTheWay is more than what a request needs from its pick to its engine.
const onTheWay = 300 * time.Millisecond

func failed(all []answered) (n int) {
	for i := range all {
		if !all[i].looksComplete() {
			n++
		}
	}
	return n
}

// The limit for the first content holds for each attempt: what the one before
// has left, a limit on the reading of its error, is not the next one's.
func TestLimitForFirstContentAfterARepeat(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	play := func(x *enginetest.Exchange) {
		if first.CompareAndSwap(false, true) {
			x.Respond(500, "application/json", `{"error":{"message":"no"}}`)
			return
		}
		if x.Pause(700 * time.Millisecond) {
			good(x)
		}
	}
	g := startCase(t, "stall = \"200ms\"", startPlayed(t, play), startPlayed(t, play))
	if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)); !a.looksComplete() || a.header.Get("X-Penstock-Attempts") != "2" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// One of two engines accepts requests and never answers: it is out after what
// its peers need and a little more, and back by a trial of the gateway's own.
func TestSilentEngineIsOutAndBack(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	e2 := startPlayed(t, func(x *enginetest.Exchange) {
		if well.Load() {
			good(x)
			return
		}
		x.Hang()
	})
	g := startCase(t, "first_content = \"4s\"", startPlayed(t, good), e2)
	var hung atomic.Int64
	var met int
	done := make(chan struct{})
	go func() {
		defer close(done)
		hung.Store(int64(failed(steadily(g, 20, 4*time.Second, false))))
	}()
	g.await("the silent engine to be out", func() bool { return g.engineState("e2") == "open" })
	if v := g.metric(`penstock_breaker_opened_total{engine="e2",why="silent"}`); v != 1 {
		t.Errorf("opened for silence %g times", v)
	}
	time.Sleep(onTheWay)
	met = len(askedOf(e2))
	<-done
	// Those that it had by then, and none since.
	if n := len(askedOf(e2)); n > met || int64(n) != hung.Load() {
		t.Errorf("%d requests had come to the silent engine when it was out, %d now; %d hung", met, n, hung.Load())
	}
	well.Store(true)
	g.await("the engine to be back", func() bool { return g.engineState("e2") == "ready" })
	// It begins with a tenth of its weight: of 20 requests/s that is one or none.
	g.await("the engine to have its part", func() bool {
		if n := failed(steadily(g, 20, time.Second, false)); n > 0 {
			t.Fatalf("%d failed once it was back", n)
		}
		return len(askedOf(e2)) > met
	})
}

// An engine that says it runs requests while its counters stand still is out
// within ten seconds, whatever its pages answer.
func TestFrozenEngineIsOut(t *testing.T) {
	t.Parallel()
	page := `vllm:num_requests_running{engine="0",model_name="m"} %d
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0
vllm:generation_tokens_total{engine="0",model_name="m"} 7
`
	e1 := startPlayed(t, func(x *enginetest.Exchange) { x.Hang() })
	e1.SetMetrics(fmt.Sprintf(page, 0))
	// The only engine of its model: no peer tells that it is silent.
	g := startCase(t, "first_content = \"30s\"", e1)
	cl := client(t)
	for i := range 3 {
		go g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("asked ", i), true), off...)
	}
	g.await("the requests to be there", func() bool { return len(askedOf(e1)) == 3 })
	began := time.Now()
	e1.SetMetrics(fmt.Sprintf(page, 3))
	g.await("the breaker to open", func() bool {
		return g.metric(`penstock_breaker_opened_total{engine="e1",why="frozen"}`) == 1
	})
	t.Logf("frozen for %v", time.Since(began))
}

// An engine much slower than its peers gets less, and nothing happens where
// all are slow.
func TestSlowEngineGetsLess(t *testing.T) {
	if testing.Short() {
		t.Skip("three windows of five seconds")
	}
	t.Parallel()
	delayed := func(d time.Duration) enginetest.Play {
		return func(x *enginetest.Exchange) {
			if x.Pause(d) {
				good(x)
			}
		}
	}
	// So slow that a busy machine, which makes all of them slower, leaves it more
	// than three times as slow as they; less than what silence is told by.
	for name, times := range map[string]struct{ fast, slow time.Duration }{"one": {time.Millisecond, 1500 * time.Millisecond}, "all": {500 * time.Millisecond, 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fast, e3 := times.fast, startPlayed(t, delayed(times.slow))
			g := startCase(t, "", startPlayed(t, delayed(fast)), startPlayed(t, delayed(fast)), e3)
			all := steadily(g, 30, 22*time.Second, true)
			if n := failed(all); n > 0 {
				i := slices.IndexFunc(all, func(a answered) bool { return !a.looksComplete() })
				t.Errorf("%d failed, the first: %s", n, all[i].notWhole())
			}
			least := min(g.metric(`penstock_penalty{engine="e1"}`), g.metric(`penstock_penalty{engine="e2"}`))
			switch slow, its := g.metric(`penstock_penalty{engine="e3"}`), len(askedOf(e3)); {
			case least < 1:
				t.Errorf("a penalty of %g for those that are not slower than others", least)
			case name == "one" && slow > 0.8 && its > len(all)/5: // a third is its part; one that costs so much gets too little to be judged by
				t.Errorf("penalty factor %g, and it had %d of %d requests", slow, its, len(all))
			case name == "all" && slow < 1:
				t.Errorf("penalty factor %g", slow)
			}
			if g.engineState("e3") != "ready" {
				t.Errorf("e3 is %s", g.engineState("e3"))
			}
		})
	}
}

// Both engines fail at once: the cause is a common one. Nobody is taken out for
// it, nothing is repeated, and the first request after it is served.
func TestPanicWhenMostOfAModelFails(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	play := func(x *enginetest.Exchange) {
		if well.Load() {
			good(x)
			return
		}
		x.Respond(500, "application/json", `{"error":{"message":"no"}}`)
	}
	e1, e2 := startPlayed(t, play), startPlayed(t, play)
	g := startCase(t, "", e1, e2)
	cl := over1(t)
	ask := func(i int) answered {
		return g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("asked ", i), false), off...)
	}
	for i := 0; g.metric("penstock_panic_mode") == 0; i++ {
		if i > 200 {
			t.Fatal("no panic")
		}
		ask(i)
	}
	before := len(askedOf(e1)) + len(askedOf(e2))
	for i := range 20 {
		if a := ask(i); a.status != 500 || a.header.Get("X-Penstock-Attempts") != "1" {
			t.Errorf("in a panic: %d %v %s", a.status, a.header, a.body)
		}
	}
	if n := len(askedOf(e1)) + len(askedOf(e2)) - before; n != 20 {
		t.Errorf("%d deliveries of 20 requests in a panic", n)
	}
	if g.engineState("e1") != "ready" || g.engineState("e2") != "ready" {
		t.Errorf("taken out in a panic: %s, %s", g.engineState("e1"), g.engineState("e2"))
	}
	well.Store(true)
	for i := range 20 {
		if a := ask(i); !a.looksComplete() {
			t.Errorf("after it: %d %s", a.status, a.body)
		}
	}
	g.await("the panic to be over", func() bool { ask(0); return g.metric("penstock_panic_mode") == 0 })
}

// A request that may only go to an engine that is full waits for that one; who
// may go elsewhere does, although they came later.
func TestWhoHasTriedAnEngineHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "picky") {
			x.Respond(500, "application/json", `{"error":{"message":"no"}}`)
			return
		}
		good(x)
	})
	release := make(chan struct{})
	e2 := startPlayed(t, func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "holds") {
			<-release
		}
		good(x)
	})
	g := startGateway(t, engineTOML("e1", e1.URL(), `dialect = "vllm"`, "max_in_flight = 20", `labels = { pin = "1" }`)+
		engineTOML("e2", e2.URL(), `dialect = "vllm"`, "max_in_flight = 1", `labels = { pin = "2" }`), "e1", "e2")
	cl := over1(t)
	var all together
	all.send(func() string {
		return g.post(cl, "/v1/chat/completions", chatBody("m", "holds", false), "X-Penstock-Require", "pin=2").notWhole()
	})
	g.await("e2 to be full", func() bool { return len(posts(e2)) == 1 })
	var served atomic.Bool
	all.send(func() string {
		a := g.post(cl, "/v1/chat/completions", chatBody("m", "picky", false), off...)
		served.Store(true)
		if a.header.Get("X-Penstock-Engine") != "e2" || a.header.Get("X-Penstock-Attempts") != "2" {
			return fmt.Sprintf("%d %v %s", a.status, a.header, a.body)
		}
		return a.notWhole()
	})
	g.await("one to wait", func() bool { return g.metric("penstock_queue_waiting") == 1 })
	for i := range 20 {
		g.await("e1 to take requests", func() bool { return g.engineState("e1") == "ready" && g.weight("e1") > 0 })
		if a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("later ", i), false), off...); !a.looksComplete() || a.header.Get("X-Penstock-Engine") != "e1" {
			t.Errorf("held up: %d %v %s, e1 is %s, left %v of it\n%s", a.status, a.header, a.body, g.engineState("e1"), g.fleet.Set().ByName("e1").Allowance().Factor(), g.logs)
		}
	}
	if served.Load() {
		t.Error("nobody was waiting")
	}
	close(release)
	all.wait(t)
	idle(g, "e1", "e2")
}

// C08: engines that all fail are not asked more often than the budget allows,
// and requests fail at once where it is spent; one of three costs nobody an
// answer.
func TestC08_RetriesHaveABudget(t *testing.T) {
	t.Parallel()
	const rate, length = 50, 5 * time.Second
	slowly := func(play enginetest.Play) enginetest.Play {
		return func(x *enginetest.Exchange) {
			if x.Pause(50 * time.Millisecond) {
				play(x)
			}
		}
	}
	no := slowly(func(x *enginetest.Exchange) { x.Respond(500, "application/json", `{"error":{"message":"no"}}`) })
	for name, others := range map[string]enginetest.Play{"all fail": no, "one fails": slowly(good)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engines := []*enginetest.Script{startPlayed(t, no), startPlayed(t, others), startPlayed(t, others)}
			g := startCase(t, "", engines...)
			all := steadily(g, rate, length, false)
			n, deliveries := len(all), 0
			for _, e := range engines {
				deliveries += len(askedOf(e))
			}
			// A tenth of the requests, ten in any ten seconds.
			if most := n + max(10, n/10); deliveries > most || deliveries < n {
				t.Errorf("%d deliveries of %d requests, at most %d", deliveries, n, most)
			}
			denied := g.metric(`penstock_retries_denied_total{reason="engine_status"}`)
			if name == "one fails" {
				if f := failed(all); f > 2 {
					t.Errorf("%d of %d failed, with two engines that work", f, n)
				}
				return
			}
			if denied == 0 {
				t.Error("no metric shows that the budget was spent")
			}
			for _, a := range all {
				if a.status != 500 || a.errorCode() != "engine_error" {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		})
	}
}

// C14: an engine that is out costs clients nothing: the gateway tries it with
// requests of its own, one at a time, and what comes back starts slowly.
func TestC14_TrialsAreFewAndTheGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("a cool-down takes five seconds, the next ten")
	}
	t.Parallel()
	var well atomic.Bool
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if well.Load() {
			good(x)
			return
		}
		x.Reset()
	})
	g := startCase(t, "", e1, startPlayed(t, good))
	rounds := 0 // of the same bodies
	g.await("e1 to be out", func() bool {
		steadily(g, 50, 200*time.Millisecond, false)
		rounds++
		return g.engineState("e1") != "ready"
	})
	time.Sleep(onTheWay)
	met := len(askedOf(e1))
	twice := map[string]int{}
	for _, x := range askedOf(e1) {
		if twice[string(x.Body)]++; twice[string(x.Body)] > 2*rounds { // a connection that was idle is repeated once (C09)
			t.Errorf("%s came %d times", x.Body, twice[string(x.Body)])
		}
	}
	// Through the end of a cool-down.
	if n := failed(steadily(g, 50, 7*time.Second, false)); n > 0 {
		t.Errorf("%d clients saw that an engine was out", n)
	}
	if n := len(askedOf(e1)); n != met {
		t.Errorf("%d requests of clients went to an engine that was out", n-met)
	}
	probes := len(posts(e1)) - len(askedOf(e1))
	if probes < 1 || probes > 3 {
		t.Errorf("%d trials in one cool-down", probes)
	}
	well.Store(true)
	g.await("e1 to be back", func() bool { return g.engineState("e1") == "ready" })
	// With less than half of its weight it is to have less than a third.
	var all []answered
	back := g.fleet.Set().ByName("e1")
	for back.Allowance().Factor() < 0.5 {
		all = append(all, steadily(g, 50, 200*time.Millisecond, false)...)
	}
	if n := failed(all); n > 0 || len(all) == 0 {
		t.Errorf("%d of %d failed when it was back", n, len(all))
	}
	if n := len(askedOf(e1)) - met; n > len(all)/3+10 {
		t.Errorf("%d of the first %d requests went to the engine that was back", n, len(all))
	}
	g.await("e1 to have a third of the requests again", func() bool {
		before := len(askedOf(e1))
		n := len(steadily(g, 50, time.Second, false))
		return 3*(len(askedOf(e1))-before) >= n
	})
}

// C65: an engine that fails fast looks idle and is not: it gets few requests,
// none of them costs a client the answer for long. There is no way to run
// without a breaker; its penalty comes before that opens.
func TestC65_FailingFastAttractsNothing(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]enginetest.Play{
		"500":   func(x *enginetest.Exchange) { x.Respond(500, "application/json", `{"error":{"message":"no"}}`) },
		"empty": func(x *enginetest.Exchange) { x.Respond(200, "application/json", "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e2 := startPlayed(t, func(x *enginetest.Exchange) {
				if x.Pause(5 * time.Millisecond) {
					fails(x)
				}
			})
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				if x.Pause(500 * time.Millisecond) {
					good(x)
				}
			})
			g := startGateway(t, withPolicy("least-request", engineTOML("e1", e1.URL(), `dialect = "vllm"`)+engineTOML("e2", e2.URL(), `dialect = "vllm"`)), "e1", "e2")
			all := steadily(g, 20, 6*time.Second, false)
			half := len(all) / 2
			if n := failed(all[half:]); n > 0 {
				t.Errorf("%d of the last %d failed", n, half)
			}
			if n := len(askedOf(e2)); n > len(all)/6 {
				t.Errorf("%d of %d requests went to the engine that fails", n, len(all))
			}
		})
	}
}
