package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shapes are the request shapes and awkward bodies that clients are known to send.
type shape struct {
	Name    string
	Path    string
	Headers map[string]string
	Body    json.RawMessage
	Raw     string `json:"raw_body"`
	Expand  []struct {
		Pointer string
		Repeat  int
	}
}

func shapesOf(t testing.TB, file string) (all []shape) {
	t.Helper()
	f, err := os.Open(filepath.Join("proxy", "testdata", "conversations", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s shape
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.Raw == "" {
			s.Raw = string(s.Body)
		}
		for _, e := range s.Expand {
			s.Raw = expanded(t, s.Raw, e.Pointer, e.Repeat)
		}
		all = append(all, s)
	}
	return all
}

// expanded repeats the string at a JSON pointer.
func expanded(t testing.TB, body, pointer string, times int) string {
	var whole any
	if err := json.Unmarshal([]byte(body), &whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	steps := strings.Split(pointer[1:], "/")
	for i, step := range steps {
		switch v := at.(type) {
		case []any:
			n, _ := strconv.Atoi(step)
			if at = v[n]; i == len(steps)-1 {
				v[n] = strings.Repeat(at.(string), times)
			}
		case map[string]any:
			if at = v[step]; i == len(steps)-1 {
				v[step] = strings.Repeat(at.(string), times)
			}
		}
	}
	out, _ := json.Marshal(whole)
	return string(out)
}

// modelOf is the model of a body, "" if it has none.
func modelOf(body string) string {
	var doc struct{ Model string }
	json.Unmarshal([]byte(body), &doc)
	return doc.Model
}

// Every request that clients are known to send is served on its path, and
// reaches the engine as it was sent.
func TestC54_EveryShapeOfRequestPassesUnchanged(t *testing.T) {
	t.Parallel()
	shapes := shapesOf(t, "requests.jsonl")
	if len(shapes) != 44 {
		t.Fatalf("%d shapes", len(shapes))
	}
	var models []string
	for _, s := range shapes {
		if m := modelOf(s.Raw); m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	e1 := startPlayed(t, playCalls)
	e1.SetModels(models...)
	g := startAny(t, "", e1)
	c := over1(t)
	for _, s := range shapes {
		var headers []string
		for name, value := range s.Headers {
			headers = append(headers, name, value)
		}
		before := len(posts(e1))
		body := s.Raw
		bound := strings.Contains(body, `"previous_response_id": "`) || strings.Contains(body, `"previous_response_id":"`)
		a := g.post(c, s.Path, body, headers...)
		switch {
		case s.Name == "azure_style_path":
			checkError(t, a, 404, "invalid_request")
			continue
		case bound:
			checkError(t, a, 404, "previous_response_not_found")
			body = strings.Replace(body, "previous_response_id", "x_response_id", 1)
			a = g.post(c, s.Path, body, headers...)
		}
		p := posts(e1)
		if a.status != 200 || a.err != nil || len(p) != before+1 {
			t.Fatalf("%s: %d %v, %d requests at the engine\n%.300s", s.Name, a.status, a.err, len(p)-before, a.body)
		}
		if string(p[before].Body) != body || p[before].Request.URL.RequestURI() != s.Path {
			t.Errorf("%s: the engine saw %s with other %d bytes than the %d sent", s.Name, p[before].Request.URL, len(p[before].Body), len(body))
		}
		if strings.Contains(body, `"stream": true`) || strings.Contains(body, `"stream":true`) {
			if ct := a.header.Get("Content-Type"); strings.Contains(string(p[before].Body), `"stream":true`) && !strings.HasPrefix(ct, "text/event-stream") {
				t.Errorf("%s: %s", s.Name, ct)
			}
		}
	}
}

// The awkward bodies, on every endpoint that takes JSON: what cannot be routed
// is a 400 in the shape of the API and reaches no engine, what can reaches it
// as it is.
func TestC34_EveryAwkwardBodyOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	shapes := shapesOf(t, "edge_bodies.jsonl")
	if len(shapes) != 26 {
		t.Fatalf("%d bodies", len(shapes))
	}
	e1 := startPlayed(t, playCalls)
	e1.SetModels("llama-3.1-8b-instruct", "m")
	g := startAny(t, "", e1)
	c := over1(t)
	refused := map[string]bool{"not_json": true, "truncated_json": true, "trailing_comma": true, "bom_prefix": true, "duplicate_model": true,
		"model_wrong_type": true, "deep_nesting": true, "array_top_level": true}
	nameless := map[string]bool{"empty_object": true, "model_missing": true}
	for _, call := range append(slices.Clone(generating), working...) {
		if call.kind != "" {
			continue
		}
		for _, s := range shapes {
			before := len(posts(e1))
			headers := []string{}
			if s.Name == "gzip_header_plain_body" {
				headers = []string{"Content-Encoding", "gzip"}
			}
			a := g.post(c, call.path, s.Raw, headers...)
			p := posts(e1)
			switch {
			case s.Name == "gzip_header_plain_body":
				if a.status != 415 || len(p) != before {
					t.Errorf("%s %s: %d", call.path, s.Name, a.status)
				}
			case s.Name == "model_unknown":
				if a.status != 404 || a.errorCode() != "model_not_found" || len(p) != before {
					t.Errorf("%s %s: %d %s", call.path, s.Name, a.status, a.body)
				}
			case refused[s.Name], nameless[s.Name]: // two models are served: none is meant
				if a.status != 400 || a.errorCode() != "invalid_request" || len(p) != before {
					t.Errorf("%s %s: %d %s", call.path, s.Name, a.status, a.body)
				}
				if strings.HasPrefix(call.path, "/v1/messages") {
					wantAnthropicError(t, a)
				} else {
					checkError(t, a, 400, "invalid_request")
				}
			default:
				if a.status != 200 || len(p) != before+1 || string(p[len(p)-1].Body) != s.Raw {
					t.Errorf("%s %s: %d %.200s", call.path, s.Name, a.status, a.body)
				}
			}
		}
	}
	if n := g.metric("penstock_panics_total"); n != 0 {
		t.Errorf("%v panics\n%s", n, g.logs)
	}
}
