package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

func TestC30_HopByHopHeadersStay(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// No header, request URI or member of the body leads anywhere but to the configured engines.
func TestC50_ClientsCannotChooseAnAddress(t *testing.T) {
	t.Parallel()
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
