package engine

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestEngineKeys(t *testing.T) {
	e := New(Config{Name: "e", URL: "http://h", Key: SecretFile{Path: "/p", Text: "ek-canary"}}, NewLive(0))
	if got := e.Authorization(); len(got) != 1 || got[0] != "Bearer ek-canary" {
		t.Errorf("%q", got)
	}
	if passingOn().Authorization() != nil {
		t.Error("an engine without a key has one")
	}
	for _, shown := range []string{fmt.Sprintf("%v", e), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e.Config), fmt.Sprintf("%+v", *e), fmt.Sprint(e.Key)} {
		if strings.Contains(shown, "canary") {
			t.Errorf("shown: %s", shown)
		}
	}
	for text, bad := range map[string]bool{"k": false, "sk-0123": false, strings.Repeat("k", 8192): false,
		strings.Repeat("k", 8193): true, "": true, "a b": true, "a\nb": true, "k\x7f": true, "é": true} {
		faults := Config{Name: "e", URL: "http://h", Key: SecretFile{Path: "/run/key", Text: Secret(text)}}.Validate()
		if (len(faults) > 0) != bad {
			t.Errorf("%.20q: %v", text, faults)
		}
		if bad && (len(faults) != 1 || faults[0].Key != "key_file" || faults[0].Value != `"/run/key"`) {
			t.Errorf("%.20q: %v", text, faults)
		}
	}
}

// The key goes to the engine's own address and to no other port of its host.
func TestKeyGoesToItsEngineAlone(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // port -> Authorization
	serve := func() (url, port string) {
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen[r.Host[strings.LastIndex(r.Host, ":")+1:]] = r.Header.Get("Authorization")
		}))
		t.Cleanup(srv.Close)
		return srv.URL, srv.URL[strings.LastIndex(srv.URL, ":")+1:]
	}
	own, ownPort := serve()
	_, otherPort := serve()
	e := New(Config{Name: "e", URL: own, Key: SecretFile{Path: "/p", Text: "ek"}}, NewLive(0))
	ask := newAsker(nil, nil, nil)
	defer ask.close()
	for _, page := range []string{"/health", "POST /health", ":" + otherPort + "/metrics"} {
		for _, client := range []*http.Client{ask.fresh, ask.kept} {
			ans, err := ask.get(t.Context(), client, e, page, 1024)
			if err != nil {
				t.Fatal(err)
			}
			ask.put(ans)
		}
	}
	if seen[ownPort] != "Bearer ek" || seen[otherPort] != "" {
		t.Errorf("own port saw %q, the other %q", seen[ownPort], seen[otherPort])
	}
}
