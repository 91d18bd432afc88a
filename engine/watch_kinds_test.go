package engine

import (
	"context"
	"strings"
	"testing"
	"time"
)

// bubbleOf runs test against one engine of a configured dialect.
func bubbleOf(t *testing.T, dialect string, prepare func(*network), test func(t *testing.T, e *Engine, log *logLines)) {
	bubble(t, []string{"e1=10.0.0.1:80"}, prepare, func(t *testing.T, _ *network, f *Fleet, log *logLines) {
		if dialect != DialectAuto {
			if err := f.Apply([]Config{{Name: "e1", URL: "http://10.0.0.1:80", Dialect: dialect}}); err != nil {
				t.Fatal(err)
			}
		}
		test(t, f.Set().Engines[0], log)
	})
}

func TestHealthPagesOfTheKinds(t *testing.T) {
	for _, tc := range []struct{ dialect, page string }{
		{DialectVLLM, "/health"}, {DialectSGLang, "/health"}, {DialectTGI, "/health"}, {DialectLlamaCpp, "/health"}, {DialectTRTLLM, "/health"},
		{DialectLMDeploy, "/health"}, {DialectOpenAI, "/health"}, {DialectNIM, "/v1/health/ready"}, {DialectTriton, "/v2/health/ready"},
		{DialectTriton, "/health/ready"},
	} {
		e1 := script(map[string]page{tc.page: {status: 200}})
		bubbleOf(t, tc.dialect, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, _ *logLines) {
			after(time.Minute)
			if !e.Ready() {
				t.Fatalf("%s with %s: %v, %v", tc.dialect, tc.page, e.Status().State, e.Status().Reason)
			}
			if asked := len(e1.times(tc.page)); asked < 10 {
				t.Errorf("%s: %s asked %d times", tc.dialect, tc.page, asked)
			}
			e1.set(tc.page, page{status: 503})
			after(30 * time.Second)
			if s := e.Status(); s.State != Down || s.Reason != ReasonUnhealthy {
				t.Errorf("%s: %v, %v", tc.dialect, s.State, s.Reason)
			}
		})
	}
}

// TestSlowHealthOfSGLang: its health page runs a request, so that a busy one
// takes seconds for it, also when nobody knows yet what it is.
func TestSlowHealthOfSGLang(t *testing.T) {
	for _, dialect := range []string{DialectAuto, DialectSGLang} {
		e1 := script(map[string]page{modelsPath: {status: 200, body: listOf("sglang", "m")}, "/health": {status: 200, delay: 15 * time.Second}})
		bubbleOf(t, dialect, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, _ *logLines) {
			after(40 * time.Second)
			if d := e.Detected(); !e.Ready() || d == nil || d.Dialect != DialectSGLang {
				t.Errorf("%s: ready %v, %+v", dialect, e.Ready(), d)
			}
			after(5 * time.Minute)
			if n := e.polls.probes[timedOut].Load(); !e.Ready() || n > 1 {
				t.Errorf("%s: ready %v after %d late probes", dialect, e.Ready(), n)
			}
			// Beyond its own limit it is no health any more.
			e1.set("/health", page{status: 200, delay: time.Minute})
			after(2 * time.Minute)
			if s := e.Status(); s.State != Down || s.Reason != ReasonTimeout {
				t.Errorf("%s: %v, %v", dialect, s.State, s.Reason)
			}
		})
	}
}

// TestC21_KindsThatSayNoWhileTheyLoad: from an engine that has not been ready
// yet their refusal means that it loads, later that it is ill.
func TestC21_KindsThatSayNoWhileTheyLoad(t *testing.T) {
	for _, tc := range []struct {
		dialect, page string
		status        int
		loads         bool
	}{
		{DialectSGLang, "/health", 503, true},
		{DialectTGI, "/health", 503, true},
		{DialectNIM, "/v1/health/ready", 503, true},
		{DialectTriton, "/v2/health/ready", 400, true},
		{DialectTriton, "/v2/health/ready", 503, true},
		{DialectVLLM, "/health", 503, false},
		{DialectSGLang, "/health", 500, false},
	} {
		e1 := script(map[string]page{modelsPath: {status: 200, body: listOf("x", "m")}, tc.page: {status: tc.status}})
		bubbleOf(t, tc.dialect, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, _ *logLines) {
			after(8 * time.Second)
			want := Status{State: Down, Reason: ReasonUnhealthy}
			if tc.loads {
				want = Status{State: Starting, Reason: ReasonLoading}
			}
			if s := e.Status(); s.State != want.State || s.Reason != want.Reason {
				t.Errorf("%s, %d: %v, %v", tc.dialect, tc.status, s.State, s.Reason)
			}
			e1.set(tc.page, page{status: 200})
			after(2 * time.Second)
			if !e.Ready() {
				t.Errorf("%s: not ready when loaded", tc.dialect)
			}
			e1.set(tc.page, page{status: tc.status})
			after(time.Minute)
			if s := e.Status(); s.State != Down || s.Reason != ReasonUnhealthy {
				t.Errorf("%s, %d later: %v, %v", tc.dialect, tc.status, s.State, s.Reason)
			}
		})
	}
}

// TestMetricsOnAnotherPort: Triton shows its metrics on a port of their own,
// which need not be reachable.
func TestMetricsOnAnotherPort(t *testing.T) {
	api := script(map[string]page{"/v2/health/ready": {status: 200}, "/v2": recorded(t, "shape_triton_v2"),
		"POST /v2/repository/index": recorded(t, "shape_triton_repository_index")})
	metrics := script(map[string]page{"/metrics": metricsFile(t, "triton_tensorrtllm_backend")})
	var stop func()
	bubble(t, []string{"e1=10.0.0.1:8000"}, func(n *network) {
		n.serve("10.0.0.1:8000", api)
		stop = n.serve("10.0.0.1:8002", metrics)
	}, func(t *testing.T, n *network, f *Fleet, log *logLines) {
		after(20 * time.Second)
		e := f.Set().Engines[0]
		if s := e.Sample(); !e.Ready() || s == nil || s.Running != 1 || s.Age(time.Now()) > 2*time.Second || e.Detected().Slots != 512 {
			t.Errorf("ready %v, %+v, %+v", e.Ready(), s, e.Detected())
		}
		if models, known := e.Serves(); !known || len(models) > 0 {
			t.Errorf("requests may ask for %v", models)
		}
		if got := describeModels(e.Live.Models().Models); !strings.Contains(got, "tensorrt_llm:0") {
			t.Errorf("its repository has %s", got)
		}
		if lines := log.with("serves no OpenAI API"); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
		stop()
		hits := len(metrics.times("/metrics"))
		after(2 * time.Minute)
		if !e.Ready() || e.polls.scrapes[scrapeAbsent].Load() > 6 || len(metrics.times("/metrics")) != hits {
			t.Errorf("ready %v, %d scrapes in vain", e.Ready(), e.polls.scrapes[scrapeAbsent].Load())
		}
		if lines := log.with("metrics page unreadable"); len(lines) != 1 || !strings.Contains(lines[0], "refused") {
			t.Errorf("%q", lines)
		}
	})
}

// TestNeverAsksTRTLLMForItsIterations: that page hands its statistics out once.
func TestNeverAsksTRTLLMForItsIterations(t *testing.T) {
	pages := kindsOfEngines["trtllm"](t)
	for _, dialect := range []string{DialectAuto, DialectTRTLLM} {
		e1 := script(pages)
		bubbleOf(t, dialect, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, _ *logLines) {
			after(time.Minute)
			if n := len(e1.times("/metrics")); n > 0 || e.Sample() == nil || e.Sample().Running != 6 {
				t.Errorf("%s: asked %d times, %+v", dialect, n, e.Sample())
			}
		})
	}
}

// TestIdentificationIsBounded: an engine of unknown kind is asked each
// question once, or a few times where it does not answer, and is served all
// the same.
func TestIdentificationIsBounded(t *testing.T) {
	quiet := script(plain("m"))
	hangs := script(map[string]page{"/health": {status: 200}, modelsPath: {status: 200, body: listOf("x", "m")}, "": {status: 200, delay: time.Hour}})
	huge := script(map[string]page{"/health": {status: 200}, modelsPath: {status: 200, body: listOf("x", "m")},
		"": {status: 200, server: "uvicorn", body: `{"version":"1","x":"` + strings.Repeat("x", maxPageBytes) + `"}`}})
	bubble(t, []string{"e1=10.0.0.1:80", "e2=10.0.0.2:80", "e3=10.0.0.3:80"}, func(n *network) {
		n.serve("10.0.0.1:80", quiet)
		n.serve("10.0.0.2:80", hangs)
		n.serve("10.0.0.3:80", huge)
	}, func(t *testing.T, _ *network, f *Fleet, log *logLines) {
		after(2 * time.Second)
		for _, e := range f.Set().Engines {
			if !e.Ready() {
				t.Errorf("%s waits to be identified", e.Name)
			}
		}
		after(10 * time.Minute)
		for i, s := range []*scripted{quiet, hangs, huge} {
			e := f.Set().Engines[i]
			if d := e.Detected(); d == nil || d.Dialect != DialectOpenAI {
				t.Errorf("%s: %+v", e.Name, d)
			}
			for i := range dialects {
				for _, p := range dialects[i].about.pages {
					if p == versionPath {
						continue // of two kinds
					}
					if n := len(s.times(p)); n > vainAsks {
						t.Errorf("%s: %s asked %d times", e.Name, p, n)
					}
				}
			}
			if n := len(s.times("/metrics")); n > 80 { // once a second while it is open, then every 30 s
				t.Errorf("%s: /metrics asked %d times in ten minutes", e.Name, n)
			}
		}
		if lines := log.with("engine identified"); len(lines) != 3 {
			t.Errorf("%q", lines)
		}
	})
}

// TestAnEngineThatStartsIsNotJudged: while it shows nothing it may become
// anything.
func TestAnEngineThatStartsIsNotJudged(t *testing.T) {
	e1 := script(map[string]page{"": {status: 502, server: "nginx"}})
	bubbleOf(t, DialectAuto, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, log *logLines) {
		after(5 * time.Minute)
		if d := e.Detected(); d != nil {
			t.Errorf("%+v", d)
		}
		if n := len(e1.times("/v1/version")); n > 65 {
			t.Errorf("asked %d times in five minutes", n)
		}
		for path, p := range kindsOfEngines["nim"](t) {
			e1.set(path, p)
		}
		e1.set("", page{status: 404, server: "nginx"})
		after(15 * time.Second)
		if d := e.Detected(); !e.Ready() || d == nil || d.Dialect != DialectNIM || d.Version != "1.8.4" || e.Sample() == nil {
			t.Errorf("ready %v, %+v, %+v", e.Ready(), d, e.Sample())
		}
		if lines := log.with("engine identified"); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
	})
}

// TestC19_AnotherKindAtTheSameAddress: nothing of the program before stays,
// and the log is told once of each.
func TestC19_AnotherKindAtTheSameAddress(t *testing.T) {
	e1 := script(kindsOfEngines["sglang"](t))
	var stop func()
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { stop = n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, n *network, f *Fleet, log *logLines) {
			after(10 * time.Second)
			e := f.Set().Engines[0]
			if d := e.Detected(); d.Dialect != DialectSGLang || d.Slots != 96 {
				t.Errorf("%+v", d)
			}
			stop()
			e.Suspect()
			after(time.Second)
			n.serve("10.0.0.1:80", script(kindsOfEngines["tgi"](t)))
			after(10 * time.Second)
			d := e.Detected()
			if !e.Ready() || d.Dialect != DialectTGI || d.Slots != 128 || d.Version != "3.3.7" || e.Cap() != 128 || e.Can()&Embeddings != 0 {
				t.Errorf("ready %v, %+v, cap %d, can %v", e.Ready(), d, e.Cap(), e.Can())
			}
			if s := e.Sample(); s.Running != 14 || s.Has&FieldKVUsed != 0 {
				t.Errorf("%+v", s)
			}
			if got := describeModels(e.Live.Models().Models); got != "meta-llama/Llama-3.1-8B-Instruct:8192" {
				t.Errorf("serves %s", got)
			}
			if lines := log.with("engine identified"); len(lines) != 2 || !strings.Contains(lines[0], "dialect=sglang") || !strings.Contains(lines[1], "dialect=tgi") {
				t.Errorf("%q", lines)
			}
		})
}

// TestConfiguredKindWithAnothersPage: the configuration is believed, and the
// log says what the page looks like.
func TestConfiguredKindWithAnothersPage(t *testing.T) {
	e1 := script(kindsOfEngines["sglang"](t))
	bubbleOf(t, DialectVLLM, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, log *logLines) {
		after(30 * time.Second)
		if d := e.Detected(); d.Dialect != DialectVLLM || d.How != howConfigured || e.Sample().Has != 0 {
			t.Errorf("%+v, %+v", d, e.Sample())
		}
		if lines := log.with("none of the known names, but some of sglang"); len(lines) != 1 {
			t.Errorf("%q", log.with("metrics page"))
		}
	})
}

// TestIdentifiedOnceHoweverItIsTold: a reload that names the kind that was
// found before changes nothing but how it is known.
func TestIdentifiedOnceHoweverItIsTold(t *testing.T) {
	e1 := script(kindsOfEngines["llamacpp"](t))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			after(20 * time.Second)
			if err := f.Apply([]Config{{Name: "e1", URL: "http://10.0.0.1:80", Dialect: DialectLlamaCpp}}); err != nil {
				t.Fatal(err)
			}
			after(20 * time.Second)
			e := f.Set().Engines[0]
			if d := e.Detected(); d.Dialect != DialectLlamaCpp || d.How != howConfigured || d.Slots != 4 || e.Cap() != 8 {
				t.Errorf("%+v, cap %d", d, e.Cap())
			}
			if a, b := log.with("engine identified"), log.with("engine describes itself"); len(a) != 1 || len(b) != 1 || !strings.Contains(b[0], "slots=4") {
				t.Errorf("%q, %q", a, b)
			}
		})
}

// TestLookEndsWithItsContext: the loop that probes is not held up by pages
// that never come.
func TestLookEndsWithItsContext(t *testing.T) {
	e1 := script(map[string]page{"": {status: 200, delay: time.Hour}})
	bubbleOf(t, DialectAuto, func(n *network) { n.serve("10.0.0.1:80", e1) }, func(t *testing.T, e *Engine, _ *logLines) {
		after(time.Minute)
		if s := e.Status(); s.State != Down || s.Reason != ReasonTimeout {
			t.Errorf("%v, %v", s.State, s.Reason)
		}
		if n := len(e1.times("/health")); n < 12 {
			t.Errorf("%d probes in a minute", n)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newWatch(&Poller{Fleet: NewFleet()}, newAsker(nil, nil, nil), new(logLines).logger(), New(Config{URL: "http://127.0.0.1:1"}, NewLive(1)))
	w.look(ctx) // returns
}
