package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// secureEngine is an https engine: pages as a vLLM has them, and posts answered
// by a handler.
type secureEngine struct {
	*httptest.Server
	config atomic.Pointer[tls.Config]
	mu     sync.Mutex
	bodies []string // of posts, in order of arrival
	left   []time.Time
}

// startSecure runs one that offers the protocols. chat may block until the
// request's context ends, which is noted.
func startSecure(t testing.TB, chat http.HandlerFunc, protocols ...string) *secureEngine {
	t.Helper()
	e := new(secureEngine)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.bodies = append(e.bodies, string(body))
		e.mu.Unlock()
		defer func() {
			if r.Context().Err() != nil {
				e.mu.Lock()
				e.left = append(e.left, time.Now())
				e.mu.Unlock()
			}
		}()
		chat(w, r)
	})
	e.Server = httptest.NewUnstartedServer(mux)
	config, err := authority().Server(protocols, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	e.config.Store(config)
	e.TLS = &tls.Config{Certificates: config.Certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return e.config.Load(), nil }}
	e.EnableHTTP2 = len(protocols) > 0 && protocols[0] == "h2"
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *secureEngine) posts() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bodies
}

// caFile is the tests' authority as a file.
func caFile(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "ca.pem")
	swapFile(t, path, authority().PEM)
	return path
}

// bothSecure runs a test with engines over HTTP/1.1 and over HTTP/2, in TLS.
func bothSecure(t *testing.T, run func(t *testing.T, protocols ...string)) {
	t.Run("http1", func(t *testing.T) { t.Parallel(); run(t, "http/1.1") })
	t.Run("h2", func(t *testing.T) { t.Parallel(); run(t, "h2", "http/1.1") })
}

func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

// C54, C02 and C41 with an engine behind TLS: bodies as they came, whole
// answers, broken ones that show, and an end for the engine when the client leaves.
func TestHTTPSEngines(t *testing.T) {
	t.Parallel()
	bothSecure(t, func(t *testing.T, protocols ...string) {
		var mu sync.Mutex
		proto := ""
		e1 := startSecure(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			proto = r.Proto
			mu.Unlock()
			switch r.Header.Get("Traceparent") {
			case "break":
				sse(w, token("a"), token("b"))
				panic(http.ErrAbortHandler)
			case "hang":
				sse(w, token("a"))
				<-r.Context().Done()
			case "silent":
				<-r.Context().Done()
			default:
				sse(w, token("hello"), finishEvent, doneEvent)
			}
		}, protocols...)
		g := startGateway(t, engineTOML("e1", e1.URL, fmt.Sprintf("ca_file = %q", caFile(t))), "e1")
		c := over1(t)
		body := chatBody("m", strings.Repeat("long ", 100<<10), true)
		if a := g.post(c, "/v1/chat/completions", body); !a.looksComplete() || !strings.Contains(a.body, "hello") {
			t.Fatalf("%d %v %.300s", a.status, a.err, a.body)
		}
		if want := map[string]string{"h2": "HTTP/2.0", "http/1.1": "HTTP/1.1"}[protocols[0]]; proto != want {
			t.Errorf("the engine was asked over %s", proto)
		}
		if got := e1.posts(); len(got) != 1 || got[0] != body {
			t.Errorf("the engine saw %d requests, or another body", len(got))
		}
		a := g.post(c, "/v1/chat/completions", chatBody("m", "x", true), "Traceparent", "break")
		if a.err == nil || a.errorCode() != "stream_interrupted" || strings.Count(a.body, `"content"`) != 2 || strings.Contains(a.body, "[DONE]") {
			t.Errorf("a broken stream: %v %s", a.err, a.body)
		}
		for i, how := range []string{"hang", "silent"} {
			w := dialWire(t, g)
			w.send(rawPost("/v1/chat/completions", chatBody("m", "x", true), "Traceparent: "+how))
			g.await("the request at the engine", func() bool { return len(e1.posts()) == 3+i })
			if how == "hang" {
				w.head()
			}
			gone := time.Now()
			_ = w.conn.Close()
			g.await("the engine to notice", func() bool { e1.mu.Lock(); defer e1.mu.Unlock(); return len(e1.left) == i+1 })
			inTime(t, []time.Duration{e1.left[i].Sub(gone)})
		}
		wantRequests(g, outcomes{"ok": 1, "committed": 1, "gone": 2})
		idle(g, "e1")
	})
}

// An engine whose certificate is not accepted takes no traffic, and `penstock
// engines` says why. A request never goes to it.
func TestEnginesWithoutTrust(t *testing.T) {
	t.Parallel()
	trusted := startSecure(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, token("hello"), finishEvent, doneEvent) }, "h2", "http/1.1")
	stranger := startSecure(t, func(http.ResponseWriter, *http.Request) {}, "h2", "http/1.1")
	g := startGateway(t, engineTOML("e1", trusted.URL, fmt.Sprintf("ca_file = %q", caFile(t)))+
		engineTOML("e2", stranger.URL, `models = ["m"]`), "e1")
	g.await("e2 to be down", func() bool { return g.engineState("e2") == "down" })
	code, out, stderr := penstock(t, "engines", "--admin", strings.TrimPrefix(g.admin, "http://"))
	if code != exitDone || !strings.Contains(out, "certificate not accepted: x509: certificate signed by unknown authority") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
	g.await("the log to say why", func() bool { return strings.Contains(g.logs.String(), "certificate signed by unknown authority") })
	if n := g.metric(`penstock_probes_total{engine="e2",result="untrusted"}`); n < 1 {
		t.Errorf("%v probes counted", n)
	}
	for range 20 {
		if a := g.post(client(t), "/v1/chat/completions", chatBody("m", "hi", true), off...); !a.looksComplete() || a.header.Get("X-Penstock-Engine") != "e1" {
			t.Fatalf("%d %v %s", a.status, a.err, a.body)
		}
	}
	if n := len(stranger.posts()); n != 0 {
		t.Errorf("the engine without trust saw %d requests", n)
	}
}

// A certificate that expires while the engine is in service: requests go
// elsewhere, as with a refused connection.
func TestC06_EnginesThatLoseTheirTrust(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request) { sse(w, token("hello"), finishEvent, doneEvent) }
	e1, e2 := startSecure(t, answer, "http/1.1"), startSecure(t, answer, "http/1.1")
	ca := caFile(t)
	text := engineTOML("e1", e1.URL, fmt.Sprintf("ca_file = %q", ca)) + engineTOML("e2", e2.URL, fmt.Sprintf("ca_file = %q", ca))
	g := startGateway(t, text, "e1", "e2")
	cert, key, err := authority().Issue(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	// Without tickets: a session that is resumed shows no certificate.
	e1.config.Store(&tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
	e1.CloseClientConnections()
	for i := range 40 {
		if a := g.post(client(t), "/v1/chat/completions", chatBody("m", fmt.Sprint(i), true), off...); !a.looksComplete() {
			t.Errorf("%d %v %s", a.status, a.err, a.body)
		}
	}
	g.await("e1 to be down", func() bool { return g.engineState("e1") == "down" })
}
