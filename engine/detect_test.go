package engine

import (
	"fmt"
	"strings"
	"testing"
)

// TestDetectRecordedEngines lets the poller meet the recorded answers of real
// engines on loopback and keeps what it concludes as golden files.
func TestDetectRecordedEngines(t *testing.T) {
	metrics := func(t *testing.T, name string) page { return page{status: 200, body: string(readPage(t, name+".txt"))} }
	llama := func(t *testing.T, models string) map[string]page {
		return map[string]page{
			"/health": recorded(t, "llamacpp_b11434_health_200"), modelsPath: recorded(t, "llamacpp_b11434_"+models),
			propsPath: recorded(t, "llamacpp_b11434_get_props"), "/metrics": metrics(t, "llamacpp_b11434_real_busy"),
		}
	}
	vllm := func(t *testing.T) map[string]page {
		return map[string]page{
			"/health": recorded(t, "vllm_v0.32.0_get_health"), modelsPath: recorded(t, "vllm_v0.32.0_get_v1_models"),
			versionPath: recorded(t, "vllm_v0.32.0_get_version"), "/metrics": metrics(t, "vllm_v0.32.0_cpu_real_busy"),
			propsPath: recorded(t, "vllm_v0.32.0_err_404"),
		}
	}
	cases := []struct {
		name  string
		pages func(t *testing.T) map[string]page
	}{
		{"llamacpp", func(t *testing.T) map[string]page { return llama(t, "get_v1_models") }},
		{"llamacpp_alias", func(t *testing.T) map[string]page { return llama(t, "models_alias") }},
		{"llamacpp_without_metrics", func(t *testing.T) map[string]page {
			p := llama(t, "get_v1_models")
			p["/metrics"] = page{status: 501, server: "llama.cpp"}
			return p
		}},
		{"llamacpp_behind_a_proxy", func(t *testing.T) map[string]page {
			p := llama(t, "get_v1_models")
			for path, answer := range p {
				answer.server = "nginx"
				p[path] = answer
			}
			return p
		}},
		{"llamacpp_by_props", func(t *testing.T) map[string]page {
			return map[string]page{"/health": {status: 200}, propsPath: {status: 200, body: recorded(t, "llamacpp_b11434_get_props").body}}
		}},
		{"vllm", vllm},
		{"vllm_by_metrics", func(t *testing.T) map[string]page {
			return map[string]page{"/health": {status: 200}, "/metrics": vllm(t)["/metrics"]}
		}},
		{"vllm_by_version", func(t *testing.T) map[string]page {
			return map[string]page{"/health": {status: 200}, versionPath: vllm(t)[versionPath]}
		}},
		{"neither", func(t *testing.T) map[string]page {
			p := plain("m")
			p["/metrics"] = metrics(t, "sglang_v0.4_docs_sample")
			p[versionPath] = page{status: 200, server: "nginx", body: `{"version":"1.2.3","commit":"abc"}`}
			return p
		}},
		{"bare_openai", func(*testing.T) map[string]page {
			return map[string]page{modelsPath: {status: 200, body: listOf("openai", "m")}}
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			srv := listenAt(t, "", script(tc.pages(t)))
			f := NewFleet()
			if err := f.Apply([]Config{{Name: "e", URL: srv.URL, Dialect: DialectAuto}}); err != nil {
				t.Fatal(err)
			}
			run(t, &Poller{Fleet: f})
			e := f.Set().Engines[0]
			wantSlots, wantSignals := strings.HasPrefix(tc.name, "llamacpp"), tc.name != "llamacpp_without_metrics" && tc.name != "llamacpp_by_props" &&
				tc.name != "vllm_by_version" && tc.name != "neither" && tc.name != "bare_openai"
			eventually(t, "identified", func() bool {
				d := e.Detected()
				context := e.Live.Models() == nil || e.Live.Models().Models[0].ContextTokens == 1024
				return d != nil && e.Ready() && (!wantSlots || d.Slots > 0 && context) && (!wantSignals || e.Sample() != nil)
			})
			d := e.Detected()
			var b strings.Builder
			fmt.Fprintf(&b, "dialect %s\nby      %s\nslots   %d\ncap     %d\nstate   %v, %v\n", d.Dialect, d.How, d.Slots, e.Cap(), e.Status().State, e.Status().Reason)
			if list := e.Live.Models(); list != nil {
				fmt.Fprintf(&b, "models  %s\n", describeModels(list.Models))
				for _, m := range list.Models {
					fmt.Fprintf(&b, "%s\n", m.Raw)
				}
			}
			if s := e.Sample(); s != nil {
				b.WriteString(describe(*s))
			}
			golden(t, "testdata/engines/"+tc.name+".golden", b.String())
		})
	}
}

func TestDecideByStrongestSign(t *testing.T) {
	cases := []struct {
		name string
		ev   evidence
		want string // dialect, "" = undecided
	}{
		{"nothing yet", evidence{}, ""},
		{"one question open", evidence{asked: askedAll &^ askedProps}, ""},
		{"no sign", evidence{asked: askedAll, server: "uvicorn", ownedBy: "sglang"}, DialectOpenAI},
		{"families beat a reseller's owner", evidence{family: DialectVLLM, ownedBy: "llamacpp"}, DialectVLLM},
		{"header beats owner", evidence{server: "llama.cpp", ownedBy: "vllm"}, DialectLlamaCpp},
		{"owner", evidence{ownedBy: "vllm"}, DialectVLLM},
		{"props", evidence{props: true}, DialectLlamaCpp},
		{"version", evidence{version: "0.32.0"}, DialectVLLM},
	}
	for _, tc := range cases {
		d, ok := tc.ev.decide()
		if ok != (tc.want != "") || d.Dialect != tc.want || ok && d.How == "" {
			t.Errorf("%s: got %+v %v, want %q", tc.name, d, ok, tc.want)
		}
	}
	ev := evidence{family: DialectVLLM, slots: 4}
	if d, _ := ev.conclude(DialectOpenAI); d.Dialect != DialectOpenAI || d.How != howConfigured || d.Slots != 0 {
		t.Errorf("configured: %+v", d)
	}
}
