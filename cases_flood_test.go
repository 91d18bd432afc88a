package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"penstock/engine/enginetest"
)

// h2wire is a client that writes HTTP/2 frames by hand. What it is sent is read
// and handed to seen, which may be nil.
type h2wire struct {
	t     testing.TB
	conn  wireConn
	mu    sync.Mutex // guards what is written
	out   *bytes.Buffer
	fr    *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
	next  uint32
	ended chan struct{} // closed when the gateway has ended the connection
}

// dialH2 opens a connection and exchanges settings.
func dialH2(t testing.TB, g *running, settings []http2.Setting, seen func(w *h2wire, f http2.Frame)) *h2wire {
	t.Helper()
	conn := dialWire(t, g, "h2").conn
	if c, ok := conn.(*tlsWire); ok && c.ConnectionState().NegotiatedProtocol != "h2" {
		t.Fatal("no h2 was negotiated")
	}
	_ = conn.SetReadDeadline(time.Time{})
	w := &h2wire{t: t, conn: conn, out: new(bytes.Buffer), next: 1, ended: make(chan struct{})}
	w.fr, w.enc = http2.NewFramer(w.out, conn), hpack.NewEncoder(&w.block)
	w.fr.AllowIllegalWrites = true
	w.write(func() {
		w.out.WriteString(http2.ClientPreface)
		_ = w.fr.WriteSettings(settings...)
		_ = w.fr.WriteSettingsAck()
	})
	go func() {
		defer close(w.ended)
		for {
			f, err := w.fr.ReadFrame()
			if err != nil {
				return
			}
			if seen != nil {
				seen(w, f)
			}
		}
	}()
	return w
}

// write sends what frames writes, in one write.
func (w *h2wire) write(frames func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Reset()
	frames()
	_, err := w.conn.Write(w.out.Bytes())
	return err
}

// post writes the HEADERS of a request with a body still to come.
func (w *h2wire) post(path string, more ...string) (id uint32) {
	id = w.next
	w.next += 2
	w.block.Reset()
	pairs := append([]string{":method", "POST", ":scheme", "http", ":authority", "gateway", ":path", path, "content-type", "application/json"}, more...)
	for i := 0; i < len(pairs); i += 2 {
		_ = w.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	_ = w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block.Bytes(), EndHeaders: true})
	return id
}

// isOver reports whether the gateway has ended the connection.
func (w *h2wire) isOver() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// bothPorts runs a test with a plain port and with one that speaks TLS.
func bothPorts(t *testing.T, run func(t *testing.T, listen string)) {
	t.Run("h2c", func(t *testing.T) { t.Parallel(); run(t, "") })
	t.Run("tls", func(t *testing.T) { t.Parallel(); run(t, tlsKeys(t)) })
}

// listenWith is a configuration with lines for [listen].
func listenWith(lines, rest string) string {
	return "[listen]\naddress = \"127.0.0.1:0\"\n" + lines + "[admin]\naddress = \"127.0.0.1:0\"\n" + rest
}

// Frames that ask for nothing end their connection soon, whatever they are,
// and nobody else's.
func TestFloodsOfFramesEndTheirConnection(t *testing.T) {
	const atMost = 48 << 20 // bytes, with all the buffers on the way
	type flood struct {
		name  string
		frame func(w *h2wire, id uint32)
	}
	floods := []flood{
		{"ping", func(w *h2wire, _ uint32) { _ = w.fr.WritePing(false, [8]byte{1}) }},
		{"ping answers", func(w *h2wire, _ uint32) { _ = w.fr.WritePing(true, [8]byte{1}) }},
		{"settings", func(w *h2wire, _ uint32) { _ = w.fr.WriteSettings() }},
		{"settings that change", func(w *h2wire, _ uint32) {
			_ = w.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096})
		}},
		{"window update", func(w *h2wire, _ uint32) { _ = w.fr.WriteWindowUpdate(0, 1) }},
		{"window update of a stream", func(w *h2wire, id uint32) { _ = w.fr.WriteWindowUpdate(id, 1) }},
		{"priority", func(w *h2wire, id uint32) {
			_ = w.fr.WritePriority(id, http2.PriorityParam{StreamDep: 0, Weight: 1})
		}},
		{"empty data", func(w *h2wire, id uint32) { _ = w.fr.WriteData(id, false, nil) }},
		{"unknown type", func(w *h2wire, _ uint32) { _ = w.fr.WriteRawFrame(0x0b, 0, 0, []byte("x")) }},
		{"priority update", func(w *h2wire, id uint32) {
			_ = w.fr.WriteRawFrame(0x10, 0, 0, []byte{0, 0, 0, byte(id), 'u', '=', '1'})
		}},
	}
	bothPorts(t, func(t *testing.T, listen string) {
		e1 := startPlayed(t, good)
		g := startGateway(t, listenWith(listen, engineTOML("e1", e1.URL())), "e1")
		honest := overH2(t)
		kinds := floods
		if listen != "" {
			kinds = []flood{floods[0], floods[4], floods[7]} // below TLS it is the same meter
		}
		for _, flood := range kinds {
			t.Run(flood.name, func(t *testing.T) {
				w := dialH2(t, g, nil, nil)
				var id uint32
				_ = w.write(func() { id = w.post("/v1/chat/completions") })
				sent, began := 0, time.Now()
				for !w.isOver() && sent < atMost {
					err := w.write(func() {
						for range 1024 {
							flood.frame(w, id)
						}
					})
					sent += w.out.Len()
					if err != nil {
						break
					}
				}
				if sent >= atMost {
					t.Fatalf("%d MiB, and the connection is open", sent>>20)
				}
				awaitCond(t, "the end of the connection", w.isOver)
				t.Logf("ended after %d KiB, %v", sent>>10, time.Since(began).Round(time.Millisecond))
				if a := g.post(honest, "/v1/chat/completions", chatBody("m", "hi", true)); !a.looksComplete() {
					t.Errorf("meanwhile: %d %v %s", a.status, a.err, a.body)
				}
			})
		}
		// net/http ends a connection by itself where more than 10,000 answers to pings wait.
		if n := int(g.metric(`penstock_client_connections_given_up_total{reason="flood"}`)); n < len(kinds)-1 || n > len(kinds) {
			t.Errorf("%d connections counted", n)
		}
		g.await("the log to say so", func() bool { return strings.Contains(g.logs.String(), `"msg":"client connection given up"`) })
		wantPosts(t, e1, len(kinds))
		g.await("the connections to be closed", func() bool { return g.metric("penstock_client_connections") <= 1 })
	})
}

// A header without an end is cut at the header's limit.
func TestHeadersWithoutEnd(t *testing.T) {
	bothPorts(t, func(t *testing.T, listen string) {
		e1 := startPlayed(t, good)
		g := startGateway(t, listenWith(listen, engineTOML("e1", e1.URL())), "e1")
		for name, value := range map[string]string{"small": "a", "large": strings.Repeat("a", 8<<10)} {
			w := dialH2(t, g, nil, nil)
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			sent := 0
			err := w.write(func() {
				_ = w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: false})
			})
			for i := 0; err == nil && !w.isOver() && sent < 32<<20; i++ {
				block.Reset()
				_ = enc.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", i), Value: value, Sensitive: true})
				err = w.write(func() { _ = w.fr.WriteContinuation(1, false, block.Bytes()) })
				sent += w.out.Len()
			}
			if sent >= 32<<20 {
				t.Errorf("%s: %d MiB of a header, and the connection is open", name, sent>>20)
			}
			awaitCond(t, "the end of the connection", w.isOver)
		}
		wantPosts(t, e1, 0)
	})
}

// Requests that are taken back at once, by the client (CVE-2023-44487) or by
// making the gateway reset them (CVE-2025-8671), never are more than the
// connection's streams at the engine, and end the connection.
func TestRapidResets(t *testing.T) {
	const streams = 64
	for name, takeBack := range map[string]func(w *h2wire, id uint32){
		"by the client":  func(w *h2wire, id uint32) { _ = w.fr.WriteRSTStream(id, http2.ErrCodeCancel) },
		"by the gateway": func(w *h2wire, id uint32) { _ = w.fr.WriteWindowUpdate(id, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			bothPorts(t, func(t *testing.T, listen string) {
				var now, peak atomic.Int64
				e1 := startPlayed(t, func(x *enginetest.Exchange) {
					n := now.Add(1)
					for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
					}
					x.Hang()
					now.Add(-1)
				})
				g := startGateway(t, listenWith(fmt.Sprintf("max_streams = %d\n", streams)+listen, engineTOML("e1", e1.URL(), "max_in_flight = 1000")), "e1")
				var resets atomic.Int64 // read of the gateway's
				w := dialH2(t, g, nil, func(w *h2wire, f http2.Frame) {
					switch f := f.(type) {
					case *http2.RSTStreamFrame:
						resets.Add(1)
					case *http2.GoAwayFrame:
						t.Logf("GOAWAY %v, last stream %d %q", f.ErrCode, f.LastStreamID, f.DebugData())
					}
				})
				body := chatBody("m", "hi", true)
				requests := 0
				for ; !w.isOver() && requests < 1<<20; requests++ {
					// net/http closes where 10,000 control frames wait to be read, of which a
					// request can make several: a client that has them reset reads what it gets,
					// so that it's not that which ends it.
					for wait := 0; name == "by the gateway" && int64(requests)-resets.Load() > 1024 && wait < 1000 && !w.isOver(); wait++ {
						time.Sleep(time.Millisecond)
					}
					if w.write(func() {
						id := w.post("/v1/chat/completions", "x-penstock-affinity", "off")
						_ = w.fr.WriteData(id, true, []byte(body))
						takeBack(w, id)
					}) != nil {
						break
					}
				}
				awaitCond(t, "the end of the connection", w.isOver)
				byUs := g.metric(`penstock_client_connections_given_up_total{reason="resets"}`)
				byHTTP := g.metric(`penstock_h2_errors_total{error="conn_ENHANCE_YOUR_CALM_too_many_early_resets"}`)
				t.Logf("ended after %d requests (%v by our rule, %v by net/http's); %d at the engine, %d at once", requests, byUs, byHTTP, len(posts(e1)), peak.Load())
				if byUs+byHTTP == 0 {
					t.Error("ended for another reason")
				}
				// A connection to the engine closes a moment after its request has ended.
				if p := peak.Load(); p > 2*streams {
					t.Errorf("%d requests at once at the engine", p)
				}
				idle(g, "e1")
				g.await("all requests to end", func() bool { return g.metric("penstock_requests_running") == 0 })
			})
		})
	}
}

// What clients do in earnest is no flood: large bodies in small frames, a
// window update or two for every chunk of many streams, polling, refused
// uploads, and cancelling now and then.
func TestHonestClientsAreNoFlood(t *testing.T) {
	const streams, chunks = 100, 300
	bothPorts(t, func(t *testing.T, listen string) {
		e1 := startPlayed(t, func(x *enginetest.Exchange) {
			switch {
			case bytes.Contains(x.Body, []byte("cancelled")):
				x.Hang()
			case bytes.Contains(x.Body, []byte("many chunks")):
				x.StartStream()
				for range chunks {
					x.Chunk(token("x"))
				}
				x.Finish()
			default:
				good(x)
			}
		})
		g := startGateway(t, listenWith(listen, engineTOML("e1", e1.URL(), "max_in_flight = 1000")+"[limits]\nbody = \"8MiB\"\n"), "e1")
		var data, ended atomic.Int64
		w := dialH2(t, g, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 20}}, func(w *h2wire, f http2.Frame) {
			switch f := f.(type) {
			case *http2.DataFrame:
				data.Add(int64(len(f.Data())))
				if n := uint32(f.Header().Length); n > 0 {
					_ = w.write(func() { _ = w.fr.WriteWindowUpdate(0, n) })
					_ = w.write(func() { _ = w.fr.WriteWindowUpdate(f.StreamID, n) })
				}
			case *http2.GoAwayFrame:
				t.Errorf("GOAWAY: %v", f)
			}
			if f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders) {
				ended.Add(1)
			}
		})
		want := int64(0)
		for range streams {
			_ = w.write(func() {
				id := w.post("/v1/chat/completions", "x-penstock-affinity", "off")
				_ = w.fr.WriteData(id, true, []byte(chatBody("m", "many chunks", true)))
			})
			want++
		}
		awaitCond(t, "all streams to end", func() bool { return ended.Load() == want || w.isOver() })
		if w.isOver() || data.Load() < streams*chunks*100 {
			t.Fatalf("%d bytes, %d streams ended, over %v", data.Load(), ended.Load(), w.isOver())
		}
		// A client of the standard library, for what needs flow control.
		c := overH2(t)
		big := chatBody("m", strings.Repeat("long ", 1<<20), true)
		for range 3 { // 15 MiB, and a refused 10 MiB, on one connection
			req, err := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", io.MultiReader(strings.NewReader(big))) // no length
			if err != nil {
				t.Fatal(err)
			}
			if a := do(c, req); !a.looksComplete() {
				t.Fatalf("%d %v %s", a.status, a.err, a.body)
			}
			if a := g.post(c, "/v1/chat/completions", big+big); a.status != 413 {
				t.Fatalf("%d %v %s", a.status, a.err, a.body)
			}
		}
		for range 3000 {
			if a := g.get(c, "/v1/models"); a.status != 200 {
				t.Fatalf("%d %v %s", a.status, a.err, a.body)
			}
		}
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(chatBody("m", "cancelled", true)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Request-Id", fmt.Sprint("cancelled-", i))
			done := make(chan bool)
			go func() { defer close(done); do(c, req) }()
			awaitCond(t, "the request at the engine", func() bool { return arrived(fmt.Sprint("cancelled-", i), e1) })
			cancel()
			<-done
		}
		if n := g.metric(`penstock_client_connections_given_up_total{reason="flood"}`) + g.metric(`penstock_client_connections_given_up_total{reason="resets"}`); n != 0 {
			t.Errorf("%v connections were given up", n)
		}
	})
}
