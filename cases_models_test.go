package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
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

// listedModels are the ids of GET /v1/models and the page itself.
func (r *running) listedModels(c *http.Client) (ids []string, a answered) {
	r.t.Helper()
	a = r.get(c, "/v1/models")
	var page struct {
		Object string
		Data   []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 || page.Object != "list" || page.Data == nil {
		r.t.Fatalf("/v1/models: %d %v\n%s", a.status, err, a.body)
	}
	for _, m := range page.Data {
		ids = append(ids, m.ID)
	}
	return ids, a
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

func TestC18_NoEngineRunsAtStart(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	g := startGateway(t, engineTOML("e1", "http://"+address)+engineTOML("e2", "http://"+freeAddress(t))+engineTOML("e3", "http://"+freeAddress(t)))
	c := client(t)
	live := func() {
		t.Helper()
		if a := g.get(c, "/livez"); a.status != 200 {
			t.Errorf("/livez is %d", a.status)
		}
	}
	out := func() {
		t.Helper()
		live()
		if a := g.get(c, "/readyz"); a.status != 503 {
			t.Errorf("/readyz is %d", a.status)
		}
		if ids, _ := g.listedModels(c); len(ids) != 0 {
			t.Errorf("lists %q with no engine in service", ids)
		}
		for _, stream := range []bool{true, false} {
			wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "hello", stream)), 503, "no_healthy_engine")
		}
	}
	out()
	e1 := startScriptAt(t, address, playAnswer)
	g.await("readiness", func() bool { live(); return g.get(c, "/readyz").status == 200 })
	g.await("a table with e1", func() bool { return g.weight("e1") > 0 })
	if e := g.chat(c, chatBody("m", "hello", true)); e != "e1" {
		t.Errorf("served by %q", e)
	}
	if ids, _ := g.listedModels(c); !slices.Equal(ids, []string{"m"}) {
		t.Errorf("lists %q", ids)
	}
	kill(e1)
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "hello", true)), 503, "no_healthy_engine")
	g.await("readiness to end", func() bool { live(); return g.get(c, "/readyz").status == 503 })
	g.await("the list to be empty", func() bool { ids, _ := g.listedModels(c); return len(ids) == 0 })
	out()
}

func TestC18_AnEngineWithoutCapacityIsNotReadiness(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL(), "capacity = 0"))
	g.await("e1", func() bool { return g.engineState("e1") == "ready" })
	c := client(t)
	for range 3 {
		wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", false)), 503, "no_healthy_engine")
		if a := g.get(c, "/readyz"); a.status != 503 {
			t.Errorf("/readyz is %d while nothing can be served", a.status)
		}
	}
	if n := len(e.Exchanges()); n != 0 {
		t.Errorf("an engine that takes no load got %d requests", n)
	}
	if err := g.rewrite(engineTOML("e1", e.URL(), "capacity = 1")); err != nil {
		t.Fatal(err)
	}
	g.await("readiness", func() bool { return g.get(c, "/readyz").status == 200 })
	g.await("the table", func() bool { return g.weight("e1") > 0 })
	g.chat(c, chatBody("m", "x", false))
}

// noModel is vLLM's answer to a model that it does not serve.
func noModel(name string) string {
	return fmt.Sprintf(`{"error":{"message":"The model %s does not exist.","type":"NotFoundError","param":"model","code":404}}`, "`"+name+"`")
}

func TestC19_AnotherModelBehindTheSameAddress(t *testing.T) {
	t.Parallel()
	serves := func(name string) enginetest.Play {
		return func(x *enginetest.Exchange) {
			if !strings.Contains(string(x.Body), fmt.Sprintf(`"model":%q`, name)) {
				x.Respond(404, "application/json", noModel("a"))
				return
			}
			playAnswer(x)
		}
	}
	e1, e2 := startScript(t, serves("a")), startScript(t, serves("a"))
	e1.SetModels("a")
	e2.SetModels("a")
	g := startGateway(t, fleetTOML([]*enginetest.Script{e1, e2}), "e00", "e01")
	c := client(t)
	for i := range 40 {
		g.chat(c, chatBody("a", fmt.Sprint("before ", i), false))
	}
	if n := played([]*enginetest.Script{e1, e2}); n[0] == 0 || n[1] == 0 {
		t.Fatalf("one engine of two was not used: %v", n)
	}
	kill(e1)
	e1 = startScriptAt(t, strings.TrimPrefix(e1.URL(), "http://"), serves("b"))
	e1.SetModels("b")
	// Requests for a reach the engine that no longer has it, and not one
	// client may see its 404.
	for i := 0; len(e1.Exchanges()) == 0; i++ {
		if i == 1000 {
			t.Fatal("no request reached the engine in the gap: nothing was tested")
		}
		g.chat(c, chatBody("a", fmt.Sprint("gap ", i), i%2 == 0), "x-penstock-affinity", "off")
	}
	g.await("b to be listed", func() bool { ids, _ := g.listedModels(c); return slices.Contains(ids, "b") })
	g.await("b to be routable", func() bool {
		return g.post(c, "/v1/chat/completions", chatBody("b", "now", false)).looksComplete()
	})
	seen := len(e1.Exchanges())
	for i := range 40 {
		if e := g.chat(c, chatBody("a", fmt.Sprint("after ", i), false)); e != "e01" {
			t.Fatalf("a was sent to %s", e)
		}
		if e := g.chat(c, chatBody("b", fmt.Sprint("after ", i), true)); e != "e00" {
			t.Fatalf("b was sent to %s", e)
		}
	}
	if n := len(e1.Exchanges()) - seen; n != 40 {
		t.Errorf("the engine with b got %d requests instead of its 40", n)
	}
	if ids, _ := g.listedModels(c); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("lists %q", ids)
	}
	if g.metric(`penstock_retries_total{reason="model_gone"}`) == 0 {
		t.Error("the repeat after the 404 is not counted")
	}
}

func TestC21_AListedModelIsNotALoadedModel(t *testing.T) {
	t.Parallel()
	loading := func(x *enginetest.Exchange) {
		x.Respond(503, "application/json", `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)
	}
	e1, e2 := startScript(t, loading), startScript(t, playAnswer)
	e1.SetPage("/health", enginetest.Page{Status: 503, ContentType: "application/json",
		Body: `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`})
	g := startGateway(t, fleetTOML([]*enginetest.Script{e1, e2}), "e01")
	c := client(t)
	g.await("e00 to be asked for its health", func() bool { return e1.PageHits("/health") >= 3 })
	for i := range 60 {
		g.chat(c, chatBody("m", fmt.Sprint("early ", i), i%2 == 0))
	}
	if n := len(e1.Exchanges()); n != 0 {
		t.Fatalf("%d requests were sent to an engine that is loading", n)
	}
	if s := g.engineState("e00"); s != "starting" {
		t.Errorf("e00 is %q while it loads", s)
	}
	e1.SetPlay(playAnswer)
	e1.SetHealth(200)
	g.await("e00 to be ready", func() bool { return g.weight("e00") > 0 })
	for i := range 60 {
		g.chat(c, chatBody("m", fmt.Sprint("late ", i), i%2 == 0), "x-penstock-affinity", "off")
	}
	if n := len(e1.Exchanges()); n < 15 || n > 45 { // 30 +- 4 standard deviations
		t.Errorf("once loaded it got %d of 60 requests", n)
	}
}

func TestC26_ModelListDoesNotWaitForEngines(t *testing.T) {
	t.Parallel()
	e1 := startScript(t, playAnswer)
	e1.SetModels("a")
	// Accepted by the kernel, answered by nobody: packets that get lost.
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	e3 := startScript(t, playAnswer)
	e3.SetPage("/v1/models", enginetest.Page{ContentType: "application/json", Body: `{"data":[{"id":"c"}]}`, Delay: 20 * time.Second})
	g := startGateway(t, engineTOML("e1", e1.URL())+engineTOML("e2", "http://"+deaf.Addr().String(), `models = ["b"]`)+engineTOML("e3", e3.URL()), "e1")
	c := client(t)
	for range 50 {
		begun := time.Now()
		ids, _ := g.listedModels(c)
		if took := time.Since(begun); took > 2*time.Second {
			t.Fatalf("the list took %s: it waited for an engine", took)
		}
		if !slices.Equal(ids, []string{"a"}) {
			t.Fatalf("lists %q", ids)
		}
	}
	// Unknown models may be what e3 has not told yet; b is known, and out.
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("c", "x", false)), 503, "no_healthy_engine")
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("b", "x", false)), 503, "no_healthy_engine")
	if e := g.chat(c, chatBody("a", "x", false)); e != "e1" {
		t.Errorf("a was served by %q", e)
	}
}

func TestC27_ModelListIsStableWholeAndUsable(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	list := func(created int) {
		for i, extra := range []string{``, `,{"id":"org/b:7b v2","object":"model","created":CREATED,"owned_by":"vllm","root":"/models/b","max_model_len":65536}`,
			`,{"id":"fin","object":"model","created":CREATED,"owned_by":"vllm","parent":"a","root":"/adapters/fin"}`} {
			body := `{"object":"list","data":[{"id":"a","object":"model","created":CREATED,"owned_by":"vllm","root":"org/a","max_model_len":32768,"permission":[{"id":"modelperm-CREATED"}]}` + extra + `]}`
			engines[i].SetPage("/v1/models", enginetest.Page{ContentType: "application/json",
				Body: strings.ReplaceAll(body, "CREATED", fmt.Sprint(created))})
		}
	}
	list(1700000000)
	g := startGateway(t, fleetTOML(engines), nths(3)...)
	c := client(t)
	ids, first := g.listedModels(c)
	if !slices.Equal(ids, []string{"a", "fin", "org/b:7b v2"}) {
		t.Fatalf("lists %q", ids)
	}
	for _, kept := range []string{`"max_model_len":32768`, `"parent":"a"`, `"root":"/adapters/fin"`, `"root":"/models/b"`, `"created":1700000000`} {
		if !strings.Contains(first.body, kept) {
			t.Errorf("the list has lost %s:\n%s", kept, first.body)
		}
	}
	// As vLLM does, created is new each time the engines are asked.
	list(1700000005)
	hits := engines[0].PageHits("/v1/models")
	g.await("the engines to be asked again", func() bool {
		for _, e := range g.fleet.Set().Engines {
			e.Suspect()
		}
		return engines[0].PageHits("/v1/models") >= hits+3
	})
	if _, second := g.listedModels(c); second.body != first.body {
		t.Errorf("the list changed:\n%s\n%s", first.body, second.body)
	}
	for _, id := range ids {
		g.chat(c, chatBody(id, "works as spelled", false))
		one := g.get(c, "/v1/models/"+url.PathEscape(id))
		var m struct{ ID string }
		if err := json.Unmarshal([]byte(one.body), &m); err != nil || one.status != 200 || m.ID != id {
			t.Errorf("GET of %q: %d\n%s", id, one.status, one.body)
		}
	}
	before := sum(played(engines))
	for _, id := range []string{"A", "org/b", "org/b:7b", "org/b:7b v2 ", "fi", "b"} {
		wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody(id, "no", false)), 404, "model_not_found")
		if a := g.get(c, "/v1/models/"+url.PathEscape(id)); a.status != 404 {
			t.Errorf("GET of %q is %d", id, a.status)
		}
	}
	if after := sum(played(engines)); after != before {
		t.Errorf("%d requests for models that nobody serves were sent on", after-before)
	}
}

func TestC56_AdaptersAreModels(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 3, playUntil(release))
	for i, e := range engines {
		body := `{"object":"list","data":[{"id":"base","object":"model","created":1,"owned_by":"vllm","parent":null}`
		if i == 1 {
			body += `,{"id":"fin","object":"model","created":1,"owned_by":"vllm","root":"/adapters/fin","parent":"base"}`
		}
		e.SetPage("/v1/models", enginetest.Page{ContentType: "application/json", Body: body + "]}"})
	}
	g := startGateway(t, fleetTOML(engines), nths(3)...)
	c := client(t)
	if _, list := g.listedModels(c); !strings.Contains(list.body, `"id":"fin"`) || !strings.Contains(list.body, `"parent":"base"`) {
		t.Errorf("the adapter or its parent is missing:\n%s", list.body)
	}
	var all together
	begin := func(model string) {
		for range 60 {
			all.send(func() string {
				a := g.post(c, "/v1/chat/completions", chatBody(model, "now", true), "x-penstock-affinity", "off")
				if e := a.header.Get("X-Penstock-Engine"); model == "fin" && e != "e01" {
					return "fin was served by " + e
				}
				return a.notWhole()
			})
		}
	}
	begin("fin")
	g.await("60 streams of the adapter", func() bool { return len(engines[1].Exchanges()) == 60 })
	begin("base")
	g.await("60 streams of the base model", func() bool { return sum(played(engines)) == 120 })
	n := played(engines)
	close(release)
	all.wait(t)
	for _, x := range engines[1].Exchanges()[:60] {
		if !strings.Contains(string(x.Body), `"model":"fin"`) {
			t.Fatalf("the adapter's name was changed: %s", x.Body)
		}
	}
	// The base model's requests lean away from e01, which is full of the
	// adapter's: it gets those of which both draws are its, one in nine.
	if n[1] -= 60; n[0] < 20 || n[2] < 20 || n[1] == 0 || n[1] >= 20 {
		t.Errorf("requests for base: %v", n)
	}
}
