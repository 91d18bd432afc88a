package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"penstock/engine/enginetest"
)

// startTLS runs a gateway whose data port speaks TLS with the pair in dir.
func startTLS(t testing.TB, dir, rest string, ready ...string) *running {
	t.Helper()
	return startGateway(t, listenWith(fmt.Sprintf("tls_cert = %q\ntls_key = %q\n", filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")), rest), ready...)
}

func TestTLSOffersWhatIsSafe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	e1 := startPlayed(t, good)
	g := startTLS(t, dir, engineTOML("e1", e1.URL()), "e1")
	for _, c := range []struct {
		name         string
		min, max     uint16
		offered      []string
		refused      bool
		version      uint16
		protocol     string
		httpProtocol string
	}{
		{name: "TLS 1.0", min: tls.VersionTLS10, max: tls.VersionTLS10, refused: true},
		{name: "TLS 1.1", min: tls.VersionTLS10, max: tls.VersionTLS11, refused: true},
		{name: "TLS 1.2", max: tls.VersionTLS12, offered: []string{"h2", "http/1.1"}, version: tls.VersionTLS12, protocol: "h2"},
		{name: "TLS 1.3", offered: []string{"http/1.1", "h2"}, version: tls.VersionTLS13, protocol: "h2"},
		{name: "HTTP/1.1 only", offered: []string{"http/1.1"}, version: tls.VersionTLS13, protocol: "http/1.1"},
		{name: "no ALPN", version: tls.VersionTLS13},
		{name: "a protocol that is not served", offered: []string{"spdy/3"}, refused: true},
	} {
		conn, err := net.Dial("tcp", g.address())
		if err != nil {
			t.Fatal(err)
		}
		config := trusting()
		config.ServerName, config.MinVersion, config.MaxVersion, config.NextProtos = "localhost", c.min, c.max, c.offered
		secure := tls.Client(conn, config)
		err = secure.Handshake()
		state := secure.ConnectionState()
		switch {
		case c.refused != (err != nil):
			t.Errorf("%s: %v", c.name, err)
		case err == nil && (state.Version != c.version || state.NegotiatedProtocol != c.protocol):
			t.Errorf("%s: %s, %q", c.name, tls.VersionName(state.Version), state.NegotiatedProtocol)
		}
		_ = conn.Close()
	}
	g.await("the refusals to be counted", func() bool { return g.metric(`penstock_tls_handshake_failures_total{reason="protocol"}`) == 3 })
	for name, c := range map[string]*http.Client{"HTTP/1.1": over1(t), "HTTP/2.0": overH2(t)} {
		resp := open(t, g, c, chatBody("m", "hi", true))
		if body, err := io.ReadAll(resp.Body); err != nil || resp.Proto != name || !bytes.HasSuffix(body, []byte(doneEvent)) {
			t.Errorf("%s: %s, %v %q", name, resp.Proto, err, body)
		}
	}
}

// Whoever speaks plain HTTP to the port is told so, in our words; who cannot
// go on is counted by why.
func TestTLSHandshakesThatFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	g := startTLS(t, dir, engineTOML("e1", startPlayed(t, good).URL()))
	failures := func(reason string) float64 {
		return g.metric(fmt.Sprintf(`penstock_tls_handshake_failures_total{reason=%q}`, reason))
	}
	silent := must(net.Dial("tcp", g.address())) // says nothing, and is given up for it
	defer silent.Close()
	a := do(over1(t), must(http.NewRequest("POST", "http://"+g.address()+"/v1/chat/completions", strings.NewReader(chatBody("m", strings.Repeat("x", 1<<20), false)))))
	if a.status != 400 || a.errorCode() != "invalid_request" || !strings.Contains(a.body, "https://") {
		t.Errorf("plain HTTP: %d %v %s", a.status, a.err, a.body)
	}
	g.await("it to be counted", func() bool { return failures("plain_http") == 1 })
	distrusting := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	if a := g.get(distrusting, "/livez"); a.err == nil {
		t.Error("a client that knows no such authority went on")
	}
	g.await("it to be counted", func() bool { return failures("refused_by_client") == 1 })
	leaver, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(leaver, "\x16\x03\x01") // the beginning of a hello
	_ = leaver.Close()
	g.await("it to be counted", func() bool { return failures("client_gone") == 1 })
	g.await("the silent one to be counted", func() bool { return failures("timeout") == 1 })
	g.await("all to be closed", func() bool { return g.metric("penstock_client_connections") == 0 })
	if strings.Contains(g.logs.String(), "TLS handshake error") {
		t.Errorf("a client's broken handshake is logged\n%s", g.logs)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Requests that net/http refuses by itself get our errors, over TLS as well.
func TestMalformedRequestsOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	e1 := startPlayed(t, good)
	g := startTLS(t, dir, engineTOML("e1", e1.URL()), "e1")
	for request, status := range map[string]int{
		"NONSENSE\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                     400,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n":       400,
		"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 80<<10) + "\r\n\r\n": 431,
	} {
		w := dialWire(t, g)
		go w.conn.Write([]byte(request)) // the gateway may close before it has read all
		a := w.answer()
		if a.status != status || a.errorCode() != "invalid_request" || a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%.40q: %d %v %s", request, a.status, a.header, a.body)
		}
		if rest, _ := w.rest(); rest != "" {
			t.Errorf("%.40q: and then %q", request, rest)
		}
	}
	wantPosts(t, e1, 0)
}

// To a client of HTTP/1.0 the end of the connection is that of the answer. TLS
// tells a proper end from a cut, so a broken answer must not end properly.
func TestCutAnswersOverTLSHaveNoFarewell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	long := strings.Repeat("x", 9<<20) // beyond what is held back
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		whole := strings.Contains(string(x.Body), "whole")
		if whole {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		} else {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		}
		x.Chunk(long)
		if whole {
			x.EndChunks()
			return
		}
		x.Reset()
	})
	g := startTLS(t, dir, engineTOML("e1", e1.URL()), "e1")
	for _, kind := range []string{"whole", "broken"} {
		w := dialWire(t, g)
		w.send(strings.Replace(rawPost("/v1/chat/completions", chatBody("m", kind, false)), "HTTP/1.1", "HTTP/1.0", 1))
		resp := w.head()
		_, err := io.Copy(io.Discard, resp.Body)
		if properly := err == nil; properly != (kind == "whole") {
			t.Errorf("%s: ended with %v", kind, err)
		}
	}
}

// certificateOf is what the data port shows now.
func certificateOf(t testing.TB, g *running) string {
	t.Helper()
	config := trusting()
	config.ServerName = "localhost"
	conn, err := tls.Dial("tcp", g.address(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// A reload takes up a new certificate at once. A pair that cannot be used
// changes nothing; that it is looked for without a reload too, a test of proxy
// shows.
func TestCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	g := startTLS(t, dir, engineTOML("e1", startPlayed(t, good).URL()))
	validFor := func() time.Duration {
		return time.Duration(g.metric("penstock_tls_certificate_expiry_timestamp_seconds")-float64(time.Now().Unix())) * time.Second
	}
	first := certificateOf(t, g)
	if left := validFor(); left < 22*time.Hour || left > 24*time.Hour {
		t.Errorf("expires in %v", left)
	}
	writePair(t, dir, 48*time.Hour)
	if a := g.ask("POST", "/-/reload"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	second := certificateOf(t, g)
	if left := validFor(); second == first || left < 46*time.Hour {
		t.Errorf("the new certificate is not in use: expires in %v", left)
	}
	swapFile(t, filepath.Join(dir, "tls.key"), []byte("-----BEGIN PRIVATE KEY-----\nbm8ga2V5\n-----END PRIVATE KEY-----\n"))
	if a := g.ask("POST", "/-/reload"); a.status != 422 || !strings.Contains(a.body, "listen.tls_key") {
		t.Errorf("a reload with a broken pair: %d %s", a.status, a.body)
	}
	if certificateOf(t, g) != second {
		t.Error("the last good certificate is not in use")
	}
	// One that has expired is no fault of the file, and no better than what is in use.
	writePair(t, dir, time.Second)
	if a := g.ask("POST", "/-/reload"); a.status != 200 || certificateOf(t, g) != second {
		t.Errorf("an expired certificate: %d %s", a.status, a.body)
	}
	if n := g.metric(`penstock_tls_certificate_reloads_total{result="rejected"}`); n != 1 {
		t.Errorf("%v rejected", n)
	}
	if log := g.logs.String(); !strings.Contains(log, "certificate rejected") || strings.Contains(log, "PRIVATE KEY") {
		t.Errorf("log:\n%s", log)
	}
	// Another pair of files takes no restart either.
	other := t.TempDir()
	writePair(t, other, 72*time.Hour)
	g.write(strings.ReplaceAll(string(must(os.ReadFile(g.file))), dir, other))
	if _, err := g.reload(false); err != nil {
		t.Fatal(err)
	}
	if left := validFor(); certificateOf(t, g) == second || left < 70*time.Hour {
		t.Errorf("the other files are not in use: expires in %v", left)
	}
}

// While certificates and configuration are replaced, no handshake fails.
func TestCertificateReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	const reloads, clients = 60, 4
	dir := t.TempDir()
	writePair(t, dir, 24*time.Hour)
	e1 := startPlayed(t, good)
	g := startTLS(t, dir, engineTOML("e1", e1.URL()), "e1")
	ctx, stop := context.WithCancel(t.Context())
	var served atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				tr := &http.Transport{TLSClientConfig: trusting(), DisableKeepAlives: true}
				if i%2 == 0 {
					tr.Protocols = http2Only()
				}
				a := g.post(&http.Client{Transport: tr, Timeout: patience}, "/v1/chat/completions", chatBody("m", "hi", true))
				tr.CloseIdleConnections()
				if !a.looksComplete() {
					t.Errorf("%d %v %s", a.status, a.err, a.body)
				}
				served.Add(1)
			}
		})
	}
	for i := range reloads {
		if i%3 == 2 {
			swapFile(t, filepath.Join(dir, "tls.key"), []byte("no key"))
		} else {
			writePair(t, dir, time.Duration(24+i)*time.Hour)
		}
		if a := g.ask("POST", "/-/reload"); (a.status == 200) != (i%3 != 2) {
			t.Errorf("reload %d: %d %s", i, a.status, a.body)
		}
	}
	g.await("requests", func() bool { return served.Load() > reloads })
	stop()
	all.Wait()
	if n := g.metric(`penstock_tls_certificate_reloads_total{result="ok"}`); n != reloads*2/3 {
		t.Errorf("%v certificates were taken into use", n)
	}
	for _, reason := range []string{"protocol", "timeout", "refused_by_client", "client_gone"} {
		if n := g.metric(fmt.Sprintf(`penstock_tls_handshake_failures_total{reason=%q}`, reason)); n != 0 {
			t.Errorf("%v handshakes failed: %s", n, reason)
		}
	}
}

// C46: h2 clients are told to go away, and their streams finish.
func TestC46_DrainOfH2Connections(t *testing.T) {
	t.Parallel()
	bothPorts(t, func(t *testing.T, listen string) {
		release := make(chan struct{})
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			x.StartStream()
			x.Chunk(token("a"))
			select {
			case <-release:
				x.Finish()
			case <-x.Gone():
			}
		})
		g := startGateway(t, listenWith(listen, engineTOML("e1", e1.URL())), "e1")
		goAway, done := make(chan uint32, 4), make(chan bool, 1)
		var answer atomic.Pointer[bytes.Buffer]
		answer.Store(new(bytes.Buffer))
		w := dialH2(t, g, nil, func(w *h2wire, f http2.Frame) {
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				goAway <- f.LastStreamID
			case *http2.DataFrame:
				answer.Load().Write(f.Data())
				if f.StreamEnded() {
					done <- true
				}
			}
		})
		_ = w.write(func() {
			id := w.post("/v1/chat/completions")
			_ = w.fr.WriteData(id, true, []byte(chatBody("m", "hi", true)))
		})
		g.await("the stream to run", func() bool { return len(posts(e1)) == 1 })
		if a := g.ask("POST", "/-/drain"); a.status != 202 {
			t.Fatal(a.status, a.body)
		}
		select {
		case <-goAway:
		case <-time.After(patience):
			t.Fatal("no GOAWAY")
		}
		close(release)
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the stream did not end")
		}
		if !strings.HasSuffix(answer.Load().String(), doneEvent) {
			t.Errorf("the stream: %q", answer.Load())
		}
		awaitCond(t, "the connection to be closed", w.isOver)
		select {
		case err := <-g.ended:
			g.ended <- err
		case <-time.After(patience):
			t.Error("the gateway does not end")
		}
	})
}

// A thousand streams at once over the connection pool of one client, in TLS and
// with the limits as they are by default: none waits for another's end.
func TestThousandStreamsOfOneClient(t *testing.T) {
	t.Parallel()
	const n = 1000
	release := make(chan struct{})
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		x.Chunk(token("first"))
		select {
		case <-release:
			x.Finish()
		case <-x.Gone():
		}
	})
	g := startGateway(t, listenWith(tlsKeys(t), engineTOML("e1", e1.URL(), "max_in_flight = 2000", `dialect = "vllm"`)), "e1")
	c := overH2(t)
	c.Timeout = 0
	g.get(c, "/livez") // the first connection is there, with its settings
	var first atomic.Int64
	var all together
	slots := make(chan bool, 16) // on their way: fewer than the machine can dial in a second
	for i := range n {
		slots <- true
		all.send(func() string {
			resp, err := c.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", fmt.Sprint(i), true)))
			if err != nil {
				<-slots
				return err.Error()
			}
			defer resp.Body.Close()
			r := bufio.NewReader(resp.Body)
			line, err := r.ReadString('\n')
			first.Add(1)
			<-slots
			rest, err2 := io.ReadAll(r)
			if err != nil || err2 != nil || !strings.Contains(line, "first") || !strings.HasSuffix(string(rest), doneEvent) {
				return fmt.Sprintf("%v %v %q %q", err, err2, line, rest)
			}
			return ""
		})
	}
	g.await("the first event of every stream", func() bool { return first.Load() == n })
	if running := g.metric("penstock_requests_running"); running != n {
		t.Errorf("%v requests run at once", running)
	}
	t.Logf("%d streams over %v connections", n, g.metric("penstock_client_connections"))
	close(release)
	all.wait(t)
	idle(g, "e1")
}

// The second listener has the pages of scrapers and probes, and no other.
func TestMetricsListener(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	text := "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\nmetrics_address = \"127.0.0.1:0\"\n" + engineTOML("e1", e1.URL())
	g := startGateway(t, text, "e1")
	g.await("the ready line", func() bool { return strings.Contains(g.logs.String(), `"msg":"ready"`) })
	var ready struct{ Metrics string }
	for line := range strings.Lines(g.logs.String()) {
		if strings.Contains(line, `"msg":"ready"`) && json.Unmarshal([]byte(line), &ready) != nil {
			t.Fatal(line)
		}
	}
	if ready.Metrics == "" {
		t.Fatalf("the ready line does not tell the address\n%s", g.logs)
	}
	c := client(t)
	ask := func(method, path string) answered {
		req := must(http.NewRequest(method, "http://"+ready.Metrics+path, nil))
		req.Host = "gw-1.monitoring.example" // scrapers come by any name
		return do(c, req)
	}
	for path, status := range map[string]int{"/metrics": 200, "/livez": 200, "/readyz": 200, "/engines": 404, "/table": 404, "/requests/x": 404, "/": 404,
		"/debug/pprof/": 404, "/v1/models": 404, "/-/reload": 404, "/-/drain": 404} {
		if a := ask("GET", path); a.status != status {
			t.Errorf("GET %s: %d", path, a.status)
		}
		if a := ask("POST", path); a.status != 404 && a.status != 405 {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
	if a := ask("GET", "/metrics"); !strings.Contains(a.body, "penstock_requests_running") {
		t.Errorf("%.200s", a.body)
	}
	if g.get(c, "/readyz").status != 200 {
		t.Error("a request to the metrics listener has drained the gateway")
	}
	g.handler.Drain()
	if a := ask("GET", "/readyz"); a.status != 503 {
		t.Errorf("draining: %d", a.status)
	}
}
