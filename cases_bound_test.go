package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"penstock/engine/enginetest"
)

// keeper is an engine that keeps what it made, as engines with a store do.
type keeper struct {
	*enginetest.Script
	name string

	mu   sync.Mutex
	held map[string]bool // paths of what it keeps
	n    int
}

func startKeeper(t testing.TB, name string) *keeper {
	k := &keeper{name: name, held: map[string]bool{}}
	k.Script = startScript(t, k.play)
	return k
}

// make makes an id of that kind and keeps what it names.
func (k *keeper) make(kind, collection string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	id := fmt.Sprintf("%s_%s%d", kind, k.name, k.n)
	k.held[collection+id] = true
	return id
}

func (k *keeper) keeps(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[path]
}

func (k *keeper) drop(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, path)
}

func (k *keeper) play(x *enginetest.Exchange) {
	var in struct {
		Model        string
		Stream       bool
		Previous     string `json:"previous_response_id"`
		Conversation string
		Session      string              `json:"session_id"`
		Params       struct{ ID string } `json:"session_params"`
		ID           string
	}
	json.Unmarshal(x.Body, &in)
	path, method := x.Request.URL.Path, x.Request.Method
	missing := func() {
		x.Respond(404, "application/json", `{"error":{"message":"not found","type":"invalid_request_error","param":"response_id","code":404}}`)
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case method == "POST" && path == "/v1/responses":
		if in.Previous != "" && !k.keeps("/v1/responses/"+in.Previous) || in.Conversation != "" && !k.keeps("/v1/conversations/"+in.Conversation) {
			missing()
			return
		}
		id := k.make("resp", "/v1/responses/")
		if in.Stream {
			var pieces []string
			for _, p := range responsesEvents {
				pieces = append(pieces, strings.ReplaceAll(strings.ReplaceAll(p, "resp_1", id), `"model":"m"`, fmt.Sprintf(`"model":%q`, in.Model)))
			}
			streams(pieces...)(x)
			return
		}
		x.Respond(200, "application/json", strings.Replace(strings.Replace(wholeResponse, "resp_1", id, 1), `"model":"m"`, fmt.Sprintf(`"model":%q`, in.Model), 1))
	case method == "POST" && path == "/v1/conversations":
		x.Respond(200, "application/json", fmt.Sprintf(`{"id":%q,"object":"conversation"}`, k.make("conv", "/v1/conversations/")))
	case method == "POST" && path == "/open_session":
		x.Respond(200, "application/json", fmt.Sprintf("%q", k.make("sess", "/sessions/")))
	case method == "POST" && path == "/close_session":
		if !k.keeps("/sessions/" + in.Session) {
			missing()
			return
		}
		x.Write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	case method == "POST" && path == "/generate":
		if in.Params.ID != "" && !k.keeps("/sessions/"+in.Params.ID) {
			missing()
			return
		}
		x.Respond(200, "application/json", `{"text":"hello","meta_info":{"finish_reason":{"type":"stop"}}}`)
	case method == "POST" && path == "/v1/chat/completions":
		x.Respond(200, "application/json", strings.Replace(wholeAnswer, "chatcmpl-1", k.make("chatcmpl", "/v1/chat/completions/"), 1))
	case method == "POST" && path == "/v1/chat/completions/control":
		if !k.keeps("/v1/chat/completions/" + in.ID) {
			missing()
			return
		}
		x.Respond(200, "application/json", `{"success":true}`)
	case len(parts) >= 3 && k.keeps("/"+strings.Join(parts[:3], "/")) || len(parts) >= 4 && k.keeps("/"+strings.Join(parts[:4], "/")):
		if method == "DELETE" {
			k.drop(path)
			x.Write("HTTP/1.1 204 No Content\r\n\r\n")
			return
		}
		if x.Request.URL.Query().Get("stream") == "true" {
			streams(responsesEvents[2:]...)(x)
			return
		}
		x.Respond(200, "application/json", fmt.Sprintf(`{"id":%q,"object":"response","status":"completed","model":"m","error":null,"by":%q,"asked":%q}`, parts[2], k.name, method+" "+x.Request.URL.RequestURI()))
	default:
		missing()
	}
}

// startKeepers runs a gateway in front of n engines with a store.
func startKeepers(t testing.TB, n int, more ...string) (*running, []*keeper) {
	var keepers []*keeper
	text, names := strings.Join(more, "\n")+"\n", []string{}
	for i := range n {
		k := startKeeper(t, string(rune('a'+i)))
		keepers = append(keepers, k)
		names = append(names, nth(i))
		text += engineTOML(nth(i), k.URL(), `dialect = "openai"`, fmt.Sprintf(`labels = { residency = "r%d" }`, i))
	}
	return startGateway(t, text, names...), keepers
}

// call sends a request of any method.
func (r *running) call(c *http.Client, method, path, body string, headers ...string) answered {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return do(c, req)
}

// idOf is the id that an answer or its first event has.
func idOf(t testing.TB, a answered) string {
	t.Helper()
	text := a.body
	if e := a.events(); len(e) > 0 {
		text = e[0]
	}
	var doc struct {
		ID       string
		Response struct{ ID string }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || a.status != 200 {
		t.Fatalf("%d %v %s", a.status, err, a.body)
	}
	return doc.ID + doc.Response.ID
}

// What an engine made is asked of that engine, whatever is asked, and goes on there.
func TestBoundRequestsGoToTheEngineThatHoldsTheID(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 4)
	used := map[string]bool{}
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for i := range 24 {
			body := fmt.Sprintf(`{"model":"m","input":"question %d","stream":%t}`, i, i%2 == 0)
			a := g.post(c, "/v1/responses", body)
			id, by := idOf(t, a), a.header.Get("X-Penstock-Engine")
			used[by] = true
			for turn := range 3 {
				a := g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"more","previous_response_id":%q,"stream":%t}`, id, turn == 1))
				if got := a.header.Get("X-Penstock-Engine"); a.status != 200 || got != by || a.header.Get("X-Penstock-Affinity") != "id" {
					t.Fatalf("turn %d of %s: %d by %s (%s), want %s\n%s", turn, id, a.status, got, a.header.Get("X-Penstock-Affinity"), by, a.body)
				}
				id = idOf(t, a)
			}
			for _, q := range []struct{ method, path, want string }{
				{"GET", "/v1/responses/" + id, "GET /v1/responses/" + id},
				{"GET", "/v1/responses/" + id + "?include[]=x&api_key=secret&include=y", "GET /v1/responses/" + id + "?include=y&include%5B%5D=x"},
				{"GET", "/v1/responses/" + id + "/input_items?limit=5&order=asc&key=secret", "GET /v1/responses/" + id + "/input_items?limit=5&order=asc"},
				{"POST", "/v1/responses/" + id + "/cancel?x=1", "POST /v1/responses/" + id + "/cancel"},
			} {
				a := g.call(c, q.method, q.path, "")
				if a.status != 200 || a.header.Get("X-Penstock-Engine") != by || !strings.Contains(a.body, fmt.Sprintf(`"asked":%q`, q.want)) {
					t.Errorf("%s %s: %d by %s\n%s", q.method, q.path, a.status, a.header.Get("X-Penstock-Engine"), a.body)
				}
			}
			if a := g.call(c, "GET", "/v1/responses/"+id+"?stream=true&starting_after=1", ""); a.status != 200 || a.err != nil || a.body != strings.Join(responsesEvents[2:], "") {
				t.Errorf("%d %v %s", a.status, a.err, a.body)
			}
			if a := g.call(c, "DELETE", "/v1/responses/"+id, ""); a.status != 204 || a.body != "" {
				t.Errorf("%d %v %s", a.status, a.err, a.body)
			}
			if a := g.call(c, "GET", "/v1/responses/"+id, ""); a.status != 404 {
				t.Errorf("a deleted response: %d %s", a.status, a.body)
			}
		}
	})
	if len(used) < 2 {
		t.Errorf("all responses by %v", used)
	}
	if n := g.metric(`penstock_id_searches_total{result="found"}`) + g.metric(`penstock_id_searches_total{result="unknown"}`); n != 0 {
		t.Errorf("%v searches for ids that were learned", n)
	}
	for i := range keepers {
		idle(g, nth(i))
	}
}

func TestBoundConversationsChatsAndSessions(t *testing.T) {
	t.Parallel()
	g, _ := startKeepers(t, 4)
	c := over1(t)
	for range 8 {
		a := g.post(c, "/v1/conversations", `{}`)
		conv, by := idOf(t, a), a.header.Get("X-Penstock-Engine")
		if a := g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"a","conversation":%q}`, conv)); a.status != 200 || a.header.Get("X-Penstock-Engine") != by {
			t.Errorf("%d by %s, want %s: %s", a.status, a.header.Get("X-Penstock-Engine"), by, a.body)
		}
		for _, q := range []struct{ method, path, body string }{
			{"GET", "/v1/conversations/" + conv, ""}, {"POST", "/v1/conversations/" + conv, `{"metadata":{}}`}, {"GET", "/v1/conversations/" + conv + "/items?limit=3", ""},
			{"POST", "/v1/conversations/" + conv + "/items", `{"items":[{"id":"x"}]}`}, {"GET", "/v1/conversations/" + conv + "/items/msg_1", ""},
		} {
			if a := g.call(c, q.method, q.path, q.body); a.status != 200 || a.header.Get("X-Penstock-Engine") != by {
				t.Errorf("%s %s: %d by %s, want %s: %s", q.method, q.path, a.status, a.header.Get("X-Penstock-Engine"), by, a.body)
			}
		}

		a = g.post(c, "/v1/chat/completions", `{"model":"m","messages":[],"store":true}`)
		chat, by := idOf(t, a), a.header.Get("X-Penstock-Engine")
		for _, q := range []struct{ method, path, body string }{
			{"GET", "/v1/chat/completions/" + chat, ""}, {"GET", "/v1/chat/completions/" + chat + "/messages?limit=1", ""}, {"POST", "/v1/chat/completions/" + chat, `{"metadata":{}}`},
			{"POST", "/v1/chat/completions/control", fmt.Sprintf(`{"id":%q,"action":"reasoning_end"}`, chat)},
		} {
			if a := g.call(c, q.method, q.path, q.body); a.status != 200 || a.header.Get("X-Penstock-Engine") != by {
				t.Errorf("%s %s: %d by %s, want %s: %s", q.method, q.path, a.status, a.header.Get("X-Penstock-Engine"), by, a.body)
			}
		}

		a = g.post(c, "/open_session", `{"capacity_of_str_len":100}`)
		session, by := strings.Trim(a.body, `"`), a.header.Get("X-Penstock-Engine")
		if a := g.post(c, "/generate", fmt.Sprintf(`{"text":"a","session_params":{"id":%q}}`, session)); a.status != 200 || a.header.Get("X-Penstock-Engine") != by {
			t.Errorf("%d by %s, want %s: %s", a.status, a.header.Get("X-Penstock-Engine"), by, a.body)
		}
		if a := g.post(c, "/close_session", fmt.Sprintf(`{"session_id":%q}`, session)); a.status != 200 || a.body != "" || a.header.Get("X-Penstock-Engine") != by {
			t.Errorf("%d by %s, want %s: %s", a.status, a.header.Get("X-Penstock-Engine"), by, a.body)
		}
	}
	for path, body := range map[string]string{"/close_session": `{"session_id":"nobody"}`, "/v1/chat/completions/control": `{"id":"chatcmpl-x","action":"reasoning_end"}`} {
		checkError(t, g.post(c, path, body), 404, "previous_response_not_found")
	}
	checkError(t, g.post(c, "/v1/chat/completions/control", `{"action":"reasoning_end"}`), 400, "invalid_request")
	checkError(t, g.post(c, "/close_session", ``), 400, "invalid_request")
}

// A gateway that has started again asks the engines, once: also before a
// request that generates. An id that none has is a 404, and reaches no engine
// but by that question.
func TestBoundIDsAreLookedForOnAMiss(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 3)
	c := over1(t)
	id := keepers[1].make("resp", "/v1/responses/")
	for i := range 3 {
		a := g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"a","previous_response_id":%q}`, id))
		if a.status != 200 || a.header.Get("X-Penstock-Engine") != nth(1) {
			t.Fatalf("%d by %s: %s", a.status, a.header.Get("X-Penstock-Engine"), a.body)
		}
		if n := g.metric(`penstock_id_searches_total{result="found"}`); n != 1 {
			t.Errorf("%v searches after %d requests", n, i+1)
		}
	}
	for _, x := range keepers[1].Exchanges() {
		if x.Request.Method == "GET" && (x.Request.Header.Get("Content-Type") != "" || len(x.Body) > 0 || x.Request.URL.RawQuery != "") {
			t.Errorf("asked by %q", x.Raw)
		}
	}
	wantPosts(t, keepers[0].Script, 0)
	wantPosts(t, keepers[2].Script, 0)
	conv := keepers[2].make("conv", "/v1/conversations/")
	if a := g.call(c, "GET", "/v1/conversations/"+conv, ""); a.status != 200 || a.header.Get("X-Penstock-Engine") != nth(2) {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := g.post(c, "/v1/responses", `{"model":"m","input":"a","previous_response_id":"resp_nobody"}`)
	checkError(t, a, 404, "previous_response_not_found")
	if !strings.Contains(a.body, `"param":"previous_response_id"`) {
		t.Errorf("%s", a.body)
	}
	for _, method := range []string{"GET", "DELETE"} {
		checkError(t, g.call(c, method, "/v1/responses/resp_nobody", ""), 404, "previous_response_not_found")
	}
	before := 0
	for _, k := range keepers {
		before += len(k.Exchanges())
	}
	for _, odd := range []string{"resp/../x", "..", "a b", "a?b", "%2e%2e", strings.Repeat("x", 300), "a\\u000d\\u000ab"} {
		a := g.post(c, "/v1/responses", `{"model":"m","input":"a","previous_response_id":"`+odd+`"}`)
		checkError(t, a, 404, "previous_response_not_found")
	}
	after := 0
	for _, k := range keepers {
		after += len(k.Exchanges())
	}
	if after != before {
		t.Errorf("engines were asked %d times for ids that cannot be", after-before)
	}
	if n := g.metric(`penstock_id_searches_total{result="unknown"}`); n != 3 {
		t.Errorf("%v searches for nothing", n)
	}
}

// While an engine that may hold it does not answer, nobody can say that the
// id is unknown.
func TestBoundIDsAndEnginesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 2)
	c := over1(t)
	keepers[0].SetPlay(func(x *enginetest.Exchange) { x.Respond(500, "application/json", `{}`) })
	a := g.call(c, "GET", "/v1/responses/resp_x", "")
	checkError(t, a, 503, "no_healthy_engine")
	if a.header.Get("Retry-After") == "" || g.metric(`penstock_id_searches_total{result="unsure"}`) != 1 {
		t.Errorf("%v", a.header)
	}
	keepers[0].SetPlay(keepers[0].play)
	checkError(t, g.call(c, "GET", "/v1/responses/resp_x", ""), 404, "previous_response_not_found")

	a = g.post(c, "/v1/responses", `{"model":"m","input":"a"}`)
	id, by := idOf(t, a), a.header.Get("X-Penstock-Engine")
	holder := keepers[strings.Index("01", by[2:])]
	kill(holder.Script)
	follow := fmt.Sprintf(`{"model":"m","input":"a","previous_response_id":%q}`, id)
	for _, a := range []answered{g.post(c, "/v1/responses", follow), g.call(c, "GET", "/v1/responses/"+id, "")} {
		checkError(t, a, 503, "no_healthy_engine")
	}
	g.await("the engine to be out", func() bool { return g.engineState(by) != "ready" })
	for _, a := range []answered{g.post(c, "/v1/responses", follow), g.call(c, "GET", "/v1/responses/"+id, ""), g.call(c, "POST", "/v1/responses/"+id+"/cancel", "")} {
		checkError(t, a, 503, "no_healthy_engine")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%v", a.header)
		}
	}
	for i := range keepers {
		idle(g, nth(i))
	}
}

// Bound or not, a filter holds: what was made abroad is not asked for there.
func TestC58_ResidencyHoldsForBoundRequests(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 2)
	c := over1(t)
	a := g.post(c, "/v1/responses", `{"model":"m","input":"a"}`, "x-penstock-require", "residency=r1")
	id := idOf(t, a)
	n := len(keepers[1].Exchanges())
	in0 := []string{"x-penstock-require", "residency=r0"}
	for _, a := range []answered{
		g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"a","previous_response_id":%q}`, id), in0...),
		g.call(c, "GET", "/v1/responses/"+id, "", in0...), g.call(c, "DELETE", "/v1/responses/"+id, "", in0...),
		g.call(c, "GET", "/v1/responses/resp_unknown", "", in0...),
	} {
		checkError(t, a, 404, "previous_response_not_found")
	}
	if m := len(keepers[1].Exchanges()); m != n {
		t.Errorf("the engine abroad saw %d requests", m-n)
	}
	if a := g.call(c, "GET", "/v1/responses/"+id, "", "x-penstock-require", "residency=r1"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A full engine takes no more work, but still hears that it should stop.
func TestBoundRequestsAndFullEngines(t *testing.T) {
	t.Parallel()
	k := startKeeper(t, "a")
	g := startGateway(t, noQueue+engineTOML("e1", k.URL(), `dialect = "openai"`, "max_in_flight = 1"), "e1")
	c := over1(t)
	id := idOf(t, g.post(c, "/v1/responses", `{"model":"m","input":"a"}`))
	release := make(chan struct{})
	k.SetPlay(func(x *enginetest.Exchange) {
		if strings.HasSuffix(x.Request.URL.Path, "/completions") {
			playUntil(release)(x)
			return
		}
		k.play(x)
	})
	r := open(t, g, c, chatBody("m", "hi", true))
	follow := fmt.Sprintf(`{"model":"m","input":"a","previous_response_id":%q}`, id)
	checkError(t, g.post(c, "/v1/responses", follow), 429, "overloaded")
	if a := g.call(c, "POST", "/v1/responses/"+id+"/cancel", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(release)
	r.Body.Close()
	idle(g, "e1")
	if a := g.post(c, "/v1/responses", follow); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An engine that an operator keeps new work from still shows, cancels and
// deletes what it holds; it goes on from nothing.
func TestBoundRequestsAndCordonedEngines(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 2)
	c := over1(t)
	a := g.post(c, "/v1/responses", `{"model":"m","input":"a"}`)
	id, by := idOf(t, a), a.header.Get("X-Penstock-Engine")
	hidden := keepers[strings.Index("01", by[2:])].make("resp", "/v1/responses/")
	if a := g.ask("POST", "/engines/"+by+"/cordon"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, id := range []string{id, hidden} {
		checkError(t, g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"a","previous_response_id":%q}`, id)), 503, "no_healthy_engine")
		for _, q := range [][2]string{{"GET", ""}, {"POST", "/cancel"}, {"DELETE", ""}} {
			if a := g.call(c, q[0], "/v1/responses/"+id+q[1], ""); a.status/100 != 2 || a.header.Get("X-Penstock-Engine") != by {
				t.Errorf("%s %s: %d %s", q[0], q[1], a.status, a.body)
			}
		}
	}
	if a := g.ask("POST", "/engines/"+by+"/uncordon"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// One tenant's ids are nobody else's: they are a 404, as those that are
// nowhere, and no engine is asked. An id that is not known is a 404 at once.
func TestBoundIDsBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	g, keepers := startKeepers(t, 2, tenantTOML("a", keyOf("a")), tenantTOML("b", keyOf("b")), tenantTOML("r", keyOf("r"), `require = { residency = "r0" }`))
	c := over1(t)
	id := idOf(t, g.post(c, "/v1/responses", `{"model":"m","input":"x"}`, append(as("a"), "x-penstock-require", "residency=r1")...))
	conv := idOf(t, g.post(c, "/v1/conversations", `{}`, as("a")...))
	hidden := keepers[0].make("resp", "/v1/responses/")
	asked := func() int { return len(keepers[0].Exchanges()) + len(keepers[1].Exchanges()) }
	before := asked()
	follow := func(id string) string { return fmt.Sprintf(`{"model":"m","input":"x","previous_response_id":%q}`, id) }
	var wanted []answered
	for _, k := range []struct {
		tenant, id string
	}{{"b", id}, {"r", id}, {"a", hidden}, {"b", hidden}} {
		for _, a := range []answered{g.post(c, "/v1/responses", follow(k.id), as(k.tenant)...), g.call(c, "GET", "/v1/responses/"+k.id, "", as(k.tenant)...),
			g.call(c, "DELETE", "/v1/responses/"+k.id, "", as(k.tenant)...), g.call(c, "POST", "/v1/responses/"+k.id+"/cancel", "", as(k.tenant)...)} {
			checkError(t, a, 404, "previous_response_not_found")
			wanted = append(wanted, a)
		}
	}
	for i, a := range wanted {
		if a.body != wanted[i%4].body {
			t.Errorf("the answers differ:\n%s%s", a.body, wanted[i%4].body)
		}
	}
	checkError(t, g.call(c, "GET", "/v1/conversations/"+conv, "", as("b")...), 404, "previous_response_not_found")
	for _, path := range []string{"/version", "/load", "/v1/responses/" + id} {
		checkError(t, g.get(c, path), 401, "invalid_api_key")
	}
	if n := asked(); n != before {
		t.Errorf("engines saw %d requests", n-before)
	}
	for _, a := range []answered{g.call(c, "GET", "/v1/responses/"+id, "", as("a")...), g.post(c, "/v1/responses", follow(id), as("a")...), g.call(c, "GET", "/version", "", as("b")...)} {
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// An id is known from the moment the engine tells it, and by the engine that
// answered in the end.
func TestBoundIDsAreKnownWhileTheStreamRuns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var once sync.Once
	e1 := startScript(t, func(x *enginetest.Exchange) {
		if x.Request.Method == "POST" && !strings.HasSuffix(x.Request.URL.Path, "/cancel") {
			x.StartStream()
			for _, p := range responsesEvents[:3] {
				x.Chunk(p)
			}
			select {
			case <-release:
			case <-x.Gone():
				return
			}
			for _, p := range responsesEvents[3:] {
				x.Chunk(p)
			}
			x.EndChunks()
			return
		}
		if strings.HasSuffix(x.Request.URL.Path, "/cancel") {
			once.Do(func() { close(release) })
		}
		x.Respond(200, "application/json", `{"id":"resp_1","object":"response","status":"cancelled"}`)
	})
	g := startAny(t, "", e1)
	c := over1(t)
	done := make(chan answered, 1)
	go func() { done <- g.post(c, "/v1/responses", `{"model":"m","input":"a","stream":true}`) }()
	g.await("the id to be known", func() bool { return g.call(c, "POST", "/v1/responses/resp_1/cancel", "{}").status == 200 })
	if a := <-done; a.err != nil || a.body != strings.Join(responsesEvents, "") {
		t.Errorf("%v %s", a.err, a.body)
	}
}
