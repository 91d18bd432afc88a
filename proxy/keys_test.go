package proxy

import (
	"net/http"
	"strings"
	"testing"
)

func headers(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

// Every source wins over all that follow it in the order of hashing.md 10.
func TestKeyPrecedence(t *testing.T) {
	lines := []string{
		"x-penstock-key: v1", "X-Session-Id: v2", "x-claude-code-session-id: v3", "x-session-affinity: v4", "session-id: v5", "session_id: v6",
		"thread-id: v7", "x-dynamo-session-id: v8", "x-smg-routing-key: v9", "X-OpenWebUI-Chat-Id: v10", "X-Conversation-Id: v11",
		"Helicone-Session-Id: v12", "x-litellm-session-id: v13", "x-qwen-code-session-id: v14",
	}
	members := []string{
		`"session_id":"b1"`, `"conversation":{"id":"b2"}`, `"rid":"b3"`, `"litellm_session_id":"b4"`,
		`"metadata":{"user_id":"u_session_b7","conversation_id":"b6","session_id":"b5"}`, `"metadata":{"user_id":"u_session_b7","conversation_id":"b6"}`,
		`"metadata":{"user_id":"u_session_b7"}`, `"prompt_cache_key":"b8"`,
		`"messages":[{"role":"user","content":"hi"}]`, `"x":1`,
	}
	noise := []string{"x-request-id: r", "x-client-request-id: r", "x-trace-id: r", "x-correlation-id: r", "traceparent: r", "x-session-token: r", "x-parent-session-id: r", "x-penstock-session-id: r", "x-session-id-2: r"}
	want := KeyPenstock
	for i := range lines {
		env := mustScan(t, APIChat, `{"model":"m",`+strings.Join(members[4:5], ",")+`,"session_id":"b"}`)
		id, source, unfit := affinityKey(headers(append(lines[i:], noise...)...), &env)
		_, value, _ := strings.Cut(lines[i], ": ")
		if id != value || source != want || unfit != 0 {
			t.Errorf("with %s first: %q from %s, %d unfit", lines[i], id, source, unfit)
		}
		want++
	}
	for i := range members {
		var body []string
		for j, m := range members[i:] {
			if i+j != 5 && i+j != 6 || j == 0 { // metadata twice would be a duplicate
				body = append(body, m)
			}
		}
		env := mustScan(t, APIMessages, `{"model":"m",`+strings.Join(body, ",")+`}`)
		id, source, unfit := affinityKey(headers(noise...), &env)
		if want > KeyOpening {
			want = KeyNone
		}
		wantID := "b" + string('1'+rune(i))
		if want == KeyOpening || want == KeyNone {
			wantID = ""
		}
		if id != wantID || source != want || unfit != 0 {
			t.Errorf("with %s first: %q from %s, %d unfit; want %q from %s", members[i], id, source, unfit, wantID, want)
		}
		want++
	}
}

func TestUnfitKeysFallThrough(t *testing.T) {
	long := strings.Repeat("x", 257)
	h := http.Header{"X-Penstock-Key": {""}, "X-Session-Id": {long}, "Session-Id": {"a\x01"}, "Thread-Id": {"\u0085"}, "X-A-Session-Id": {"\x7f"}, "X-B-Session-Id": nil}
	env := mustScan(t, APIChat, `{"model":"m","session_id":7,"conversation":{"id":null},"rid":"","litellm_session_id":"\u0000","metadata":{"session_id":"`+strings.Repeat(`\u0041`, 257)+`","conversation_id":"ok"}}`)
	id, source, unfit := affinityKey(h, &env)
	if id != "ok" || source != KeyMetadataConversation || unfit != 6+4 {
		t.Errorf("%q from %s, %d unfit", id, source, unfit)
	}
	h.Set("X-Conversation-Id", strings.Repeat("é", 128))
	if id, source, _ := affinityKey(h, &env); len(id) != 256 || source != KeyConversationHeader {
		t.Errorf("%q from %s", id, source)
	}
}

func TestAffinityOffAndEmbeddings(t *testing.T) {
	env := mustScan(t, APIChat, `{"model":"m","session_id":"b"}`)
	if id, source, _ := affinityKey(headers("x-penstock-affinity: Off", "x-penstock-key: k"), &env); id != "" || source != KeyNone {
		t.Errorf("off: %q from %s", id, source)
	}
	if id, source, _ := affinityKey(headers("x-penstock-affinity: on", "x-penstock-key: k"), &env); id != "k" || source != KeyPenstock {
		t.Errorf("on: %q from %s", id, source)
	}
	env = mustScan(t, APIEmbeddings, `{"model":"m","input":"x","session_id":"b"}`)
	if id, source, _ := affinityKey(headers("x-penstock-key: k"), &env); id != "" || source != KeyNone {
		t.Errorf("embeddings: %q from %s", id, source)
	}
}

// The same request finds the same generic header, whatever the map's order.
func TestGenericSessionHeader(t *testing.T) {
	h := headers("x-zeta-session-id: z", "x-grok-session-id: g", "x-dynamo-parent-session-id: p", "y-session-id: y", "xx-session-id: x", "x-session-id-x: x", "x-penstock-a-session-id: n")
	for range 50 {
		if id, source, unfit := affinityKey(h, &Envelope{}); id != "g" || source != KeyGenericHeader || unfit != 0 {
			t.Fatalf("%q from %s, %d unfit", id, source, unfit)
		}
	}
}

func TestRIDLosesItsTurn(t *testing.T) {
	for rid, want := range map[string]string{
		"conv_t2_r1": "conv", "conv_r1": "conv", "conv_t2": "conv", "conv_t12_r345": "conv", "job-77": "job-77", "conv_r": "conv_r",
		"conv_r1_t2": "conv_r1", "conv_t2_r1x": "conv_t2_r1x", "_r1": "_r1", "_t1_r1": "_t1", "a_t1_t2": "a_t1", "r1": "r1",
	} {
		if env := mustScan(t, APIChat, `{"model":"m","rid":"`+rid+`"}`); env.Key != want || env.KeySource != KeyRID {
			t.Errorf("%s: %q from %s, want %q", rid, env.Key, env.KeySource, want)
		}
	}
}

// C17: the salt is handed on exactly; it scopes the key.
func TestC17_CacheSalt(t *testing.T) {
	a := mustScan(t, APIChat, `{"model":"m","cache_salt":"s-\u0031","messages":[{"role":"user","content":"x"}]}`)
	b := mustScan(t, APIChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"cache_salt":null}`)
	if a.CacheSalt != "s-1" || b.CacheSalt != "" || a.Opening != b.Opening {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestAffinityKeyAllocatesNothing(t *testing.T) {
	h := ordinaryHeaders()
	env := mustScan(t, APIChat, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	if n := testing.AllocsPerRun(100, func() {
		if _, source, _ := affinityKey(h, &env); source != KeyOpening {
			t.Fatal(source)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeySourceNames(t *testing.T) {
	seen := map[string]bool{}
	for k := KeyNone; k <= KeyHolder; k++ {
		if s := k.String(); s == "" || seen[s] {
			t.Errorf("source %d is called %q", k, s)
		} else {
			seen[s] = true
		}
	}
	for k := KeyPenstock; k < KeyGenericHeader; k++ {
		if headerKey(http.CanonicalHeaderKey(keyHeaders[k])) != k || http.CanonicalHeaderKey(keyHeaders[k]) != keyHeaders[k] {
			t.Errorf("header %q of %s", keyHeaders[k], k)
		}
	}
}

func ordinaryHeaders() http.Header {
	return headers("accept: application/json", "content-type: application/json", "user-agent: OpenAI/Python 1.99.0", "x-stainless-lang: python",
		"x-stainless-package-version: 1.99.0", "x-stainless-os: Linux", "x-stainless-arch: x64", "x-stainless-runtime: CPython",
		"x-stainless-runtime-version: 3.12.3", "x-stainless-async: false", "x-stainless-retry-count: 0", "x-stainless-read-timeout: 600",
		"authorization: Bearer sk-test-key", "content-length: 1024", "accept-encoding: gzip")
}

func BenchmarkAffinityKey(b *testing.B) {
	h := ordinaryHeaders()
	env := Envelope{HasOpening: true}
	for b.Loop() {
		affinityKey(h, &env)
	}
}
