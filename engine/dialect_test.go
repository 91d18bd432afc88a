package engine

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestDialectsAreWhole(t *testing.T) {
	letters := ""
	for i := range dialects {
		d := &dialects[i]
		letters += d.servesBy
		if len(d.health) == 0 || d.healthTimeout == 0 || len(d.lists) == 0 || len(d.metrics) > 0 != (len(d.signals) > 0) {
			t.Errorf("%s: something to ask is missing", d.name)
		}
		if d.name != DialectOpenAI && len(d.families) == 0 {
			t.Errorf("%s: no sign on its metrics page", d.name)
		}
		if !slices.Contains(DialectNames(), d.name) || dialectByName(d.name) != d {
			t.Errorf("%s cannot be configured", d.name)
		}
		for _, page := range slices.Concat(d.health, d.metrics, d.about.pages) {
			if method, target := targetOf(&url.URL{Scheme: "http", Host: "h:1", Path: "/p"}, page); method != "GET" || !strings.HasPrefix(target, "http://h:") {
				t.Errorf("%s: %s is %s %s", d.name, page, method, target)
			}
		}
	}
	if len(DialectNames()) != len(dialects)+1 {
		t.Errorf("%d names, %d dialects and auto", len(DialectNames()), len(dialects))
	}
	seen := make(map[string]bool)
	for _, row := range paths {
		if seen[row.path] || row.path[0] != '/' || strings.Trim(row.by, letters) != "" {
			t.Errorf("row %+v", row)
		}
		seen[row.path] = true
	}
}

func TestPathsByDialect(t *testing.T) {
	can := func(dialect, path string) bool {
		need := PathNeeds(path)
		return dialectByName(dialect).can()&need == need
	}
	for _, tc := range []struct {
		path string
		by   []string // of the dialects that are known
	}{
		{"/v1/chat/completions", []string{DialectTriton, DialectNIM, DialectVLLM, DialectSGLang, DialectTGI, DialectLlamaCpp, DialectTRTLLM, DialectLMDeploy}},
		{"/not/in/the/table", []string{DialectTriton, DialectNIM, DialectVLLM, DialectSGLang, DialectTGI, DialectLlamaCpp, DialectTRTLLM, DialectLMDeploy}},
		{"/v1/responses", []string{DialectNIM, DialectVLLM, DialectSGLang, DialectLlamaCpp, DialectTRTLLM, DialectLMDeploy}},
		{"/v1/embeddings", []string{DialectTriton, DialectNIM, DialectVLLM, DialectSGLang, DialectLlamaCpp, DialectTRTLLM}},
		{"/generate", []string{DialectSGLang, DialectTGI, DialectLMDeploy}},
		{"/generate_stream", []string{DialectTGI}},
		{"/infill", []string{DialectLlamaCpp}},
		{"/v1/audio/translations", []string{DialectNIM, DialectVLLM}},
	} {
		for i := range dialects {
			name := dialects[i].name
			if got, want := can(name, tc.path), name == DialectOpenAI || slices.Contains(tc.by, name); got != want {
				t.Errorf("%s serves %s: %v", name, tc.path, got)
			}
		}
	}
}

func TestWhatAnEngineCanDo(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        Config
		detected string
		can      string // of tools, structured_output, embeddings, /v1/responses and /generate_stream
	}{
		{"nothing known", Config{}, "", "tools,structured_output,embeddings,/v1/responses,/generate_stream"},
		{"a compatible server", Config{}, DialectOpenAI, "tools,structured_output,embeddings,/v1/responses,/generate_stream"},
		{"detected", Config{}, DialectTGI, "tools,structured_output,/generate_stream"},
		{"configured, not answered yet", Config{Dialect: DialectTriton}, "", "tools,embeddings"},
		{"words of the configuration", Config{Capabilities: []string{"tools"}}, DialectVLLM, "tools,/v1/responses"},
		{"no words", Config{Capabilities: []string{}}, DialectVLLM, "/v1/responses"},
		{"words beyond the dialect are believed", Config{Capabilities: []string{"structured_output"}}, DialectTriton, "structured_output"},
	} {
		tc.c.URL = "http://h"
		e := New(tc.c, NewLive(1))
		if tc.detected != "" {
			ev := evidence{}
			d, _ := ev.conclude(tc.detected)
			e.SetDetected(d)
		}
		looked := Tools | StructuredOutput | Embeddings | PathNeeds("/v1/responses") | PathNeeds("/generate_stream")
		if got := (e.Can() & looked).String(); got != tc.can {
			t.Errorf("%s: can %s, want %s", tc.name, got, tc.can)
		}
	}
}

func TestCapFollowsFromSlots(t *testing.T) {
	for _, tc := range []struct {
		dialect    string
		slots      int
		configured int
		want       int64
	}{
		{DialectVLLM, 0, 0, 295},
		{DialectLlamaCpp, 4, 0, 8},
		{DialectLlamaCpp, 100, 0, 115},
		{DialectLlamaCpp, 512, 0, 589},
		{DialectTGI, 128, 0, 128},
		{DialectTGI, 10000, 0, 295},
		{DialectNIM, 64, 0, 74},
		{DialectSGLang, 4096, 0, 295}, // memory allows it to none: no reason for sixteen times the traffic
		{DialectSGLang, 4096, 700, 700},
		{DialectLlamaCpp, 4, 2, 2},
	} {
		e := New(Config{URL: "http://h", MaxInFlight: tc.configured}, NewLive(1))
		ev := evidence{pageSlots: tc.slots}
		d, _ := ev.conclude(tc.dialect)
		e.SetDetected(d)
		if got := e.Cap(); got != tc.want {
			t.Errorf("%s with %d slots, %d configured: cap %d, want %d", tc.dialect, tc.slots, tc.configured, got, tc.want)
		}
	}
}

func TestPagesAreAskedForWhereTheyAre(t *testing.T) {
	for _, tc := range []struct{ base, page, want string }{
		{"http://h:9000", "/metrics", "GET http://h:9000/metrics"},
		{"http://h:9000/triton", "/metrics", "GET http://h:9000/triton/metrics"},
		{"http://h:9000/triton", ":8002/metrics", "GET http://h:8002/metrics"},
		{"http://[fd00::1]:9000", ":8002/metrics", "GET http://[fd00::1]:8002/metrics"},
		{"https://h", ":8002/metrics", "GET http://h:8002/metrics"},
		{"http://h", "POST /v2/repository/index", "POST http://h/v2/repository/index"},
	} {
		base, err := url.Parse(tc.base)
		if err != nil {
			t.Fatal(err)
		}
		method, target := targetOf(base, tc.page)
		if got := method + " " + target; got != tc.want {
			t.Errorf("%s at %s: %s, want %s", tc.page, tc.base, got, tc.want)
		}
	}
}

func TestAboutPages(t *testing.T) {
	const none = "not its page"
	file := func(name string) answer {
		p := recorded(t, name)
		return answer{status: p.status, server: p.server, body: []byte(p.body)}
	}
	text := func(body string) answer { return answer{status: 200, server: "uvicorn", body: []byte(body)} }
	for _, tc := range []struct {
		name, dialect string
		ans           answer
		want          string // version, slots, context
	}{
		{"vllm", DialectVLLM, file("vllm_v0.32.0_get_version"), "0.32.0 0 0"},
		{"vllm behind a proxy", DialectVLLM, answer{server: "nginx", body: []byte(`{"version":"0.32.0"}`)}, none},
		{"a version with more", DialectVLLM, text(`{"version":"1","commit":"x"}`), none},
		{"a version that is no text", DialectVLLM, text(`{"version":1}`), none},
		{"an endless version", DialectVLLM, text(`{"version":"` + strings.Repeat("1", 65) + `"}`), none},
		{"a version for the terminal", DialectVLLM, text(`{"version":"\u001b[2J"}`), none},
		{"llama.cpp", DialectLlamaCpp, file("llamacpp_b11434_get_props"), "b0-unknown 4 1024"},
		{"props of something else", DialectLlamaCpp, text(`{"version":"1"}`), none},
		{"more slots than can be", DialectLlamaCpp, text(`{"total_slots":1000000}`), none},
		{"sglang", DialectSGLang, file("shape_sglang_server_info"), "0.5.12.post1 96 0"},
		{"early sglang", DialectSGLang, text(`{"model_path":"m","internal_states":[{}],"max_running_requests":32,"version":"0.4.6"}`), "0.4.6 32 0"},
		{"sglang that takes everything", DialectSGLang, text(`{"model_path":"m","internal_states":[{"effective_max_running_requests_per_dp":2147483647},{"effective_max_running_requests_per_dp":2147483647}]}`), " 0 0"},
		{"trtllm's server_info", DialectSGLang, text(`{"disaggregated_params":{}}`), none},
		{"tgi", DialectTGI, file("shape_tgi_info"), "3.3.7 128 8192"},
		{"early tgi", DialectTGI, text(`{"model_id":"m","max_best_of":2,"max_total_tokens":2048,"max_concurrent_requests":128,"version":"1.0.3"}`), "1.0.3 128 2048"},
		{"embeddings server", DialectTGI, text(`{"model_id":"m","max_concurrent_requests":512,"max_input_length":512,"version":"1.9.4"}`), none},
		{"another router", DialectTGI, text(`{"model_id":"m","max_best_of":1,"max_total_tokens":2048,"router":"lorax-router"}`), none},
		{"triton", DialectTriton, file("shape_triton_v2"), "2.61.0 0 0"},
		{"another server of that protocol", DialectTriton, text(`{"name":"mlserver","version":"1.6","extensions":[]}`), none},
		{"nim", DialectNIM, file("shape_nim_v1_version"), "1.8.4 0 0"},
		{"not json", DialectNIM, text(`<html>`), none},
		{"a list", DialectNIM, text(`["release","api"]`), none},
		{"a name twice", DialectNIM, text(`{"release":"1","release":"2","api":"1"}`), none},
	} {
		a, is := dialectByName(tc.dialect).about.read(tc.ans)
		got := none
		if is {
			got = fmt.Sprintf("%s %d %d", a.version, a.slots, a.context)
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// FuzzAbout: whatever an engine says of itself stays within bounds, and is fit
// for logs.
func FuzzAbout(f *testing.F) {
	for _, body := range []string{`{"version":"0.32.0"}`, `{"total_slots":4,"default_generation_settings":{"n_ctx":1024}}`,
		`{"model_path":"m","internal_states":[{"effective_max_running_requests_per_dp":4}]}`, `{"model_id":"m","max_best_of":2,"max_total_tokens":9}`,
		`{"name":"triton","version":"2","extensions":[]}`, `{"release":"1","api":"1"}`, `[{"name":"m","state":"READY"}]`,
		`{"data":[{"id":"a","parent":"b","owned_by":"vllm","max_model_len":7},{"id":"b"}]}`, `{"data":[{"id":"\ud800"}]}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for i := range dialects {
			d := &dialects[i]
			if d.about.read != nil {
				a, is := d.about.read(answer{status: 200, server: "uvicorn", body: body})
				if is && (a.sign == "" || a.slots < 0 || a.slots > maxSlots || a.context < 0 || len(a.version) > maxVersionBytes || strings.ContainsAny(a.version, "\n\r\x1b")) {
					t.Errorf("%s: %+v", d.name, a)
				}
			}
			for _, from := range d.lists {
				l, err := from.read(body)
				if err != nil {
					continue
				}
				for _, adapters := range []adapterName{adapterByID, adapterOfParent} {
					served := asServed(l.models, adapters, 0)
					if len(served) != len(l.models) || len(served) > maxListModels {
						t.Errorf("%d models of %d", len(served), len(l.models))
					}
					for _, m := range served {
						if m.ID == "" || len(m.ID) > maxModelBytes || m.ContextTokens < 0 {
							t.Errorf("%+v", m)
						}
						if m.Raw != nil && membersOf(m.Raw).text("id") != m.ID {
							t.Errorf("%q in %s", m.ID, m.Raw)
						}
					}
				}
			}
		}
	})
}
