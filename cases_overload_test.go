package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
	"penstock/route"
)

// slotsOf is an engine with that many slots that answers status when they are
// taken; it counts what it served.
func slotsOf(slots int64, service time.Duration, status int, served *atomic.Int64) enginetest.Play {
	var held atomic.Int64
	return func(x *enginetest.Exchange) {
		defer held.Add(-1)
		if held.Add(1) > slots {
			x.Respond(status, "application/json", `{"error":{"message":"full"}}`)
			return
		}
		if x.Pause(service) {
			served.Add(1)
			good(x)
		}
	}
}

// Twice as many requests as two engines can take that say when they are full:
// they are kept full, nearly every request reaches one of them once or none,
// and when it is over the next request is served at once. The retries of one
// request do not multiply: attempts are what the engines counted.
func TestOverloadOfEnginesThatSayFull(t *testing.T) {
	t.Parallel()
	for _, status := range []int{503, 429} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			const slots, service, length = 8, 200 * time.Millisecond, 4 * time.Second
			var served atomic.Int64
			e1, e2 := startPlayed(t, slotsOf(slots, service, status, &served)), startPlayed(t, slotsOf(slots, service, status, &served))
			g := startCase(t, "", e1, e2)
			cl := over1(t)
			var all together
			n := 0
			for start := time.Now(); time.Since(start) < length; n++ {
				time.Sleep(time.Until(start.Add(time.Duration(n) * service / (2 * 2 * slots))))
				body := chatBody("m", "the same", false)
				all.send(func() string {
					a := g.post(cl, "/v1/chat/completions", body)
					if a.looksComplete() || (a.status == 429 || a.status == 503) && a.errorCode() == "overloaded" && a.header.Get("Retry-After") != "" {
						return ""
					}
					return fmt.Sprintf("%d %v %s", a.status, a.header, a.body)
				})
			}
			inTime := served.Load()
			t.Logf("%d requests, %d served in time, %d deliveries", n, inTime, len(posts(e1, e2)))
			all.wait(t)
			if a := g.post(cl, "/v1/chat/completions", chatBody("m", "after", false)); !a.looksComplete() {
				t.Errorf("after the load: %d %s", a.status, a.body)
			}
			if d := float64(len(posts(e1, e2))); d > 1.1*float64(n) || d > 1.2*float64(served.Load())+30 {
				t.Errorf("%g deliveries of %d requests, %d served", d, n, served.Load())
			}
		})
	}
}

// An engine that is left alone because it said that it is full has not become
// smaller: those who come meanwhile wait for it.
func TestQueueOfAnEngineThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if asked.Add(1) == 1 {
			x.Write("HTTP/1.1 429 Full\r\nContent-Type: application/json\r\nRetry-After: 2\r\nContent-Length: 2\r\n\r\n{}")
			return
		}
		good(x)
	})
	g := startCase(t, "", e1)
	cl := over1(t)
	if a := g.post(cl, "/v1/chat/completions", chatBody("m", "first", false)); a.status != 429 || a.header.Get("X-Penstock-Reason") != "engine_full" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	time.Sleep(300 * time.Millisecond) // until the gateway has looked at what it takes, which is nothing now
	const n = 8
	var all together
	for i := range n {
		all.send(func() string {
			return g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("later ", i), i%2 == 0)).notWhole()
		})
	}
	all.wait(t)
	wantPosts(t, e1, n+1)
	wantRequests(g, outcomes{"not_processed": 1, "ok": n})
}

// A request that an engine refused as full goes back to the head of those who
// wait, although as many wait as may, and is served before them.
func TestRefusedAsFullIsBackAtTheHead(t *testing.T) {
	t.Parallel()
	full, room := make(chan struct{}), make(chan struct{})
	var secondAsked atomic.Int64
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		switch {
		case strings.Contains(string(x.Body), "first"):
			<-room
		case strings.Contains(string(x.Body), "second") && secondAsked.Add(1) == 1:
			<-full
			x.Respond(429, "application/json", `{"error":{"message":"full"}}`)
			return
		}
		good(x)
	})
	g := startGateway(t, "[limits]\nqueue_entries = 1\n"+engineTOML("e1", e1.URL(), `dialect = "vllm"`, "max_in_flight = 2"), "e1")
	cl := over1(t)
	var all together
	ask := func(text string) {
		all.send(func() string { return g.post(cl, "/v1/chat/completions", chatBody("m", text, false)).notWhole() })
	}
	ask("first")
	g.await("the first at the engine", func() bool { return len(posts(e1)) == 1 })
	ask("second")
	g.await("the second at the engine", func() bool { return len(posts(e1)) == 2 })
	ask("third")
	g.await("the third to wait", func() bool { return g.metric("penstock_queue_waiting") == 1 })
	close(full)
	g.await("the second to wait, or to be there again", func() bool { return g.metric("penstock_queue_waiting") == 2 || len(posts(e1)) > 2 })
	close(room)
	all.wait(t)
	var order []string
	for _, x := range posts(e1) {
		for _, text := range []string{"first", "second", "third"} {
			if strings.Contains(string(x.Body), text) {
				order = append(order, text)
			}
		}
	}
	if want := []string{"first", "second", "second", "third"}; !slices.Equal(order, want) {
		t.Errorf("the engine was asked %v, want %v", order, want)
	}
}

// What the table plans to refuse of each priority is refused, whole
// conversations at a time, with words that SDKs act on.
func TestPlannedShed(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "[routing]\nperiod = \"60s\"\n", e1)
	cl := over1(t)
	expected := 0.0 // in flight, by the plan; 0: it does not say
	ask := func(priority, key string) answered {
		for { // the control cycle has no such plan
			next := *g.tables.Load()
			next.Version++
			next.Classes = maps.Clone(next.Classes)
			key := route.ClassKey{Model: "m"}
			class := *next.Classes[key]
			class.Shed = [route.Priorities]float64{0, 0.5, 1}
			next.Classes[key] = &class
			class.Component.Plan(expected)
			if g.tables.Publish(&next) {
				break
			}
		}
		return g.post(cl, "/v1/chat/completions", chatBody("m", "hi", false), "X-Penstock-Priority", priority, "X-Penstock-Key", key)
	}
	refused := 0
	for i := range 60 {
		key := fmt.Sprint("conversation ", i)
		first := ask("standard", key)
		if first.status == 429 {
			refused++
			if first.errorCode() != "overloaded" || first.header.Get("X-Penstock-Reason") != "planned" || first.header.Get("Retry-After") == "" {
				t.Fatalf("%v %s", first.header, first.body)
			}
		}
		if i < 10 {
			if again := ask("standard", key); first.status == 200 && again.status != 200 {
				t.Error("a conversation under way was refused")
			}
		}
		if a := ask("critical", key); a.status != 200 {
			t.Fatalf("critical: %d %s", a.status, a.body)
		}
		if a := ask("sheddable", key); a.status != 429 {
			t.Fatalf("sheddable: %d", a.status)
		}
	}
	if refused < 5 || refused > 40 {
		t.Errorf("%d of 60 conversations refused at a shed of a half", refused)
	}
	expected = 20 // and nothing is in flight: there is room for what was planned not to be served
	if a := ask("sheddable", "once more"); a.status != 200 {
		t.Errorf("refused with room: %d", a.status)
	}
	if n := g.metric(`penstock_shed_total{reason="planned"}`); int(n) < 60+refused {
		t.Errorf("%g sheds are told", n)
	}
}

// An SDK that has tried twice already is told not to come again.
func TestShedAnswersSDKs(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) { x.Hang() })
	g := startGateway(t, noQueue+engineTOML("e1", e1.URL(), `dialect = "vllm"`, "max_in_flight = 1"), "e1")
	cl := over1(t)
	go g.post(cl, "/v1/chat/completions", chatBody("m", "hi", false))
	g.await("one in flight", func() bool { return g.metric(`penstock_inflight{engine="e1"}`) == 1 })
	for count, again := range map[string]string{"": "", "0": "", "1": "", "2": "false", "9": "false"} {
		a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", true), "X-Stainless-Retry-Count", count)
		var wait int
		fmt.Sscan(a.header.Get("Retry-After"), &wait)
		if a.status != 429 || a.header.Get("X-Should-Retry") != again || wait < 2 || wait > 59 || a.header.Get("X-Penstock-Reason") != "engines_full" {
			t.Errorf("retry %s: %d %v", count, a.status, a.header)
		}
	}
}
