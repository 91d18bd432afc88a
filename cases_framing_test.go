package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// Each piece is sent only when the client has the one before: a gateway that
// holds a piece back, or merges two, never gets the next.
func TestC01_EventsAreFlushedAtOnce(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 40)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for _, kind := range []struct{ name, contentType, piece string }{
		{"events", "text/event-stream; charset=utf-8", token("x")},
		{"ndjson", "application/x-ndjson", `{"model":"m","response":"x","done":false}` + "\n"},
		{"audio", "audio/mpeg", string(noise)},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			const pieces = 25
			next := make(chan bool, 64)
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write("HTTP/1.1 200 OK\r\nContent-Type: " + kind.contentType + "\r\nTransfer-Encoding: chunked\r\n\r\n")
				for range pieces {
					select {
					case <-next:
					case <-x.Gone():
						return
					}
					x.Chunk(kind.piece)
				}
				if kind.name == "events" {
					x.Chunk(finishEvent + doneEvent)
				}
				x.EndChunks()
			})
			g := startCase(t, "", e1)
			bothProtocols(t, func(t *testing.T, c *http.Client) {
				next <- true // the header waits for the first piece
				resp := open(t, g, c, chatBody("m", "hi", true))
				if ct := resp.Header.Get("Content-Type"); ct != kind.contentType {
					t.Errorf("content type %q", ct)
				}
				late := time.AfterFunc(patience, func() { resp.Body.Close() })
				defer late.Stop()
				got := make([]byte, len(kind.piece))
				for i := range pieces {
					if i > 0 {
						next <- true
					}
					if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != kind.piece {
						t.Fatalf("piece %d: %v %q", i, err, got)
					}
				}
				rest, err := io.ReadAll(resp.Body)
				if want := map[bool]string{true: finishEvent + doneEvent}[kind.name == "events"]; err != nil || string(rest) != want {
					t.Errorf("end: %v %q", err, rest)
				}
			})
			wantRequests(g, outcomes{"ok": 2})
		})
	}
}

func TestC03_FramingIsKeptAndCommentsAreNotHeld(t *testing.T) {
	t.Parallel()
	crlf := strings.ReplaceAll(token("crlf"), "\n", "\r\n")
	wide := token("né")
	at := strings.Index(wide, "é") + 1
	pieces := []string{
		": PING\n\n",
		crlf,
		strings.Replace(token("tight"), "data: ", "data:", 1),
		"event: message\nid: 7\n" + token("named"),
		"data: {\"choices\":[{\"index\":0,\"delta\":\ndata: {\"content\":\"two lines\"}}]}\n\n",
		": again\n\n",
		wide[:at], wide[at:],
		strings.Replace(usageEvent(11, 5), "data: ", "data:", 1) + finishEvent + doneEvent,
	}
	next := make(chan bool, 64)
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		for _, p := range pieces {
			select {
			case <-next:
			case <-x.Gone():
				return
			}
			x.Chunk(p)
		}
		x.EndChunks()
	})
	g := startCase(t, "", e1)
	next <- true
	resp := open(t, g, over1(t), chatBody("m", "hi", true)) // the comment alone brings the header
	late := time.AfterFunc(patience, func() { resp.Body.Close() })
	defer late.Stop()
	for i, p := range pieces {
		if i > 0 {
			next <- true
		}
		if p == wide[:at] {
			continue // half an event waits for its other half
		}
		if p == wide[at:] {
			p = wide
		}
		got := make([]byte, len(p))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != p {
			t.Fatalf("piece %d: %v %q", i, err, got)
		}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%v %q", err, rest)
	}
	wantRequests(g, outcomes{"ok": 1})
	wantTokens(g, 11, 5)
}

func TestC04_EventsOfManyMegabytes(t *testing.T) {
	t.Parallel()
	want := token("small") + token(strings.Repeat("x", 8<<20)) + usageEvent(4, 9) + finishEvent + doneEvent
	e1 := startPlayed(t, streams(token("small"), want[len(token("small")):]))
	g := startCase(t, "", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		if a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true)); a.body != want || !a.looksComplete() {
			t.Errorf("%d %v, %d bytes, want %d", a.status, a.err, len(a.body), len(want))
		}
	})
	wantRequests(g, outcomes{"ok": 2})
	wantTokens(g, 8, 18)
}

// How a stream is framed changes nothing: its proper end is in the events.
func TestStreamFramings(t *testing.T) {
	t.Parallel()
	whole := token("a") + finishEvent + doneEvent
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for _, c := range []struct {
		name, raw        string
		complete, framed bool // framed: by the response itself, so that its connection stays
	}{
		{"Content-Length", head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(whole)) + whole, true, true},
		{"Content-Length not reached", head + "Content-Length: 9999\r\n\r\n" + token("a"), false, false},
		{"Content-Length reached in mid-stream", head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(token("a"))) + token("a"), false, true},
		{"until the connection ends", head + "Connection: close\r\n\r\n" + whole, true, false},
		{"until the connection ends, too soon", head + "Connection: close\r\n\r\n" + token("a"), false, false},
		{"HTTP/1.0", strings.Replace(head, "1.1", "1.0", 1) + "\r\n" + whole, true, false},
		{"HTTP/1.0, too soon", strings.Replace(head, "1.1", "1.0", 1) + "\r\n" + token("a"), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write(c.raw)
				if !c.framed {
					x.Close()
				}
			})
			g := startCase(t, "", e1)
			bothProtocols(t, func(t *testing.T, cl *http.Client) {
				a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", true))
				if c.complete && (a.err != nil || a.body != whole) || !c.complete && (a.err == nil || a.errorCode() != "stream_interrupted" || !strings.HasPrefix(a.body, token("a"))) {
					t.Errorf("%v %q", a.err, a.body)
				}
				if a.header["Content-Length"] != nil {
					t.Errorf("%v", a.header)
				}
			})
			wantRequests(g, outcomes{map[bool]string{true: "ok", false: "committed"}[c.complete]: 2})
		})
	}
}
