package main

import (
	"fmt"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

// demanding are chat bodies and the capability that each needs.
var demanding = []struct{ name, body, needs string }{
	{"plain", `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"plain N"}]}`, ""},
	{"empty tools", `{"model":"m","stream":STREAM,"tools":[],"messages":[{"role":"user","content":"no tools N"}]}`, ""},
	{"text format", `{"model":"m","stream":STREAM,"response_format":{"type":"text"},"messages":[{"role":"user","content":"text N"}]}`, ""},
	{"image in the last message", `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":[{"type":"text","text":"what is this N"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}`, "vision"},
	{"image in an earlier message", `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]},{"role":"assistant","content":"a cat"},{"role":"user","content":"sure? N"}]}`, "vision"},
	{"tools", `{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"messages":[{"role":"user","content":"call f N"}]}`, "tools"},
	{"both", `{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},{"type":"text","text":"N"}]}]}`, "tools,vision"},
}

// nthOf is a body of its own for the n-th request.
func nthOf(body string, n int) string {
	return strings.NewReplacer("STREAM", fmt.Sprint(n%2 == 0), " N", fmt.Sprint(" ", n), `"N"`, fmt.Sprintf("%q", fmt.Sprint(n))).Replace(body)
}

const schemaBody = `{"model":"m","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}},"messages":[{"role":"user","content":"in JSON"}]}`

// ignorant is an engine without capabilities: it refuses images and answers
// as if there were no tools.
func ignorant(x *enginetest.Exchange) {
	if strings.Contains(string(x.Body), "image_url") {
		x.Respond(400, "application/json", `{"error":{"message":"m is not a multimodal model","type":"BadRequestError","param":null,"code":400}}`)
		return
	}
	playAnswer(x)
}

func TestC29_CapabilitiesAreAFilter(t *testing.T) {
	t.Parallel()
	able, unable := startScript(t, playAnswer), startScript(t, ignorant)
	engines := []*enginetest.Script{able, unable}
	g := startGateway(t, fleetTOML(engines, `capabilities = ["tools", "vision"]`, `capabilities = []`), nths(2)...)
	c := client(t)
	for _, d := range demanding {
		before := played(engines)
		for n := range 100 {
			e := g.chat(c, nthOf(d.body, n))
			if d.needs != "" && e != "e00" {
				t.Fatalf("%s: served by %s, which cannot do %s", d.name, e, d.needs)
			}
		}
		if n := played(engines); d.needs == "" && (n[0] == before[0] || n[1] == before[1]) {
			t.Errorf("%s: one engine of two was used", d.name)
		}
	}
	none := g.post(c, "/v1/chat/completions", schemaBody)
	wantRefusal(t, none, 400, "capability_not_available")
	if !strings.Contains(none.body, "structured_output") {
		t.Errorf("the refusal does not name the capability: %s", none.body)
	}
	// A conversation that is on e01 goes to e00 for the turns that need it.
	moved := 0
	for n := range 40 {
		id := []string{"x-session-id", fmt.Sprint("conversation-", n)}
		home := g.chat(c, nthOf(demanding[0].body, n), id...)
		for _, d := range demanding[3:] {
			if e := g.chat(c, nthOf(d.body, n), id...); e != "e00" {
				t.Fatalf("%s in a conversation of %s: served by %s", d.name, home, e)
			}
		}
		if home == "e01" {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no conversation had its home on e01: nothing was tested")
	}
	kill(able)
	before := len(unable.Exchanges())
	out := func() { // also while the gateway takes e00 for ready: no failing over to e01
		for n := range 20 {
			for _, d := range demanding {
				if d.needs == "" {
					continue
				}
				a := g.post(c, "/v1/chat/completions", nthOf(d.body, n))
				if a.status != 503 || a.errorCode() == "" {
					t.Fatalf("%s with e00 out: %d %s", d.name, a.status, a.body)
				}
			}
		}
	}
	out()
	g.await("e00 to be out", func() bool { return g.weight("e00") == 0 })
	out()
	for _, d := range demanding {
		if d.needs == "" {
			continue
		}
		a := g.post(c, "/v1/chat/completions", nthOf(d.body, 1))
		wantRefusal(t, a, 503, "capability_not_available")
		if !strings.Contains(a.body, " "+d.needs+",") && !strings.Contains(a.body, " "+d.needs+" ") {
			t.Errorf("%s: the refusal does not name %s: %s", d.name, d.needs, a.body)
		}
	}
	if n := len(unable.Exchanges()) - before; n != 0 {
		t.Errorf("e01 saw %d requests that it cannot do", n)
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", schemaBody), 400, "capability_not_available")
	if e := g.chat(c, nthOf(demanding[0].body, 0)); e != "e01" {
		t.Errorf("plain request with e00 out: served by %q", e)
	}
}

const (
	eu = `labels = { residency = "eu" }`
	us = `labels = { residency = "us" }`
)

var inEU = []string{"x-penstock-require", "residency=eu"}

// wantResidency checks the refusal of a constraint that nobody satisfies.
func wantResidency(t *testing.T, a answered) {
	t.Helper()
	wantRefusal(t, a, 503, "residency_not_available")
	if !strings.Contains(a.body, "residency=eu") {
		t.Errorf("the refusal does not name the constraint: %s", a.body)
	}
}

func TestC58_ResidencyHoldsWhateverFails(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	g := startGateway(t, fleetTOML(engines, eu, eu, us), nths(3)...)
	c := client(t)
	e3 := func() int { return len(engines[2].Exchanges()) }
	for i := range 100 { // (a)
		g.chat(c, chatBody("m", fmt.Sprint("all up ", i), i%2 == 0), inEU...)
	}
	if n := played(engines); n[0] == 0 || n[1] == 0 || n[2] != 0 {
		t.Errorf("with all up: %v", n)
	}
	for i := range 100 {
		g.chat(c, chatBody("m", fmt.Sprint("anywhere ", i), i%2 == 0))
	}
	before := e3()
	if before == 0 {
		t.Error("requests without a constraint do not use e02")
	}
	kill(engines[0]) // (b): at first the gateway does not know
	for i := range 100 {
		if e := g.chat(c, chatBody("m", fmt.Sprint("one out ", i), i%2 == 0), inEU...); e != "e01" {
			t.Fatalf("served by %s", e)
		}
	}
	engines[1].SetPlay(func(x *enginetest.Exchange) { // (d)
		x.Respond(500, "application/json", `{"error":{"message":"CUDA error","type":"InternalServerError","code":500}}`)
	})
	for i := range 20 {
		if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("failing ", i), i%2 == 0), inEU...); a.status < 500 {
			t.Fatalf("with e01 failing: %d %s", a.status, a.body)
		}
	}
	kill(engines[1]) // (c): dead for the first request, known to be out for the last
	for i := range 20 {
		if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("both out ", i), i%2 == 0), inEU...); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Fatalf("with both out: %d %s", a.status, a.body)
		}
	}
	g.await("both to be out", func() bool { return g.weight("e00")+g.weight("e01") == 0 })
	wantResidency(t, g.post(c, "/v1/chat/completions", chatBody("m", "both out", true), inEU...))
	if n := e3() - before; n != 0 {
		t.Errorf("e02 saw %d constrained requests", n)
	}
	if e := g.chat(c, chatBody("m", "anywhere", true)); e != "e02" {
		t.Errorf("without a constraint: served by %q", e)
	}
}

func TestC59_MissingAndDefaultLabelsSatisfyNothing(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	g := startGateway(t, fleetTOML(engines, eu, "", `labels = { residency = "default" }`), nths(3)...)
	c := client(t)
	for i := range 100 {
		if e := g.chat(c, chatBody("m", fmt.Sprint("eu ", i), i%2 == 0), inEU...); e != "e00" {
			t.Fatalf("served by %s", e)
		}
	}
	for i := range 100 {
		g.chat(c, chatBody("m", fmt.Sprint("anywhere ", i), i%2 == 0))
	}
	if n := played(engines); n[1] == 0 || n[2] == 0 {
		t.Errorf("requests without a constraint do not use all: %v", n)
	}
	if e := g.chat(c, chatBody("m", "by its name", false), "x-penstock-require", "residency=default"); e != "e02" {
		t.Errorf("residency=default was served by %s", e)
	}
}

func TestC60_ConstraintHoldsOnEveryWay(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	// e02 is abroad, ten times as large, and idle.
	g := startGateway(t, noQueue+fleetTOML(engines, eu+anyDialect+"\ncapacity = 1\nmax_in_flight = 8", eu+anyDialect+"\ncapacity = 1\nmax_in_flight = 8", us+anyDialect+"\ncapacity = 10"), nths(3)...)
	c := client(t)
	type way struct {
		path   string
		keyed  bool
		stream bool
	}
	var ways []way
	for _, keyed := range []bool{true, false} {
		for _, stream := range []bool{true, false} {
			ways = append(ways, way{"/v1/chat/completions", keyed, stream}, way{"/v1/completions", keyed, stream})
		}
		for _, path := range []string{"/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/v1/audio/speech", "/v1/responses", "/v1/messages", "/generate", "/completion"} {
			ways = append(ways, way{path, keyed, false})
		}
		ways = append(ways, way{"/v1/responses", keyed, true}, way{"/v1/messages", keyed, true})
	}
	send := func(w way, i int) answered {
		body := chatBody("m", fmt.Sprint(w, i), w.stream)
		if w.path != "/v1/chat/completions" {
			body = fmt.Sprintf(`{"model":"m","stream":%t,"prompt":"text %d","input":"text %d","text":"text %d","messages":[{"role":"user","content":"text %d"}]}`, w.stream, i, i, i, i)
		}
		affinity := []string{"x-penstock-affinity", "off"}
		if w.keyed {
			affinity = []string{"x-session-id", fmt.Sprint("s", i)}
		}
		return g.post(c, w.path, body, append(affinity, inEU...)...)
	}
	for _, w := range ways {
		for i := range 50 {
			if a := send(w, i); a.status != 200 || a.err != nil {
				t.Fatalf("%v: %d %v %s", w, a.status, a.err, a.body)
			}
		}
	}
	n := played(engines)
	if n[2] != 0 || n[0] == 0 || n[1] == 0 || sum(n) != 50*len(ways) {
		t.Fatalf("requests: %v", n)
	}
	// At their caps the engines of the EU refuse; the one abroad stays idle.
	release := make(chan struct{})
	engines[0].SetPlay(playUntil(release))
	engines[1].SetPlay(playUntil(release))
	done := make(chan answered, 16)
	for i := range 16 {
		go func() { done <- send(ways[0], i) }()
	}
	g.await("16 streams in the EU", func() bool { return sum(played(engines)) == sum(n)+16 })
	for _, w := range ways {
		wantRefusal(t, send(w, 99), 429, "overloaded")
	}
	close(release)
	for range 16 {
		if a := <-done; !a.looksComplete() {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	kill(engines[0], engines[1])
	for _, w := range ways {
		a := send(w, 0)
		if a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("%v with the EU out: %d %s", w, a.status, a.body)
		}
	}
	g.await("the EU to be out", func() bool { return g.weight("e00")+g.weight("e01") == 0 })
	for _, w := range ways {
		wantResidency(t, send(w, 0))
	}
	if n := len(engines[2].Exchanges()); n != 0 {
		t.Errorf("e02 saw %d constrained requests", n)
	}
}

func TestRequireHeader(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	g := startGateway(t, fleetTOML(engines, `labels = { residency = "eu", gpu = ["h100", "h200"] }`, `labels = { residency = "us", gpu = "h100" }`), nths(2)...)
	c := client(t)
	send := func(values ...string) answered {
		var headers []string
		for _, v := range values {
			headers = append(headers, "x-penstock-require", v)
		}
		return g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(values), true), headers...)
	}
	for _, bad := range []string{"", "residency", "=eu", "residency=", "residency=eu,", ",", "residency=e u", "residency=eu;gpu=h100",
		"residency=é", "residency=eu,gpu", strings.Repeat("a=b,", 16) + "a=b", "residency=" + strings.Repeat("x", 129)} {
		wantRefusal(t, send(bad), 400, "invalid_request")
	}
	wantRefusal(t, send("residency=eu", "?"), 400, "invalid_request") // one line of two is enough
	for _, unmet := range []struct {
		values []string
		code   string
	}{
		{[]string{"residency=mars"}, "residency_not_available"},
		{[]string{"residency=EU"}, "residency_not_available"},
		{[]string{"residency=e"}, "residency_not_available"},
		{[]string{"gpu=h200,residency=us"}, "residency_not_available"},
		{[]string{"residency=eu", "residency=us"}, "residency_not_available"}, // lines add up
		{[]string{"gpu=b200"}, "no_healthy_engine"},
		{[]string{"Residency=eu"}, "no_healthy_engine"},
		{[]string{"residencyx=eu"}, "no_healthy_engine"},
	} {
		a := send(unmet.values...)
		wantRefusal(t, a, 503, unmet.code)
		for _, v := range unmet.values {
			for term := range strings.SplitSeq(v, ",") {
				if !strings.Contains(a.body, term) {
					t.Errorf("%q: the refusal does not name %s: %s", unmet.values, term, a.body)
				}
			}
		}
	}
	if n := sum(played(engines)); n != 0 {
		t.Fatalf("engines saw %d requests that were to be refused", n)
	}
	for _, met := range []struct {
		values []string
		engine string
	}{
		{[]string{"residency=eu"}, "e00"},
		{[]string{" residency = eu , gpu = h200 "}, "e00"},
		{[]string{"gpu=h100", "residency=us"}, "e01"},
		{[]string{"gpu=h100,gpu=h200"}, "e00"}, // both are demanded
		{[]string{"residency=us,residency=us"}, "e01"},
	} {
		for range 8 {
			if a := send(met.values...); !a.looksComplete() || a.header.Get("X-Penstock-Engine") != met.engine {
				t.Errorf("%q: %d from %q", met.values, a.status, a.header.Get("X-Penstock-Engine"))
			}
		}
	}
}

// A capability that is there, but not where the request may go.
func TestRefusalNamesEveryDemand(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	g := startGateway(t, fleetTOML(engines, eu+"\ncapabilities = []", us), nths(2)...)
	a := g.post(client(t), "/v1/chat/completions", nthOf(demanding[5].body, 1), inEU...)
	wantRefusal(t, a, 400, "capability_not_available")
	if !strings.Contains(a.body, "tools") || !strings.Contains(a.body, "residency=eu") {
		t.Errorf("the refusal does not name both demands: %s", a.body)
	}
	if n := sum(played(engines)); n != 0 {
		t.Errorf("the engines saw %d requests", n)
	}
}

func TestPriorityHeader(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL()), "e1")
	c := client(t)
	for _, p := range []string{"critical", "standard", "sheddable"} {
		g.chat(c, chatBody("m", "x", false), "x-penstock-priority", p)
	}
	for _, p := range []string{"", "high", "Critical", "0", "critical,standard"} {
		wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", false), "x-penstock-priority", p), 400, "invalid_request")
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", false), "x-penstock-priority", "standard", "x-penstock-priority", "critical"), 400, "invalid_request")
	if n := len(e.Exchanges()); n != 3 {
		t.Errorf("the engine saw %d requests instead of 3", n)
	}
}

// A path goes to the kinds of engine that serve it and to no other, also
// where only the body tells which; where none does, the answer says so.
func TestC29_PathsAreAFilter(t *testing.T) {
	t.Parallel()
	kinds := []string{"vllm", "llamacpp", "sglang", "tgi"}
	engines := startScripts(t, len(kinds), playCalls)
	var more []string
	for _, k := range kinds {
		more = append(more, fmt.Sprintf("dialect = %q", k))
	}
	g := startGateway(t, "[routing]\npolicy = \"capacity\"\n"+fleetTOML(engines, more...), nths(len(kinds))...)
	c := client(t)
	asked := func(path, body string) (by string) {
		before := played(engines)
		for range 40 {
			if a := g.post(c, path, body, "x-penstock-affinity", "off"); a.status != 200 {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
		}
		for i, e := range engines {
			for _, x := range e.Exchanges()[before[i]:] {
				// Another test's gateway may still ask for an engine that once had this port.
				if x.Request.URL.Path == path {
					by += kinds[i] + " "
					break
				}
				t.Logf("%s was asked for %s meanwhile", kinds[i], x.Request.URL.Path)
			}
		}
		return strings.TrimSpace(by)
	}
	for _, k := range []struct{ path, body, by string }{
		{"/completion", `{"prompt":"x"}`, "llamacpp"},
		{"/infill", `{"input_prefix":"x"}`, "llamacpp"},
		{"/generate", `{"text":"x"}`, "sglang"},
		{"/generate", `{"inputs":"x"}`, "tgi"},
		{"/generate_stream", `{"inputs":"x"}`, "tgi"},
		{"/inference/v1/generate", `{"token_ids":[1]}`, "vllm"},
		{"/pooling", `{"model":"m","input":"x"}`, "vllm"},
		{"/v1/rerank", `{"model":"m","query":"x"}`, "vllm llamacpp sglang"},
		{"/v1/messages", `{"model":"m","messages":[]}`, "vllm llamacpp sglang"},
		{"/v1/responses", `{"model":"m","input":"x"}`, "vllm llamacpp sglang"},
		{"/tokenize", `{"prompt":"x"}`, "vllm llamacpp sglang tgi"},
		{"/v1/chat/completions", chatBody("m", "x", false), "vllm llamacpp sglang tgi"},
	} {
		if by := asked(k.path, k.body); by != k.by {
			t.Errorf("%s %s was served by %q, want %q", k.path, k.body, by, k.by)
		}
	}
	ofClients := func() (n int) { // without what gateways ask: ours, or one of another test whose engine had this port
		for _, e := range engines {
			for _, x := range e.Exchanges() {
				if x.Request.Method == "POST" || strings.HasPrefix(x.Request.URL.Path, "/v1/conversations") {
					n++
				}
			}
		}
		return n
	}
	before := ofClients()
	a := g.post(c, "/v1/responses/compact", `{"model":"m","input":"x"}`)
	wantRefusal(t, a, 400, "capability_not_available")
	if !strings.Contains(a.body, "/v1/responses/compact") {
		t.Errorf("%s", a.body)
	}
	wantRefusal(t, g.post(c, "/v1/conversations", `{}`), 400, "capability_not_available")
	wantRefusal(t, g.call(c, "GET", "/v1/conversations/conv_1", ""), 404, "previous_response_not_found")
	kill(engines[1])
	wantRefusal(t, g.post(c, "/completion", `{"prompt":"x"}`), 503, "no_healthy_engine")
	g.await("llama.cpp to be out", func() bool { return g.weight("e01") == 0 })
	a = g.post(c, "/completion", `{"prompt":"x"}`)
	wantRefusal(t, a, 503, "capability_not_available")
	if n := ofClients(); n != before {
		t.Errorf("%d requests reached engines that cannot serve them", n-before)
	}
}
