package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

func TestC07_ClientErrorsPassUnchangedAndOnce(t *testing.T) {
	t.Parallel()
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

func TestC10_BadRequestsTakeNoEngineOut(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
