package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

// publicTOML is an alias of the model m, longer than it.
const publicTOML = "[[alias]]\nname = \"a/public \\\"name\\\"\"\nmodel = \"m\"\n"

const public = `a/public "name"`

// inner is an engine that says "internal-7b" wherever it can.
func inner(x *enginetest.Exchange) {
	for _, c := range append(append([]apiCall{}, generating...), working...) {
		if c.path != x.Request.URL.Path {
			continue
		}
		named := func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, `"model":"m"`, `"model":"internal-7b"`), "hello", "internal-7b")
		}
		if c.stream != nil && strings.Contains(string(x.Body), `"stream":true`) {
			x.StartStream()
			for _, p := range c.stream {
				x.Chunk(named(p))
			}
			x.EndChunks()
		} else {
			x.Respond(200, "application/json", named(c.answer))
		}
	}
}

// Clients that ask for an alias see it as the model, everywhere and nowhere
// else; engines see their own name, and every other byte as it was.
func TestC28_AliasesOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, inner)
	e1.SetModels("internal-7b")
	g := startGateway(t, noQueue+"[[alias]]\nname = \"public\"\nmodel = \"internal-7b\"\n"+engineTOML("e1", e1.URL(), `dialect = "openai"`), "e1")
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, call := range append(append([]apiCall{}, generating...), working...) {
			type ask struct{ body, seen, want string }
			named := func(s string) string { return strings.ReplaceAll(s, "hello", "internal-7b") }
			answer := strings.ReplaceAll(named(call.answer), `"model":"m"`, `"model":"public"`)
			asks := []ask{{fmt.Sprintf(call.body, "public"), fmt.Sprintf(call.body, "internal-7b"), answer}}
			if call.stream != nil {
				asks = append(asks, ask{call.streaming("public"), call.streaming("internal-7b"), strings.ReplaceAll(named(strings.Join(call.stream, "")), `"model":"m"`, `"model":"public"`)})
			}
			for _, q := range asks {
				a := call.send(g, c, q.body)
				if a.status != 200 || a.err != nil || a.body != q.want {
					t.Errorf("%s: %d %v\n%s\nwant\n%s", call.path, a.status, a.err, a.body, q.want)
				}
				if n := a.header.Get("Content-Length"); n != "" && n != fmt.Sprint(len(a.body)) {
					t.Errorf("%s: Content-Length %s of %d bytes", call.path, n, len(a.body))
				}
				p := posts(e1)
				if x := p[len(p)-1]; string(x.Body) != q.seen || x.Request.ContentLength != int64(len(q.seen)) {
					t.Errorf("%s: the engine saw %q\nwant %q", call.path, x.Body, q.seen)
				}
			}
			// By its own name the model keeps it.
			if a := call.send(g, c, fmt.Sprintf(call.body, "internal-7b")); a.body != strings.ReplaceAll(named(call.answer), `"model":"m"`, `"model":"internal-7b"`) {
				t.Errorf("%s by its own name: %s", call.path, a.body)
			}
		}
	})
	if n := g.metric(`penstock_requests_total{model="public",outcome="ok",tenant="default"}`); n != 0 {
		t.Errorf("%v requests counted under the alias", n)
	}
	g.await("the alias in the log", func() bool { return strings.Contains(g.logs.String(), `"alias":"public"`) })
}

// An alias splices one value; the rest keeps its spelling, whatever it is.
func TestC54_AliasesChangeOneValue(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startGateway(t, publicTOML+"[[alias]]\nname = \"p\"\nmodel = \"m\"\n"+engineTOML("e1", e1.URL(), `dialect = "openai"`), "e1")
	rest := `"x":{"model":"p"},  "seed": 9007199254740993,"t":1.0,"e":1e400,"z":-0,"chat_template_kwargs":{"a":[]},"s":"<&\u00e9\/\ud83d\ude00 p" ,"messages":[{"role":"user","content":"model p"}]`
	for _, k := range []struct{ sent, seen string }{
		{`{"model":"p",` + rest + `}`, `{"model":"m",` + rest + `}`},
		{` {` + rest + `, "model" : "p" } `, ` {` + rest + `, "model" : "m" } `},
		{`{"\u006dodel":"\u0070",` + rest + `}`, `{"\u006dodel":"m",` + rest + `}`},
		{`{"model":"a/public \"name\"",` + rest + `}`, `{"model":"m",` + rest + `}`},
		{`{"model":"a\/public \u0022name\u0022",` + rest + `}`, `{"model":"m",` + rest + `}`},
		{`{"model":"p","pad":"` + strings.Repeat("x", 1<<20) + `"}`, `{"model":"m","pad":"` + strings.Repeat("x", 1<<20) + `"}`},
	} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(k.sent)
			if chunked {
				body = io.MultiReader(body)
			}
			req, _ := http.NewRequest("POST", g.url+"/v1/chat/completions", body)
			if a := do(over1(t), req); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			p := posts(e1)
			if x := p[len(p)-1]; string(x.Body) != k.seen {
				t.Errorf("sent %.300s\nseen %.300s\nwant %.300s", k.sent, x.Body, k.seen)
			}
		}
	}
}

// A name that is longer than the model's makes the body grow, over all sizes
// of the buffers that hold it.
func TestC32_SplicedBodiesKeepTheirLength(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long-name-", 40)
	e1 := startPlayed(t, good)
	e1.SetModels(long)
	g := startGateway(t, fmt.Sprintf("[[alias]]\nname = \"p\"\nmodel = %q\n", long)+engineTOML("e1", e1.URL(), `dialect = "openai"`), "e1")
	c := over1(t)
	for _, size := range []int{0, 3000, 4000, 4080, 4090, 8100, 65500, 1<<20 - 40, 1 << 20, 3 << 20} {
		body := `{"model":"p","pad":"` + strings.Repeat("x", size) + `"}`
		if a := g.post(c, "/v1/chat/completions", body); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		p := posts(e1)
		if x := p[len(p)-1]; string(x.Body) != strings.Replace(body, `"p"`, `"`+long+`"`, 1) {
			t.Errorf("%d bytes: the engine saw %d", size, len(x.Body))
		}
	}
	if n := g.metric("penstock_body_bytes"); n != 0 {
		t.Errorf("%v bytes are held by nobody", n)
	}
}

// Refusals and engines' errors name the model as the client does.
func TestC28_ErrorsNameTheAlias(t *testing.T) {
	t.Parallel()
	said := `{"error":{"message":"The model ` + "`internal-7b`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		switch {
		case strings.Contains(string(x.Body), "400"):
			x.Respond(400, "application/json", `{"error":{"message":"internal-7b takes 1024 tokens, not internal-7b-x","type":"BadRequestError","param":null,"code":400}}`)
		case strings.Contains(string(x.Body), "event"):
			streams("data: " + said + "\n\n")(x)
		default:
			x.Respond(404, "application/json", said)
		}
	})
	e1.SetModels("internal-7b")
	g := startGateway(t, "[[alias]]\nname = \"public\"\nmodel = \"internal-7b\"\n[[alias]]\nname = \"gone\"\nmodel = \"internal-9b\"\n"+
		engineTOML("e1", e1.URL(), `dialect = "openai"`, `capabilities = ["tools"]`, "max_in_flight = 1"), "e1")
	c := over1(t)
	for _, k := range []struct {
		body    string
		status  int
		message string
	}{
		{chatBody("public", "404", false), 404, "The model `public` does not exist."},
		{chatBody("public", "event", true), 404, "The model `public` does not exist."},
		{chatBody("public", "400", false), 400, "public takes 1024 tokens, not internal-7b-x"},
		{chatBody("gone", "x", false), 404, `the model "gone" is not served here`},
		{`{"model":"public","messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, 400, `no engine of the model "public" can do vision`},
	} {
		a := g.post(c, "/v1/chat/completions", k.body)
		if a.status != k.status || !strings.Contains(strings.ReplaceAll(a.body, `\"`, `"`), k.message) || strings.Contains(strings.ReplaceAll(a.body, "internal-7b-x", ""), "internal") {
			t.Errorf("%s: %d %s", k.body, a.status, a.body)
		}
		if n := a.header.Get("Content-Length"); n != fmt.Sprint(len(a.body)) {
			t.Errorf("Content-Length %s of %d bytes", n, len(a.body))
		}
	}
	release := make(chan struct{})
	e1.SetPlay(playUntil(release))
	r := open(t, g, c, chatBody("public", "hi", true))
	if a := g.post(c, "/v1/chat/completions", chatBody("public", "hi", false)); a.status != 429 || strings.Contains(a.body, "internal") || !strings.Contains(a.body, "public") {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(release)
	r.Body.Close()
}

// The list has the alias beside its model, with the model's fields, while the
// model is served; and each can be asked for by itself.
func TestC27_AliasesAreListed(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	e1.SetPage("/v1/models", enginetest.Page{ContentType: "application/json", Body: `{"object":"list","data":[{"id":"m","object":"model","created":7,"max_model_len":4096,"root":"/models/m"},{"id":"hidden","object":"model"}]}`})
	g := startGateway(t, publicTOML+"[[alias]]\nname = \"absent\"\nmodel = \"x\"\n[[alias]]\nname = \"hidden\"\nmodel = \"m\"\n"+engineTOML("e1", e1.URL(), `dialect = "openai"`), "e1")
	c := over1(t)
	ids, a := g.listedModels(c)
	if strings.Join(ids, "|") != public+"|hidden|m" {
		t.Errorf("%q", ids)
	}
	if strings.Count(a.body, `"max_model_len":4096`) != 3 || strings.Count(a.body, `"root":"/models/m"`) != 3 {
		t.Errorf("%s", a.body)
	}
	if a := g.get(c, "/v1/models/a%2Fpublic%20%22name%22"); a.status != 200 || !strings.Contains(a.body, `"id":"a/public \"name\""`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.get(c, "/v1/models/absent"); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An alias and its model are one conversation.
func TestC16_AliasesShareAffinity(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	g := startGateway(t, publicTOML+fleetTOML(engines), nths(4)...)
	c := client(t)
	used := map[string]bool{}
	for i := range 32 {
		text := fmt.Sprint("conversation ", i)
		first := g.chat(c, chatBody(public, text, false))
		if second := g.chat(c, chatBody("m", text, false)); second != first {
			t.Errorf("%q: %s by alias, %s by name", text, first, second)
		}
		session := []string{"x-session-id", text}
		if a, b := g.chat(c, chatBody("m", text, false), session...), g.chat(c, chatBody(public, text, false), session...); a != b {
			t.Errorf("%q: %s by name, %s by alias, one session", text, a, b)
		}
		used[first] = true
	}
	if len(used) < 3 {
		t.Errorf("32 conversations on %v", used)
	}
}

// Renaming delays no event, and large answers are renamed as they pass.
func TestC28_RenamedAnswersComeAsTheyAreMade(t *testing.T) {
	t.Parallel()
	next := make(chan bool)
	big := `{"object":"list","data":"` + strings.Repeat("x", 12<<20) + `","model":"m","usage":{"prompt_tokens":1}}`
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if strings.HasSuffix(x.Request.URL.Path, "/embeddings") {
			x.Respond(200, "application/json", big)
			return
		}
		x.StartStream()
		for range 3 {
			x.Chunk(token("hello"))
			select {
			case <-next:
			case <-x.Gone():
			}
		}
		x.Chunk(finishEvent + doneEvent)
		x.EndChunks()
	})
	g := startGateway(t, publicTOML+engineTOML("e1", e1.URL(), `dialect = "openai"`), "e1")
	c := over1(t)
	r := open(t, g, c, chatBody(public, "hi", true))
	buf := make([]byte, 4096)
	for range 3 {
		n, err := r.Body.Read(buf) // the engine waits until it was read
		if err != nil || !strings.Contains(string(buf[:n]), `"model":"a/public \"name\"","choices"`) || strings.Contains(string(buf[:n]), `"model":"m"`) {
			t.Fatalf("%v %s", err, buf[:n])
		}
		next <- true
	}
	if rest, err := io.ReadAll(r.Body); err != nil || !strings.HasSuffix(string(rest), doneEvent) {
		t.Errorf("%v %s", err, rest)
	}
	a := g.post(c, "/v1/embeddings", `{"model":"a/public \"name\"","input":"x"}`)
	if want := strings.Replace(big, `"model":"m"`, `"model":"a/public \"name\""`, 1); a.err != nil || a.body != want {
		t.Errorf("%v, %d bytes, want %d", a.err, len(a.body), len(want))
	}
}

// What was asked for under an alias keeps it when it is looked at again.
func TestBoundAnswersKeepTheirAlias(t *testing.T) {
	t.Parallel()
	g, _ := startKeepers(t, 2, publicTOML)
	c := over1(t)
	a := g.post(c, "/v1/responses", `{"model":"a/public \"name\"","input":"x"}`)
	id := idOf(t, a)
	if !strings.Contains(a.body, `"model":"a/public \"name\""`) {
		t.Errorf("%s", a.body)
	}
	if a := g.call(c, "GET", "/v1/responses/"+id, ""); !strings.Contains(a.body, `"model":"a/public \"name\""`) {
		t.Errorf("%s", a.body)
	}
	plain := idOf(t, g.post(c, "/v1/responses", `{"model":"m","input":"x"}`))
	if a := g.call(c, "GET", "/v1/responses/"+plain, ""); !strings.Contains(a.body, `"model":"m"`) {
		t.Errorf("%s", a.body)
	}
}

// Aliases come and go with a reload, for requests that come after it.
func TestC44_AliasesAreReloaded(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	engine := anyPorts + engineTOML("e1", e1.URL(), `dialect = "openai"`)
	g := startGateway(t, engine, "e1")
	c := over1(t)
	checkError(t, g.post(c, "/v1/chat/completions", chatBody("p", "x", false)), 404, "model_not_found")
	for _, step := range []struct {
		text string
		ok   bool
	}{{engine + "[[alias]]\nname = \"p\"\nmodel = \"m\"\n", true}, {engine + "[[alias]]\nname = \"p\"\nmodel = \"p\"\n", true}, {engine, false}} {
		if err := os.WriteFile(g.file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = g.reload(false)
		if a := g.post(c, "/v1/chat/completions", chatBody("p", "x", false)); (a.status == 200) != step.ok {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}
