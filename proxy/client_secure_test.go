package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/protect"
)

// frameEngine is an https engine that writes HTTP/2 frames by hand.
type frameEngine struct {
	t        *testing.T
	ln       net.Listener
	caFile   string
	settings []http2.Setting
	told     func(*http2.SettingsFrame)    // may be nil
	play     func(c *frameConn, id uint32) // called when a request has come whole
	mu       sync.Mutex
	conns    []*frameConn
	requests [][]byte // bodies, in order of arrival
}

// frameConn is one connection of it.
type frameConn struct {
	e      *frameEngine
	index  int
	conn   net.Conn
	mu     sync.Mutex // guards fr's writes
	fr     *http2.Framer
	bodies map[uint32][]byte
	frozen chan struct{} // while it can be read from, nothing is
}

func startFrameEngine(t *testing.T, play func(c *frameConn, id uint32), settings ...http2.Setting) *frameEngine {
	t.Helper()
	authority, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	config, err := authority.Server([]string{"h2"}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	e := &frameEngine{t: t, ln: ln, caFile: filepath.Join(t.TempDir(), "ca.pem"), settings: settings, play: play}
	if err := os.WriteFile(e.caFile, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			c := &frameConn{e: e, index: len(e.conns), conn: conn, fr: http2.NewFramer(conn, conn), bodies: map[uint32][]byte{}}
			e.conns = append(e.conns, c)
			e.mu.Unlock()
			serving.Go(c.serve)
		}
	})
	t.Cleanup(func() {
		ln.Close()
		e.mu.Lock()
		for _, c := range e.conns {
			c.conn.Close()
		}
		e.mu.Unlock()
		serving.Wait()
	})
	return e
}

// engine is how the gateway knows it.
func (e *frameEngine) engine() *engine.Engine {
	return engine.New(engine.Config{Name: "e1", URL: "https://" + e.ln.Addr().String(), CAFile: e.caFile}, engine.NewLive(1))
}

// seen is how many requests came whole, over how many connections.
func (e *frameEngine) seen() (requests, conns int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.requests), len(e.conns)
}

func (c *frameConn) serve() {
	defer c.conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.conn, preface); err != nil {
		return
	}
	c.write(func() { _ = c.fr.WriteSettings(c.e.settings...) })
	for {
		f, err := c.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if c.e.told != nil {
					c.e.told(f)
				}
				c.write(func() { _ = c.fr.WriteSettingsAck() })
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				c.write(func() { _ = c.fr.WritePing(true, f.Data) })
			}
		case *http2.DataFrame:
			c.bodies[f.StreamID] = append(c.bodies[f.StreamID], f.Data()...)
			if n := uint32(len(f.Data())); n > 0 {
				c.write(func() { _ = c.fr.WriteWindowUpdate(0, n) })
			}
			if f.StreamEnded() {
				c.e.mu.Lock()
				c.e.requests = append(c.e.requests, c.bodies[f.StreamID])
				c.e.mu.Unlock()
				c.e.play(c, f.StreamID)
			}
		}
		if c.frozen != nil {
			<-c.frozen
		}
	}
}

func (c *frameConn) write(frames func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames()
}

// answer sends a head, and a body unless it is empty; end ends the stream.
func (c *frameConn) answer(id uint32, body string, end bool) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = enc.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/json"})
	c.write(func() {
		_ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		if body != "" || end {
			_ = c.fr.WriteData(id, end, []byte(body))
		}
	})
}

// posting is a request body with its attempt.
func posting(e *engine.Engine, text string) *outgoing {
	b := newBody(len(text), protect.NewMemory(1<<30))
	b.bytes = append(b.bytes, text...)
	return &outgoing{engine: e, path: "/v1/chat/completions", header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"once"}}, body: b}
}

func secureClient(t *testing.T) *transportClient {
	c := newTransportClient(nil)
	t.Cleanup(c.closeIdle)
	return c
}

// ask sends a request and reads the answer whole.
func ask(t *testing.T, c *transportClient, out *outgoing) (string, *sendError) {
	t.Helper()
	var h halt
	late := time.AfterFunc(20*time.Second, func() { h.end(context.DeadlineExceeded) })
	defer late.Stop()
	in, failed := c.send(&h, out)
	if failed != nil {
		return "", failed
	}
	defer in.body.Close()
	body, err := io.ReadAll(in.body)
	if err != nil {
		t.Errorf("reading the answer: %v", err)
	}
	return string(body), nil
}

const question = `{"model":"m","messages":[]}`

// Whatever an HTTP/2 engine does about a request, it gets it once, and the end
// says whether it has worked on it.
func TestH2EnginesGetARequestOnce(t *testing.T) {
	reset := func(code http2.ErrCode) func(*frameConn, uint32) {
		return func(c *frameConn, id uint32) { c.write(func() { _ = c.fr.WriteRSTStream(id, code) }) }
	}
	for _, row := range []struct {
		name string
		play func(c *frameConn, id uint32)
		end  attemptEnd
	}{
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream), endRefusedStream},
		{"GOAWAY below the stream", func(c *frameConn, id uint32) {
			c.write(func() { _ = c.fr.WriteGoAway(id-2, http2.ErrCodeNo, nil) })
		}, endRefusedStream},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal), endNoResponse},
		{"PROTOCOL_ERROR", reset(http2.ErrCodeProtocol), endNoResponse},
		{"CANCEL", reset(http2.ErrCodeCancel), endNoResponse},
		{"ENHANCE_YOUR_CALM", reset(http2.ErrCodeEnhanceYourCalm), endNoResponse},
		{"GOAWAY above the stream, then the end", func(c *frameConn, id uint32) {
			c.write(func() { _ = c.fr.WriteGoAway(id, http2.ErrCodeNo, nil) })
			c.conn.Close()
		}, endNoResponse},
		{"GOAWAY with an error", func(c *frameConn, id uint32) {
			c.write(func() { _ = c.fr.WriteGoAway(id, http2.ErrCodeInternal, nil) })
			c.conn.Close()
		}, endNoResponse},
		{"no frame", func(c *frameConn, _ uint32) { _, _ = c.conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) }, endNoResponse},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			first := true
			e := startFrameEngine(t, func(c *frameConn, id uint32) {
				if first { // so that the connection has served, and been idle
					first = false
					c.answer(id, "warm", true)
					return
				}
				row.play(c, id)
			})
			c, known := secureClient(t), e.engine()
			if body, failed := ask(t, c, posting(known, question)); failed != nil || body != "warm" {
				t.Fatalf("%q %+v", body, failed)
			}
			_, failed := ask(t, c, posting(known, question))
			if failed == nil || failed.end != row.end || failed.reused || !failed.bodySent {
				t.Errorf("%+v, want end %d", failed, row.end)
			}
			time.Sleep(50 * time.Millisecond) // for a replay to come
			if n, _ := e.seen(); n != 2 {
				t.Errorf("the engine saw %d requests, want 2", n)
			}
		})
	}
}

// An idle connection that ends when a request comes is the race that the
// attempts repeat on a fresh one.
func TestH2IdleRace(t *testing.T) {
	e := startFrameEngine(t, func(c *frameConn, id uint32) {
		if id > 1 {
			c.conn.Close()
			return
		}
		c.answer(id, "ok", true)
	})
	c, known := secureClient(t), e.engine()
	if _, failed := ask(t, c, posting(known, question)); failed != nil {
		t.Fatal(failed.err)
	}
	_, failed := ask(t, c, posting(known, question))
	if failed == nil || failed.end != endNoResponse || !failed.reused {
		t.Fatalf("%+v", failed)
	}
	again := posting(known, question)
	again.fresh = true
	if body, failed := ask(t, c, again); failed != nil || body != "ok" {
		t.Errorf("%q %+v", body, failed)
	}
	if requests, conns := e.seen(); requests != 3 || conns != 2 {
		t.Errorf("%d requests over %d connections", requests, conns)
	}
}

// C48: a connection whose engine is frozen, without a FIN, is found by a ping
// that is not answered. What is on it fails and is not repeated; the next
// request has another connection. A silent engine that is alive is waited for.
func TestC48_FrozenH2Connections(t *testing.T) {
	frozen := make(chan struct{})
	var freeze atomic.Bool
	e := startFrameEngine(t, func(c *frameConn, id uint32) {
		switch {
		case c.index == 0 && freeze.Load():
			c.frozen = frozen
		case string(c.bodies[id]) == "slow":
			go func() {
				time.Sleep(time.Second) // several pings
				c.answer(id, "slow", true)
			}()
		default:
			c.answer(id, "ok", true)
		}
	})
	defer close(frozen)
	c, known := secureClient(t), e.engine()
	c.transports.pingAfter, c.transports.pingWait = 200*time.Millisecond, 2*time.Second
	if body, failed := ask(t, c, posting(known, "slow")); failed != nil || body != "slow" {
		t.Fatalf("%q %+v", body, failed)
	}
	freeze.Store(true)
	_, failed := ask(t, c, posting(known, question))
	if failed == nil || failed.end != endNoResponse || failed.reused {
		t.Fatalf("%+v", failed)
	}
	if body, failed := ask(t, c, posting(known, question)); failed != nil || body != "ok" {
		t.Errorf("after it: %q %+v", body, failed)
	}
	if requests, conns := e.seen(); requests != 3 || conns != 2 {
		t.Errorf("%d requests over %d connections", requests, conns)
	}
}

// More streams than an engine takes on one connection get another connection
// and do not wait: more than two connections' worth are answered only once all
// of these are there.
func TestH2StreamsBeyondTheEnginesLimit(t *testing.T) {
	const streams, limit, together = 48, 16, 40
	var there atomic.Int64
	enough := make(chan struct{})
	e := startFrameEngine(t, func(c *frameConn, id uint32) {
		if string(c.bodies[id]) == "first" {
			c.answer(id, "ok", true)
			return
		}
		if there.Add(1) == together {
			close(enough)
		}
		go func() {
			<-enough
			c.answer(id, "ok", true)
		}()
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit})
	c, known := secureClient(t), e.engine()
	if _, failed := ask(t, c, posting(known, "first")); failed != nil { // with it come the settings
		t.Fatal(failed.err)
	}
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			if body, failed := ask(t, c, posting(known, question)); failed != nil || body != "ok" {
				t.Errorf("%q %+v", body, failed)
			}
		})
	}
	all.Wait()
	if requests, conns := e.seen(); requests != streams+1 || conns < 3 || conns > streams+1 {
		t.Errorf("%d requests over %d connections", requests, conns)
	}
}

// Of an answer whose client does not read, little is taken in.
func TestH2WindowIsBounded(t *testing.T) {
	var window atomic.Int64
	e := startFrameEngine(t, func(c *frameConn, id uint32) { c.answer(id, "ok", true) })
	e.told = func(s *http2.SettingsFrame) {
		if v, ok := s.Value(http2.SettingInitialWindowSize); ok {
			window.Store(int64(v))
		}
	}
	if _, failed := ask(t, secureClient(t), posting(e.engine(), question)); failed != nil {
		t.Fatal(failed.err)
	}
	if w := window.Load(); w != h2WindowBytes {
		t.Errorf("a window of %d bytes", w)
	}
}

// A connection without TLS, or with a certificate that is not accepted, is one
// that could not be made: nothing of the request has left.
func TestTLSFailuresAreDialFailures(t *testing.T) {
	e := startFrameEngine(t, func(c *frameConn, id uint32) { c.answer(id, "ok", true) })
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	go http.Serve(plain, http.NotFoundHandler())
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepted by the kernel alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, row := range []struct {
		name   string
		config engine.Config
		want   string
	}{
		{"unknown authority", engine.Config{URL: "https://" + e.ln.Addr().String()}, "unknown authority"},
		{"wrong name", engine.Config{URL: "https://" + e.ln.Addr().String(), CAFile: e.caFile, TLSServerName: "vllm.internal"}, "vllm.internal"},
		{"no TLS", engine.Config{URL: "https://" + plain.Addr().String(), CAFile: e.caFile}, "TLS"},
		{"silent", engine.Config{URL: "https://" + silent.Addr().String(), CAFile: e.caFile}, "deadline"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.config.Name = "e1"
			out := posting(engine.New(row.config, engine.NewLive(1)), question)
			_, failed := ask(t, secureClient(t), out)
			if failed == nil || failed.end != endDialFailed || failed.bodySent || !strings.Contains(failed.err.Error(), row.want) {
				t.Errorf("%+v", failed)
			}
		})
	}
	t.Cleanup(func() {
		if n, _ := e.seen(); n != 0 {
			t.Errorf("%d requests reached the engine", n)
		}
	})
}

// Engines of different trust share no connection, though they have one address.
func TestTrustSeparatesConnections(t *testing.T) {
	e := startFrameEngine(t, func(c *frameConn, id uint32) { c.answer(id, "ok", true) })
	c := secureClient(t)
	if _, failed := ask(t, c, posting(e.engine(), question)); failed != nil {
		t.Fatal(failed.err)
	}
	stranger := engine.New(engine.Config{Name: "e2", URL: "https://" + e.ln.Addr().String()}, engine.NewLive(2))
	if _, failed := ask(t, c, posting(stranger, question)); failed == nil || failed.end != endDialFailed {
		t.Errorf("an engine whose certificate is not accepted was asked over another's connection: %+v", failed)
	}
}

// The bodies that engines get are whole, whatever their windows are.
func TestH2BodiesAreWhole(t *testing.T) {
	e := startFrameEngine(t, func(c *frameConn, id uint32) { c.answer(id, "ok", true) },
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c, known := secureClient(t), e.engine()
	want := []string{"x", strings.Repeat("y", 20<<10), strings.Repeat("z", 60<<10)}
	for _, text := range want {
		out := posting(known, text)
		if _, failed := ask(t, c, out); failed != nil {
			t.Fatal(failed.err)
		}
		if n := out.body.users.Load(); n != 0 {
			t.Errorf("%d still hold the body", n)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.EqualFunc(e.requests, want, func(got []byte, text string) bool { return string(got) == text }) {
		t.Error("bodies differ")
	}
}

// Connections of both clients are timed for their engine without TLS and the
// answer, and the first attempt on one says so.
func TestConnectionsAreTimed(t *testing.T) {
	e := startFrameEngine(t, func(c *frameConn, id uint32) {
		time.Sleep(50 * time.Millisecond)
		c.answer(id, "warm", true)
	})
	secure, one := e.engine(), startOne(t, respond)
	c := &clients{plain: one.client, tls: secureClient(t)}
	for round := range 2 {
		for _, e := range []*engine.Engine{secure, one.engine} {
			in, failed := c.send(&halt{}, posting(e, question))
			if failed != nil {
				t.Fatal(failed.err)
			}
			_, err := io.ReadAll(in.body)
			in.body.Close()
			if err != nil || in.cold != (round == 0) {
				t.Errorf("%s, attempt %d: cold %t, %v", e.URL, round, in.cold, err)
			}
			if rtt := e.RoundTrip(); rtt <= 0 {
				t.Errorf("%s: round trip %s", e.URL, rtt)
			}
		}
	}
}
