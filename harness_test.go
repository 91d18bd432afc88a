package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/config"
	"penstock/engine"
	"penstock/engine/enginetest"
)

// running is a gateway of this process on free ports, in front of engines
// that the test started.
type running struct {
	*gateway
	t     testing.TB
	url   string // of the data port
	admin string // URL of the admin port
	file  string // its configuration file
	logs  *logBook
	stop  func() // ends it at once; called by itself at the end of the test
	ended chan error
}

// logBook collects log lines.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startGateway runs a gateway with the given configuration, to which it adds
// free ports, and waits until every engine named in ready is.
func startGateway(t testing.TB, text string, ready ...string) *running {
	t.Helper()
	if !strings.Contains(text, "[listen]") {
		text = "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n" + text
	}
	if overTLS {
		text = strings.Replace(text, "[listen]\n", "[listen]\n"+tlsKeys(t), 1)
	}
	path := filepath.Join(t.TempDir(), "penstock.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	logs := &logBook{}
	g, err := newGateway(file, path, logs)
	if err != nil {
		t.Fatal(err)
	}
	g.delay = 0
	ctx, cancel := context.WithCancel(context.Background())
	now := make(chan struct{})
	scheme := "http://"
	if file.Listen.TLS() {
		scheme = "https://"
	}
	r := &running{gateway: g, t: t, url: scheme + g.address(), admin: "http://" + g.adminAddress(), file: path, logs: logs, ended: make(chan error, 1)}
	go func() { r.ended <- g.run(ctx, now) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			close(now)
			select {
			case err := <-r.ended:
				if err != nil {
					t.Errorf("gateway ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("gateway did not end\n%s", logs)
			}
		})
	}
	t.Cleanup(r.stop)
	for _, name := range ready {
		r.await(name+" to be ready", func() bool { return r.engineState(name) == "ready" && r.weight(name) > 0 })
	}
	return r
}

// engineState is the state of an engine, "" if it is unknown.
func (r *running) engineState(name string) string {
	if e := r.fleet.Set().ByName(name); e != nil {
		return e.Status().State.String()
	}
	return ""
}

// weight is the largest weight an engine has in any class.
func (r *running) weight(name string) (w float64) {
	for _, p := range r.tables.Load().Classes {
		for i := range p.Candidates {
			if p.Candidates[i].Engine.Name == name {
				w = max(w, p.Candidates[i].Weight)
			}
		}
	}
	return w
}

// await polls until ok, or fails the test after a minute.
func (r *running) await(what string, ok func() bool) {
	r.t.Helper()
	awaitCond(r.t, what, ok)
}

// awaitIdle awaits that no engine has anything in flight: clients may have the
// whole of an answer before it is accounted for.
func (r *running) awaitIdle() {
	r.t.Helper()
	r.await("nothing in flight", func() bool {
		return !slices.ContainsFunc(r.fleet.Set().Engines, func(e *engine.Engine) bool { return e.InFlight() != 0 })
	})
}

func awaitCond(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// noQueue is a [limits] table under which nobody waits for a full engine.
const noQueue = "[limits]\nqueue_wait = \"0s\"\n"

// repeatedBefore is the header of a gateway in front that repeats by itself:
// then this one does not.
var repeatedBefore = []string{"X-Gateway-Attempt", "1"}

// engineTOML is an [[engine]] table; more is appended to it as it is.
func engineTOML(name, url string, more ...string) string {
	return fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n%s\n", name, url, strings.Join(more, "\n"))
}

// startScript runs a scripted engine until the end of the test.
func startScript(t testing.TB, play enginetest.Play) *enginetest.Script {
	t.Helper()
	s, err := enginetest.StartScript(play)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// startSim runs a simulated engine until the end of the test.
func startSim(t testing.TB, c enginetest.Config) (*enginetest.Sim, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := enginetest.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, "http://" + ln.Addr().String()
}

// answered is a response read to its end.
type answered struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body: an unclean end
}

// events are the data payloads of the body's SSE events.
func (a answered) events() (data []string) {
	for line := range strings.Lines(a.body) {
		if d, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			data = append(data, strings.TrimPrefix(d, " "))
		}
	}
	return data
}

// looksComplete reports whether a client would take the answer for whole: a
// clean end, [DONE] or a finish_reason, and no error object.
func (a answered) looksComplete() bool {
	return a.err == nil && a.status == 200 && !strings.Contains(a.body, `{"error":`) &&
		(strings.Contains(a.body, "[DONE]") || !strings.Contains(a.header.Get("Content-Type"), "event-stream"))
}

// errorCode is error.code of a JSON error body or of the last error event.
func (a answered) errorCode() string {
	var doc struct {
		Error struct{ Code any }
	}
	text := a.body
	for _, d := range a.events() {
		if strings.HasPrefix(d, `{"error"`) {
			text = d
		}
	}
	if json.Unmarshal([]byte(text), &doc) != nil || doc.Error.Code == nil {
		return ""
	}
	return fmt.Sprint(doc.Error.Code)
}

// client has no limits of its own and follows nothing.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256, TLSClientConfig: trusting()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// chatBody is a chat request of one user turn.
func chatBody(model, content string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, model, stream, content)
}

// post sends a JSON body; headers are name, value pairs.
func (r *running) post(c *http.Client, path, body string, headers ...string) answered {
	req, err := http.NewRequest(http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return do(c, req)
}

func (r *running) get(c *http.Client, path string) answered {
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		return answered{err: err}
	}
	return do(c, req)
}

func do(c *http.Client, req *http.Request) answered {
	resp, err := c.Do(req)
	if err != nil {
		return answered{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answered{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// metric is the value of one series of /metrics, 0 if it is not there.
func (r *running) metric(series string) (v float64) {
	r.t.Helper()
	resp, err := http.Get(r.admin + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), series+" "); ok {
			fmt.Sscan(rest, &v)
		}
	}
	return v
}
