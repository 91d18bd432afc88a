package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// What engines do that is allowed, or nearly, and that hardly one does: the
// client sees the answer, and of what follows its end nothing.
func TestOddStreams(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	whole := token("a") + token("b") + finishEvent + doneEvent
	chunk := func(text, extension string) string { return fmt.Sprintf("%x%s\r\n%s\r\n", len(text), extension, text) }
	chunked := func(pieces ...string) string {
		raw := head + "Transfer-Encoding: chunked\r\n\r\n"
		for _, p := range pieces {
			raw += chunk(p, "")
		}
		return raw + "0\r\n\r\n"
	}
	bare := strings.ReplaceAll(whole, "\n", "\r")
	other := strings.ReplaceAll(token("c"), "chatcmpl-1", "chatcmpl-2")
	failed := `data: {"error":{"message":"late","code":500}}` + "\n\n"
	for _, c := range []struct{ name, raw, want string }{
		{"chunk extensions", head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(whole, `;a=b;c="d e"`) + "0;last\r\n\r\n", whole},
		{"trailers", head + "Transfer-Encoding: chunked\r\nTrailer: X-Took\r\n\r\n" + chunk(whole, "") + "0\r\nX-Took: 7\r\nSet-Cookie: a=b\r\n\r\n", whole},
		{"a chunk for each byte", chunked(strings.Split(whole, "")...), whole},
		{"HTTP/1.0 that claims to stay", strings.Replace(head, "1.1", "1.0", 1) + fmt.Sprintf("Connection: keep-alive\r\nContent-Length: %d\r\n\r\n", len(whole)) + whole, whole},
		{"interim answers", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 5) + chunked(whole), whole},
		{"a byte order mark", chunked("\xef\xbb\xbf" + whole), "\xef\xbb\xbf" + whole},
		{"carriage returns alone", chunked(bare), bare},
		{"ids, names, waits and what nobody knows", chunked("retry: 1\n\n", "id: 1\nevent: message\nfoo: bar\n"+whole), "retry: 1\n\nid: 1\nevent: message\nfoo: bar\n" + whole},
		{"counts before content", chunked(usageEvent(3, 0), whole), usageEvent(3, 0) + whole},
		{"[DONE] twice", chunked(whole, doneEvent), whole},
		{"[DONE] twice at once", chunked(whole + doneEvent), whole},
		{"content after [DONE]", chunked(whole, other), whole},
		{"content after [DONE] at once", chunked(whole + other), whole},
		{"an error after [DONE]", chunked(whole, failed), whole},
		{"garbage after [DONE]", chunked(whole, "data: {\"a\n\n"), whole},
		{"content without end after [DONE]", head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(whole, "") + strings.Repeat(chunk(other, ""), 1000), whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) { x.Write(c.raw) })
			g := startCase(t, "", e1)
			for range 2 { // and the next request is not touched by what was left over
				if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)); a.err != nil || a.body != c.want {
					t.Errorf("%d %v %q", a.status, a.err, a.body)
				}
			}
			wantRequests(g, outcomes{"ok": 2})
			idle(g, "e1")
		})
	}
}

// An engine that says of an idle connection that it was idle for too long, just
// as a request is sent on it, has not answered that request.
func TestIdleConnectionsThatSayTimeout(t *testing.T) {
	t.Parallel()
	var used sync.Map // connections
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if _, again := used.LoadOrStore(x.Conn, true); !again {
			good(x)
			return
		}
		x.Write("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		x.Close()
	})
	g := startCase(t, "", e1)
	for range 4 {
		if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)); !a.looksComplete() {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// A stream of comments alone is no answer, however it ends.
func TestCommentsAloneAreNoAnswer(t *testing.T) {
	for name, end := range map[string]string{"[DONE]": doneEvent, "nothing": "", "counts": usageEvent(3, 0) + doneEvent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startCase(t, "", startPlayed(t, streams(": a\n\n", ": b\n\n", end)))
			if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)); a.err == nil || a.errorCode() != "stream_interrupted" || strings.Contains(a.body, "[DONE]") {
				t.Errorf("%d %v %q", a.status, a.err, a.body)
			}
		})
	}
}

// An answer in one piece that breaks off in the middle has been seen by nobody:
// another engine gives it, also where the first one only goes quiet.
func TestHalfAnAnswerIsRepeatedElsewhere(t *testing.T) {
	for name, end := range map[string]func(x *enginetest.Exchange){
		"quiet": (*enginetest.Exchange).Hang, "closed": (*enginetest.Exchange).Close, "reset": (*enginetest.Exchange).Reset,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first atomic.Bool
			play := func(x *enginetest.Exchange) {
				if !first.CompareAndSwap(false, true) {
					good(x)
					return
				}
				x.Write(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeAnswer), wholeAnswer[:40]))
				end(x)
			}
			g := startCase(t, "stall = \"300ms\"", startPlayed(t, play), startPlayed(t, play))
			a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false))
			if a.body != wholeAnswer || a.header.Get("X-Penstock-Attempts") != "2" {
				t.Errorf("%d %v %q", a.status, a.header, a.body)
			}
			idle(g, "e1", "e2")
		})
	}
}

// trickle sends a byte now and then until nobody listens.
func trickle(x *enginetest.Exchange, from string) {
	for i := 0; x.Pause(100 * time.Millisecond); i++ {
		x.Chunk(from[i%len(from):][:1])
	}
}

// An engine that sends a byte now and then sends nothing: it is out as a
// silent one is, and no client waits longer for it.
func TestTricklingEngineIsOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream bool
		play   enginetest.Play
	}{
		"comments": {true, func(x *enginetest.Exchange) { x.StartStream(); trickle(x, ":\n\n") }},
		"an event": {true, func(x *enginetest.Exchange) { x.StartStream(); x.Chunk("data: "); trickle(x, " ") }},
		"a header": {false, func(x *enginetest.Exchange) { x.Write("HTTP/1.1 200 OK\r\nX-Long: "); trickleRaw(x) }},
		"answer":   {false, func(x *enginetest.Exchange) { startJSON(x); trickle(x, " ") }},
		"an answer's error": {false, func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
			trickle(x, " ")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e2 := startPlayed(t, c.play)
			g := startCase(t, "first_content = \"4s\"", startPlayed(t, good), e2)
			done := make(chan int)
			go func() { done <- failed(steadily(g, 20, 4*time.Second, c.stream)) }()
			g.await("the engine to be out", func() bool { return g.engineState("e2") == "open" })
			if v := g.metric(`penstock_breaker_opened_total{engine="e2",why="silent"}`); v != 1 {
				t.Errorf("opened for silence %g times", v)
			}
			time.Sleep(onTheWay)
			met := len(askedOf(e2))
			if failed := <-done; failed > met {
				t.Errorf("%d failed, %d had come to the engine", failed, met)
			}
			if n := len(askedOf(e2)); n > met {
				t.Errorf("%d more requests went to an engine that is out", n-met)
			}
			idle(g, "e1", "e2")
		})
	}
}

func startJSON(x *enginetest.Exchange) {
	x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	x.Chunk(wholeAnswer[:40])
}

func trickleRaw(x *enginetest.Exchange) {
	for x.Pause(100 * time.Millisecond) {
		x.Write("x")
	}
}

// An engine that begins every stream and breaks it off is not well for beginning
// one: neither a probe nor a client's trial brings it back before a stream has
// come to its end.
func TestEngineThatBreaksStreamsOffStaysOut(t *testing.T) {
	if testing.Short() {
		t.Skip("a cool-down takes five seconds, the next ten")
	}
	t.Parallel()
	for name, end := range map[string]func(x *enginetest.Exchange){
		"stalls": (*enginetest.Exchange).Hang, "closes": (*enginetest.Exchange).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var well atomic.Bool
			e2 := startPlayed(t, func(x *enginetest.Exchange) {
				if well.Load() || !strings.Contains(string(x.Body), `"stream":true`) {
					good(x)
					return
				}
				x.StartStream()
				x.Chunk(token("a") + token("b") + token("c"))
				end(x)
			})
			g := startCase(t, "stall = \"300ms\"", startPlayed(t, good), e2)
			g.await("the engine to be out", func() bool {
				steadily(g, 50, 200*time.Millisecond, true)
				return g.engineState("e2") == "open"
			})
			time.Sleep(onTheWay)
			met := len(askedOf(e2))
			if n := failed(steadily(g, 50, 8*time.Second, true)); n > 0 {
				t.Errorf("%d clients saw that an engine was out", n)
			}
			if n := len(askedOf(e2)); n > met {
				t.Errorf("%d requests of clients went to an engine that was out", n-met)
			}
			if probes := len(posts(e2)) - met; probes < 1 || probes > 3 {
				t.Errorf("%d probes in one cool-down", probes)
			}
			well.Store(true)
			g.await("the engine to be back", func() bool { return g.engineState("e2") == "ready" })
			if n := failed(steadily(g, 50, 2*time.Second, true)); n > 0 {
				t.Errorf("%d failed when it was back", n)
			}
			idle(g, "e1", "e2")
		})
	}
}

// What engines say about trying again may be nonsense: clients are told
// something that they can do, and the engine is used again all the same.
func TestOddWordsAboutTryingAgain(t *testing.T) {
	for _, line := range []string{"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After: Wed, 21 Oct 2195 07:28:00 GMT", "Retry-After: -7", "Retry-After: 0",
		"Retry-After: 1e9", "Retry-After: 99999999999999999999999", "Retry-After: 3.5", "Retry-After:", "Retry-After: 1\r\nRetry-After: 86400", "Date: Thu, 01 Jan 1970 00:00:00 GMT"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var full atomic.Bool
			full.Store(true)
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				if !full.Load() {
					good(x)
					return
				}
				x.Write("HTTP/1.1 429 Full\r\nContent-Type: application/json\r\n" + line + "\r\nContent-Length: 2\r\n\r\n{}")
			})
			g := startCase(t, "queue_wait = \"0s\"", e1)
			a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false))
			var wait int
			fmt.Sscan(a.header.Get("Retry-After"), &wait)
			if a.status != 429 || wait < 1 || wait > 60 || len(a.header["Retry-After"]) != 1 {
				t.Errorf("%d %v", a.status, a.header)
			}
			full.Store(false)
			g.await("the engine to be used", func() bool {
				return g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false)).looksComplete()
			})
		})
	}
}

// An engine whose pages are endless, or of another size each time, serves: its
// requests are what is known of it.
func TestOddPages(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	var huge strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&huge, "vllm:num_requests_running{engine=\"%d\",model_name=\"m\"} 1\n", i)
	}
	for name, page := range map[string]string{"huge": huge.String(), "nonsense": strings.Repeat("\x00\xff{", 1<<12), "empty": "",
		"negative": "vllm:num_requests_running{model_name=\"m\"} -1e300\nvllm:num_requests_waiting{model_name=\"m\"} NaN\n"} {
		e1.SetMetrics(page)
		hits := e1.PageHits("/metrics")
		g.await(name+" to be read twice", func() bool { return e1.PageHits("/metrics") >= hits+2 })
		if n := failed(steadily(g, 20, 500*time.Millisecond, true)); n > 0 {
			t.Errorf("%s: %d failed", name, n)
		}
		if s := g.engineState("e1"); s != "ready" {
			t.Errorf("%s: the engine is %s", name, s)
		}
	}
}

// An engine whose health flips with every probe is not taken in and out with it.
func TestFlappingHealth(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1, startPlayed(t, good))
	status := []int{200, 503}
	for i := range 4 {
		e1.SetHealth(status[i%2])
		hits := e1.PageHits("/health")
		g.await("a probe", func() bool { return e1.PageHits("/health") > hits })
		if n := failed(steadily(g, 20, 300*time.Millisecond, false)); n > 0 {
			t.Errorf("%d failed", n)
		}
		if s := g.engineState("e1"); s != "ready" {
			t.Errorf("the engine is %s after a single failure", s)
		}
	}
}
