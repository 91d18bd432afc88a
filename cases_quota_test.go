package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
	"penstock/proxy"
)

// A tenant that keeps forty requests waiting for an engine that takes four
// holds up itself: another tenant's next request is behind those that are being
// served, and not behind those that wait.
func TestNoisyTenantsWaitForThemselves(t *testing.T) {
	t.Parallel()
	const slots, noise, quiet = 4, 40, 40
	long := strings.Repeat(" word", 1200) // a turn is worth a thousand tokens
	var served atomic.Int64
	e := startScript(t, onPosts(func(x *enginetest.Exchange) {
		if x.Pause(20 * time.Millisecond) {
			served.Add(1)
			good(x)
		}
	}))
	g := startGateway(t, engineTOML("e1", e.URL(), `dialect = "vllm"`, fmt.Sprintf("max_in_flight = %d", slots))+tenantTOML("noisy", keyOf("noisy"))+tenantTOML("quiet", keyOf("quiet")), "e1")
	c := client(t)
	var over atomic.Bool
	var all together
	for i := range noise {
		all.send(func() string {
			for n := 0; !over.Load(); n++ {
				if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("noise ", i, " ", n)+long, false), as("noisy")...); a.status != 200 && a.errorCode() != "overloaded" {
					return fmt.Sprintf("%d %s", a.status, a.body)
				}
			}
			return ""
		})
	}
	g.await("the noise to wait", func() bool { return g.metric("penstock_queue_waiting") > 0 })
	var meanwhile []int64
	for i := range quiet {
		before := served.Load()
		if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("quiet ", i)+long, false), as("quiet")...); a.status != 200 {
			t.Errorf("the quiet tenant got %d %s", a.status, a.body)
		}
		meanwhile = append(meanwhile, served.Load()-before)
	}
	over.Store(true)
	all.wait(t)
	// Those in the slots when it came, those that came into slots with it, and it.
	if slices.Sort(meanwhile); meanwhile[quiet/2] > 3*slots {
		t.Errorf("%d requests are served while one of the quiet tenant's is, in the median; all: %v", meanwhile[quiet/2], meanwhile)
	}
	if wait := noise - slots; meanwhile[quiet/2] >= int64(wait) {
		t.Errorf("it waits behind %d", wait)
	}
}

// The limit of requests: no more than the rate and one second's worth, with
// an answer that SDKs obey; others do not notice.
func TestRateOfATenant(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("noisy", keyOf("noisy"), "rate = 5")+tenantTOML("quiet", keyOf("quiet")), "e1")
	c := client(t)
	began := time.Now()
	var in, out, failed atomic.Int64
	atOnce(200, 8, func(i int) {
		a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0), as("noisy")...)
		switch a.status {
		case 200:
			in.Add(1)
		case 429:
			out.Add(1)
			wantRefusal(t, a, 429, "rate_limit_exceeded")
			if a.header.Get("Retry-After") != "1" || a.header.Get("X-Penstock-Reason") != "rate_limit_exceeded" || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" ||
				a.header.Get("X-Ratelimit-Limit-Requests") != "5" || a.header.Get("X-Ratelimit-Limit-Tokens") != "" {
				t.Errorf("%v", a.header)
			}
		default:
			failed.Add(1)
		}
		if i%10 == 0 {
			g.chat(c, chatBody("m", fmt.Sprint("quiet ", i), false), as("quiet")...)
		}
	})
	if most := 5 + 5*time.Since(began).Seconds() + 1; in.Load() < 5 || float64(in.Load()) > most || failed.Load() != 0 {
		t.Errorf("%d requests were let in, %d refused, %d failed; want 5 to %.0f", in.Load(), out.Load(), failed.Load(), most)
	}
	if n := len(e.Exchanges()); int64(n) != in.Load()+20 {
		t.Errorf("the engine got %d requests", n)
	}
	if n := g.metric(`penstock_rate_limited_total{limit="requests",tenant="noisy"}`); n != float64(out.Load()) {
		t.Errorf("%g limited requests are counted, not %d", n, out.Load())
	}
	if n := g.metric(`penstock_shed_total{reason="rate_limit_exceeded"}`); n != float64(out.Load()) {
		t.Errorf("%g are counted as shed, not %d", n, out.Load())
	}
	// What is refused for what is in it takes nothing from the limit.
	g.await("the limit to be free again", func() bool {
		return g.post(c, "/v1/chat/completions", chatBody("m", "again", true), as("noisy")...).status == 200
	})
	for range 50 {
		if a := g.post(c, "/v1/chat/completions", `{"model":`, as("noisy")...); a.status != 400 {
			t.Fatalf("%d", a.status)
		}
		if a := g.post(c, "/v1/chat/completions", chatBody("unknown", "x", true), as("noisy")...); a.status != 404 {
			t.Fatalf("%d", a.status)
		}
	}
}

func TestTokensOfATenant(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer) // 3 + 1 tokens, told
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("a", keyOf("a"), "tokens_per_minute = 1")+tenantTOML("b", keyOf("b"), "tokens_per_minute = 1"), "e1")
	c := client(t)
	if a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), as("a")...); a.status != 200 || a.header.Get("X-Ratelimit-Limit-Tokens") != "1" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), as("a")...)
	wantRefusal(t, a, 429, "rate_limit_exceeded")
	if a.header.Get("Retry-After") != "60" || !strings.Contains(a.body, "tokens per minute") { // three minutes of debt
		t.Errorf("%v %s", a.header, a.body)
	}
	if n := g.metric(`penstock_rate_limited_total{limit="tokens",tenant="a"}`); n != 1 {
		t.Errorf("%g are counted", n)
	}
	// security.md row 22: who leaves is charged for what was begun.
	release := make(chan struct{})
	defer close(release)
	e.SetPlay(playUntil(release))
	req, err := http.NewRequest("POST", g.url+"/v1/chat/completions", strings.NewReader(chatBody("m", strings.Repeat("long ", 100), true)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", keyOf("b"))
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	g.await("the departure to be noticed", func() bool { return strings.Contains(g.logs.String(), `"status":499`) })
	e.SetPlay(playAnswer)
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), as("b")...), 429, "rate_limit_exceeded")
}

// security.md row 11: a reload takes keys out at once; who stays keeps what
// has been used of the limits, and streams end as they began.
func TestReloadSwapsTenants(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := startScript(t, playHeld(release))
	fleet := anyPorts + engineTOML("e1", e.URL())
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("stays", keyOf("stays"), "rate = 0.001")+tenantTOML("goes", keyOf("goes")), "e1")
	c := client(t)
	reload := func(text string) {
		t.Helper()
		g.write(text)
		if a := g.ask("POST", "/-/reload"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	try := func(name string) int {
		return g.post(c, "/v1/chat/completions", chatBody("m", "hello", true), as(name)...).status
	}
	wait := g.streams(c, []*enginetest.Script{e}, 3, as("goes")...)
	if a, b := try("stays"), try("stays"); a != 200 || b != 429 {
		t.Fatalf("before: %d, %d", a, b)
	}
	reload(fleet + tenantTOML("stays", keyOf("stays"), "rate = 0.001") + tenantTOML("comes", keyOf("comes")))
	if a, b, n := try("goes"), try("comes"), try("stays"); a != 401 || b != 200 || n != 429 {
		t.Errorf("after a reload: who goes %d, who comes %d, who stays %d", a, b, n)
	}
	if n := g.metric(`penstock_requests_total{model="m",outcome="ok",tenant="goes"}`); n != 0 {
		t.Error("the series of a tenant that went are still there")
	}
	// A file with a fault changes nothing.
	g.write(fleet + tenantTOML("other", keyOf("stays")))
	if a := g.ask("POST", "/-/reload"); a.status < 400 || try("comes") != 200 {
		t.Errorf("a bad file: %d", a.status)
	}
	// The key changes, with both good for a while.
	both := fmt.Sprintf("[[tenant]]\nname = \"comes\"\nkey_hash = [%q, %q]\n", proxy.HashKey(keyOf("comes")), proxy.HashKey(keyOf("newkey")))
	reload(fleet + both)
	if a, b := try("comes"), try("newkey"); a != 200 || b != 200 {
		t.Errorf("both keys: %d, %d", a, b)
	}
	reload(fleet + tenantTOML("comes", keyOf("newkey")))
	if a, b := try("comes"), try("newkey"); a != 401 || b != 200 {
		t.Errorf("the old key %d, the new one %d", a, b)
	}
	reload(fleet)
	if a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", true)); a.status != 200 {
		t.Errorf("without tenants: %d", a.status)
	}
	close(release)
	wait() // streams of a tenant that went end whole
	g.await("their end to be counted", func() bool {
		return g.metric(`penstock_requests_total{model="m",outcome="ok",tenant="default"}`) >= 1
	})
	if _, values := g.page(); values["tenant"]["goes"] || values["tenant"]["stays"] {
		t.Errorf("tenants of the page: %v", values["tenant"])
	}
}

// security.md rows 15 and 16: labels are bounded, and strangers leave nothing.
func TestTenThousandTenantsAndStrangers(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	var text strings.Builder
	for i := range 10_000 {
		text.WriteString(tenantTOML(fmt.Sprint("t", i), keyOf(fmt.Sprint("t", i)), "rate = 1000"))
	}
	g := startGateway(t, engineTOML("e1", e.URL())+text.String(), "e1")
	c := client(t)
	atOnce(500, 4, func(i int) {
		name := fmt.Sprint("t", i*20)
		if a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), as(name)...); a.status != 200 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	})
	_, values := g.page()
	if n := len(values["tenant"]); n > 202 || !values["tenant"]["other"] || !values["tenant"]["t180"] || values["tenant"]["t200"] {
		t.Errorf("%d tenant labels, among them %v", n, slices.Sorted(maps.Keys(values["tenant"])))
	}
	if n := g.metric(`penstock_requests_total{model="m",outcome="ok",tenant="other"}`); n != 490 {
		t.Errorf("%g requests of tenants without a label, want 490", n)
	}
	g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), "X-Api-Key", "sk-0-0123456789abcdefghij")
	before, _ := g.page()
	atOnce(600, 4, func(i int) {
		g.post(c, "/v1/chat/completions", chatBody(fmt.Sprint("m", i), "hello", false), "X-Api-Key", fmt.Sprintf("sk-%d-0123456789abcdefghij", i))
	})
	if after, _ := g.page(); after != before {
		t.Errorf("strangers made %d series", after-before)
	}
}
