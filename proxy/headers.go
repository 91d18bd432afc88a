package proxy

import (
	"math/rand/v2"
	"net/http"
	"strings"

	"penstock/engine"
)

// requestHeaders are the client's headers that engines see, canonical. All
// else stays here: credentials, cookies, hop-by-hop and routing headers.
var requestHeaders = map[string]bool{
	"Accept": true, "Content-Type": true, "User-Agent": true,
	"Traceparent": true, "Tracestate": true, "Baggage": true,
	"Anthropic-Version": true, "Anthropic-Beta": true, "Idempotency-Key": true,
}

func passesToEngine(name string) bool {
	return requestHeaders[name] || strings.HasPrefix(name, "Openai-") || strings.HasPrefix(name, "X-Stainless-")
}

// engineHeader builds the header of an attempt on e. A header that the client
// named in Connection is hop-by-hop, whatever it is called. The engine's own
// key goes in last: nothing that a client sends replaces or removes it. h is
// empty, and returned; nil where a new one is to be made.
func engineHeader(h, from http.Header, requestID []string, e *engine.Engine, dropped *droppedHeaders) http.Header {
	if h == nil {
		h = make(http.Header, 8)
	}
	for name, values := range from {
		switch {
		case passesToEngine(name), e.HandsOn(name):
			h[name] = values
		case e.PassCredentials && (name == "Authorization" || name == "X-Api-Key"):
			h[name] = values
		default:
			dropped.count(name)
		}
	}
	dropNamed(h, from["Connection"])
	if key := e.Authorization(); key != nil && !e.PassCredentials {
		h["Authorization"] = key
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // else the client library would add its own
	}
	h["X-Request-Id"] = requestID
	return h
}

// engineHeader is the header of the exchange's next attempt. What is dropped
// of the client's is counted once. To plain-text engines it lies in a map of the
// exchange's own, which nobody reads once send has returned.
func (x *exchange) engineHeader(e *engine.Engine) http.Header {
	dropped := x.h.metrics.dropped
	if x.attempts > 1 {
		dropped = nil
	}
	if !plainText(e) {
		return engineHeader(nil, x.r.Header, x.id[:], e, dropped)
	}
	clear(x.toEngine)
	x.toEngine = engineHeader(x.toEngine, x.r.Header, x.id[:], e, dropped)
	return x.toEngine
}

func dropNamed(h http.Header, connection []string) {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				delete(h, http.CanonicalHeaderKey(name))
			}
		}
	}
}

// withheld are the engine's headers that clients do not see: hop-by-hop,
// what the gateway says itself, and what an engine has no business setting
// for the gateway's origin.
var withheld = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Date": true, "Server": true, "Set-Cookie": true, "Alt-Svc": true, "X-Request-Id": true, "Request-Id": true,
}

// passesToClient reports whether clients see that header of an engine.
func passesToClient(name string) bool {
	return !withheld[name] && !strings.HasPrefix(name, "Access-Control-") && !strings.HasPrefix(name, "X-Penstock-")
}

// copyEngineHeader passes an engine's response header on.
func copyEngineHeader(to, from http.Header) {
	for name, values := range from {
		if passesToClient(name) {
			to[name] = values
		}
	}
	dropNamed(to, from["Connection"])
}

// maxRequestID bounds a request id that a client chose.
const maxRequestID = 128

// requestIDOf takes the client's id where it is a plain word, else makes one.
func requestIDOf(h http.Header) string {
	if v := h["X-Request-Id"]; len(v) == 1 && validRequestID(v[0]) {
		return v[0]
	}
	return newRequestID()
}

func validRequestID(id string) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func newRequestID() string {
	const hex = "0123456789abcdef"
	var id [32]byte
	for half := range 2 {
		r := rand.Uint64()
		for i := range 16 {
			id[half*16+i] = hex[r&15]
			r >>= 4
		}
	}
	return string(id[:])
}

// headerLines counts header lines; net/http bounds their bytes.
func headerLines(h http.Header) int {
	n := 0
	for _, v := range h {
		n += len(v)
	}
	return n
}
