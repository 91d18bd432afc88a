package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

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
	g := startGateway(t, withPolicy("capacity", fleetTOML([]*enginetest.Script{e1, e2})), "e01") // a plan goes by times, which a busy machine makes unlike
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
	// By capacity: a plan made meanwhile would know of the adapter's requests, and expect them there.
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(3)...)
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
