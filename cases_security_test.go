package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"penstock/engine"
	"penstock/engine/enginetest"
)

func TestHeadersOfTheGatewayStayHere(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL(), `labels = { residency = "eu" }`), "e1")
	passed := []string{"Accept", "text/event-stream", "User-Agent", "agent/1", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"Tracestate", "a=b", "Baggage", "c=d", "X-Request-Id", "req-1", "Openai-Organization", "org", "Anthropic-Version", "2023-06-01",
		"Anthropic-Beta", "x", "Idempotency-Key", "once", "X-Stainless-Lang", "python"}
	withheld := []string{"X-Penstock-Require", "residency=eu", "X-Penstock-Priority", "standard", "X-Penstock-Key", "k", "X-Penstock-Affinity", "off",
		"X-Session-Id", "s", "Authorization", "Bearer sk-secret", "X-Api-Key", "sk-secret", "Api-Key", "sk-secret", "Cookie", "a=b",
		"Proxy-Authorization", "Basic eA==", "Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "internal.example",
		"X-Real-Ip", "1.2.3.4", "X-Target-Url", "http://internal.example", "X-Gateway-Destination-Endpoint", "10.0.0.1:80",
		"X-Prefiller-Url", "http://internal.example", "X-Anything", "else", "Te", "trailers", "Keep-Alive", "timeout=5", "Accept-Encoding", "gzip"}
	for _, c := range []*http.Client{client(t), h2cClient(t)} {
		before := len(e.Exchanges())
		g.chat(c, chatBody("m", "x", true), slices.Concat(passed, withheld)...)
		seen := e.Exchanges()[before].Request.Header
		for i := 0; i < len(passed); i += 2 {
			if got := seen[passed[i]]; !slices.Equal(got, passed[i+1:i+2]) {
				t.Errorf("%s reached the engine as %q", passed[i], got)
			}
		}
		for i := 0; i < len(withheld); i += 2 {
			if got, ok := seen[withheld[i]]; ok {
				t.Errorf("%s reached the engine: %q", withheld[i], got)
			}
		}
		for name := range seen {
			if !slices.Contains(passed, name) && name != "Content-Type" && name != "Content-Length" {
				t.Errorf("the engine was sent %s: %q", name, seen[name])
			}
		}
	}
}

func TestAdminPages(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	g := startGateway(t, fleetTOML(engines, "capacity = 30\ncluster = \"far\"\nlabels = { residency = \"eu\" }\ncapabilities = [\"tools\"]", "capacity = 10\nmax_in_flight = 7"), nths(2)...)
	c := client(t)
	row := g.engineRowOf("e00")
	if row.URL != engines[0].URL() || row.Cluster != "far" || row.State != "ready" || !slices.Equal(row.Models, []string{"m"}) || row.InFlight == nil || *row.InFlight != 0 {
		t.Errorf("/engines: %+v", row)
	}
	var table struct {
		Version        float64
		Reason, Policy string
		Weights        []struct {
			Source, Class, Engine string
			Weight                float64
		}
	}
	if a := g.ask("GET", "/table"); json.Unmarshal([]byte(a.body), &table) != nil || a.status != 200 {
		t.Fatalf("/table: %d %s", a.status, a.body)
	}
	if table.Version < 1 || table.Version != g.metric("penstock_table_version") || table.Reason == "" || table.Policy != "optimal" || len(table.Weights) != 2 ||
		table.Weights[0].Engine != "e00" || table.Weights[0].Weight != 0.75 || table.Weights[0].Class != "m" || table.Weights[0].Source != "local" {
		t.Errorf("/table: %+v", table)
	}
	a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), "x-session-id", "one", "x-request-id", "my-own.id_1")
	if !a.looksComplete() || a.header.Get("X-Request-Id") != "my-own.id_1" {
		t.Fatalf("%d, request id %q", a.status, a.header.Get("X-Request-Id"))
	}
	var record struct {
		ID, Engine, Why, Outcome, Model string
		KeySource                       string `json:"key_source"`
		Attempts, Candidates            []struct{ Engine string }
	}
	g.await("the record to be finished", func() bool {
		a := g.ask("GET", "/requests/my-own.id_1")
		return a.status == 200 && json.Unmarshal([]byte(a.body), &record) == nil && record.Outcome != ""
	})
	if record.ID != "my-own.id_1" || record.Engine != a.header.Get("X-Penstock-Engine") || record.Why == "" || record.Outcome != "ok" || record.Model != "m" ||
		record.KeySource != "x-session-id" || len(record.Attempts) != 1 || len(record.Candidates) == 0 {
		t.Errorf("/requests/my-own.id_1: %+v", record)
	}
	for path, status := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/requests/never-seen": 404, "/requests/": 404, "/": 404,
		"/v1/models": 404, "/v1/chat/completions": 404, "/debug/pprof/": 404} {
		if a := g.ask("GET", path); a.status != status {
			t.Errorf("GET %s: %d instead of %d", path, a.status, status)
		}
	}
	for _, path := range []string{"/-/reload", "/-/drain"} {
		if a := g.ask("GET", path); a.status != 404 && a.status != 405 {
			t.Errorf("GET %s changes something: %d", path, a.status)
		}
	}
	if g.get(c, "/readyz").status != 200 || g.metric(`penstock_config_reload_total{result="ok"}`) != 0 {
		t.Error("a GET drained or reloaded")
	}
}

func TestAdminIsForOperatorsOfThisMachine(t *testing.T) {
	t.Parallel()
	g := startGateway(t, engineTOML("e1", startScript(t, playAnswer).URL()), "e1")
	port := g.admin[strings.LastIndex(g.admin, ":"):]
	for _, path := range []string{"/metrics", "/engines", "/table", "/livez"} {
		for host, status := range map[string]int{"127.0.0.1" + port: 200, "localhost" + port: 200, "localhost": 200, "[::1]" + port: 200,
			"evil.example" + port: 403, "evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403} {
			if a := g.ask("GET", path, "Host", host); a.status != status {
				t.Errorf("GET %s with Host %s: %d instead of %d", path, host, a.status, status)
			}
		}
	}
	for _, headers := range [][]string{{"Host", "evil.example"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		for _, path := range []string{"/-/reload", "/-/drain"} {
			if a := g.ask("POST", path, headers...); a.status != 403 {
				t.Errorf("POST %s with %v: %d", path, headers, a.status)
			}
		}
	}
	c := client(t)
	if g.get(c, "/readyz").status != 200 || g.metric(`penstock_config_reload_total{result="ok"}`) != 0 {
		t.Error("another site's page drained or reloaded")
	}
	for _, path := range []string{"/metrics", "/engines", "/table", "/requests/x", "/-/reload", "/-/drain", "/debug/pprof/", "/"} {
		for _, method := range []string{"GET", "POST"} {
			req, err := http.NewRequest(method, g.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a := do(c, req); a.status != 404 || a.errorCode() != "invalid_request" {
				t.Errorf("%s %s on the data port: %d %s", method, path, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/health"} {
		if a := g.get(c, path); a.status != 200 {
			t.Errorf("GET %s on the data port: %d", path, a.status)
		}
	}
}

func TestReloadGuardsTheCapacity(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	g := startGateway(t, fleetTOML(engines, "capacity = 20", "capacity = 20", "capacity = 60"), nths(3)...)
	reload := func(query string, keep ...int) answered {
		text := anyPorts
		for _, i := range keep {
			text += engineTOML(nth(i), engines[i].URL(), "capacity = 20")
		}
		g.write(text)
		return g.ask("POST", "/-/reload"+query)
	}
	for _, query := range []string{"", "?force=0", "?force=", "?force=true"} {
		if a := reload(query, 0, 1); a.status != 422 || !strings.Contains(a.body, "e02") || !strings.Contains(a.body, "60 %") {
			t.Errorf("losing 60 %% of the capacity with %q: %d %s", query, a.status, a.body)
		}
	}
	if g.engineState("e02") == "" {
		t.Error("the rejected file is in use")
	}
	if a := reload("", 2); a.status != 200 {
		t.Errorf("losing 40 %%: %d %s", a.status, a.body)
	}
	if a := reload("?force=1", 0); a.status != 200 || g.engineState("e02") != "" {
		t.Errorf("with force: %d %s", a.status, a.body)
	}
}

func TestSecretsAndPromptsAreNowhere(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	release := make(chan struct{})
	e := startScript(t, playHeld(release))
	line, _ := keyFile(t, "ek-"+canary)
	tenant := tenantTOML("a", "sk-"+canary+"-0123456789", "rate = 9999", "tokens_per_minute = 1e9")
	g := startGateway(t, engineTOML("e1", e.URL(), line)+tenant+"[routing]\nhash_key = \""+canary+"-hash-key-of-the-gateway\"\n[log]\nlevel = \"debug\"\n", "e1")
	c := client(t)
	headers := []string{"Authorization", "Bearer sk-" + canary + "-0123456789", "X-Api-Key", canary, "Cookie", canary, "X-Session-Id", canary + "-session", "X-Penstock-Key", canary + "-key",
		"X-Anything", canary, "Referer", "http://" + canary + ".example/"}
	var ids []string
	send := func(path, body string) {
		t.Helper()
		a := g.post(c, path, body, headers...)
		ids = append(ids, a.header.Get("X-Request-Id"))
		for name, values := range a.header {
			if strings.Contains(fmt.Sprint(values), canary) {
				t.Errorf("%s of an answer: %q", name, values)
			}
		}
	}
	for _, stream := range []bool{true, false} {
		send("/v1/chat/completions?key="+canary, chatBody("m", canary+" prompt", stream))
		send("/v1/completions", fmt.Sprintf(`{"model":"m","stream":%t,"prompt":"%s","user":"%s","prompt_cache_key":"%s"}`, stream, canary, canary, canary))
	}
	send("/v1/embeddings", `{"model":"m","input":"`+canary+`","metadata":{"session_id":"`+canary+`"}}`)
	send("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+canary+`"}], `) // no JSON
	send("/v1/chat/completions", `{"model":"m","cache_salt":7,"messages":"`+canary+`"}`)
	e.SetPlay(func(x *enginetest.Exchange) {
		x.Respond(400, "application/json", `{"error":{"message":"bad prompt: `+canary+`","type":"BadRequestError","code":400}}`)
	})
	send("/v1/chat/completions", chatBody("m", canary+" refused", false))
	e.SetPlay(func(x *enginetest.Exchange) {
		x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{" + canary)
		x.Reset()
	})
	send("/v1/chat/completions", chatBody("m", canary+" broken", false))
	e.SetPlay(playHeld(release))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(chatBody("m", "long "+canary, true)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(headers[0], headers[1])
	if resp, err := c.Do(req); err == nil {
		ids = append(ids, resp.Header.Get("X-Request-Id"))
		cancel()
		resp.Body.Close()
	}
	cancel()
	stranger := g.post(c, "/v1/chat/completions", chatBody("m", canary, false), "Authorization", "Bearer sk-"+canary+"-of-nobody-0123456789")
	ids = append(ids, stranger.header.Get("X-Request-Id"))
	if stranger.status != 401 || strings.Contains(stranger.body, canary) {
		t.Errorf("a stranger: %d %s", stranger.status, stranger.body)
	}
	g.await("the client's leaving to be logged", func() bool { return strings.Contains(g.logs.String(), `"status":499`) })
	g.await("a line for each request", func() bool { return strings.Count(g.logs.String(), `"msg":"request"`) == len(ids) })
	look := func(where, text string) {
		t.Helper()
		if i := strings.Index(text, canary); i >= 0 {
			t.Errorf("%s: ...%.300s", where, text[max(0, i-150):])
		}
	}
	look("log", g.logs.String())
	for _, path := range []string{"/metrics", "/engines", "/table"} {
		look(path, g.ask("GET", path).body)
	}
	found := 0
	for _, id := range ids {
		a := g.ask("GET", "/requests/"+id)
		if a.status == 200 {
			found++
		}
		look("/requests/"+id, a.body)
	}
	if found < 8 {
		t.Errorf("%d records for %d requests", found, len(ids))
	}
	if !strings.Contains(fmt.Sprint(e.Exchanges()[0].Request.Header), "Bearer ek-"+canary) {
		t.Error("the engine's key was not in use: nothing was tested")
	}
	short, _ := keyFile(t, canary)
	g.write(anyPorts + engineTOML("e1", e.URL(), short, "key = \""+canary+"\"") + "[[tenant]]\nname = \"a\"\nkey_hash = \"sk-" + canary + "-0123456789\"\n" +
		"[[tenant]]\nname = \"b\"\n" + short + "\n[routing]\nhash_key = \"" + canary + "\"\nhash_kee = \"" + canary + "\"\n")
	look("a rejected reload", g.ask("POST", "/-/reload").body)
}

func TestC47_StreamsOnOneConnection(t *testing.T) {
	t.Parallel()
	const n = 600
	release := make(chan struct{})
	e := startScript(t, playUntil(release))
	g := startGateway(t, "[listen]\naddress = \"127.0.0.1:0\"\nmax_streams = 1000\n[admin]\naddress = \"127.0.0.1:0\"\n"+engineTOML("e1", e.URL(), "max_in_flight = 700"), "e1")
	c := h2cClient(t)
	var dials, first atomic.Int64
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	g.get(c, "/livez") // the connection is there, with its settings, before they all want one
	var all together
	for i := range n {
		all.send(func() string {
			resp, err := c.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", fmt.Sprint(i), true)))
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			last := ""
			for s := bufio.NewScanner(resp.Body); s.Scan(); {
				if strings.Contains(s.Text(), `"first"`) {
					first.Add(1)
				}
				if s.Text() != "" {
					last = s.Text()
				}
			}
			if last != "data: [DONE]" {
				return "a stream ended with " + last
			}
			return ""
		})
	}
	g.await("the first event of every stream", func() bool { return first.Load() == n })
	if d := dials.Load(); d != 1 {
		t.Errorf("%d streams took %d connections", n, d)
	}
	close(release)
	all.wait(t)
}

func TestC47_StreamLimitIsAdvertised(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	for text, want := range map[string]uint32{"": 256, "max_streams = 1000\n": 1000} {
		g := startGateway(t, "[listen]\naddress = \"127.0.0.1:0\"\n"+text+"[admin]\naddress = \"127.0.0.1:0\"\n"+engineTOML("e1", e.URL()))
		conn, err := net.Dial("tcp", g.address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The preface and an empty SETTINGS frame (RFC 9113 3.4, 6.5).
		fmt.Fprint(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil || head[3] != 4 {
			t.Fatalf("the first frame is % x, %v", head, err)
		}
		settings := make([]byte, int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, settings); err != nil {
			t.Fatal(err)
		}
		got := uint32(0)
		for ; len(settings) >= 6; settings = settings[6:] {
			if binary.BigEndian.Uint16(settings) == 3 { // SETTINGS_MAX_CONCURRENT_STREAMS
				got = binary.BigEndian.Uint32(settings[2:])
			}
		}
		if got != want {
			t.Errorf("%q: %d streams are advertised, not %d", text, got, want)
		}
	}
}

func TestC53_ImagesFitTheDefaultLimit(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL()), "e1")
	c := client(t)
	for _, size := range []int{9 << 20, 25 << 20} {
		image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0K", size/3/8) + `"}}`
		body := `{"model":"m","messages":[{"role":"user","content":[` + strings.Repeat(image+",", 3) + `{"type":"text","text":"compare"}]}]}`
		g.chat(c, body)
		sent := e.Exchanges()
		if got := sent[len(sent)-1].Body; sha256.Sum256(got) != sha256.Sum256([]byte(body)) {
			t.Errorf("of %d bytes the engine got %d, or others", len(body), len(got))
		}
	}
	manual, err := os.ReadFile("config.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "\nbody = \"64MiB\"\n") {
		t.Error("the manual does not tell the body limit")
	}
	if err := g.rewrite(engineTOML("e1", e.URL()) + "[limits]\nbody = \"1MiB\"\n"); err != nil {
		t.Fatal(err)
	}
	n := len(e.Exchanges())
	over := g.post(c, "/v1/chat/completions", chatBody("m", strings.Repeat("x", 1<<20), false))
	if over.status != 413 || over.errorCode() != "invalid_request" {
		t.Errorf("over the configured limit: %d %s", over.status, over.body)
	}
	g.chat(c, chatBody("m", strings.Repeat("x", 1<<20-200), false))
	if got := len(e.Exchanges()) - n; got != 1 {
		t.Errorf("the engine saw %d of the two requests", got)
	}
	g.await("the bodies to be let go", func() bool { return g.metric("penstock_body_bytes") == 0 })
	if e := g.fleet.Set().ByName("e1"); e.Status().State != engine.Ready {
		t.Errorf("e1 is %v", e.Status().State)
	}
}
