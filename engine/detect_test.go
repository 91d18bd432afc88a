package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// metricsFile is a metrics page of testdata/metrics.
func metricsFile(t *testing.T, name string) page {
	return page{status: 200, body: string(readPage(t, name+".txt"))}
}

// kindsOfEngines are the pages of one engine of each kind: recorded ones of
// vLLM and llama.cpp, and shapes of the others.
var kindsOfEngines = map[string]func(t *testing.T) map[string]page{
	"vllm": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": recorded(t, "vllm_v0.32.0_get_health"), modelsPath: recorded(t, "vllm_v0.32.0_get_v1_models"),
			versionPath: recorded(t, "vllm_v0.32.0_get_version"), "/metrics": metricsFile(t, "vllm_v0.32.0_cpu_real_busy"),
			propsPath: recorded(t, "vllm_v0.32.0_err_404"),
		}
	},
	"llamacpp": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": recorded(t, "llamacpp_b11434_health_200"), modelsPath: recorded(t, "llamacpp_b11434_get_v1_models"),
			propsPath: recorded(t, "llamacpp_b11434_get_props"), "/metrics": metricsFile(t, "llamacpp_b11434_real_busy"),
		}
	},
	"sglang": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": {status: 200}, modelsPath: recorded(t, "shape_sglang_v1_models"),
			"/server_info": recorded(t, "shape_sglang_server_info"), "/metrics": metricsFile(t, "sglang_v0.5.12_hicache_overloaded"),
		}
	},
	"tgi": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": {status: 200}, modelsPath: recorded(t, "shape_tgi_v1_models"), infoPath: recorded(t, "shape_tgi_info"),
			"/metrics": metricsFile(t, "shape_tgi_2.x"),
		}
	},
	"trtllm": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": {status: 200}, modelsPath: recorded(t, "shape_trtllm_v1_models"), versionPath: recorded(t, "shape_trtllm_version"),
			"/metrics": {status: 200, server: "uvicorn", body: `[]`}, "/prometheus/metrics": metricsFile(t, "shape_trtllm_serve"),
		}
	},
	"triton": func(t *testing.T) map[string]page { // its OpenAI frontend
		return map[string]page{
			"/health/ready": {status: 200}, modelsPath: recorded(t, "shape_triton_openai_v1_models"),
			"/metrics": metricsFile(t, "triton_tensorrtllm_backend"),
		}
	},
	"lmdeploy": func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": {status: 200}, modelsPath: recorded(t, "shape_lmdeploy_v1_models"), "/metrics": metricsFile(t, "shape_lmdeploy"),
		}
	},
	"nim": func(t *testing.T) map[string]page {
		return map[string]page{
			"/v1/health/ready": {status: 200}, modelsPath: recorded(t, "shape_nim_v1_models"),
			"/v1/version": recorded(t, "shape_nim_v1_version"), "/v1/metrics": metricsFile(t, "nim_1.x_llama31_8b"),
		}
	},
}

// TestDetectEngines lets the poller meet the answers of engines on loopback
// and keeps what it concludes as golden files.
func TestDetectEngines(t *testing.T) {
	of := func(kind string, change func(t *testing.T, p map[string]page)) func(t *testing.T) map[string]page {
		return func(t *testing.T) map[string]page {
			p := kindsOfEngines[kind](t)
			if change != nil {
				change(t, p)
			}
			return p
		}
	}
	without := func(paths ...string) func(t *testing.T, p map[string]page) {
		return func(_ *testing.T, p map[string]page) {
			for _, path := range paths {
				delete(p, path)
			}
		}
	}
	only := func(kind string, paths ...string) func(t *testing.T) map[string]page {
		return func(t *testing.T) map[string]page {
			all, p := kindsOfEngines[kind](t), map[string]page{"/health": {status: 200}}
			for _, path := range paths {
				p[path] = all[path]
			}
			return p
		}
	}
	// expect is what there is to wait for; several says that more than one sign
	// is certain, and either may be the first.
	type expect struct {
		version, slots, signals, several bool
	}
	all := expect{version: true, slots: true, signals: true}
	twice := expect{version: true, slots: true, signals: true, several: true}
	cases := []struct {
		name  string
		pages func(t *testing.T) map[string]page
		expect
	}{
		{"vllm", of("vllm", nil), expect{version: true, signals: true}},
		{"vllm_by_metrics", only("vllm", "/metrics"), expect{signals: true}},
		{"vllm_by_version", only("vllm", versionPath), expect{version: true}},
		{"vllm_without_metrics", of("vllm", without("/metrics")), expect{version: true}},
		{"llamacpp", of("llamacpp", nil), all},
		{"llamacpp_alias", of("llamacpp", func(t *testing.T, p map[string]page) { p[modelsPath] = recorded(t, "llamacpp_b11434_models_alias") }), all},
		{"llamacpp_without_metrics", of("llamacpp", func(_ *testing.T, p map[string]page) {
			p["/metrics"] = page{status: 501, server: "llama.cpp"}
		}), expect{version: true, slots: true}},
		{"llamacpp_behind_a_proxy", of("llamacpp", func(_ *testing.T, p map[string]page) {
			for path, answer := range p {
				answer.server = "nginx"
				p[path] = answer
			}
		}), all},
		{"llamacpp_by_props", func(t *testing.T) map[string]page {
			return map[string]page{"/health": {status: 200}, propsPath: {status: 200, body: recorded(t, "llamacpp_b11434_get_props").body}}
		}, expect{version: true, slots: true}},
		{"sglang", of("sglang", nil), all},
		{"sglang_old_info_without_metrics", of("sglang", func(_ *testing.T, p map[string]page) {
			p["/get_server_info"] = p["/server_info"]
			delete(p, "/server_info")
			delete(p, "/metrics")
		}), expect{version: true, slots: true}},
		{"sglang_other_prefix_by_metrics", func(t *testing.T) map[string]page {
			body := strings.ReplaceAll(metricsFile(t, "sglang_v0.5.12_busy").body, "sglang:", "sglang_")
			return map[string]page{"/health": {status: 200}, "/metrics": {status: 200, body: body}}
		}, expect{signals: true}},
		{"tgi", of("tgi", nil), twice},
		{"tgi_early_without_list", of("tgi", without(modelsPath)), twice},
		{"trtllm", of("trtllm", nil), all},
		{"trtllm_without_perf_metrics", of("trtllm", without("/prometheus/metrics")), expect{version: true}},
		{"trtllm_by_metrics", only("trtllm", "/metrics", "/prometheus/metrics"), expect{slots: true, signals: true}},
		{"triton", of("triton", nil), expect{slots: true, signals: true}},
		{"triton_vllm_inside", of("triton", func(t *testing.T, p map[string]page) {
			p["/metrics"] = page{status: 200, body: "nv_inference_request_success{model=\"m\",version=\"1\"} 7\n" + metricsFile(t, "vllm_v0.8_v1engine_partial").body}
		}), expect{signals: true}},
		{"triton_native", func(t *testing.T) map[string]page {
			return map[string]page{"/v2": recorded(t, "shape_triton_v2"), "/v2/health/ready": {status: 200},
				"POST /v2/repository/index": recorded(t, "shape_triton_repository_index")}
		}, expect{version: true}},
		{"lmdeploy", of("lmdeploy", nil), expect{signals: true}},
		{"lmdeploy_without_metrics", of("lmdeploy", without("/metrics")), expect{}},
		{"nim", of("nim", nil), twice},
		{"nim_by_metrics", of("nim", without("/v1/version")), expect{slots: true, signals: true}},
		{"nim_vllm_inside", func(t *testing.T) map[string]page {
			return map[string]page{"/v1/health/ready": {status: 200}, modelsPath: recorded(t, "shape_nim_2_v1_models"),
				"/v1/version": recorded(t, "shape_nim_2_v1_version"), "/v1/metrics": metricsFile(t, "vllm_v0.22.0_b200_busy")}
		}, expect{version: true, signals: true}},
		{"neither", func(*testing.T) map[string]page {
			p := plain("m")
			p["/metrics"] = page{status: 200, body: "# HELP vllm:num_requests_running nothing but talk\nprocess_cpu_seconds_total 3\n"}
			p[versionPath] = page{status: 200, server: "nginx", body: `{"version":"1.2.3","commit":"abc"}`}
			p[infoPath] = page{status: 200, body: `{"model_id":"BAAI/bge-large-en-v1.5","max_concurrent_requests":512,"max_input_length":512,"version":"1.9.4"}`}
			return p
		}, expect{}},
		{"bare_openai", func(*testing.T) map[string]page {
			return map[string]page{modelsPath: {status: 200, body: listOf("openai", "m")}}
		}, expect{}},
		{"same_page_everywhere", func(*testing.T) map[string]page {
			return map[string]page{"": {status: 200, server: "uvicorn", body: "<!doctype html><title>web</title>"}}
		}, expect{}},

		// Signs that contradict each other.
		{"lying_owner", of("llamacpp", func(_ *testing.T, p map[string]page) {
			p[modelsPath] = page{status: 200, server: "llama.cpp", body: listOf("vllm", "m")}
		}), all},
		{"lying_owner_of_sglang", of("sglang", func(_ *testing.T, p map[string]page) {
			p[modelsPath] = page{status: 200, server: "uvicorn", body: listOf("vllm", "m")}
		}), twice},
		{"owner_is_a_model_named_vllm", of("tgi", func(_ *testing.T, p map[string]page) {
			p[modelsPath] = page{status: 200, body: listOf("vllm", "vllm")}
		}), twice},
		{"families_of_two", of("sglang", func(t *testing.T, p map[string]page) {
			delete(p, "/server_info")
			p["/metrics"] = page{status: 200, body: someLoad + metricsFile(t, "sglang_v0.4_docs_sample").body}
		}), expect{signals: true}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			srv := listenAt(t, "", script(tc.pages(t)))
			f, log := NewFleet(), new(logLines)
			if err := f.Apply([]Config{{Name: "e", URL: srv.URL, Dialect: DialectAuto}}); err != nil {
				t.Fatal(err)
			}
			run(t, &Poller{Fleet: f, Log: log.logger()})
			e := f.Set().Engines[0]
			eventually(t, "identified", func() bool {
				d := e.Detected()
				if _, listed := tc.pages(t)[modelsPath]; listed || strings.HasPrefix(tc.name, "tgi_") || strings.HasPrefix(tc.name, "triton_") {
					if e.Live.Models() == nil {
						return false
					}
				}
				return d != nil && e.Ready() && len(log.with("engine identified")) == 1 && (!tc.version || d.Version != "") && (!tc.slots || d.Slots > 0) &&
					(!tc.signals || e.Sample() != nil && e.Sample().Has != 0)
			})
			d := *e.Detected()
			if d.How == "" || !strings.Contains(log.with("engine identified")[0], strings.ReplaceAll(d.How, `"`, `\"`)) {
				t.Errorf("by %q, log %q", d.How, log.with("engine identified"))
			}
			if tc.several {
				d.How = "one of several signs"
			}
			var b strings.Builder
			fmt.Fprintf(&b, "dialect  %s\nby       %s\nversion  %s\nslots    %d\ncap      %d\nstate    %v, %v\n",
				d.Dialect, d.How, d.Version, d.Slots, e.Cap(), e.Status().State, e.Status().Reason)
			fmt.Fprintf(&b, "can      %s\n", strings.Join(e.Can().Names(), " "))
			models, known := e.Serves()
			fmt.Fprintf(&b, "models   %s, known %v\n", describeModels(models), known)
			for _, m := range models {
				fmt.Fprintf(&b, "%s\n", m.Raw)
			}
			if s := e.Sample(); s != nil {
				b.WriteString(describe(*s))
			}
			golden(t, "testdata/engines/"+tc.name+".golden", b.String())
			if lines := log.with("engine identified"); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
			if lines := log.with("not-for-logs"); len(lines) > 0 {
				t.Errorf("a key in the log: %q", lines)
			}
		})
	}
}

func TestDecideByStrongestSign(t *testing.T) {
	kindOf := func(names ...string) (k kinds) {
		for _, n := range names {
			for i := range dialects {
				if dialects[i].name == n {
					k |= 1 << i
				}
			}
		}
		return k
	}
	tells := func(names ...string) map[string]about {
		m := make(map[string]about)
		for _, n := range names {
			m[n] = about{page: "/p", sign: "a sign", version: "1"}
		}
		return m
	}
	cases := []struct {
		name string
		ev   evidence
		want string // dialect, "" = undecided
		firm bool
	}{
		{"nothing yet", evidence{}, "", false},
		{"one question open", evidence{asked: askedAll &^ askedMetrics}, "", false},
		{"no sign", evidence{asked: askedAll, server: "uvicorn", ownedBy: "somebody"}, DialectOpenAI, true},
		{"families beat a reseller's owner", evidence{families: kindOf(DialectVLLM), page: "/metrics", ownedBy: "llamacpp"}, DialectVLLM, true},
		{"families of two, one owns the models", evidence{families: kindOf(DialectVLLM, DialectSGLang), page: "/metrics", ownedBy: "sglang"}, DialectSGLang, true},
		{"families of two, nobody owns", evidence{families: kindOf(DialectVLLM, DialectSGLang), page: "/metrics"}, DialectVLLM, true},
		{"a page that only a wrapper has", evidence{families: kindOf(DialectVLLM), page: "/v1/metrics", ownedBy: "vllm"}, DialectNIM, true},
		{"a page of its own beats families", evidence{families: kindOf(DialectVLLM), page: "/metrics", about: tells(DialectTriton)}, DialectTriton, true},
		{"header beats owner", evidence{server: "llama.cpp", ownedBy: "vllm"}, DialectLlamaCpp, true},
		{"owner, as long as something is open", evidence{ownedBy: "vllm"}, DialectVLLM, false},
		{"owner, when nothing is", evidence{ownedBy: "vllm", asked: askedAll}, DialectVLLM, true},
		{"owner beats a version that two kinds have", evidence{ownedBy: "tensorrt_llm", about: tells(DialectVLLM, DialectTRTLLM)}, DialectTRTLLM, false},
		{"props", evidence{about: tells(DialectLlamaCpp)}, DialectLlamaCpp, true},
		{"version", evidence{about: tells(DialectVLLM)}, DialectVLLM, false},
	}
	for _, tc := range cases {
		d, how, firm := tc.ev.decide()
		name := ""
		if d != nil {
			name = d.name
		}
		if name != tc.want || firm != tc.firm || (how == "") != (d == nil) {
			t.Errorf("%s: got %q by %q, firm %v; want %q", tc.name, name, how, firm, tc.want)
		}
	}
	ev := evidence{families: kindOf(DialectVLLM), page: "/metrics", about: map[string]about{DialectLlamaCpp: {slots: 4}}}
	if d, firm := ev.conclude(DialectOpenAI); d.Dialect != DialectOpenAI || d.How != howConfigured || d.Slots != 0 || !firm {
		t.Errorf("configured: %+v", d)
	}
}

// TestKindsThatAnswerInTurn: two kinds of engine behind one address do not
// make its kind change with every answer.
func TestKindsThatAnswerInTurn(t *testing.T) {
	one, other := someLoad, "sglang:num_running_reqs 7\n"
	e1 := script(vllmLike(one, "m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			after(time.Second)
			for i := range 60 {
				e1.set("/metrics", page{status: 200, body: []string{one, other}[i%2]})
				after(time.Second)
			}
			e := f.Set().Engines[0]
			if d := e.Detected(); d.Dialect != DialectVLLM {
				t.Errorf("%+v", d)
			}
			if lines := log.with("engine identified"); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
			e1.set("/metrics", page{status: 200, body: other}) // now it is the other one's for good
			after(time.Duration(contraryPages+2) * time.Second)
			if d, s := e.Detected(), e.Sample(); d.Dialect != DialectSGLang || s.Running != 7 {
				t.Errorf("%+v, %+v", d, s)
			}
			if lines := log.with("engine identified"); len(lines) != 2 {
				t.Errorf("%q", lines)
			}
		})
}
