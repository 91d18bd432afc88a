package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

func TestC30_HopByHopHeadersStay(t *testing.T) {
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.Write(fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Keep: 1\r\nProxy-Authenticate: Basic\r\nSet-Cookie: a=b\r\nServer: uvicorn\r\nAlt-Svc: h3=\":443\"\r\n"+
			"X-Penstock-Engine: other\r\nX-Request-Id: theirs\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeAnswer), wholeAnswer))
	})
	g := startCase(t, "", e1)
	stays := func(t *testing.T, h http.Header) {
		t.Helper()
		for name, want := range map[string]string{"X-Keep": "1", "X-Hop": "", "Keep-Alive": "", "Proxy-Authenticate": "", "Set-Cookie": "", "Server": "",
			"Alt-Svc": "", "X-Penstock-Engine": "e1", "Access-Control-Allow-Origin": "", "Content-Type": "application/json"} {
			if got := strings.Join(h[name], ", "); got != want {
				t.Errorf("the client sees %s: %q, want %q", name, got, want)
			}
		}
		if id := h.Get("X-Request-Id"); id == "theirs" || id == "" {
			t.Errorf("request id %q", id)
		}
	}
	w := dialWire(t, g)
	w.send(rawPost("/v1/chat/completions", chatBody("m", "hi", false), "Connection:", "Connection: close, Openai-Drop, authorization", "Openai-Drop: 1", "TE: gzip", "Trailer: X-T",
		"Keep-Alive: 5", "Proxy-Authorization: x", "Proxy-Connection: keep-alive", "Authorization: Bearer secret", "X-Api-Key: secret", "Cookie: a=b", "X-Unknown: 1", "X_Tenant: 1",
		"Accept-Encoding: gzip", "X-Forwarded-For: 10.0.0.1", "Openai-Organization: org-1", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Idempotency-Key: k", "X-Stainless-Lang: go", "User-Agent: test/1"))
	a := w.answer()
	if a.body != wholeAnswer {
		t.Fatalf("%d %v %s", a.status, a.err, a.body)
	}
	stays(t, a.header)
	if more, err := w.rest(); err != nil || more != "" { // Connection: close was asked for
		t.Errorf("after the answer: %v %q", err, more)
	}
	seen := posts(e1)[0].Request.Header
	want := map[string]string{"Openai-Organization": "org-1", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Idempotency-Key": "k",
		"X-Stainless-Lang": "go", "User-Agent": "test/1", "Content-Type": "application/json", "X-Request-Id": a.header.Get("X-Request-Id")}
	for name := range seen {
		if name != "Content-Length" && seen.Get(name) != want[name] {
			t.Errorf("the engine sees %s: %q", name, seen[name])
		}
	}
	for name, value := range want {
		if seen.Get(name) != value {
			t.Errorf("the engine does not see %s: %q but %q", name, value, seen.Get(name))
		}
	}
	b := g.post(overH2(t), "/v1/chat/completions", chatBody("m", "hi", false), "Openai-Organization", "org-1", "X-Unknown", "1", "Te", "trailers")
	stays(t, b.header)
	for _, name := range []string{"Connection", "Transfer-Encoding"} {
		if b.header[name] != nil {
			t.Errorf("h2 client sees %s", name)
		}
	}
	if h := posts(e1)[1].Request.Header; h.Get("Openai-Organization") != "org-1" || h["X-Unknown"] != nil || h["Te"] != nil || h["Connection"] != nil || h["User-Agent"] == nil {
		t.Errorf("the engine sees %v", h)
	}
}

// Engines are never asked for a compressed answer, so that none is ever labelled wrongly.
func TestC31_NoCompressionIsAskedFor(t *testing.T) {
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if ae := x.Request.Header["Accept-Encoding"]; ae != nil {
			x.Respond(500, "application/json", fmt.Sprintf(`{"error":{"message":%q}}`, ae))
			return
		}
		if strings.Contains(string(x.Body), "BAD") {
			x.Respond(400, "application/json", `{"error":{"message":"bad","code":400}}`)
			return
		}
		good(x)
	})
	g := startCase(t, "", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, headers := range [][]string{nil, {"Accept-Encoding", "gzip"}, {"Accept-Encoding", "gzip, br;q=1.0, *;q=0.5"}} {
			for status, body := range map[int][]string{200: {chatBody("m", "hi", true), chatBody("m", "hi", false)}, 400: {chatBody("m", "BAD", true), chatBody("m", "BAD", false)}} {
				for _, b := range body {
					a := g.post(c, "/v1/chat/completions", b, headers...)
					if a.status != status || a.header.Get("Content-Encoding") != "" || a.err != nil || !strings.HasPrefix(a.body, `{"`) && !strings.HasPrefix(a.body, "data: ") {
						t.Errorf("%v: %d %v %q", headers, a.status, a.header, a.body)
					}
				}
			}
		}
	})
}

func TestC33_RequestIDs(t *testing.T) {
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	ours := func(id string) bool { return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" }
	c := over1(t)
	for _, q := range []struct {
		name   string
		header []string
		kept   string
	}{
		{"none", nil, ""},
		{"normal", []string{"X-Request-Id", "req_1.A-b"}, "req_1.A-b"},
		{"128 bytes", []string{"X-Request-Id", strings.Repeat("a", 128)}, strings.Repeat("a", 128)},
		{"129 bytes", []string{"X-Request-Id", strings.Repeat("a", 129)}, ""},
		{"50 KiB", []string{"X-Request-Id", strings.Repeat("a", 50<<10)}, ""},
		{"encoded line breaks", []string{"X-Request-Id", "a%0d%0ab"}, ""},
		{"quotes", []string{"X-Request-Id", `a","status":200,"x":"`}, ""},
		{"wide", []string{"X-Request-Id", "a\u2028b"}, ""},
		{"empty", []string{"X-Request-Id", ""}, ""},
		{"two", []string{"X-Request-Id", "a", "X-Request-Id", "b"}, ""},
	} {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", false), q.header...)
		id := a.header.Get("X-Request-Id")
		if a.status != 200 || q.kept != "" && id != q.kept || q.kept == "" && !ours(id) {
			t.Errorf("%s: %d, id %q", q.name, a.status, id)
			continue
		}
		x := posts(e1)
		if got := x[len(x)-1].Request.Header["X-Request-Id"]; len(got) != 1 || got[0] != id {
			t.Errorf("%s: the engine saw %q, the client %q", q.name, got, id)
		}
		g.await("the id in the log", func() bool { return strings.Contains(g.logs.String(), `"request_id":"`+id+`"`) })
	}
	// Errors of the gateway carry it as well.
	for _, path := range []string{"/v1/chat/completions", "/nowhere", "/v1/models/none"} {
		if a := g.post(c, path, "{}", "X-Request-Id", "mine"); a.header.Get("X-Request-Id") != "mine" || a.status < 400 {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	// More than a header may hold.
	a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", false), "X-Request-Id", strings.Repeat("a", 100<<10))
	checkError(t, a, 431, "invalid_request")
	for line := range strings.Lines(g.logs.String()) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}\n") {
			t.Errorf("log line %q", line)
		}
	}
}

// The same id on both attempts of a request.
func TestC33_OneIDForAllAttempts(t *testing.T) {
	gone := "{\"error\":{\"message\":\"The model `m` does not exist.\",\"param\":\"model\",\"code\":404}}"
	e1, e2 := startPlayed(t, func(x *enginetest.Exchange) { x.Respond(404, "application/json", gone) }), startPlayed(t, func(x *enginetest.Exchange) { x.Respond(404, "application/json", gone) })
	g := startCase(t, "", e1, e2)
	a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false), off...)
	x := posts(e1, e2)
	if len(x) != 2 {
		t.Fatalf("%d attempts", len(x))
	}
	for _, x := range x {
		if id := x.Request.Header.Get("X-Request-Id"); id != a.header.Get("X-Request-Id") || id == "" {
			t.Errorf("%q and %q", id, a.header.Get("X-Request-Id"))
		}
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestC38_BodiesBeyondTheLimit(t *testing.T) {
	const limit, size = 1 << 20, 20 << 20
	e1 := startPlayed(t, good)
	g := startCase(t, `body = "1MiB"`, e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for name, length := range map[string]int64{"length": size, "chunked": -1} {
			req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", io.LimitReader(zeros{}, size))
			req.ContentLength = length
			a := do(c, req)
			if a.status == 0 {
				t.Errorf("%s: %v", name, a.err)
				continue
			}
			checkError(t, a, 413, "invalid_request")
		}
	})
	// A client that writes everything before it reads.
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, strings.Repeat(" ", 1<<20))
	for name, raw := range map[string]string{
		"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n", size) + strings.Repeat(" ", size),
		"chunked": "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, 20) + "0\r\n\r\n",
	} {
		w := dialWire(t, g)
		w.send("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n" + raw)
		a := w.answer()
		if a.status != 413 {
			t.Errorf("%s: %d %v", name, a.status, a.err)
		}
		checkError(t, a, 413, "invalid_request")
		if more, err := w.rest(); err != nil || more != "" {
			t.Errorf("%s: after the answer: %v %q", name, err, more)
		}
	}
	// One that asks first need not send it.
	w := dialWire(t, g)
	w.send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size))
	checkError(t, w.answer(), 413, "invalid_request")
	// The limit itself still passes.
	body := chatBody("m", "", false)
	body = strings.Replace(body, `"content":""`, `"content":"`+strings.Repeat("x", limit-len(body))+`"`, 1)
	if a := g.post(over1(t), "/v1/chat/completions", body); a.status != 200 || len(body) != limit {
		t.Errorf("%d bytes: %d %s", len(body), a.status, a.body)
	}
	wantPosts(t, e1, 1)
	g.await("the bodies' memory to be given back", func() bool { return g.metric("penstock_body_bytes") == 0 })
}

// No header, request URI or member of the body leads anywhere but to the configured engines.
func TestC50_ClientsCannotChooseAnAddress(t *testing.T) {
	internal, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = internal.Close() })
	contacted := make(chan bool, 100)
	go func() {
		for {
			c, err := internal.Accept()
			if err != nil {
				return
			}
			contacted <- true
			_ = c.Close()
		}
	}()
	target := internal.Addr().String()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	names := []string{"X-Target-Url", "X-Gateway-Destination-Endpoint", "X-Prefiller-Url", "X-Prefiller-Host-Port", "X-Forwarded-Host", "Forwarded", "X-Penstock-Engine", "X-Penstock-Attempts", "X-Penstock-Reason",
		"X-Upstream", "X-Original-Url", "X-Rewrite-Url", "X-Api-Base", "Base-Url", "X-Data-Parallel-Rank", "Helicone-Target-Url", "X-Portkey-Custom-Host"}
	c := over1(t)
	for _, name := range names {
		if a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", false), name, "http://"+target); a.status != 200 || a.header.Get("X-Penstock-Engine") != "e1" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	body := strings.Replace(chatBody("m", "hi", false), `{"model"`, `{"api_base":"http://`+target+`","base_url":"http://`+target+`","model"`, 1)
	g.post(c, "/v1/chat/completions", body)
	n := len(names) + 1
	wantPosts(t, e1, n)
	for _, x := range posts(e1) {
		if head, _, _ := bytes.Cut(x.Raw, []byte("\r\n\r\n")); bytes.Contains(head, []byte(target)) {
			t.Errorf("the engine sees\n%s", head)
		}
	}
	post := rawPost("/v1/chat/completions", chatBody("m", "hi", false))
	for name, raw := range map[string]string{
		"absolute URI": strings.Replace(post, "POST /", "POST http://"+target+"/", 1),
		"host":         strings.Replace(post, "Host: gateway", "Host: "+target, 1),
		"userinfo":     strings.Replace(post, "POST /", "POST http://user:pw@"+target+"/", 1),
	} {
		w := dialWire(t, g)
		w.send(raw)
		if a := w.answer(); a.status == 200 {
			n++
			x := posts(e1)
			if h := x[len(x)-1].Request; "http://"+h.Host != e1.URL() || h.URL.Host != "" {
				t.Errorf("%s: the engine sees host %q, %q", name, h.Host, h.RequestURI)
			}
		} else if a.status != 400 && a.status != 404 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for name, raw := range map[string]string{
		"CONNECT":           "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n",
		"CONNECT a path":    "CONNECT /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"an absolute GET":   "GET http://" + target + "/latest/meta-data HTTP/1.1\r\nHost: " + target + "\r\n\r\n",
		"upgrade":           "GET /v1/models HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"escaped path":      "POST /v1%2Fchat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{}",
		"dots in the path":  "POST /v1/x/../chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{}",
		"asterisk":          "OPTIONS * HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"no HTTP":           "HELLO, IS ANYBODY THERE?\r\n\r\n",
		"two hosts":         "GET /v1/models HTTP/1.1\r\nHost: gateway\r\nHost: " + target + "\r\n\r\n",
		"differing lengths": "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
	} {
		w := dialWire(t, g)
		w.send(raw)
		a := w.answer()
		if name == "asterisk" && a.status == 200 { // net/http's own answer
			continue
		}
		if a.status < 400 || a.status > 499 || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %q", name, a.status, a.header, a.body)
		}
	}
	wantPosts(t, e1, n)
	select {
	case <-contacted:
		t.Error("the internal service was contacted")
	default:
	}
}

// Images travel in bodies: with the default limit, 25 MiB pass unchanged.
func TestC53_BigBodiesPassUnchanged(t *testing.T) {
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	for i, size := range []int{9 << 20, 25 << 20} {
		image := make([]byte, size/3)
		r := rand.NewChaCha8([32]byte{byte(i)})
		for i := range image {
			image[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[r.Uint64()&63]
		}
		part := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + string(image) + `"}}`
		body := `{"model":"m","messages":[{"role":"user","content":[` + part + "," + part + "," + part + `]}]}`
		c := over1(t)
		if i == 1 {
			c = overH2(t)
		}
		if a := g.post(c, "/v1/chat/completions", body); !a.looksComplete() {
			t.Fatalf("%d MiB: %d %v %s", size>>20, a.status, a.err, a.body)
		}
		if x := posts(e1); len(x) != i+1 || string(x[i].Body) != body {
			t.Errorf("%d MiB: the engine got other bytes", size>>20)
		}
	}
}

// The body goes on byte for byte, whatever is in it.
func TestC54_BodiesAreForwardedByteForByte(t *testing.T) {
	body := " {\n\t\"unknown\": {\"deep\":[1,  2.50, 1.0, -0, 1e400, 1E+2, 9007199254740993, {\"a\":null}]}, \"seed\": 9007199254740993 ,\"model\" :\"m\"," +
		`"chat_template_kwargs":{"enable_thinking":false},"guided_regex":"\\d+","temperature":1.0,"top_p":1e0,"messages":[{"role":"user","content":"a \u00e9 \ud83d\ude00 é < & > \/ \u2028  two  spaces"}],` +
		`"vllm_xargs":{"x":1},"logit_bias":{"50256":-100}, "stop":["\n\n"]}` + "\r\n "
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	n := 0
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, chunked := range []bool{false, true} {
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = io.MultiReader(strings.NewReader(body[:7]), strings.NewReader(body[7:]))
			}
			req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", r)
			req.Header.Set("Content-Type", "application/json")
			if a := do(c, req); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			n++
			x := posts(e1)
			if len(x) != n {
				t.Fatalf("%d requests", len(x))
			}
			if last := x[n-1]; string(last.Body) != body || last.Request.ContentLength != int64(len(body)) {
				t.Errorf("the engine got %d bytes %q", last.Request.ContentLength, last.Body)
			}
		}
	})
}

// Speech, and other kinds of answer on any path, pass as they come.
func TestC55_OtherContentTypesPassUnchanged(t *testing.T) {
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{3}).Read(noise)
	lines := strings.Repeat(`{"model":"m","response":"x","done":false}`+"\n", 1000)
	for kind, body := range map[string]string{"audio/mpeg": string(noise), "application/x-ndjson": lines, "application/octet-stream": "data: {\n\n\r" + string(noise[:100])} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write("HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nTransfer-Encoding: chunked\r\n\r\n")
				for rest := body; rest != ""; {
					n := min(len(rest), 64<<10)
					x.Chunk(rest[:n])
					rest = rest[n:]
				}
				x.EndChunks()
			})
			g := startCase(t, "", e1)
			bothProtocols(t, func(t *testing.T, c *http.Client) {
				for path, ask := range map[string]string{"/v1/chat/completions": chatBody("m", "hi", true), "/v1/audio/speech": `{"model":"m","input":"hi","voice":"v"}`} {
					a := g.post(c, path, ask)
					if a.err != nil || a.body != body || a.header.Get("Content-Type") != kind {
						t.Errorf("%s: %v %s, %d bytes of %d", path, a.err, a.header.Get("Content-Type"), len(a.body), len(body))
					}
				}
			})
			wantRequests(g, outcomes{"ok": 4})
			if log := g.logs.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
				t.Error(log)
			}
		})
	}
}

// An HTTP/1.0 client gets the events without chunks, and an error event where they break off.
func TestHTTP10Clients(t *testing.T) {
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
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.Pause(20 * time.Millisecond)
		if strings.Contains(string(x.Body), `"stream":true`) {
			streams(token(x.Request.Header.Get("X-Request-Id")), finishEvent, doneEvent)(x)
			return
		}
		x.Respond(200, "application/json", `{"id":"`+x.Request.Header.Get("X-Request-Id")+`"}`)
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

// The access log says what is known and nothing else: no counts of tokens where
// the engine gave none, no time in a queue where nobody waited.
func TestAccessLogSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	sse := func(chunks ...string) func(x *enginetest.Exchange) {
		return func(x *enginetest.Exchange) {
			x.Respond(200, "text/event-stream", "data: "+strings.Join(chunks, "\n\ndata: ")+"\n\ndata: [DONE]\n\n")
		}
	}
	word := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}`
	stop := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	told := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}}`
	e := startPlayed(t, sse(word, word, stop))
	g := startGateway(t, engineTOML("e1", e.URL()), "e1")
	c := http.DefaultClient
	line := func(id string) (fields map[string]any) {
		g.await("the request's line", func() bool { return strings.Contains(g.logs.String(), id) })
		for l := range strings.Lines(g.logs.String()) {
			if strings.Contains(l, id) && strings.Contains(l, `"msg":"request"`) {
				if err := json.Unmarshal([]byte(l), &fields); err != nil {
					t.Fatal(err)
				}
			}
		}
		return fields
	}
	quiet := line(g.post(c, "/v1/chat/completions", chatBody("m", "hi", true), "Traceparent", "00-"+trace+"-b7ad6b7169203331-01").header.Get("X-Request-Id"))
	if quiet["trace_id"] != trace || quiet["client_ip"] != "127.0.0.1" || quiet["content_events"] != 2.0 {
		t.Errorf("%v", quiet)
	}
	for _, name := range []string{"prompt_tokens", "cached_tokens", "completion_tokens", "queue_ms"} {
		if v, ok := quiet[name]; ok {
			t.Errorf("%s = %v, and nobody said so", name, v)
		}
	}
	e.SetPlay(sse(word, word, stop, told))
	full := line(g.post(c, "/v1/chat/completions", chatBody("m", "hi", true), "Traceparent", "00-secret words-of a client").header.Get("X-Request-Id"))
	if full["prompt_tokens"] != 7.0 || full["cached_tokens"] != 4.0 || full["completion_tokens"] != 3.0 || full["content_events"] != nil || full["trace_id"] != nil {
		t.Errorf("%v", full)
	}
}
