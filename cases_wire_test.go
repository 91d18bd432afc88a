package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// What the case tests share: engines that answer posts as scripted, clients
// that see the wire, and the books that an outcome must show in.

// patience is how long a test waits for what should come at once.
const patience = 30 * time.Second

// startPlayed runs a scripted engine that plays posts only: other questions
// about its kind get 404.
func startPlayed(t testing.TB, play enginetest.Play) *enginetest.Script {
	t.Helper()
	return startScript(t, onPosts(play))
}

func onPosts(play enginetest.Play) enginetest.Play {
	return func(x *enginetest.Exchange) {
		if x.Request.Method != http.MethodPost {
			x.Respond(404, "application/json", `{"detail":"Not Found"}`)
			return
		}
		play(x)
	}
}

// startCase runs a gateway in front of the scripted engines e1, e2, ... and
// waits until all are in use. limits are lines of its [limits] table.
func startCase(t testing.TB, limits string, engines ...*enginetest.Script) *running {
	t.Helper()
	text, names := "[limits]\n"+limits+"\n", []string{}
	for i, e := range engines {
		name := fmt.Sprintf("e%d", i+1)
		names = append(names, name)
		text += engineTOML(name, e.URL(), `dialect = "vllm"`)
	}
	return startGateway(t, text, names...)
}

// posts are the requests for answers that the engines saw.
func posts(engines ...*enginetest.Script) (all []*enginetest.Exchange) {
	for _, e := range engines {
		for _, x := range e.Exchanges() {
			if x.Request.Method == http.MethodPost {
				all = append(all, x)
			}
		}
	}
	return all
}

// wantPosts fails unless the engine saw exactly n requests for answers.
func wantPosts(t testing.TB, e *enginetest.Script, n int) {
	t.Helper()
	if got := len(posts(e)); got != n {
		t.Errorf("the engine saw %d requests, want %d", got, n)
	}
}

// outcomes are counts by the outcome label.
type outcomes map[string]int

var allOutcomes = []string{"ok", "client", "not_processed", "ambiguous", "committed", "gone"}

// wantRequests waits until as many requests of the model have ended as want
// holds, and compares how.
func wantRequests(g *running, want outcomes) {
	g.t.Helper()
	wantOutcomes(g, `penstock_requests_total{model="m",outcome=%q,tenant="default"}`, want)
}

// wantAttempts is wantRequests for the attempts on one engine.
func wantAttempts(g *running, engine string, want outcomes) {
	g.t.Helper()
	wantOutcomes(g, `penstock_attempts_total{engine="`+engine+`",outcome=%q}`, want)
}

func wantOutcomes(g *running, series string, want outcomes) {
	g.t.Helper()
	total := 0
	for _, n := range want {
		total += n
	}
	var got outcomes
	read := func() (sum int) {
		got = outcomes{}
		for _, o := range allOutcomes {
			if n := int(g.metric(fmt.Sprintf(series, o))); n > 0 {
				got[o] = n
				sum += n
			}
		}
		return sum
	}
	for end := time.Now().Add(patience); read() < total && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if !maps.Equal(got, want) {
		g.t.Errorf("%s: %v, want %v", series, got, want)
	}
}

// idle waits until no engine has anything in flight.
func idle(g *running, engines ...string) {
	g.t.Helper()
	for _, e := range engines {
		g.await(e+" to have nothing in flight", func() bool { return g.metric(`penstock_inflight{engine="`+e+`"}`) == 0 })
	}
}

// over1 is client with an end to its patience, so that a gateway that hangs
// fails a test soon.
func over1(t testing.TB) *http.Client {
	c := client(t)
	c.Timeout = 3 * patience
	return c
}

// overH2 speaks HTTP/2 only.
func overH2(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, Protocols: http2Only(), TLSClientConfig: trusting()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 3 * patience}
}

// bothProtocols runs a test with an HTTP/1.1 and an HTTP/2 client.
func bothProtocols(t *testing.T, run func(t *testing.T, c *http.Client)) {
	t.Run("http1", func(t *testing.T) { run(t, over1(t)) })
	t.Run("h2", func(t *testing.T) { run(t, overH2(t)) })
}

// open sends a chat request and leaves the answer's body unread.
func open(t testing.TB, g *running, c *http.Client, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// wire is a client that writes and reads bytes.
type wire struct {
	t    testing.TB
	conn wireConn
	r    *bufio.Reader
}

type wireConn interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
	SetReadBuffer(bytes int) error
}

// dialWire opens a connection; with TLS it offers the protocols.
func dialWire(t testing.TB, g *running, protocols ...string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var over wireConn = conn.(*net.TCPConn)
	if strings.HasPrefix(g.url, "https:") {
		over = dialTLSWire(t, over.(*net.TCPConn), protocols...)
	}
	return &wire{t: t, conn: over, r: bufio.NewReader(over)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, text); err != nil {
		w.t.Fatal(err)
	}
}

// rawPost is a request as it goes over the wire; lines are header lines.
func rawPost(path, body string, lines ...string) string {
	head := "POST " + path + " HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
	for _, l := range lines {
		head += l + "\r\n"
	}
	return head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
}

// head reads one response's head; its body is read from the response.
func (w *wire) head() *http.Response {
	w.t.Helper()
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// answer reads one response whole.
func (w *wire) answer() answered {
	w.t.Helper()
	resp := w.head()
	body, err := io.ReadAll(resp.Body)
	return answered{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// rest reads until the gateway ends the connection.
func (w *wire) rest() (string, error) {
	b, err := io.ReadAll(w.r)
	return string(b), err
}

// reset ends the connection with a RST.
func (w *wire) reset() {
	_ = w.conn.SetLinger(0)
	_ = w.conn.Close()
}

// token is the event in which content arrives, as a Script writes it.
func token(content string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", content)
}

const (
	roleEvent   = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	finishEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
	wholeAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
)

func usageEvent(prompt, completion int) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
		prompt, completion, prompt+completion)
}

// good answers every request well, whether it asks for a stream or not.
func good(x *enginetest.Exchange) {
	if strings.Contains(string(x.Body), `"stream":true`) {
		x.StartStream()
		x.Chunk(token("hello"))
		x.Chunk(finishEvent)
		x.Chunk(doneEvent)
		x.EndChunks()
		return
	}
	x.Respond(200, "application/json", wholeAnswer)
}

// streams plays the pieces as the chunks of a whole stream of events.
func streams(pieces ...string) enginetest.Play {
	return func(x *enginetest.Exchange) {
		x.StartStream()
		for _, p := range pieces {
			x.Chunk(p)
		}
		x.EndChunks()
	}
}
