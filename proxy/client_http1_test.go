package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/protect"
)

// oneEngine is a Script and the client that speaks to it.
type oneEngine struct {
	t      *testing.T
	script *enginetest.Script
	client *http1Client
	engine *engine.Engine
}

func startOne(t *testing.T, play enginetest.Play) *oneEngine {
	t.Helper()
	s, err := enginetest.StartScript(play)
	if err != nil {
		t.Fatal(err)
	}
	c := newHTTP1Client(nil)
	t.Cleanup(func() { c.closeIdle(); s.Close() })
	return &oneEngine{t: t, script: s, client: c, engine: engine.New(engine.Config{Name: "e", URL: s.URL()}, engine.NewLive(0))}
}

func (o *oneEngine) out(text string) *outgoing {
	b := newBody(len(text), protect.NewMemory(1<<30))
	b.bytes = append(b.bytes, text...)
	return &outgoing{engine: o.engine, path: "/v1/chat/completions", header: http.Header{"Content-Type": {"application/json"}}, body: b}
}

// answer sends one request and returns the whole body.
func (o *oneEngine) answer(a *outgoing) (int, string, error) {
	in, failed := o.client.send(&halt{}, a)
	if failed != nil {
		return 0, "", failed.err
	}
	defer in.body.Close()
	text, err := io.ReadAll(in.body)
	return in.status, string(text), err
}

func (o *oneEngine) mustAnswer(a *outgoing) string {
	o.t.Helper()
	status, text, err := o.answer(a)
	if err != nil || status != http.StatusOK {
		o.t.Fatalf("status %d, %v", status, err)
	}
	return text
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 500 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain for " + what)
}

func respond(x *enginetest.Exchange) {
	x.Respond(200, "application/json", `{"got":"`+string(x.Body)+`"}`)
}

// Requests one after another share a connection; each arrives whole and once,
// whatever its size.
func TestHTTP1Reuses(t *testing.T) {
	o := startOne(t, respond)
	for _, size := range []int{0, 1, 1000, oneWriteBytes, inlineBytes, 1 << 20} {
		text := strings.Repeat("x", size)
		if got := o.mustAnswer(o.out(text)); got != `{"got":"`+text+`"}` {
			t.Errorf("%d bytes: the answer has %d bytes", size, len(got))
		}
	}
	if n := len(o.script.Connections()); n != 1 {
		t.Errorf("%d connections for requests one after another", n)
	}
	if n := len(o.script.Exchanges()); n != 6 {
		t.Errorf("%d requests arrived, sent were 6", n)
	}
}

// A request on a connection of its own does not leave it behind.
func TestHTTP1Fresh(t *testing.T) {
	o := startOne(t, respond)
	o.mustAnswer(o.out("a"))
	a := o.out("b")
	a.fresh = true
	o.mustAnswer(a)
	o.mustAnswer(o.out("c"))
	if n := len(o.script.Connections()); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	if x := o.script.Exchanges()[2]; x.Conn != 0 {
		t.Error("the third request did not use the first connection")
	}
}

// What the engine cannot be told by a client: lines of its own, another
// length, another host.
func TestHTTP1HeadIsOurs(t *testing.T) {
	o := startOne(t, respond)
	a := o.out("body")
	a.header = http.Header{"User-Agent": nil, "X-A": {"one\r\nX-Evil: 1", "two\x00"}, "Content-Length": {"9"}, "Host": {"evil"},
		"Transfer-Encoding": {"chunked"}, "Connection": {"upgrade"}, "Expect": {"100-continue"}}
	a.path, a.query = "/v1/responses/a b?c/../d", "stream=true&x=\r\nX-Evil: 2#f"
	o.mustAnswer(a)
	r := o.script.Exchanges()[0].Request
	if got := r.Header["X-A"]; len(got) != 2 || got[0] != "one  X-Evil: 1" {
		t.Errorf("X-A is %q", got)
	}
	for name := range r.Header {
		if name != "X-A" && name != "Content-Length" {
			t.Errorf("the engine sees %s", name)
		}
	}
	if r.ContentLength != 4 || r.Host != strings.TrimPrefix(o.script.URL(), "http://") || len(r.TransferEncoding) > 0 {
		t.Errorf("length %d, host %q, coding %q", r.ContentLength, r.Host, r.TransferEncoding)
	}
	if r.URL.Path != a.path || r.RequestURI != "/v1/responses/a%20b%3Fc/../d?stream=true&x=%0D%0AX-Evil:%202%23f" {
		t.Errorf("path %q, target %q", r.URL.Path, r.RequestURI)
	}
}

// Bytes that come after an answer are not the beginning of the next one.
func TestHTTP1SurplusBytes(t *testing.T) {
	written := make(chan struct{}, 16) // all that the engine writes to a request
	for name, write := range map[string]func(x *enginetest.Exchange){
		"with the answer": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		},
		"after it": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			x.Pause(20 * time.Millisecond)
			x.Write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		},
		"after the last chunk": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := startOne(t, func(x *enginetest.Exchange) { write(x); written <- struct{}{} })
			for range 3 {
				if got := o.mustAnswer(o.out("a")); got != "ok" {
					t.Fatalf("answer %q", got)
				}
				<-written
				time.Sleep(20 * time.Millisecond) // over loopback
			}
			if n := len(o.script.Connections()); n != 3 {
				t.Errorf("%d connections, want one for each request", n)
			}
		})
	}
}

// A connection that the engine closed while it was idle is not used: the
// request goes out on a new one without a failure before it.
func TestHTTP1ClosedWhileIdle(t *testing.T) {
	o := startOne(t, func(x *enginetest.Exchange) {
		respond(x)
		x.Pause(5 * time.Millisecond)
		x.Close()
	})
	for range 3 {
		o.mustAnswer(o.out("a"))
		await(t, "the engine's close", func() bool {
			list := o.script.Connections()
			return list[len(list)-1].Ended == enginetest.ClosedByUs
		})
		time.Sleep(5 * time.Millisecond) // for the FIN
	}
	if n := len(o.script.Exchanges()); n != 3 {
		t.Errorf("%d requests arrived, want 3", n)
	}
}

// C09: a reused connection that dies at once is told apart from one on which
// the engine worked, and from a fresh one.
func TestHTTP1DeathOfAConnection(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  bool // on the first request of its connection
		pause  time.Duration
		write  string
		reused bool
		end    attemptEnd
	}{
		{"reused, at once", false, 0, "", true, endNoResponse},
		{"reused, later", false, idleRaceEnds + 100*time.Millisecond, "", false, endNoResponse},
		{"fresh", true, 0, "", false, endNoResponse},
		{"reused, in the header", false, 0, "HTTP/1.1 2", false, endNoResponse},
		{"reused, no HTTP", false, 0, "what?\r\n\r\n", false, endBadAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := startOne(t, respond)
			if !c.first {
				o.mustAnswer(o.out("a"))
			}
			o.script.SetPlay(func(x *enginetest.Exchange) {
				x.Pause(c.pause)
				x.Write(c.write)
				x.Reset()
			})
			in, failed := o.client.send(&halt{}, o.out("b"))
			if failed == nil {
				in.body.Close()
				t.Fatal("an answer")
			}
			if failed.reused != c.reused || failed.end != c.end || !failed.bodySent {
				t.Errorf("reused %v, end %d, sent %v (%v)", failed.reused, failed.end, failed.bodySent, failed.err)
			}
		})
	}
}

// An engine may refuse a large body after a part of it: its answer counts, and
// the connection does not.
func TestHTTP1RefusedBeforeRead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			io.ReadFull(conn, make([]byte, 1000))
			io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
			time.Sleep(200 * time.Millisecond) // it reads no more
			conn.Close()
		}
	}()
	o := startOne(t, respond)
	o.engine = engine.New(engine.Config{Name: "e", URL: "http://" + ln.Addr().String()}, engine.NewLive(0))
	a := o.out(strings.Repeat("x", 32<<20))
	status, text, err := o.answer(a)
	if status != 413 || text != "large" || err != nil {
		t.Fatalf("status %d, %q, %v", status, text, err)
	}
	if n := a.body.users.Load(); n != 0 {
		t.Errorf("%d still read the body", n)
	}
}

// Who cancels ends the wait at once, at every stage, and the engine sees the
// connection close.
func TestHTTP1Cancel(t *testing.T) {
	for name, play := range map[string]enginetest.Play{
		"before the header": func(x *enginetest.Exchange) { x.Hang() },
		"in the header":     func(x *enginetest.Exchange) { x.Write("HTTP/1.1 200 OK\r\n"); x.Hang() },
		"in the body":       func(x *enginetest.Exchange) { x.StartStream(); x.Token("a"); x.Hang() },
	} {
		t.Run(name, func(t *testing.T) {
			o := startOne(t, play)
			var h halt
			time.AfterFunc(50*time.Millisecond, func() { h.end(errStalled) })
			in, failed := o.client.send(&h, o.out("a"))
			if failed == nil {
				_, err := io.ReadAll(in.body)
				if err == nil {
					t.Error("the body ended as if it were whole")
				}
				in.body.Close()
			}
			await(t, "the engine to see it", func() bool {
				return o.script.Connections()[0].Ended == enginetest.PeerClosed || o.script.Connections()[0].Ended == enginetest.PeerReset
			})
		})
	}
}

// An exchange that ends when the answer has been read does not spoil the
// connection for the next request, and one that ended before it sends nothing.
func TestHTTP1HaltBetween(t *testing.T) {
	o := startOne(t, respond)
	var h halt
	in, failed := o.client.send(&h, o.out("a"))
	if failed != nil {
		t.Fatal(failed.err)
	}
	io.ReadAll(in.body)
	in.body.Close()
	h.end(errStalled)
	o.mustAnswer(o.out("b"))
	if _, failed := o.client.send(&h, o.out("c")); failed == nil || failed.bodySent {
		t.Error("a request of an exchange that had ended was sent")
	}
	if n := len(o.script.Exchanges()); n != 2 {
		t.Errorf("%d requests arrived, want 2", n)
	}
	if n := len(o.script.Connections()); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A body that is not read to its end ends its connection; closing twice, or
// late, touches nobody else's.
func TestHTTP1CloseEarly(t *testing.T) {
	o := startOne(t, func(x *enginetest.Exchange) { x.StartStream(); x.Token("a"); x.Finish() })
	in, failed := o.client.send(&halt{}, o.out("a"))
	if failed != nil {
		t.Fatal(failed.err)
	}
	in.body.Read(make([]byte, 10))
	in.body.Close()
	next, failed := o.client.send(&halt{}, o.out("b"))
	if failed != nil {
		t.Fatal(failed.err)
	}
	in.body.Close()
	if _, err := in.body.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	if text, err := io.ReadAll(next.body); err != nil || !strings.HasSuffix(string(text), "[DONE]\n\n") {
		t.Errorf("the second answer: %q, %v", text, err)
	}
	next.body.Close()
	if n := len(o.script.Connections()); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// Idle connections go when an address changes, with them those in use then;
// and no goroutine stays for any.
func TestHTTP1CloseIdle(t *testing.T) {
	before := runtime.NumGoroutine()
	o := startOne(t, respond)
	in, failed := o.client.send(&halt{}, o.out("a"))
	if failed != nil {
		t.Fatal(failed.err)
	}
	o.mustAnswer(o.out("b"))
	o.client.closeIdle()
	io.ReadAll(in.body)
	in.body.Close()
	o.mustAnswer(o.out("c"))
	if n := len(o.script.Connections()); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	o.client.closeIdle()
	o.script.Close()
	await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// Of an engine that left the fleet nothing is kept; an attempt that runs on it
// ends as it would have.
func TestHTTP1Forget(t *testing.T) {
	o := startOne(t, respond)
	in, failed := o.client.send(&halt{}, o.out("a"))
	if failed != nil {
		t.Fatal(failed.err)
	}
	o.mustAnswer(o.out("b"))
	pools := func() (n int) {
		o.client.pools.Range(func(any, any) bool { n++; return true })
		return n
	}
	o.client.forget(func(address string) bool { return address == o.engine.Base.Host })
	if n := pools(); n != 1 {
		t.Errorf("%d pools, want that of the engine which stays", n)
	}
	o.client.forget(func(string) bool { return false })
	if n := pools(); n != 0 {
		t.Errorf("%d pools are left", n)
	}
	if text, err := io.ReadAll(in.body); err != nil || string(text) != `{"got":"a"}` {
		t.Errorf("the attempt under way: %q, %v", text, err)
	}
	in.body.Close()
	await(t, "its connections to be closed", func() bool {
		for _, c := range o.script.Connections() {
			if c.Ended != enginetest.PeerClosed {
				return false
			}
		}
		return true
	})
}

// An engine that nobody calls keeps no connection open from here.
func TestHTTP1IdleTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the idle limit")
	}
	t.Parallel()
	o := startOne(t, respond)
	o.mustAnswer(o.out("a"))
	await(t, "the idle limit", func() bool {
		time.Sleep(40 * time.Millisecond)
		return o.script.Connections()[0].Ended == enginetest.PeerClosed
	})
	if lived := o.script.Connections()[0]; lived.EndedAt.Sub(lived.Opened) < engineIdle-time.Second {
		t.Errorf("closed after %v", lived.EndedAt.Sub(lived.Opened))
	}
}

// Dialing fails as such: nothing was sent.
func TestHTTP1Refused(t *testing.T) {
	o := startOne(t, respond)
	o.script.Close()
	_, failed := o.client.send(&halt{}, o.out("a"))
	if failed == nil || failed.end != endDialFailed || failed.bodySent || failed.reused {
		t.Errorf("%+v", failed)
	}
}

// A GET carries neither body nor length.
func TestHTTP1Get(t *testing.T) {
	o := startOne(t, respond)
	a := &outgoing{engine: o.engine, method: http.MethodGet, path: "/v1/responses/r1", query: "stream=true"}
	o.mustAnswer(a)
	if raw := string(o.script.Exchanges()[0].Raw); !strings.HasPrefix(raw, "GET /v1/responses/r1?stream=true HTTP/1.1\r\nHost: ") || strings.Contains(raw, "Content-Length") {
		t.Errorf("%q", raw)
	}
}

// Whoever is asked before a connection is made may wait: the demo puts
// distance there. A connection that is used again is not one more.
func TestConnectingIsAskedBeforeEachConnection(t *testing.T) {
	o := startOne(t, respond)
	var asked []string
	o.client = newHTTP1Client(func(address string) { asked = append(asked, address) })
	defer o.client.closeIdle()
	for range 2 {
		o.mustAnswer(o.out("a"))
	}
	if len(asked) != 1 || "http://"+asked[0] != o.script.URL() {
		t.Errorf("asked for %q, the engine is at %s", asked, o.script.URL())
	}
}
