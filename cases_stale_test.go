package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// The engine closes connections that were idle for 150 ms, with a FIN or as
// the next request arrives with a RST. The request is sent again, once, on a
// fresh connection, and nobody hears of it.
func TestC09_IdleConnectionsClosedByTheEngine(t *testing.T) {
	t.Parallel()
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
