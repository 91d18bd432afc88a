package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// guarded is an engine that demands a key on every path.
type guarded struct {
	*enginetest.Script
	front *httptest.Server

	mu   sync.Mutex
	key  string
	asks []*http.Request // all that were sent, in order
}

// startGuarded runs a scripted engine behind a door that opens for key.
func startGuarded(t testing.TB, key string) *guarded {
	t.Helper()
	g := &guarded{Script: startScript(t, playAnswer), key: key}
	target, err := url.Parse(g.Script.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	g.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asks = append(g.asks, r.Clone(t.Context()))
		open := g.key == "" || r.Header.Get("Authorization") == "Bearer "+g.key
		g.mu.Unlock()
		if !open {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s","type":"invalid_request_error","code":"invalid_api_key"}}`, r.Header.Get("Authorization"))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(g.front.Close)
	return g
}

// relock changes the key that the engine demands.
func (g *guarded) relock(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.key = key
}

// asked are the requests of a method so far.
func (g *guarded) asked(method string) []*http.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.asks), func(r *http.Request) bool { return r.Method != method })
}

// keyFile is an [[engine]] or [[tenant]] line for a file that holds key.
func keyFile(t testing.TB, key string) (line, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("key_file = %q", path), path
}

func TestC20_EnginesAreAskedWithTheirOwnKey(t *testing.T) {
	t.Parallel()
	engines := [2]*guarded{startGuarded(t, "k1-of-the-first"), startGuarded(t, "k2-of-the-second")}
	text := ""
	for i, e := range engines {
		line, _ := keyFile(t, e.key)
		text += engineTOML(nth(i), e.front.URL, line)
	}
	g := startGateway(t, text, nths(2)...)
	c := client(t)
	if a := g.get(c, "/v1/models"); a.status != 200 || !strings.Contains(a.body, `"id":"m"`) {
		t.Errorf("models: %d %s", a.status, a.body)
	}
	for i := range 40 {
		g.chat(c, chatBody("m", fmt.Sprint(i), i%2 == 0), "x-penstock-affinity", "off")
	}
	for i, e := range engines {
		g.await("its pages to be asked for", func() bool {
			paths := map[string]bool{}
			for _, r := range e.asked("GET") {
				paths[r.URL.Path] = true
			}
			return paths["/health"] && paths["/metrics"] && paths["/v1/models"]
		})
		for _, r := range append(e.asked("GET"), e.asked("POST")...) {
			if got := r.Header["Authorization"]; !slices.Equal(got, []string{"Bearer " + engines[i].key}) {
				t.Errorf("%s %s of %s came with %q", r.Method, r.URL.Path, nth(i), got)
			}
		}
		if len(e.asked("POST")) == 0 {
			t.Errorf("%s was not used", nth(i))
		}
	}
}

func TestC49_TheGatewaysKeyStaysHere(t *testing.T) {
	t.Parallel()
	const rk = "rk-0123456789abcdefghij"
	e1, e2, e3 := startGuarded(t, "ek-0123456789"), startGuarded(t, ""), startGuarded(t, "")
	line, _ := keyFile(t, e1.key)
	g := startGateway(t, engineTOML("e1", e1.front.URL, line, `labels = { pin = "e1" }`)+engineTOML("e2", e2.front.URL, `labels = { pin = "e2" }`)+
		engineTOML("e3", e3.front.URL, `labels = { pin = "e3" }`, "pass_credentials = true")+tenantTOML("t", rk), "e1", "e2", "e3")
	c := client(t)
	for _, pin := range []string{"e1", "e2", "e3"} {
		for _, headers := range [][]string{
			{"Authorization", "Bearer " + rk}, {"X-Api-Key", rk}, {"Authorization", "Bearer " + rk, "X-Api-Key", rk},
			{"Authorization", "Bearer " + rk, "Connection", "authorization"}, {"X-Api-Key", rk, "Cookie", rk, "Proxy-Authorization", rk},
		} {
			headers = append(headers, "x-penstock-require", "pin="+pin)
			a := g.post(c, "/v1/chat/completions?api_key="+rk+"&key="+rk, chatBody("m", "hello", true), headers...)
			if !a.looksComplete() {
				t.Errorf("%s with %v: %d %s", pin, headers, a.status, a.body)
			}
		}
	}
	// In the query it is no key, and nowhere to be found.
	wantRefusal(t, g.post(c, "/v1/chat/completions?api_key="+rk, chatBody("m", "hello", true)), 401, "invalid_api_key")
	for _, r := range e1.asked("POST") {
		if got := r.Header["Authorization"]; !slices.Equal(got, []string{"Bearer ek-0123456789"}) || strings.Contains(fmt.Sprint(r.Header, r.URL), rk) {
			t.Errorf("e1 saw %v, %s", r.Header, r.URL)
		}
	}
	for _, r := range e2.asked("POST") {
		if r.Header["Authorization"] != nil || strings.Contains(fmt.Sprint(r.Header, r.URL), "rk-") || strings.Contains(fmt.Sprint(r.Header), "ek-") {
			t.Errorf("e2 saw %v, %s", r.Header, r.URL)
		}
	}
	passed := 0
	for _, r := range e3.asked("POST") {
		if strings.Contains(fmt.Sprint(r.URL, r.Header["Cookie"], r.Header["Proxy-Authorization"], r.Header["Connection"]), rk) {
			t.Errorf("e3 saw more than the credentials: %v, %s", r.Header, r.URL)
		}
		for _, name := range []string{"Authorization", "X-Api-Key"} {
			if strings.Contains(r.Header.Get(name), rk) {
				passed++
			}
		}
	}
	if passed != 5 { // one, one, two, none (named in Connection), one
		t.Errorf("e3, which is to have them, saw %d of 5 credentials", passed)
	}
	for _, e := range []*guarded{e1, e2, e3} {
		for _, r := range e.asked("GET") {
			if strings.Contains(fmt.Sprint(r.Header, r.URL), rk) {
				t.Errorf("%s was asked with a client's key", r.URL)
			}
		}
	}
}

// An engine that refuses the gateway's key does not refuse the client's, and
// what it says of the key is not for clients.
func TestAWrongEngineKeyIsTheGatewaysFault(t *testing.T) {
	t.Parallel()
	e := startGuarded(t, "ek-right")
	line, path := keyFile(t, "ek-right")
	g := startGateway(t, engineTOML("e1", e.front.URL, line), "e1")
	c := client(t)
	g.chat(c, chatBody("m", "hello", true))
	e.relock("ek-changed")
	for _, stream := range []bool{true, false} {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", stream))
		wantRefusal(t, a, 502, "engine_error")
		if strings.Contains(a.body+fmt.Sprint(a.header), "ek-") {
			t.Errorf("the client is told of the key: %v %s", a.header, a.body)
		}
	}
	// The new key is in its file: used without a reload, requests and probes alike.
	if err := os.WriteFile(path, []byte("ek-changed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.await("the key to be read again", func() bool { return strings.Contains(g.logs.String(), "keys have changed") })
	g.await("the engine to be used with it", func() bool {
		return g.post(c, "/v1/chat/completions", chatBody("m", "hello", true)).looksComplete()
	})
	hits := len(e.asked("GET"))
	g.await("a probe", func() bool { return len(e.asked("GET")) > hits })
	asks := e.asked("GET")
	if got := asks[len(asks)-1].Header.Get("Authorization"); got != "Bearer ek-changed" {
		t.Errorf("probes carry %q", got)
	}
	if strings.Contains(g.logs.String(), "ek-") {
		t.Error("a key is in the log")
	}
}

// A key file that cannot be used leaves the key that was read before.
func TestBadKeyFilesChangeNothing(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	first, second := "sk-first-0123456789abcdef", "sk-second-0123456789abcdef"
	line, path := keyFile(t, first)
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("b", "sk-of-b-0123456789abcdef")+"[[tenant]]\nname = \"a\"\n"+line+"\n", "e1")
	c := client(t)
	files := &keyFiles{seen: map[string]fileSign{}, failed: map[string]string{}}
	for _, text := range []string{"", "short", "sk with spaces 0123456789", "sk-of-b-0123456789abcdef"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			g.rereadKeys(files, time.Now())
		}
		g.chat(c, chatBody("m", text, true), "Authorization", "Bearer "+first)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	g.rereadKeys(files, time.Now())
	g.chat(c, chatBody("m", "gone", true), "Authorization", "Bearer "+first)
	for _, why := range []string{"1 byte to 64 KiB", "20 to 512 characters, got 5", "visible ASCII", "tenant b has the same one", "no such file"} {
		g.await("the log to say "+why, func() bool { return strings.Contains(g.logs.String(), why) })
	}
	if strings.Contains(g.logs.String(), "sk-") {
		t.Error("a key is in the log")
	}
	if err := os.WriteFile(path, []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	g.rereadKeys(files, time.Now())
	g.chat(c, chatBody("m", "new", true), "Authorization", "Bearer "+second)
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "old", true), "Authorization", "Bearer "+first), 401, "invalid_api_key")
}

func TestHeadersHandedOn(t *testing.T) {
	t.Parallel()
	e1, e2 := startScript(t, playAnswer), startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e1.URL(), `labels = { pin = "e1" }`, `pass_headers = ["x-team-*", "X-Stay", "x-session-id", "x-gateway-*"]`)+
		engineTOML("e2", e2.URL(), `labels = { pin = "e2" }`), "e1", "e2")
	sent := []string{"X-Team-Name", "search", "X-Team-Id", "7", "X-Stay", "1", "X-Session-Id", "s", "X-Other", "o", "X-Forwarded-For", "1.2.3.4",
		"X-Gateway-Model", "x", "X-Gateway-Destination-Endpoint", "10.0.0.1:1", "X_Team_Name", "search", "Authorization", "Bearer client"}
	for _, c := range []*http.Client{client(t), h2cClient(t)} {
		for i, e := range []*enginetest.Script{e1, e2} {
			before := len(e.Exchanges())
			g.chat(c, chatBody("m", "hello", true), append(slices.Clone(sent), "x-penstock-require", fmt.Sprint("pin=e", i+1))...)
			seen := e.Exchanges()[before].Request.Header
			for _, name := range []string{"X-Team-Name", "X-Team-Id", "X-Stay", "X-Session-Id", "X-Gateway-Model"} {
				if got := seen.Get(name) != ""; got != (i == 0) {
					t.Errorf("e%d saw %s: %v", i+1, name, got)
				}
			}
			for _, name := range []string{"X-Other", "X-Forwarded-For", "X-Gateway-Destination-Endpoint", "X_team_name", "Authorization"} {
				if got, ok := seen[name]; ok {
					t.Errorf("e%d saw %s: %q", i+1, name, got)
				}
			}
		}
	}
	// What was dropped and could be handed on is counted by name.
	for name, want := range map[string]float64{"x-other": 4, "x_team_name": 4, "x-team-name": 2, "x-forwarded-for": 0, "authorization": 0, "x-penstock-require": 0, "x-session-id": 0} {
		if got := g.metric(fmt.Sprintf("penstock_dropped_headers_total{name=%q}", name)); got != want {
			t.Errorf("%s was dropped %g times, want %g", name, got, want)
		}
	}
	before, _ := g.page()
	c := client(t)
	atOnce(300, 4, func(i int) { g.chat(c, chatBody("m", "hello", false), fmt.Sprint("X-Made-Up-", i), "v") })
	if after, _ := g.page(); after-before > 64 {
		t.Errorf("clients made %d series of header names", after-before)
	}
	if g.metric(`penstock_dropped_headers_total{name="other"}`) < 200 {
		t.Error("names beyond the bound are not counted")
	}
}

// There is no CORS: a page of another origin gets nothing that its browser
// would let it read, and engines cannot allow it either.
func TestNoCORS(t *testing.T) {
	t.Parallel()
	e := startScript(t, func(x *enginetest.Exchange) {
		x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nContent-Length: " +
			fmt.Sprint(len(wholeChat)) + "\r\n\r\n" + wholeChat)
	})
	g := startGateway(t, engineTOML("e1", e.URL())+tenantTOML("t", "sk-0123456789abcdefghij"), "e1")
	c := client(t)
	check := func(what string, a answered, status int) {
		t.Helper()
		if a.status != status {
			t.Errorf("%s: %d, want %d", what, a.status, status)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s has %s: %q", what, name, a.header[name])
			}
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/models", "/v1/embeddings", "/health"} {
		req, err := http.NewRequest("OPTIONS", g.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://app.example")
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		a := do(c, req)
		check("OPTIONS "+path, a, 405)
		if a.header.Get("Allow") == "" || strings.Contains(a.header.Get("Allow"), "OPTIONS") {
			t.Errorf("OPTIONS %s allows %q", path, a.header.Get("Allow"))
		}
	}
	key := []string{"Authorization", "Bearer sk-0123456789abcdefghij", "Origin", "https://app.example"}
	check("a request", g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), key...), 200)
	check("a request without a key", g.post(c, "/v1/chat/completions", chatBody("m", "hello", false), "Origin", "https://app.example"), 401)
	if len(e.Exchanges()) != 1 || e.Exchanges()[0].Request.Header.Get("Origin") != "" {
		t.Error("the engine saw the origin, or more than one request")
	}
}

// One file may hold the key of several engines, and of those that are found.
func TestC20_EnginesThatAreFoundHaveAKey(t *testing.T) {
	t.Parallel()
	listed, found := startGuarded(t, "ek-shared"), startGuarded(t, "ek-shared")
	line, path := keyFile(t, "ek-shared")
	sd := filepath.Join(t.TempDir(), "engines.json")
	if err := os.WriteFile(sd, []byte(fmt.Sprintf(`[{"targets":[%q],"labels":{"name":"found"}}]`, found.front.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, engineTOML("listed", listed.front.URL, line)+fmt.Sprintf("[discovery]\nfile_sd = [%q]\n[discovery.engine]\n%s\n", sd, line), "listed", "found")
	for _, e := range []*guarded{listed, found} {
		e.relock("ek-changed")
	}
	if err := os.WriteFile(path, []byte("ek-changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.rereadKeys(&keyFiles{seen: map[string]fileSign{}, failed: map[string]string{}}, time.Now())
	g.await("both to be used with the new key", func() bool {
		for _, e := range []*guarded{listed, found} {
			asks := e.asked("GET")
			if asks[len(asks)-1].Header.Get("Authorization") != "Bearer ek-changed" {
				return false
			}
		}
		return true
	})
	c := client(t)
	for i := range 20 {
		g.chat(c, chatBody("m", fmt.Sprint(i), i%2 == 0), "x-penstock-affinity", "off")
	}
	if len(listed.asked("POST")) == 0 || len(found.asked("POST")) == 0 {
		t.Error("one of the engines was not used")
	}
}
