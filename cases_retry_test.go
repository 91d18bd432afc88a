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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
