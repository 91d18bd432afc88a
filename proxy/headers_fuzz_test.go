package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"penstock/engine"
)

func validName(name string) bool {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return name != "" && strings.Trim(name, token) == ""
}

func validValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// parseHeader reads header lines as net/http does: what comes out is
// canonical, with valid names and values.
func parseHeader(lines string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.Trim(value, " \t")
		if ok && validName(name) && validValue(value) {
			h.Add(textproto.CanonicalMIMEHeaderKey(name), value)
		}
	}
	return h
}

// hopByHop are the headers of RFC 9110 section 7.6.1 and their elders: of one
// connection, whatever Connection says.
var hopByHop = []string{"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}

// named are the lower-case names in the Connection headers.
func named(h http.Header) (names []string) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, strings.ToLower(strings.Trim(name, " \t")))
		}
	}
	return names
}

// Engines as they may be configured: with nothing, with a key and headers of
// their choice, with the client's credentials.
var (
	plainEngine  = engine.New(engine.Config{Name: "e", URL: "http://127.0.0.1:1"}, engine.NewLive(0))
	keyedEngine  = engine.New(engine.Config{Name: "k", URL: "http://127.0.0.1:1", Key: engine.SecretFile{Path: "k", Text: "ek"}, PassHeaders: fuzzPatterns}, engine.NewLive(1))
	sharedEngine = engine.New(engine.Config{Name: "s", URL: "http://127.0.0.1:1", Key: engine.SecretFile{Path: "k", Text: "ek"}, PassHeaders: fuzzPatterns, PassCredentials: true}, engine.NewLive(2))
	fuzzDropped  = newDroppedHeaders()
	fuzzPatterns = []string{"x-team-*", "x-gateway-*", "x-api-*", "te-*", "x-trace-id", "server"}
)

// Whatever Connection names, no header of one hop and none that is kept back
// passes, in either direction; what passes is as it came.
func FuzzEngineHeader(f *testing.F) {
	f.Add("Connection: Openai-Organization, close\nOpenai-Organization: o\nContent-Type: application/json\nAccept: */*\n")
	f.Add("connection: X-Request-Id, user-agent\nUser-Agent: a\nUser-Agent: b\nX-Request-Id: theirs\nTraceparent: 00-1\n")
	f.Add("Connection: Connection\nConnection: ,,\t,x-stainless-lang \nX-Stainless-Lang: go\nTe: trailers\nTrailer: X\nTransfer-Encoding: chunked\nUpgrade: h2c\n")
	f.Add("Content-Type: text/event-stream\nConnection: content-type\nKeep-Alive: 5\nProxy-Authenticate: Basic\nSet-Cookie: a=b\nServer: s\nAlt-Svc: h3\nDate: x\nContent-Length: 1\n")
	f.Add("X-Penstock-Engine: other\nX-Penstock-Reason: r\nX-Penstock-Else: e\nProxy-Authorization: p\nAccess-Control-Allow-Origin: *\nRetry-After: 3\nX-Ratelimit: 1\nProxy-Connection: x\nAuthorization: Bearer s\nCookie: c\nX-Api-Key: k\n")
	f.Add("Connection: authorization, x-team-b, x-api-key\nAuthorization: Bearer s\nX-Api-Key: k\nX-Team-A: a\nX-Team-B: b\nX-Gateway-Destination-Endpoint: h\nX-Trace-Id: 1\nX-Api-Version: 1\nX_api_key: k\n")
	id := []string{"the-id"}
	f.Fuzz(func(t *testing.T, lines string) {
		from := parseHeader(lines)
		kept, drops := from.Clone(), named(from)

		for _, e := range []*engine.Engine{plainEngine, keyedEngine, sharedEngine} {
			checkEngineHeader(t, e, from, drops, id)
		}

		to := http.Header{}
		copyEngineHeader(to, from)
		for name, values := range to {
			lower := strings.ToLower(name)
			switch {
			case slices.Contains(hopByHop, lower), slices.Contains(drops, lower):
				t.Errorf("the client sees %s of the engine's connection", name)
			case slices.Contains([]string{"content-length", "date", "server", "set-cookie", "alt-svc", "x-request-id"}, lower),
				strings.HasPrefix(lower, "x-penstock-"), strings.HasPrefix(lower, "access-control-"):
				t.Errorf("the client sees the engine's %s", name)
			case !slices.Equal(values, from[name]):
				t.Errorf("the client sees %s as %q, sent was %q", name, values, from[name])
			}
		}
		for name := range from {
			if _, ok := to[name]; !ok && passesToClient(name) && !slices.Contains(drops, strings.ToLower(name)) {
				t.Errorf("the client does not see %s", name)
			}
		}
		for name, values := range kept {
			if !slices.Equal(from[name], values) {
				t.Errorf("%s was changed where it came from", name)
			}
		}
	})
}

// checkEngineHeader checks what e sees of a client's header from, of which
// drops are named in Connection.
func checkEngineHeader(t *testing.T, e *engine.Engine, from http.Header, drops, id []string) {
	out := engineHeader(nil, from, id, e, fuzzDropped)
	if e.Authorization() != nil && !e.PassCredentials && !slices.Equal(out["Authorization"], e.Authorization()) {
		t.Errorf("%s sees %q instead of its key", e.Name, out["Authorization"])
	}
	for name, values := range out {
		lower := strings.ToLower(name)
		switch {
		case name == "X-Request-Id":
			if !slices.Equal(values, id) {
				t.Errorf("the engine sees the request id %q", values)
			}
		case name == "User-Agent" && values == nil: // keeps the HTTP client from adding its own
		case name == "Authorization" && !e.PassCredentials && e.Authorization() != nil:
		case slices.Contains(hopByHop, lower), slices.Contains(drops, lower):
			t.Errorf("the engine sees %s of the client's connection", name)
		case name == "Authorization" || name == "X-Api-Key":
			if !e.PassCredentials || !slices.Equal(values, from[name]) {
				t.Errorf("%s sees the client's %s", e.Name, name)
			}
		case !requestHeaders[name] && !strings.HasPrefix(lower, "openai-") && !strings.HasPrefix(lower, "x-stainless-") &&
			!strings.HasPrefix(lower, "x-team-") && !strings.HasPrefix(lower, "x-gateway-") && !strings.HasPrefix(lower, "x-api-") &&
			!strings.HasPrefix(lower, "te-") && lower != "x-trace-id" && lower != "server",
			strings.HasPrefix(strings.ReplaceAll(lower, "_", "-"), "x-gateway-destination-"), strings.ReplaceAll(lower, "_", "-") == "x-api-key":
			t.Errorf("the engine sees %s", name)
		case e == plainEngine && !passesToEngine(name):
			t.Errorf("%s sees %s, which nobody configured", e.Name, name)
		case !slices.Equal(values, from[name]):
			t.Errorf("the engine sees %s as %q, sent was %q", name, values, from[name])
		}
	}
}

// An id that is taken is a plain word: it can be a header, a part of a URL, a
// log field and a file name as it is.
func FuzzRequestID(f *testing.F) {
	for _, s := range []string{"", "a", "req_0-9.Z", "..", "a b", "a\r\nX: 1", "ä", "%2e", strings.Repeat("x", 128), strings.Repeat("x", 129), "a/b", `a"b`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		plain := id != "" && len(id) <= 128 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
		if validRequestID(id) != plain {
			t.Errorf("%q is taken: %t", id, !plain)
		}
		got := requestIDOf(http.Header{"X-Request-Id": {id}})
		if plain != (got == id) || !validRequestID(got) {
			t.Errorf("%q becomes %q", id, got)
		}
		if two := requestIDOf(http.Header{"X-Request-Id": {id, id}}); two == id || !validRequestID(two) {
			t.Errorf("two ids become %q", two)
		}
	})
}

// Retry-After is passed on within what SDKs obey, or not at all.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "1", "5", "60", "61", "-1", "+7", " 3 ", "1.5", "1e3", "99999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "007", "0x10", "3;q"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		n := adviceOf(http.Header{"Retry-After": {value}}).seconds
		if n < 0 || n > 60 {
			t.Fatalf("%q is %d s", value, n)
		}
		if whole, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31); err == nil && uint64(n) != min(whole, 60) {
			t.Errorf("%q is %d s", value, n)
		}
		if n > 0 && !strings.ContainsAny(value, "123456789") {
			t.Errorf("%q is %d s", value, n)
		}
	})
}

// Whatever is in an error, its answer is one JSON object of OpenAI's shape
// with the length it says, and its headers can be sent.
func FuzzErrorJSON(f *testing.F) {
	f.Add(uint16(400), "invalid_request", "a \"quoted\" \\ message", "messages[0].content", 0, "", true)
	f.Add(uint16(429), "overloaded", "line\r\nbreak\u2028 \x00\x7f", "", 3, "all_full", false)
	f.Add(uint16(502), "engine_error", "broken \xff\xfe UTF-8 \xed\xa0\x80", "\xc3", -1, "", false)
	f.Add(uint16(422), "", "</script><!--", "{\"error\":{}}", 1<<31, "x", true)
	f.Fuzz(func(t *testing.T, status uint16, code, message, param string, retryAfter int, reason string, closes bool) {
		e := &apiError{status: 400 + int(status)%200, code: code, message: message, param: param, retryAfter: retryAfter, reason: reason, close: closes}
		w := httptest.NewRecorder()
		e.write(w, shapeOpenAI)
		body := w.Body.Bytes()
		if !json.Valid(body) || !utf8.Valid(body) || w.Code != e.status || w.Header().Get("Content-Length") != strconv.Itoa(len(body)) {
			t.Fatalf("%d, length %q: %q", w.Code, w.Header().Get("Content-Length"), body)
		}
		if strings.Count(string(body), "\n") != 1 || body[len(body)-1] != '\n' {
			t.Errorf("not one line: %q", body)
		}
		var doc map[string]map[string]any
		if err := json.Unmarshal(body, &doc); err != nil || len(doc) != 1 || len(doc["error"]) != 4 {
			t.Fatalf("%v in %s", err, body)
		}
		want := map[string]any{"message": strings.ToValidUTF8(message, "\uFFFD"), "code": strings.ToValidUTF8(code, "\uFFFD"),
			"type": errorType(e.status), "param": strings.ToValidUTF8(param, "\uFFFD")}
		if param == "" {
			want["param"] = nil
		}
		for name, value := range want {
			if got := doc["error"][name]; got != value && utf8.ValidString(message+code+param) {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		if v := w.Header().Get("Retry-After"); (v != "") != (retryAfter > 0) {
			t.Errorf("Retry-After %q for %d", v, retryAfter)
		}
		for name, values := range w.Header() {
			for _, v := range values {
				if !validValue(v) && validValue(code+reason) {
					t.Errorf("header %s: %q cannot be sent", name, v)
				}
			}
		}
	})
}
