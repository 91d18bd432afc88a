package engine

import (
	"net/textproto"
	"strings"
)

// passing is pass_headers, ready for look-ups. Names are canonical.
type passing struct {
	names    map[string]bool
	prefixes []string
}

func newPassing(patterns []string) *passing {
	if len(patterns) == 0 {
		return nil
	}
	p := &passing{names: make(map[string]bool, len(patterns))}
	for _, pattern := range patterns {
		if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
			p.prefixes = append(p.prefixes, textproto.CanonicalMIMEHeaderKey(prefix))
		} else {
			p.names[textproto.CanonicalMIMEHeaderKey(pattern)] = true
		}
	}
	return p
}

// HandsOn reports whether pass_headers names a client's header, given in
// canonical form. What KeptFromEngines holds back is not handed on under any
// pattern.
func (e *Engine) HandsOn(name string) bool {
	if e.pass == nil {
		return false
	}
	if e.pass.names[name] {
		return true // its configuration was checked against the list
	}
	for _, prefix := range e.pass.prefixes {
		if strings.HasPrefix(name, prefix) {
			return KeptFromEngines(name) == MayPass
		}
	}
	return false
}

// Kept says why a client's header never reaches an engine by pass_headers.
type Kept uint8

const (
	MayPass    Kept = iota
	OfThisHop       // belongs to one connection, or frames one message
	Credential      // shows who the client is
	Routing         // says where the request came from or should go
	OfPenstock      // is meant for the gateway, or set by it
)

// wantInstead completes "want ..." in a fault of pass_headers.
var wantInstead = [...]string{
	OfThisHop:  "no header of one connection or one message's framing",
	Credential: "no header with credentials; pass_credentials = true hands on the client's",
	Routing:    "no header that says where a request came from or should go",
	OfPenstock: "no header that is the gateway's own",
}

// kept are the headers by name, canonical. Encodings are framing here: the
// gateway has to read what passes.
var kept = map[string]Kept{
	"Connection": OfThisHop, "Keep-Alive": OfThisHop, "Te": OfThisHop, "Trailer": OfThisHop,
	"Transfer-Encoding": OfThisHop, "Upgrade": OfThisHop, "Http2-Settings": OfThisHop, "Content-Length": OfThisHop, "Expect": OfThisHop,
	"Content-Encoding": OfThisHop, "Accept-Encoding": OfThisHop, "Range": OfThisHop, "Early-Data": OfThisHop, "Max-Forwards": OfThisHop,

	"Authorization": Credential, "X-Api-Key": Credential, "Api-Key": Credential, "Apikey": Credential, "X-Auth-Token": Credential,
	"Cookie": Credential, "X-Goog-Api-Key": Credential, "Ocp-Apim-Subscription-Key": Credential,

	"Host": Routing, "Forwarded": Routing, "Via": Routing, "X-Real-Ip": Routing, "True-Client-Ip": Routing, "X-Client-Ip": Routing,
	"X-Cluster-Client-Ip": Routing, "X-Target-Url": Routing, "X-Original-Url": Routing, "X-Rewrite-Url": Routing,
	"X-Original-Host": Routing, "X-Host": Routing, "X-Http-Method-Override": Routing, "X-Http-Method": Routing,
	"X-Method-Override": Routing, "X-Gateway-Attempt": Routing,

	"X-Request-Id": OfPenstock,
}

// keptPrefixes are whole families of names.
var keptPrefixes = []struct {
	prefix string
	why    Kept
}{
	{"Proxy-", OfThisHop},
	{"X-Amz-Security-", Credential},
	{"X-Forwarded-", Routing}, {"X-Envoy-", Routing}, {"X-Gateway-Destination-", Routing}, {"X-Prefiller-", Routing}, {"X-Decoder-", Routing},
	{"X-Smg-Target-", Routing},
	{"X-Penstock-", OfPenstock},
}

// KeptFromEngines says why the canonical name is held back whatever the
// configuration says; MayPass if it is not. An underscore counts as a hyphen:
// many servers take one for the other.
func KeptFromEngines(name string) Kept {
	if strings.IndexByte(name, '_') >= 0 {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	if why := kept[name]; why != MayPass {
		return why
	}
	for i := range keptPrefixes {
		if k := &keptPrefixes[i]; strings.HasPrefix(name, k.prefix) {
			return k.why
		}
	}
	return MayPass
}

// passFault says what is wrong with one element of pass_headers, "" if
// nothing is.
func passFault(pattern string) (want string) {
	const wantPattern = `header names such as "x-trace-id", or the beginning of names such as "x-team-*"`
	prefix, wild := strings.CutSuffix(pattern, "*")
	switch {
	case !headerToken(prefix):
		return wantPattern
	case wild && (!strings.HasSuffix(prefix, "-") || len(strings.TrimPrefix(strings.ToLower(prefix), "x-")) < 2):
		return wantPattern // "*" or "x-*" would hand on what nobody thought of
	}
	name := textproto.CanonicalMIMEHeaderKey(prefix)
	if wild {
		for _, k := range keptPrefixes {
			if strings.HasPrefix(name, k.prefix) {
				return wantInstead[k.why]
			}
		}
		return ""
	}
	return wantInstead[KeptFromEngines(name)]
}

// headerToken reports whether s is what a header may be called.
func headerToken(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "!#$%&'+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
