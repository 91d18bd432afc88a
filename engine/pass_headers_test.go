package engine

import (
	"fmt"
	"net/textproto"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func passingOn(patterns ...string) *Engine {
	return New(Config{Name: "e", URL: "http://h", PassHeaders: patterns}, NewLive(0))
}

func TestPassHeaders(t *testing.T) {
	e := passingOn("x-team-*", "X-Trace-ID", "x_odd", "x-gateway-*", "X-Api-*", "x-session-id", "cookies")
	for name, want := range map[string]bool{
		"X-Team-Name": true, "X-Team-": true, "X-Team": false, "X-Teams-Name": false, "X-Trace-Id": true, "X-Trace-Id-2": false,
		"X_odd": true, "X-Odd": false, "X-Session-Id": true, "Cookies": true, "Cookie": false, "X-Api-Version": true, "X-Api-Key": false,
		"X-Gateway-Model": true, "X-Gateway-Destination-Endpoint": false, "X-Gateway-Destination_endpoint": false, "X-Gateway-Attempt": false, "Anything": false,
	} {
		if got := e.HandsOn(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if passingOn().HandsOn("X-Team-Name") {
		t.Error("without pass_headers a header passes")
	}
}

func TestPassHeadersFaults(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "header names", "*": "header names", "x-*": "header names", "X-*": "header names", "x-a-*-b": "header names", "x team": "header names",
		"x-team:": "header names", "x-team*": "header names", "x-ü": "header names", strings.Repeat("x", 129): "header names",
		"Connection": "one connection", "transfer-encoding": "one connection", "content_length": "one connection", "proxy-authorization": "one connection",
		"accept-encoding": "one connection", "proxy-*": "one connection",
		"authorization": "no header with credentials", "X-Api-Key": "no header with credentials", "x_api_key": "no header with credentials", "cookie": "no header with credentials",
		"x-forwarded-for": "where a request came from", "x-forwarded-*": "where a request came from", "forwarded": "where a request came from",
		"X-Target-Url": "where a request came from", "x-gateway-destination-endpoint": "where a request came from", "x-prefiller-url": "where a request came from",
		"x-penstock-tenant": "the gateway's own", "x-penstock-*": "the gateway's own", "x-request-id": "the gateway's own",
		"x-team-*": "", "x-trace-id": "", "authorization-note": "", "cf-ray": "", "x-a*": "header names", "helicone-*": "",
	} {
		c := Config{Name: "e", URL: "http://h", PassHeaders: []string{"x-good", pattern}}
		faults := c.Validate()
		switch {
		case want == "" && len(faults) > 0:
			t.Errorf("%q: %v", pattern, faults)
		case want != "" && (len(faults) != 1 || faults[0].Key != "pass_headers" || !strings.Contains(faults[0].Want, want) || faults[0].Value != fmt.Sprintf("%q", pattern)):
			t.Errorf("%q: %v, want %q", pattern, faults, want)
		}
	}
}

// Whatever patterns a configuration has that Validate takes, what is held back
// stays, in either spelling.
func TestHeldBackIsHeldBack(t *testing.T) {
	names := make([]string, 0, len(kept)+2*len(keptPrefixes))
	for name := range kept {
		names = append(names, name)
	}
	for _, k := range keptPrefixes {
		names = append(names, k.prefix+"Any", k.prefix)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Name: "e", URL: "http://h"}
		for range rapid.IntRange(1, 4).Draw(t, "patterns") {
			from := rapid.SampledFrom(names).Draw(t, "name")
			pattern := from[:rapid.IntRange(0, len(from)).Draw(t, "length")]
			if rapid.Bool().Draw(t, "wild") {
				pattern += "*"
			}
			if rapid.Bool().Draw(t, "lower") {
				pattern = strings.ToLower(pattern)
			}
			if passFault(pattern) == "" {
				c.PassHeaders = append(c.PassHeaders, pattern)
			}
		}
		e := New(c, NewLive(0))
		for _, name := range names {
			for _, spelled := range []string{name, textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "-", "_"))} {
				if e.HandsOn(spelled) {
					t.Fatalf("%q hand on %s", c.PassHeaders, spelled)
				}
			}
		}
	})
}
