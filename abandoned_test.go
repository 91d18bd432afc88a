package main

import (
	"fmt"
	"net/http"
	"testing"

	"penstock/engine"
	"penstock/engine/enginetest"
)

// worksOn poses as a llama.cpp with two slots, of which busy are taken and
// waiting requests stand behind them.
func worksOn(e *enginetest.Script, busy, waiting int) {
	e.SetPage("/props", enginetest.Page{ContentType: "application/json", Body: `{"total_slots":2}`})
	e.SetMetrics(fmt.Sprintf("llamacpp:requests_processing %d\nllamacpp:requests_deferred %d\n", busy, waiting))
}

// known waits until the gateway knows what kind of engine it is and has read its gauges.
func known(g *running, name string) *engine.Engine {
	g.t.Helper()
	e := g.fleet.Set().ByName(name)
	g.await("its kind and gauges", func() bool { return e.Detected() != nil && e.Sample() != nil })
	return e
}

// leaveOne sends a request and closes the connection once the engine has it.
func leaveOne(t *testing.T, g *running, e *enginetest.Script, stream bool) {
	t.Helper()
	before := len(posts(e))
	w := dialWire(t, g)
	w.send(rawPost("/v1/chat/completions", chatBody("m", "hi", stream)))
	awaitCond(t, "the engine to have the request", func() bool { return len(posts(e)) == before+1 })
	_ = w.conn.Close()
}

// llama.cpp does not notice that the client of an answer in one piece has
// left. Its place stays taken until its own gauges fall, so that nobody else
// waits behind work that is for nobody; a stream's place is free at once.
func TestPlacesOfAnswersThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, silent)
	worksOn(e1, 0, 0)
	g := startGateway(t, engineTOML("e1", e1.URL(), `dialect = "llamacpp"`), "e1")
	inFlight := func() float64 { return g.metric(`penstock_inflight{engine="e1"}`) }
	live := known(g, "e1")
	g.await("its slots", func() bool { return live.Detected().Slots == 2 })

	leaveOne(t, g, e1, true)
	idle(g, "e1")

	worksOn(e1, 2, 4)
	for n := range 6 { // its cap: two slots and four more
		leaveOne(t, g, e1, false)
		g.await("the request to be given up", func() bool { return live.Abandoned() == int64(n+1) })
		if got := inFlight(); got != float64(n+1) {
			t.Errorf("%v in flight after %d were given up", got, n+1)
		}
	}
	if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false)); a.status != 429 || a.errorCode() != "overloaded" {
		t.Errorf("a full engine takes one more: %d %s", a.status, a.body)
	}
	e1.SetPlay(onPosts(good))
	worksOn(e1, 2, 1) // three are done
	g.await("three places to be free", func() bool { return inFlight() == 3 })
	if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false)); !a.looksComplete() {
		t.Errorf("%d %s", a.status, a.body)
	}
	worksOn(e1, 0, 0)
	idle(g, "e1")
	wantRequests(g, outcomes{"gone": 7, "not_processed": 1, "ok": 1})
}

// Where an engine notices, and where it goes down, no place is kept.
func TestNoPlaceIsKeptForNothing(t *testing.T) {
	t.Parallel()
	t.Run("vllm notices", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, silent)
		g := startCase(t, "", e1)
		known(g, "e1")
		leaveOne(t, g, e1, false)
		idle(g, "e1")
	})
	t.Run("llamacpp without gauges", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, silent)
		worksOn(e1, 1, 0)
		e1.SetPage("/metrics", enginetest.Page{Status: http.StatusNotFound})
		g := startGateway(t, engineTOML("e1", e1.URL(), `dialect = "llamacpp"`), "e1")
		leaveOne(t, g, e1, false)
		idle(g, "e1")
	})
	t.Run("llamacpp goes down", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, silent)
		worksOn(e1, 1, 0)
		g := startGateway(t, engineTOML("e1", e1.URL(), `dialect = "llamacpp"`), "e1")
		live := known(g, "e1")
		leaveOne(t, g, e1, false)
		g.await("the request to be given up", func() bool { return live.Abandoned() == 1 })
		e1.Close()
		live.Suspect()
		idle(g, "e1")
	})
	t.Run("an engine that is removed", func(t *testing.T) {
		t.Parallel()
		e1, e2 := startPlayed(t, silent), startPlayed(t, good)
		worksOn(e1, 1, 0)
		g := startGateway(t, engineTOML("e1", e1.URL(), `dialect = "llamacpp"`)+engineTOML("e2", e2.URL(), `capacity = 0`), "e1")
		live := known(g, "e1")
		leaveOne(t, g, e1, false)
		g.await("the request to be given up", func() bool { return live.Abandoned() == 1 })
		g.write(anyPorts + engineTOML("e2", e2.URL()))
		if a := g.ask("POST", "/-/reload?force=1"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		g.await("its places to be free", func() bool { return live.InFlight() == 0 && live.Abandoned() == 0 })
	})
}
