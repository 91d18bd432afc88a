package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// An HTTP/1.0 client gets the events without chunks, and an error event where they break off.
func TestHTTP10Clients(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "break") {
			x.StartStream()
			x.Chunk(token("a"))
			x.Reset()
			return
		}
		good(x)
	})
	g := startCase(t, "", e1)
	ask := func(body string) answered {
		w := dialWire(t, g)
		w.send(strings.Replace(rawPost("/v1/chat/completions", body), "HTTP/1.1", "HTTP/1.0", 1))
		a := w.answer()
		if a.header.Get("Transfer-Encoding") != "" {
			t.Errorf("%v", a.header)
		}
		return a
	}
	if a := ask(chatBody("m", "hi", true)); a.status != 200 || a.body != token("hello")+finishEvent+doneEvent {
		t.Errorf("%d %v %q", a.status, a.err, a.body)
	}
	if a := ask(chatBody("m", "hi", false)); a.status != 200 || a.body != wholeAnswer {
		t.Errorf("%d %v %q", a.status, a.err, a.body)
	}
	if a := ask(chatBody("m", "break", true)); a.errorCode() != "stream_interrupted" || !strings.HasPrefix(a.body, token("a")) {
		t.Errorf("%d %v %q", a.status, a.err, a.body)
	}
	w := dialWire(t, g)
	w.send("POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
	if a := w.answer(); a.status < 400 || a.status > 499 {
		t.Errorf("chunked HTTP/1.0: %d %s", a.status, a.body)
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	w := dialWire(t, g)
	for range 2 {
		body := chatBody("m", "hi", false)
		head := rawPost("/v1/chat/completions", body, "Expect: 100-continue")
		w.send(strings.TrimSuffix(head, body))
		if r := w.head(); r.StatusCode != 100 {
			t.Fatalf("%s before the body", r.Status)
		}
		w.send(body)
		if a := w.answer(); a.status != 200 || a.body != wholeAnswer {
			t.Errorf("%d %v %s", a.status, a.err, a.body)
		}
	}
	for _, x := range posts(e1) {
		if x.Request.Header["Expect"] != nil {
			t.Errorf("the engine sees %v", x.Request.Header)
		}
	}
	w = dialWire(t, g)
	w.send("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nExpect: something\r\nContent-Length: 2\r\n\r\n{}")
	if a := w.answer(); a.status != 417 {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantPosts(t, e1, 2)
}

// Requests sent one after the other without waiting are answered in order.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.Pause(20 * time.Millisecond)
		if strings.Contains(string(x.Body), `"stream":true`) {
			streams(token(x.Request.Header.Get("X-Request-Id")), finishEvent, doneEvent)(x)
			return
		}
		x.Respond(200, "application/json", strings.Replace(wholeAnswer, "chatcmpl-1", x.Request.Header.Get("X-Request-Id"), 1))
	})
	g := startCase(t, "", e1)
	w := dialWire(t, g)
	all := ""
	for i := range 6 {
		all += rawPost("/v1/chat/completions", chatBody("m", "hi", i%2 == 0), fmt.Sprint("X-Request-Id: nr-", i))
	}
	w.send(all + "GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n")
	for i := range 6 {
		if a := w.answer(); a.status != 200 || a.err != nil || !strings.Contains(a.body, fmt.Sprint("nr-", i)) || a.header.Get("X-Request-Id") != fmt.Sprint("nr-", i) {
			t.Fatalf("answer %d: %d %v %q", i, a.status, a.err, a.body)
		}
	}
	if a := w.answer(); a.status != 200 || !strings.Contains(a.body, `"object":"list"`) {
		t.Errorf("%d %q", a.status, a.body)
	}
	wantPosts(t, e1, 6)
	wantRequests(g, outcomes{"ok": 6})
}
