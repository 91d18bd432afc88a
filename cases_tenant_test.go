package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/proxy"
)

// tenantTOML is a [[tenant]] table; more is appended to it as it is.
func tenantTOML(name, key string, more ...string) string {
	return fmt.Sprintf("[[tenant]]\nname = %q\nkey_hash = %q\n%s\n", name, proxy.HashKey(key), strings.Join(more, "\n"))
}

// keyOf is a key for the tenant of that name, bearing the header that carries it.
func keyOf(name string) string { return "sk-" + name + "-0123456789abcdefghij" }

func as(name string) []string { return []string{"Authorization", "Bearer " + keyOf(name)} }

func TestOnlyTenantsComeIn(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("a", keyOf("a")), "e1")
	strangers := [][]string{{}, {"Authorization", "Bearer sk-wrong-0123456789abcdefghij"}, {"X-Api-Key", keyOf("b")}, {"Authorization", "Basic " + keyOf("a")},
		{"X-Penstock-Tenant", "a"}, {"X-Tenant", "a", "X-Tenant-Id", "a", "OpenAI-Organization", "a"}}
	for _, c := range []*http.Client{client(t), h2cClient(t)} {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
			for _, headers := range strangers {
				a := g.post(c, path, chatBody("m", "hello", true), headers...)
				wantRefusal(t, a, 401, "invalid_api_key")
				if a.header.Get("Www-Authenticate") != "Bearer" || strings.Contains(a.body, "sk-") {
					t.Errorf("%s: %v %s", path, a.header, a.body)
				}
			}
			for _, headers := range [][]string{as("a"), {"X-Api-Key", keyOf("a")}} {
				if a := g.post(c, path, `{"model":"m","prompt":"p","input":"i","messages":[{"role":"user","content":"u"}]}`, headers...); a.status != 200 {
					t.Errorf("%s with %v: %d %s", path, headers, a.status, a.body)
				}
			}
		}
		for _, path := range []string{"/v1/models", "/v1/models/m", "/v1/models/never"} {
			wantRefusal(t, g.get(c, path), 401, "invalid_api_key")
		}
		for _, path := range []string{"/livez", "/readyz", "/health"} {
			if a := g.get(c, path); a.status != 200 {
				t.Errorf("%s without a key: %d", path, a.status)
			}
		}
		if a := g.get(c, "/unknown"); a.status != 404 {
			t.Errorf("an unknown path: %d", a.status)
		}
	}
	if n := len(e.Exchanges()); n != 12 {
		t.Errorf("the engine got %d requests, want the 12 with a key", n)
	}
	if n := g.metric(`penstock_requests_total{model="other",outcome="client",tenant="none"}`); n != float64(2*3*len(strangers)) {
		t.Errorf("%g requests without a key are counted, want %d", n, 2*3*len(strangers))
	}
	if n := g.metric(`penstock_requests_total{model="m",outcome="ok",tenant="a"}`); n != 12 {
		t.Errorf("%g requests of a are counted", n)
	}
	if n := g.metric(`penstock_tokens_total{kind="prompt",model="m",tenant="a"}`); n == 0 {
		t.Error("no tokens of a are counted")
	}
}

// A stranger who sends much before it reads is told so, and not by a reset.
func TestStrangersWithLargeBodiesAreAnswered(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("a", keyOf("a")), "e1")
	for _, size := range []int{100 << 10, 2 << 20} {
		for _, chunked := range []bool{false, true} {
			conn, err := net.Dial("tcp", g.address())
			if err != nil {
				t.Fatal(err)
			}
			conn.(*net.TCPConn).SetWriteBuffer(64 << 10) // the kernel keeps little of what is not read
			body := chatBody("m", strings.Repeat("x", size), true)
			frame := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
			if chunked {
				frame = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			// All is written before the first byte is read.
			if _, err := fmt.Fprint(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+frame); err != nil {
				t.Errorf("%d bytes, chunked %v: %v", size, chunked, err)
			}
			var answer [64]byte
			conn.SetReadDeadline(time.Now().Add(2 * patience))
			if n, err := conn.Read(answer[:]); err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 401 ")) {
				t.Errorf("%d bytes, chunked %v: %q, %v", size, chunked, answer[:n], err)
			}
			conn.Close()
		}
	}
	if len(e.Exchanges()) != 0 {
		t.Error("a stranger's request reached the engine")
	}
}

func TestC60_ATenantsDemandCannotBeLifted(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	engines[2].SetModels("m", "only-abroad")
	// e02 is abroad, ten times as large, and idle.
	g := startGateway(t, fleetTOML(engines, eu+"\ncapacity = 1", eu+"\ncapacity = 1\nmodels = [\"m\", \"only-here\"]", us+"\ncapacity = 10")+
		tenantTOML("strict", keyOf("strict"), `require = { residency = "eu" }`)+tenantTOML("free", keyOf("free")), nths(3)...)
	g.await("the models abroad", func() bool { return strings.Contains(g.getAs(client(t), "/v1/models", "free").body, "only-abroad") })
	c := client(t)
	n := 0
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
		for _, stream := range []bool{true, false} {
			for _, more := range [][]string{{}, {"x-session-id", "s"}, {"x-penstock-affinity", "off"}, {"x-penstock-require", "residency=eu"},
				{"x-penstock-priority", "critical"}, {"x-tenant", "free"}} {
				for i := range 10 {
					body := fmt.Sprintf(`{"model":"m","stream":%t,"messages":[{"role":"user","content":"%d"}],"prompt":"%d","input":"%d"}`, stream && path != "/v1/embeddings", i, i, i)
					if a := g.post(c, path, body, append(as("strict"), more...)...); !a.looksComplete() {
						t.Fatalf("%s %v: %d %s", path, more, a.status, a.body)
					}
					n++
				}
			}
		}
	}
	if got := played(engines); got[2] != 0 || got[0] == 0 || got[1] == 0 || sum(got) != n {
		t.Fatalf("requests: %v of %d", got, n)
	}
	for _, require := range []string{"residency=us", "residency=us,residency=eu", "gpu=none"} {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), append(as("strict"), "x-penstock-require", require)...)
		wantRefusal(t, a, 503, "residency_not_available")
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("only-abroad", "hello", true), as("strict")...), 503, "residency_not_available")
	// Models are those that the tenant's engines serve.
	for name, want := range map[string][3]bool{"strict": {true, true, false}, "free": {true, true, true}} {
		a := g.getAs(c, "/v1/models", name)
		for i, id := range []string{"m", "only-here", "only-abroad"} {
			if got := strings.Contains(a.body, fmt.Sprintf(`"id":%q`, id)); got != want[i] {
				t.Errorf("%s sees %s in its list: %v", name, id, got)
			}
			if status := g.getAs(c, "/v1/models/"+id, name).status; (status == 200) != want[i] {
				t.Errorf("GET /v1/models/%s of %s: %d", id, name, status)
			}
		}
	}
	before := played(engines)
	for i := range 40 {
		g.chat(c, chatBody("m", fmt.Sprint("free ", i), false), as("free")...)
	}
	if got := played(engines); got[2]-before[2] < 20 {
		t.Errorf("the tenant without a demand used the large engine %d times of 40", got[2]-before[2])
	}
	// With the engines of the EU gone the answer is a 503 that can be retried.
	kill(engines[0], engines[1])
	g.await("them to be out", func() bool { return g.weight("e00") == 0 && g.weight("e01") == 0 })
	before = played(engines)
	for range 10 {
		wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), as("strict")...), 503, "residency_not_available")
	}
	if got := played(engines); got[2] != before[2] {
		t.Error("a request of the strict tenant went abroad")
	}
}

// getAs is get with the key of a tenant.
func (r *running) getAs(c *http.Client, path, tenant string) answered {
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		return answered{err: err}
	}
	req.Header.Set("X-Api-Key", keyOf(tenant))
	return do(c, req)
}

// Equal ids and equal openings of two tenants are two conversations: nobody
// can find out, or push, where another tenant's conversations are.
func TestAffinityIsScopedByTenant(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 8, playAnswer)
	g := startGateway(t, fleetTOML(engines)+tenantTOML("a", keyOf("a"))+tenantTOML("b", keyOf("b")), nths(8)...)
	c := client(t)
	same := 0
	for i := range 64 {
		at := map[string]string{}
		for _, name := range []string{"a", "b"} {
			for turn := range 3 {
				e := g.chat(c, chatBody("m", fmt.Sprint("turn ", turn), true), append(as(name), "x-session-id", fmt.Sprint("s", i))...)
				if at[name] != "" && at[name] != e {
					t.Errorf("conversation %d of %s went from %s to %s", i, name, at[name], e)
				}
				at[name] = e
			}
		}
		if at["a"] == at["b"] {
			same++
		}
	}
	if same > 32 { // 8 of 64 if they know nothing of each other
		t.Errorf("%d of 64 ids lead two tenants to one engine", same)
	}
}

func TestTenantsAreInRecordAndLog(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("a", keyOf("a"), `priority = "standard"`)+tenantTOML("top", keyOf("top"), `priority = "critical"`), "e1")
	c := client(t)
	for i, w := range []struct{ tenant, asked, priority string }{
		{"a", "", "standard"}, {"a", "critical", "standard"}, {"a", "sheddable", "sheddable"}, {"top", "", "critical"}, {"top", "standard", "standard"},
	} {
		id := fmt.Sprint("request-", i)
		headers := append(as(w.tenant), "x-request-id", id)
		if w.asked != "" {
			headers = append(headers, "x-penstock-priority", w.asked)
		}
		g.chat(c, chatBody("m", "hello", true), headers...)
		var record struct{ Tenant, Priority string }
		g.await("the record", func() bool {
			a := g.ask("GET", "/requests/"+id)
			return a.status == 200 && json.Unmarshal([]byte(a.body), &record) == nil
		})
		if record.Tenant != w.tenant || record.Priority != w.priority {
			t.Errorf("%+v: record %+v", w, record)
		}
		g.await("the access line", func() bool {
			for line := range strings.Lines(g.logs.String()) {
				if strings.Contains(line, id) {
					if !strings.Contains(line, fmt.Sprintf(`"tenant":%q,"priority":%q`, w.tenant, w.priority)) {
						t.Errorf("%+v: %s", w, line)
					}
					return true
				}
			}
			return false
		})
	}
	code, out, _ := penstock(t, "explain", "request-1", "--admin", g.adminAddress())
	if code != 0 || !strings.Contains(out, "a, standard") {
		t.Errorf("explain: %d\n%s", code, out)
	}
	bad := g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), append(as("a"), "x-penstock-priority", "urgent")...)
	wantRefusal(t, bad, 400, "invalid_request")
	// A request that came to nothing shows no other request's tenant or priority.
	stranger := g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), "x-request-id", "stranger", "x-penstock-priority", "critical")
	wantRefusal(t, stranger, 401, "invalid_api_key")
	g.await("its access line", func() bool {
		for line := range strings.Lines(g.logs.String()) {
			if strings.Contains(line, `"request_id":"stranger"`) {
				return strings.Contains(line, `"tenant":"none","priority":"standard"`)
			}
		}
		return false
	})
}

// What tenants are told comes in the shape of the API that was called, however
// large the body, and every endpoint asks for the key.
func TestTenantsAreToldInTheirAPIsShape(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("a", keyOf("a"), "rate = 0.001"), "e1")
	c := client(t)
	told := func(a answered) (kind string) {
		var doc struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil || doc.Type != "error" || doc.Error.Message == "" {
			t.Errorf("not Anthropic's shape: %s", a.body)
		}
		return doc.Error.Type
	}
	for _, size := range []int{10, 1 << 20} {
		body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`
		if a := g.post(c, "/v1/messages", body); a.status != 401 || told(a) != "authentication_error" {
			t.Errorf("%d bytes without a key: %d %s", size, a.status, a.body)
		}
	}
	for range 2 {
		g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), as("a")...)
	}
	limited := g.post(c, "/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, as("a")...)
	if limited.status != 429 || told(limited) != "rate_limit_error" || limited.header.Get("Retry-After") != "60" || limited.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("limited: %d %v %s", limited.status, limited.header, limited.body)
	}
	for _, path := range []string{"/v1/responses", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/v1/audio/transcriptions", "/v1/completions"} {
		if a := g.post(c, path, `{"model":"m"}`); a.status != 401 {
			t.Errorf("POST %s without a key: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/responses/resp_1", "/v1/models"} {
		if a := g.get(c, path); a.status != 401 {
			t.Errorf("GET %s without a key: %d %s", path, a.status, a.body)
		}
	}
}
