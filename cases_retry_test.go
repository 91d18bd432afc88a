package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// off keeps a request from having a key, so that it may be picked for any engine.
var off = []string{"X-Penstock-Affinity", "off"}

// bigBody is a chat request of about that many bytes.
func bigBody(n int) string {
	return chatBody("m", strings.Repeat("0123456789abcdef", n/16), false)
}

// Engine e1 has just gone: its port refuses. Requests that were to go there
// are sent to e2 at once and whole.
func TestC06_RefusedRequestsGoElsewhereWhole(t *testing.T) {
	body := bigBody(300 << 10)
	for _, framing := range []string{"length", "chunked"} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			moved := 0
			for round := 0; round < 5 && moved == 0; round++ { // a round may by chance begin with the poller's own look
				e1, e2 := startPlayed(t, good), startPlayed(t, good)
				g := startCase(t, "", e1, e2)
				e1.Close()
				cl := over1(t)
				var wg sync.WaitGroup
				answers := make([]answered, 20)
				for i := range answers {
					wg.Go(func() {
						var r io.Reader = strings.NewReader(body)
						if framing == "chunked" {
							r = io.MultiReader(r)
						}
						req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", r)
						req.Header.Set(off[0], off[1])
						answers[i] = do(cl, req)
					})
				}
				wg.Wait()
				for i, a := range answers {
					if !a.looksComplete() || a.header.Get("X-Penstock-Engine") != "e2" {
						t.Fatalf("request %d: %d %v %s", i, a.status, a.err, a.body)
					}
					if a.header.Get("X-Penstock-Attempts") == "2" {
						moved++
					}
				}
				wantPosts(t, e2, 20)
				for _, x := range posts(e2) {
					if string(x.Body) != body || x.Request.ContentLength != int64(len(body)) {
						t.Errorf("the engine got %d bytes, Content-Length %d", len(x.Body), x.Request.ContentLength)
					}
				}
				wantRequests(g, outcomes{"ok": 20})
				wantAttempts(g, "e2", outcomes{"ok": 20})
				if moved > 0 {
					wantAttempts(g, "e1", outcomes{"not_processed": moved})
				}
				idle(g, "e1", "e2")
			}
			if moved == 0 {
				t.Error("no first attempt met the closed port")
			}
		})
	}
}

// Both engines refuse: two attempts at most, one each, then 503.
func TestBothEnginesRefuse(t *testing.T) {
	for round := range 5 {
		e1, e2 := startPlayed(t, good), startPlayed(t, good)
		g := startCase(t, "", e1, e2)
		e1.Close()
		e2.Close()
		a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", round%2 == 0), off...)
		if a.status != 503 || a.errorCode() != "no_healthy_engine" || a.header.Get("Retry-After") == "" || a.header.Get("X-Penstock-Reason") != "no_healthy_engine" {
			t.Fatalf("%d %v %s", a.status, a.header, a.body)
		}
		wantRequests(g, outcomes{"not_processed": 1})
		if a.header.Get("X-Penstock-Attempts") == "2" {
			wantAttempts(g, "e1", outcomes{"not_processed": 1})
			wantAttempts(g, "e2", outcomes{"not_processed": 1})
			return
		}
	}
	t.Error("no request made two attempts")
}

// What an engine may have worked on is not sent again where doing it twice
// leaves something behind: a response that is kept. Else it goes to one other
// engine, while the retry budget pays.
func TestDeliveredRequestsAreRepeatedOnceAtMost(t *testing.T) {
	for name, play := range map[string]enginetest.Play{
		"close":              func(x *enginetest.Exchange) { x.Close() },
		"reset":              func(x *enginetest.Exchange) { x.Reset() },
		"half a status line": func(x *enginetest.Exchange) { x.Write("HTTP/1.1 2"); x.Close() },
		"500":                func(x *enginetest.Exchange) { x.Respond(500, "application/json", `{"error":{"message":"no"}}`) },
		"502":                func(x *enginetest.Exchange) { x.Respond(502, "application/json", `{"error":{"message":"no"}}`) },
		"503":                func(x *enginetest.Exchange) { x.Respond(503, "application/json", `{"error":{"message":"no"}}`) },
		"429":                func(x *enginetest.Exchange) { x.Respond(429, "application/json", `{"error":{"message":"no"}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1, e2 := startPlayed(t, play), startPlayed(t, play)
			g := startCase(t, "", e1, e2)
			cl := over1(t)
			before := 0
			for i := range 3 {
				a := g.post(cl, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"%d"}`, i), off...)
				if a.status < 429 || a.errorCode() == "" || a.header.Get("X-Penstock-Attempts") != "1" {
					t.Errorf("%d %v %s", a.status, a.header, a.body)
				}
			}
			if before = len(posts(e1, e2)); before != 3 {
				t.Errorf("%d requests at the engines, want 3", before)
			}
			full := name == "429" || name == "503"
			n := 30
			if full {
				n = 5 // they are left alone for a while after each
			}
			count := func(name string) (sum float64) {
				for _, cause := range []string{"reset", "engine_status", "stale_connection", "busy"} {
					sum += g.metric(name + `{reason="` + cause + `"}`)
				}
				return sum
			}
			begun, repeats := 0, count("penstock_retries_total")
			for i := range n {
				a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0), off...)
				if a.header.Get("X-Penstock-Attempts") != "" {
					begun++
				}
				if n := a.header.Get("X-Penstock-Attempts"); a.status < 429 || a.errorCode() == "" || n > "3" {
					t.Errorf("%d %v %s", a.status, a.header, a.body)
				}
			}
			// Ten are free in any ten seconds, until so little of the fleet is left
			// that nothing is repeated: both breakers have opened.
			sent := len(posts(e1, e2)) - before
			if !full && (sent < 31 || sent > 40) || full && sent > 10 {
				t.Errorf("%d deliveries", sent)
			}
			repeats = count("penstock_retries_total") - repeats
			if sent != begun+int(repeats) {
				t.Errorf("%d deliveries of %d requests that went to an engine, %g repeats", sent, begun, repeats)
			}
			// Every first attempt asks the budget for another: it grants ten, of
			// which some then find no other engine in service.
			if denied := count("penstock_retries_denied_total"); !full && (denied > float64(begun)-repeats+stale(g) || denied < float64(begun-10)) {
				t.Errorf("%g repeats denied of %d requests, %g made", denied, begun, repeats)
			}
			idle(g, "e1", "e2")
		})
	}
}

// stale is how often a request was repeated on a fresh connection, free of budget.
func stale(g *running) float64 { return g.metric(`penstock_retries_total{reason="stale_connection"}`) }

func TestC07_ClientErrorsPassUnchangedAndOnce(t *testing.T) {
	fault := func(status int) string {
		return fmt.Sprintf(`{"error": {"message": "as the engine says it", "type": "X", "param": "tools",  "code": "c%d"}}`, status)
	}
	play := func(x *enginetest.Exchange) {
		var status int
		fmt.Sscan(x.Request.Header.Get("Openai-Status"), &status)
		x.Respond(status, "application/json; charset=utf-8", fault(status))
	}
	e1, e2 := startPlayed(t, play), startPlayed(t, play)
	g := startCase(t, "", e1, e2)
	n := 0
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, status := range []int{400, 401, 403, 404, 409, 413, 422, 501} {
			for _, stream := range []bool{true, false} {
				a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", stream), "Openai-Status", fmt.Sprint(status))
				n++
				if a.status != status || a.body != fault(status) || a.header.Get("Content-Type") != "application/json; charset=utf-8" || a.header.Get("X-Penstock-Attempts") != "1" {
					t.Errorf("%d: %d %v %q", status, a.status, a.header, a.body)
				}
			}
		}
	})
	if got := len(posts(e1, e2)); got != n {
		t.Errorf("%d attempts for %d requests", got, n)
	}
	wantRequests(g, outcomes{"client": n})
	if g.engineState("e1") != "ready" || g.engineState("e2") != "ready" {
		t.Error("an engine is out")
	}
}

// The engine closes connections that were idle for 150 ms, with a FIN or as
// the next request arrives with a RST. The request is sent again, once, on a
// fresh connection, and nobody hears of it.
func TestC09_IdleConnectionsClosedByTheEngine(t *testing.T) {
	const idleFor = 150 * time.Millisecond
	t.Run("fin", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		served := map[int]int{} // by connection
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			mu.Lock()
			served[x.Conn]++
			n := served[x.Conn]
			mu.Unlock()
			good(x)
			time.AfterFunc(idleFor, func() { // unless the next request has begun
				mu.Lock()
				defer mu.Unlock()
				if served[x.Conn] == n {
					x.Close()
				}
			})
		})
		g := startCase(t, "", e1)
		cl := over1(t)
		const n = 20
		for i := range n {
			if a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", i%2 == 0)); !a.looksComplete() {
				t.Fatalf("request %d: %d %v %s", i, a.status, a.err, a.body)
			}
			time.Sleep(idleFor - 3*time.Millisecond + time.Duration(i%7)*time.Millisecond)
		}
		wantRequests(g, outcomes{"ok": n})
		if g.engineState("e1") != "ready" {
			t.Errorf("the engine is %s", g.engineState("e1"))
		}
	})
	t.Run("rst", func(t *testing.T) {
		t.Parallel()
		// A connection serves one request; the next on it, after the idle time, is reset unanswered.
		var mu sync.Mutex
		served := map[int]int{}
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			mu.Lock()
			served[x.Conn]++
			again := served[x.Conn] > 1
			mu.Unlock()
			if again {
				x.Reset()
				return
			}
			good(x)
		})
		g := startCase(t, "", e1)
		cl := over1(t)
		const n = 6
		for i := range n {
			a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0))
			if !a.looksComplete() {
				t.Fatalf("request %d: %d %v %s", i, a.status, a.err, a.body)
			}
			if want := fmt.Sprint(min(i, 1) + 1); i < 2 && a.header.Get("X-Penstock-Attempts") != want {
				t.Errorf("request %d took %s attempts, want %s", i, a.header.Get("X-Penstock-Attempts"), want)
			}
			time.Sleep(idleFor)
		}
		wantRequests(g, outcomes{"ok": n})
		bodies := map[string]int{}
		for _, x := range posts(e1) {
			bodies[string(x.Body)]++
		}
		for b, times := range bodies {
			if times > 2 {
				t.Errorf("%d times: %s", times, b)
			}
		}
		wantAttempts(g, "e1", outcomes{"ok": n, "not_processed": len(posts(e1)) - n})
		if len(posts(e1)) == n {
			t.Error("no request met a reset")
		}
		if g.engineState("e1") != "ready" {
			t.Errorf("the engine is %s", g.engineState("e1"))
		}
		idle(g, "e1")
	})
	// A connection that died a while after the request had an engine behind it
	// that worked on it: that is no race, and nothing is sent twice.
	t.Run("dies later", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			if strings.Contains(string(x.Body), "die") {
				x.Pause(1200 * time.Millisecond)
				x.Reset()
				return
			}
			good(x)
		})
		g := startCase(t, "", e1)
		cl := over1(t)
		g.post(cl, "/v1/chat/completions", chatBody("m", "hi", false))
		if a := g.post(cl, "/v1/chat/completions", chatBody("m", "die", false)); a.status != 502 || a.errorCode() != "engine_error" {
			t.Errorf("%d %s", a.status, a.body)
		}
		wantPosts(t, e1, 2)
	})
	// An engine that dies over the request is met twice at most.
	t.Run("fresh one dies too", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			if strings.Contains(string(x.Body), "die") {
				x.Reset()
				return
			}
			good(x)
		})
		g := startCase(t, "", e1)
		cl := over1(t)
		g.post(cl, "/v1/chat/completions", chatBody("m", "hi", false))
		time.Sleep(idleFor)
		a := g.post(cl, "/v1/chat/completions", chatBody("m", "die", false))
		if a.status != 502 || a.errorCode() != "engine_error" || a.header.Get("X-Penstock-Attempts") != "2" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		wantPosts(t, e1, 3)
		wantAttempts(g, "e1", outcomes{"ok": 1, "not_processed": 1, "ambiguous": 1})
	})
}

func TestC10_BadRequestsTakeNoEngineOut(t *testing.T) {
	play := func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "BAD") {
			x.Respond(400, "application/json", `{"error":{"message":"This model's maximum context length is 4096 tokens","type":"BadRequestError","param":null,"code":400}}`)
			return
		}
		good(x)
	}
	e1, e2 := startPlayed(t, play), startPlayed(t, play)
	g := startCase(t, "", e1, e2)
	cl := over1(t)
	for i := range 200 {
		if a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint("BAD", i), i%2 == 0)); a.status != 400 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for i := range 20 {
		if a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0)); !a.looksComplete() {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := len(posts(e1, e2)); n != 220 {
		t.Errorf("%d attempts", n)
	}
	wantRequests(g, outcomes{"ok": 20, "client": 200})
	for _, e := range []string{"e1", "e2"} {
		if g.engineState(e) != "ready" {
			t.Errorf("%s is %s", e, g.engineState(e))
		}
	}
}

// An engine that says "full" is passed on with Retry-After and is back in use
// with its next answer.
func TestC11_FullEnginesAreBackAtOnce(t *testing.T) {
	for _, c := range []struct{ status, header, retryAfter string }{
		{"503", "", ""}, {"429", "", ""}, {"503", "Retry-After: 17\r\n", "17"}, {"429", "Retry-After: 3600\r\n", "60"}, {"503", "Retry-After: soon\r\n", ""},
	} {
		t.Run(c.status+" "+strings.TrimSpace(c.header), func(t *testing.T) {
			t.Parallel()
			var status int
			fmt.Sscan(c.status, &status)
			const queueFull = `{"error":{"message":"The engine is currently busy and cannot accept new requests.","type":"Service Unavailable","param":null,"code":503}}`
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write(fmt.Sprintf("HTTP/1.1 %s Full\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", c.status, c.header, len(queueFull), queueFull))
			})
			g := startCase(t, "", e1)
			cl := over1(t)
			for i := range 5 {
				a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", i%2 == 0))
				var wait int
				fmt.Sscan(a.header.Get("Retry-After"), &wait)
				if a.status != status || a.errorCode() != "overloaded" || a.header.Get("X-Penstock-Reason") != "engine_full" || wait < 1 || wait > 60 || c.retryAfter != "" && a.header.Get("Retry-After") != c.retryAfter {
					t.Errorf("%d %v %s", a.status, a.header, a.body)
				}
			}
			e1.SetPlay(onPosts(good))
			for range 5 {
				if a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", false)); !a.looksComplete() {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
			wantPosts(t, e1, 10)
			wantRequests(g, outcomes{"not_processed": 5, "ok": 5})
			wantAttempts(g, "e1", outcomes{"not_processed": 5, "ok": 5})
		})
	}
}

// What an engine says about trying again reaches the client in the words that
// SDKs obey, with the gateway's own error: shorter waits than a second, and
// that it is no use.
func TestEnginesSayWhetherToTryAgain(t *testing.T) {
	for _, c := range []struct {
		name, status, header string
		want                 map[string]string // "" = absent
	}{
		{"milliseconds", "429 Full", "retry-after-ms: 200", map[string]string{"Retry-After-Ms": "200", "Retry-After": "1", "X-Should-Retry": ""}},
		{"milliseconds beyond a minute", "429 Full", "retry-after-ms: 3600000", map[string]string{"Retry-After-Ms": "60000", "Retry-After": "60"}},
		{"both", "503 Full", "retry-after-ms: 2500\r\nRetry-After: 7", map[string]string{"Retry-After-Ms": "2500", "Retry-After": "7"}},
		{"no use", "503 Full", "x-should-retry: false", map[string]string{"X-Should-Retry": "false", "Retry-After-Ms": ""}},
		{"no use after a failure", "500 Broken", "x-should-retry: false", map[string]string{"X-Should-Retry": "false", "Retry-After": ""}},
		{"of use", "502 Bad", "x-should-retry: true", map[string]string{"X-Should-Retry": "true"}},
		{"neither yes nor no", "503 Full", "x-should-retry: maybe\r\nretry-after-ms: soon", map[string]string{"X-Should-Retry": "", "Retry-After-Ms": ""}},
		{"nothing", "502 Bad", "X-Other: 1", map[string]string{"X-Should-Retry": "", "Retry-After-Ms": "", "Retry-After": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write("HTTP/1.1 " + c.status + "\r\nContent-Type: application/json\r\n" + c.header + "\r\nContent-Length: 2\r\n\r\n{}")
			})
			g := startCase(t, "", e1)
			for _, stream := range []bool{false, true} {
				a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", stream))
				for name, value := range c.want {
					if got := a.header.Get(name); got != value {
						t.Errorf("%s: %q, want %q", name, got, value)
					}
				}
				if !strings.HasPrefix(c.status, fmt.Sprint(a.status)) {
					t.Errorf("status %d for %s", a.status, c.status)
				}
			}
			wantPosts(t, e1, 2)
		})
	}
}

// A 404 for a model which the engine had listed is tried on another engine,
// once; any other 404 is the client's.
func TestC19_ListedModelThatIsGone(t *testing.T) {
	gone := func(x *enginetest.Exchange) {
		x.Respond(404, "application/json", "{\"error\":{\"message\":\"The model `m` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}")
	}
	t.Run("on one", func(t *testing.T) {
		t.Parallel()
		e1, e2 := startPlayed(t, gone), startPlayed(t, good)
		g := startCase(t, "", e1, e2)
		cl := over1(t)
		moved := 0
		for i := range 20 {
			a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0), off...)
			if !a.looksComplete() || a.header.Get("X-Penstock-Engine") != "e2" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if a.header.Get("X-Penstock-Attempts") == "2" {
				moved++
			}
		}
		if moved == 0 || len(posts(e1)) != moved {
			t.Errorf("%d moved, %d asked", moved, len(posts(e1)))
		}
		wantPosts(t, e2, 20)
		wantAttempts(g, "e1", outcomes{"not_processed": moved})
		wantRequests(g, outcomes{"ok": 20})
	})
	t.Run("on both", func(t *testing.T) {
		t.Parallel()
		e1, e2 := startPlayed(t, gone), startPlayed(t, gone)
		g := startCase(t, "", e1, e2)
		a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true), off...)
		if a.status != 404 || !strings.Contains(a.body, "does not exist") || a.header.Get("X-Penstock-Attempts") != "2" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		wantPosts(t, e1, 1)
		wantPosts(t, e2, 1)
	})
	t.Run("as first event", func(t *testing.T) {
		t.Parallel()
		e1 := startPlayed(t, streams("data: {\"error\":{\"message\":\"The model `m` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}\n\n", doneEvent))
		g := startCase(t, "", e1)
		if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)); a.status != 404 {
			t.Errorf("%d %s", a.status, a.body)
		}
		wantPosts(t, e1, 1)
	})
	t.Run("of the route", func(t *testing.T) {
		t.Parallel()
		play := func(x *enginetest.Exchange) { x.Respond(404, "application/json", `{"detail":"Not Found"}`) }
		e1, e2 := startPlayed(t, play), startPlayed(t, play)
		g := startCase(t, "", e1, e2)
		a := g.post(over1(t), "/v1/embeddings", `{"model":"m","input":"x"}`)
		if a.status != 404 || a.body != `{"detail":"Not Found"}` || len(posts(e1, e2)) != 1 {
			t.Errorf("%d %s, %d attempts", a.status, a.body, len(posts(e1, e2)))
		}
	})
}

// An engine forgets one request and answers the others: the request is not
// held for the client's whole limit, it goes to the other engine, once, and
// the engine is out for nobody else.
func TestARequestThatIsForgottenGoesElsewhere(t *testing.T) {
	t.Parallel()
	forgets := func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "forget me") {
			x.Hang()
			return
		}
		good(x)
	}
	e1, e2 := startPlayed(t, forgets), startPlayed(t, good)
	g := startGateway(t, "[routing]\npolicy = \"capacity\"\n"+engineTOML("e1", e1.URL(), "capacity = 1000")+engineTOML("e2", e2.URL(), "capacity = 1"), "e1", "e2")
	stop := make(chan struct{})
	var others, forgotten sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			if a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true), off...); !a.looksComplete() {
				t.Errorf("another: %d %v %s", a.status, a.err, a.body)
			}
		}
	})
	for i := range 2 {
		forgotten.Go(func() {
			a := g.post(over1(t), "/v1/chat/completions", chatBody("m", fmt.Sprint("forget me ", i), true))
			if !a.looksComplete() || a.header.Get("X-Penstock-Engine") != "e2" || a.header.Get("X-Penstock-Attempts") != "2" {
				t.Errorf("%d %v by %s in %s attempts: %s", a.status, a.err, a.header.Get("X-Penstock-Engine"), a.header.Get("X-Penstock-Attempts"), a.body)
			}
		})
	}
	forgotten.Wait()
	close(stop)
	others.Wait()
	if n := g.metric(`penstock_retries_total{reason="header_timeout"}`); n != 2 {
		t.Errorf("%v were asked for again", n)
	}
	for name, e := range map[string]*enginetest.Script{"e1": e1, "e2": e2} {
		n := 0
		for _, x := range posts(e) {
			n += strings.Count(string(x.Body), "forget me")
		}
		if n != 2 {
			t.Errorf("%d deliveries to %s", n, name)
		}
	}
}
