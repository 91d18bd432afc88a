package enginetest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func startScript(t *testing.T, play Play) *Script {
	t.Helper()
	s, err := StartScript(play)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func dialScript(t *testing.T, s *Script) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func TestScriptAnswersPages(t *testing.T) {
	s := startScript(t, func(x *Exchange) { x.Respond(404, "", "played") })
	get := func(path string) (int, string) {
		resp, err := http.Get(s.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, readAll(t, resp.Body)
	}
	if code, body := get("/health"); code != 200 || body != "" {
		t.Errorf("%d %q", code, body)
	}
	if code, body := get("/v1/models"); code != 200 || !strings.Contains(body, `"id":"m"`) {
		t.Errorf("%d %q", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "vllm:num_requests_waiting") {
		t.Errorf("%d %q", code, body)
	}
	s.SetHealth(503)
	s.SetModels("a", "b")
	s.SetMetrics("x 1\n")
	s.SetPage("/load", Page{Body: "{}", Delay: time.Millisecond})
	for path, want := range map[string]string{"/health": "", "/v1/models": `"id":"b"`, "/metrics": "x 1\n", "/load": "{}", "/other": "played"} {
		if code, body := get(path); !strings.Contains(body, want) || (code == 503) != (path == "/health") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if n := s.PageHits("/health"); n != 2 {
		t.Errorf("%d hits", n)
	}
	if x := s.Exchanges(); len(x) != 1 || x[0].Request.URL.Path != "/other" {
		t.Errorf("%d exchanges", len(x))
	}
}

// What arrives is kept byte for byte, with both framings, on one connection.
func TestScriptRecordsRawRequests(t *testing.T) {
	s := startScript(t, func(x *Exchange) { x.Respond(200, "text/plain", "ok") })
	conn := dialScript(t, s)
	r := bufio.NewReader(conn)
	requests := []struct{ raw, body string }{
		{"POST /a HTTP/1.1\r\nhOsT: x\r\nContent-Length: 5\r\nX-Odd:  v \r\n\r\nhello", "hello"},
		{"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n", "abcde"},
		{"GET /c HTTP/1.1\r\nHost: x\r\n\r\n", ""},
	}
	for i, q := range requests {
		if _, err := io.WriteString(conn, q.raw); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body := readAll(t, resp.Body); body != "ok" {
			t.Errorf("%q", body)
		}
		x := s.Exchanges()[i]
		if string(x.Raw) != q.raw || string(x.Body) != q.body || x.Index != i || x.Conn != 0 {
			t.Errorf("raw %q\nbody %q", x.Raw, x.Body)
		}
	}
	if c := s.Connections(); len(c) != 1 || c[0].Requests != 3 || c[0].Ended != Connected {
		t.Errorf("%+v", c)
	}
}

// How a connection ended, and by whom, is told apart; a play is told that its
// peer has left.
func TestScriptSeesHowAConnectionEnds(t *testing.T) {
	const request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	for _, c := range []struct {
		name   string
		play   Play
		client func(*net.TCPConn)
		want   Departure
	}{
		{"peer closes", func(x *Exchange) { x.StartStream(); x.Hang() }, func(c *net.TCPConn) { _ = c.Close() }, PeerClosed},
		{"peer resets", func(x *Exchange) { x.StartStream(); x.Hang() }, func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, PeerReset},
		{"peer closes its half", func(x *Exchange) { x.StartStream(); <-x.Gone() }, func(c *net.TCPConn) { _ = c.CloseWrite() }, PeerClosed},
		{"we close", func(x *Exchange) { x.StartStream(); x.Close() }, func(*net.TCPConn) {}, ClosedByUs},
		{"we reset", func(x *Exchange) { x.StartStream(); x.Reset() }, func(*net.TCPConn) {}, ResetByUs},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startScript(t, c.play)
			conn := dialScript(t, s)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			// Read all of it: to close with unread bytes would be a reset.
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Fatal(err)
			}
			c.client(conn)
			eventually(t, "the end is recorded", func() bool { return s.Connections()[0].Ended != Connected })
			if got := s.Connections()[0]; got.Ended != c.want || got.EndedAt.Before(got.Opened) {
				t.Errorf("%s, want %s", got.Ended, c.want)
			}
			if c.want == ClosedByUs || c.want == ResetByUs {
				_, err := io.ReadAll(conn)
				if isReset(err) != (c.want == ResetByUs) {
					t.Errorf("the client sees %v", err)
				}
			}
		})
	}
}

func TestScriptStreams(t *testing.T) {
	s := startScript(t, func(x *Exchange) {
		x.StartStream()
		x.Token("a \"b\"\n")
		x.Chunk(": comment\n\n")
		if !x.Pause(time.Millisecond) {
			t.Error("the client has not left")
		}
		x.Finish()
	})
	for range 2 { // over the same connection
		resp, err := http.Post(s.URL()+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		v := viewOf(t, strings.Replace(readAll(t, resp.Body), ": comment\n\n", "", 1))
		_ = resp.Body.Close()
		if v.text[0] != "a \"b\"\n" || v.finished != 1 || !v.done {
			t.Errorf("%+v", v)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "the client's departure is seen", func() bool { return s.Connections()[0].Ended == PeerClosed })
}

func TestScriptCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := StartScript(func(x *Exchange) { x.StartStream(); x.Pause(time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	dialScript(t, s) // sends nothing
	for range 3 {
		conn := dialScript(t, s)
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three plays are on", func() bool { return len(s.Exchanges()) == 3 })
	s.Close()
	s.Close()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	again, err := StartScriptAt(strings.TrimPrefix(s.URL(), "http://"), func(x *Exchange) { x.Respond(200, "", "") })
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
