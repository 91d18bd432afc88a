package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// A whole answer of each endpoint, as small as they come.
const (
	wholeChat = `{"id":"chatcmpl-script","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`
	wholeText = `{"id":"cmpl-script","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"ok","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`
	wholeVec  = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`
)

// playAnswer answers every endpoint at once, as a stream where asked for one.
func playAnswer(x *enginetest.Exchange) {
	var in struct{ Stream bool }
	json.Unmarshal(x.Body, &in)
	switch path := x.Request.URL.Path; {
	case strings.HasSuffix(path, "/embeddings"):
		x.Respond(200, "application/json", wholeVec)
	case path != "/v1/chat/completions" && path != "/v1/completions":
		playCalls(x)
	case strings.HasSuffix(path, "/v1/completions") && in.Stream:
		x.StartStream()
		x.Event(`{"id":"cmpl-script","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"ok","finish_reason":"stop"}]}`)
		x.Event("[DONE]")
		x.EndChunks()
	case strings.HasSuffix(path, "/v1/completions"):
		x.Respond(200, "application/json", wholeText)
	case in.Stream:
		x.StartStream()
		x.Token("ok")
		x.Finish()
	default:
		x.Respond(200, "application/json", wholeChat)
	}
}

// playUntil begins its answer and ends it when release is closed.
func playUntil(release <-chan struct{}) enginetest.Play {
	return func(x *enginetest.Exchange) {
		stream := strings.Contains(string(x.Body), `"stream":true`)
		if stream {
			x.StartStream()
			x.Token("first")
		}
		select {
		case <-release:
		case <-x.Gone():
			return
		}
		if stream {
			x.Finish()
		} else {
			playAnswer(x)
		}
	}
}

// playAfter answers as playAnswer does, d later.
func playAfter(d time.Duration) enginetest.Play {
	return func(x *enginetest.Exchange) {
		if x.Pause(d) {
			playAnswer(x)
		}
	}
}

// startScripts runs n scripted engines with one play.
func startScripts(t testing.TB, n int, play enginetest.Play) []*enginetest.Script {
	engines := make([]*enginetest.Script, n)
	for i := range engines {
		engines[i] = startScript(t, play)
	}
	return engines
}

// nth is the name under which fleetTOML configures the i-th engine.
func nth(i int) string { return fmt.Sprintf("e%02d", i) }

func nths(n int) (names []string) {
	for i := range n {
		names = append(names, nth(i))
	}
	return names
}

// fleetTOML configures engines e00, e01, ...; more[i] is appended to the i-th.
func fleetTOML(engines []*enginetest.Script, more ...string) string {
	var b strings.Builder
	for i, e := range engines {
		extra := ""
		if i < len(more) {
			extra = more[i]
		}
		b.WriteString(engineTOML(nth(i), e.URL(), extra))
	}
	return b.String()
}

// played is how many requests each engine was sent.
func played(engines []*enginetest.Script) []int {
	n := make([]int, len(engines))
	for i, e := range engines {
		n[i] = len(e.Exchanges())
	}
	return n
}

func sum(n []int) (all int) {
	for _, v := range n {
		all += v
	}
	return all
}

// chat posts one chat request, wants a whole answer and returns the engine that gave it.
func (r *running) chat(c *http.Client, body string, headers ...string) string {
	r.t.Helper()
	a := r.post(c, "/v1/chat/completions", body, headers...)
	if !a.looksComplete() {
		r.t.Fatalf("%s\n%v: status %d, %v\n%.500s", body[:min(len(body), 200)], headers, a.status, a.err, a.body)
	}
	return a.header.Get("X-Penstock-Engine")
}

// together is requests under way at the same time. What went wrong with them is
// told by wait: a test that fails meanwhile ends before they do.
type together struct {
	running sync.WaitGroup
	mu      sync.Mutex
	faults  []string
}

// send runs f beside the others; it returns what went wrong, if anything did.
func (c *together) send(f func() (fault string)) {
	c.running.Go(func() {
		if fault := f(); fault != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.faults = append(c.faults, fault)
		}
	})
}

func (c *together) wait(t testing.TB) {
	t.Helper()
	c.running.Wait()
	for _, fault := range c.faults[:min(len(c.faults), 10)] {
		t.Error(fault)
	}
}

// notWhole says what is wrong with an answer that is not a whole one.
func (a answered) notWhole() string {
	if a.looksComplete() {
		return ""
	}
	return fmt.Sprintf("status %d, %v\n%.500s", a.status, a.err, a.body)
}

// atOnce runs f(0) to f(n-1), at most workers of them at a time.
func atOnce(n, workers int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// freeAddress is a loopback address on which nobody listens.
func freeAddress(t testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// startScriptAt runs a scripted engine on an address.
func startScriptAt(t testing.TB, address string, play enginetest.Play) *enginetest.Script {
	t.Helper()
	s, err := enginetest.StartScriptAt(address, play)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// kill stops engines between requests. A connection that dies with its engine
// counts as stale, and costs no answer, once it has been idle for a tenth of a
// second; a request that is already on it may be lost, which is another test.
func kill(engines ...*enginetest.Script) {
	time.Sleep(150 * time.Millisecond)
	for _, e := range engines {
		e.Close()
	}
}

// wantRefusal checks a refusal of the gateway's own: status, code, JSON, a
// reason header, and Retry-After where the client should come again.
func wantRefusal(t *testing.T, a answered, status int, code string) {
	t.Helper()
	if a.status != status || a.errorCode() != code {
		t.Errorf("status %d, code %q, %v; want %d, %q\n%.500s", a.status, a.errorCode(), a.err, status, code, a.body)
		return
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q of an error", ct)
	}
	if a.header.Get("X-Penstock-Reason") == "" || a.header.Get("X-Request-Id") == "" {
		t.Errorf("error %q without reason or request id: %v", code, a.header)
	}
	if again := status == 503 || status == 429; again != (a.header.Get("Retry-After") != "") {
		t.Errorf("status %d with Retry-After %q", status, a.header.Get("Retry-After"))
	}
}
