package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/engine"
	"penstock/engine/enginetest"
)

// answerFile is a recorded answer of engine/testdata/engines as a page.
func answerFile(t testing.TB, name string) enginetest.Page {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("engine", "testdata", "engines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\n\n"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	return enginetest.Page{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Server: resp.Header.Get("Server"), Body: string(body)}
}

// metricsFile is a page of engine/testdata/metrics.
func metricsFile(t testing.TB, name string) enginetest.Page {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("engine", "testdata", "metrics", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return enginetest.Page{ContentType: "text/plain; version=0.0.4", Body: string(body)}
}

// modelPage lists models as an engine of that owner does.
func modelPage(owner string, models ...string) enginetest.Page {
	var objects []string
	for _, m := range models {
		id, parent, isAdapter := strings.Cut(m, " of ")
		object := fmt.Sprintf(`{"id":%q,"object":"model","created":1,"owned_by":%q}`, id, owner)
		if isAdapter {
			object = fmt.Sprintf(`{"id":%q,"object":"model","created":1,"owned_by":%q,"root":"/adapters/%s","parent":%q}`, id, owner, id, parent)
		}
		objects = append(objects, object)
	}
	return enginetest.Page{ContentType: "application/json", Body: `{"object":"list","data":[` + strings.Join(objects, ",") + `]}`}
}

// kindPages are the pages of one engine of each kind, all serving the model "m".
func kindPages(t testing.TB, kind string) map[string]enginetest.Page {
	ok := enginetest.Page{}
	switch kind {
	case engine.DialectVLLM:
		return map[string]enginetest.Page{"/health": ok, "/v1/models": modelPage("vllm", "m"), "/version": answerFile(t, "vllm_v0.32.0_get_version"),
			"/metrics": metricsFile(t, "vllm_v0.32.0_cpu_real_busy")}
	case engine.DialectLlamaCpp:
		p := modelPage("llamacpp", "m")
		p.Server = "llama.cpp"
		return map[string]enginetest.Page{"/health": answerFile(t, "llamacpp_b11434_health_200"), "/v1/models": p,
			"/props": answerFile(t, "llamacpp_b11434_get_props"), "/metrics": metricsFile(t, "llamacpp_b11434_real_busy")}
	case engine.DialectSGLang:
		return map[string]enginetest.Page{"/health": ok, "/v1/models": modelPage("sglang", "m"), "/server_info": answerFile(t, "shape_sglang_server_info"),
			"/metrics": metricsFile(t, "sglang_v0.5.12_hicache_overloaded")}
	case engine.DialectTGI:
		return map[string]enginetest.Page{"/health": ok, "/v1/models": modelPage("m", "m"), "/info": answerFile(t, "shape_tgi_info"),
			"/metrics": metricsFile(t, "shape_tgi_2.x")}
	case engine.DialectTRTLLM:
		return map[string]enginetest.Page{"/health": ok, "/v1/models": modelPage("tensorrt_llm", "m"), "/version": answerFile(t, "shape_trtllm_version"),
			"/metrics": {Body: "[]"}, "/prometheus/metrics": metricsFile(t, "shape_trtllm_serve")}
	case engine.DialectTriton:
		return map[string]enginetest.Page{"/health/ready": ok, "/v1/models": modelPage("Triton Inference Server", "m"), "/metrics": metricsFile(t, "triton_tensorrtllm_backend")}
	case engine.DialectLMDeploy:
		return map[string]enginetest.Page{"/health": ok, "/v1/models": modelPage("lmdeploy", "m"), "/metrics": metricsFile(t, "shape_lmdeploy")}
	case engine.DialectNIM:
		return map[string]enginetest.Page{"/v1/health/ready": ok, "/v1/models": modelPage("system", "m"), "/v1/version": answerFile(t, "shape_nim_v1_version"),
			"/v1/metrics": metricsFile(t, "nim_1.x_llama31_8b")}
	default:
		return map[string]enginetest.Page{"/v1/models": modelPage("somebody", "m")}
	}
}

// TestEveryKindIsFoundOutAndServes: a fleet of one engine of each kind, all
// dialect "auto", one model between them; what each is shows in /engines, once
// in the log, and in the table of the command.
func TestEveryKindIsFoundOutAndServes(t *testing.T) {
	t.Parallel()
	type want struct {
		by, version string
		most        int64 // in flight
		signals     string
	}
	wants := map[string]want{
		engine.DialectVLLM:     {`owned_by "vllm" in /v1/models`, "0.32.0", 295, "2 4 0.005510"},
		engine.DialectLlamaCpp: {"header Server: llama.cpp", "b0-unknown", 8, "4 0 -"},
		engine.DialectSGLang:   {`owned_by "sglang" in /v1/models`, "0.5.12.post1", 111, "6 41 0.880000"},
		engine.DialectTGI:      {"", "3.3.7", 128, "14 3 -"},
		engine.DialectTRTLLM:   {`owned_by "tensorrt_llm" in /v1/models`, "1.2.0", 295, "6 0 0.620000"},
		engine.DialectTriton:   {`owned_by "Triton Inference Server" in /v1/models`, "", 295, "1 1 0.487500"},
		engine.DialectLMDeploy: {`owned_by "lmdeploy" in /v1/models`, "", 295, "4 1 0.210000"},
		engine.DialectNIM:      {"", "1.8.4", 74, "1 0 0.000285"},
		engine.DialectOpenAI:   {"no sign of a known kind on /metrics, /v1/metrics", "", 295, "none"},
	}
	text, scripts := "", map[string]*enginetest.Script{}
	var kinds []string
	for kind := range wants {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		s := startScript(t, playAnswer)
		s.SetPages(kindPages(t, kind))
		scripts[kind] = s
		text += engineTOML(kind, s.URL(), "capacity = 10")
	}
	g := startGateway(t, text, kinds...)
	signals := func(kind string) string {
		row := g.engineRowOf(kind)
		if row.Signals == nil || row.Signals.Running == nil {
			return "none"
		}
		kv := "-"
		if v := row.Signals.KVUsed; v != nil {
			kv = fmt.Sprintf("%.6f", *v)
		}
		return fmt.Sprintf("%v %v %s", *row.Signals.Running, *row.Signals.Waiting, kv)
	}
	for _, kind := range kinds {
		w := wants[kind]
		g.await(kind+" to be known", func() bool {
			row := g.engineRowOf(kind)
			return row.Dialect == kind && row.Version == w.version && row.MaxInFlight == w.most && signals(kind) == w.signals
		})
		row := g.engineRowOf(kind)
		if !strings.HasPrefix(row.DialectBy, w.by) || row.DialectBy == "" {
			t.Errorf("%s is known by %q", kind, row.DialectBy)
		}
		if !slices.Equal(row.Models, []string{"m"}) {
			t.Errorf("%s serves %q", kind, row.Models)
		}
	}
	said := func(kind string) (n int) {
		for line := range strings.Lines(g.logs.String()) {
			if strings.Contains(line, "engine identified") && strings.Contains(line, `"engine":"`+kind+`"`) {
				n++
			}
		}
		return n
	}
	for _, kind := range kinds {
		g.await("the log to say what "+kind+" is", func() bool { return said(kind) > 0 })
	}
	c := client(t)
	for i := range 200 {
		g.chat(c, chatBody("m", fmt.Sprintf("question %d", i), false))
	}
	for kind, s := range scripts {
		if len(s.Exchanges()) == 0 {
			t.Errorf("%s served nobody", kind)
		}
		if n := said(kind); n != 1 {
			t.Errorf("%s was identified %d times\n%s", kind, n, g.logs)
		}
	}
	code, stdout, _ := penstock(t, "engines", "--admin", strings.TrimPrefix(g.admin, "http://"))
	if code != exitDone || !strings.Contains(stdout, "KNOWN BY") || !strings.Contains(stdout, "sglang 0.5.12.post1") || !strings.Contains(stdout, "header Server: llama.cpp") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	if strings.Contains(g.logs.String()+stdout, "not-for-logs") {
		t.Error("a key of an engine's information page is shown")
	}
}

// TestC56_AdaptersOfOtherKinds: SGLang lists an adapter by its id, but answers
// to that as the base model; it is listed and reached as "base:adapter". What
// a kind does not list can be configured.
func TestC56_AdaptersOfOtherKinds(t *testing.T) {
	t.Parallel()
	s1, s2, tgi := startScript(t, playAnswer), startScript(t, playAnswer), startScript(t, playAnswer)
	for s, models := range map[*enginetest.Script][]string{s1: {"base"}, s2: {"base", "fin of base"}} {
		p := kindPages(t, engine.DialectSGLang)
		p["/v1/models"] = modelPage("sglang", models...)
		s.SetPages(p)
	}
	p := kindPages(t, engine.DialectTGI)
	p["/v1/models"] = modelPage("base", "base")
	tgi.SetPages(p)
	g := startGateway(t, engineTOML("s1", s1.URL())+engineTOML("s2", s2.URL())+engineTOML("t1", tgi.URL(), `models = ["base", "org/adapter"]`), "s1", "s2", "t1")
	g.await("kinds", func() bool {
		return g.engineRowOf("s2").Dialect == engine.DialectSGLang && g.engineRowOf("t1").Dialect == engine.DialectTGI
	})
	c := client(t)
	ids, list := g.listedModels(c)
	if !slices.Equal(ids, []string{"base", "base:fin", "org/adapter"}) || !strings.Contains(list.body, `"parent":"base"`) {
		t.Fatalf("lists %q\n%s", ids, list.body)
	}
	for range 30 {
		if e := g.chat(c, chatBody("base:fin", "x", false)); e != "s2" {
			t.Fatalf("the adapter of s2 was served by %s", e)
		}
		if e := g.chat(c, chatBody("org/adapter", "x", false)); e != "t1" {
			t.Fatalf("the adapter of t1 was served by %s", e)
		}
	}
	for _, x := range s2.Exchanges() {
		if !strings.Contains(string(x.Body), `"model":"base:fin"`) {
			t.Errorf("s2 was asked for %s", x.Body)
		}
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("fin", "x", false)), 404, "model_not_found")
	if n := len(s1.Exchanges()); n > 0 {
		t.Errorf("%d requests for adapters reached an engine without", n)
	}
}

// TestC29_WhatADialectCannotDo: without configured capabilities an engine gets
// no request that its kind would ignore a part of.
func TestC29_WhatADialectCannotDo(t *testing.T) {
	t.Parallel()
	scripts := map[string]*enginetest.Script{}
	text := ""
	for _, kind := range []string{engine.DialectTriton, engine.DialectTGI, engine.DialectVLLM} {
		s := startScript(t, playAnswer)
		s.SetPages(kindPages(t, kind))
		scripts[kind] = s
		text += engineTOML(kind, s.URL())
	}
	g := startGateway(t, text, "triton", "tgi", "vllm")
	g.await("kinds", func() bool {
		for kind := range scripts {
			if g.engineRowOf(kind).Dialect != kind {
				return false
			}
		}
		return true
	})
	c := client(t)
	schema := `{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{}}}}`
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`
	for _, body := range []string{schema, image} {
		for range 20 {
			if e := g.chat(c, body, "x-penstock-affinity", "off"); e == "triton" {
				t.Fatalf("triton was asked for what it ignores: %s", body)
			}
		}
	}
	embeddings := `{"model":"m","input":"x"}`
	for range 20 {
		if a := g.post(c, "/v1/embeddings", embeddings); a.header.Get("X-Penstock-Engine") == "tgi" {
			t.Fatal("tgi was asked for embeddings")
		}
	}
	if n := len(scripts[engine.DialectTGI].Exchanges()); n == 0 {
		t.Error("tgi serves no structured output and no images")
	}
}

// TestC57_AdaptersInUseAreShown is the whole way to the operators.
func TestC57_AdaptersInUseAreShown(t *testing.T) {
	t.Parallel()
	e1 := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e1.URL()), "e1")
	const family = `vllm:lora_requests_info{max_lora="4",running_lora_adapters=%q,waiting_lora_adapters=%q} %v` + "\n"
	page := "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
	for i := range 5 {
		page += fmt.Sprintf(family, "x", "y", 1.7950e9+float64(i))
	}
	e1.SetMetrics(page + fmt.Sprintf(family, "p", "q,r", 1.7959e9))
	g.await("adapters", func() bool {
		s := g.engineRowOf("e1").Signals
		return s != nil && s.Adapters != nil
	})
	s := g.engineRowOf("e1").Signals
	if a := s.Adapters; !slices.Equal(a.Running, []string{"p"}) || !slices.Equal(a.Waiting, []string{"q", "r"}) || a.Max != 4 || *s.Running != 1 || *s.Waiting != 2 {
		t.Errorf("%+v, %+v", s, a)
	}
}
