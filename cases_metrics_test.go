package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/route"
)

// page reads the metrics page, which must be valid: how many series it has,
// and the values that each label takes on it.
func (r *running) page() (series int, values map[string]map[string]bool) {
	r.t.Helper()
	resp, err := http.Get(r.admin + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("/metrics: %d %v", resp.StatusCode, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		r.t.Fatalf("the metrics page is not valid: %v\n%.2000s", err, body)
	}
	values = make(map[string]map[string]bool)
	for _, f := range families {
		series += len(f.Metric)
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if values[l.GetName()] == nil {
					values[l.GetName()] = make(map[string]bool)
				}
				values[l.GetName()][l.GetValue()] = true
			}
		}
	}
	return series, values
}

// engineRowOf is an engine's element of the admin page.
func (r *running) engineRowOf(name string) (row struct {
	Name, URL, Cluster, State, Reason, Dialect, Version string
	DialectBy                                           string `json:"dialect_by"`
	FoundBy                                             string `json:"found_by"`
	Order, Health                                       string
	Models, Capabilities, Paths                         []string
	InFlight                                            *int64 `json:"in_flight"`
	MaxInFlight                                         int64  `json:"max_in_flight"`
	Signals                                             *struct {
		Running, Waiting *float64
		KVUsed           *float64 `json:"kv_used"`
		Adapters         *struct {
			Running, Waiting []string
			Max              int
		}
	}
}) {
	r.t.Helper()
	rows := []json.RawMessage{}
	a := r.ask("GET", "/engines")
	if err := json.Unmarshal([]byte(a.body), &rows); err != nil || a.status != 200 {
		r.t.Fatalf("/engines: %d %v\n%s", a.status, err, a.body)
	}
	for _, raw := range rows {
		if err := json.Unmarshal(raw, &row); err != nil {
			r.t.Fatal(err)
		}
		if row.Name == name {
			return row
		}
	}
	r.t.Fatalf("/engines has no %s:\n%s", name, a.body)
	return row
}

func TestC23_RenamedMetricsAreReadOrSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	engines[0].SetMetrics("vllm:num_requests_running{model_name=\"m\"} 8\nvllm:num_requests_waiting{model_name=\"m\"} 30\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.95\n")
	engines[1].SetMetrics("vllm:num_requests_running{model_name=\"m\"} 1\nvllm:num_requests_waiting{model_name=\"m\"} 0\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.10\n")
	engines[2].SetMetrics("llamacpp:requests_processing 2\nllamacpp:requests_deferred 7\n")
	engines[3].SetMetrics("vllm:renamed_again{model_name=\"m\"} 30\nprocess_open_fds 12\n")
	g := startGateway(t, fleetTOML(engines, `dialect = "vllm"`, `dialect = "vllm"`, `dialect = "llamacpp"`, `dialect = "vllm"`), nths(4)...)
	signals := func(name string, running, waiting, kv float64) {
		t.Helper()
		g.await("signals of "+name, func() bool { s := g.engineRowOf(name).Signals; return s != nil && s.Waiting != nil })
		s := g.engineRowOf(name).Signals
		if s.Running == nil || *s.Running != running || *s.Waiting != waiting || kv >= 0 && (s.KVUsed == nil || *s.KVUsed != kv) {
			got, _ := json.Marshal(s)
			t.Errorf("%s: %s, want running %g, waiting %g, KV %g", name, got, running, waiting, kv)
		}
	}
	signals("e00", 8, 30, 0.95)
	signals("e01", 1, 0, 0.10)
	signals("e02", 2, 7, -1)
	told := func() (bad, good int) {
		for line := range strings.Lines(g.logs.String()) {
			if strings.Contains(line, `"engine":"e03"`) && strings.Contains(line, "metrics page") {
				if strings.Contains(line, "unreadable") {
					bad++
				} else {
					good++
				}
			}
		}
		return bad, good
	}
	g.await("the log to say that e03 is not read", func() bool { bad, _ := told(); return bad == 1 })
	if n := g.metric(`penstock_scrape_failures_total{engine="e03",reason="no_known_names"}`); n == 0 {
		t.Error("the metrics do not say that e03 is not read")
	}
	if s := g.engineRowOf("e03").Signals; s != nil && (s.Running != nil || s.Waiting != nil || s.KVUsed != nil) {
		got, _ := json.Marshal(s)
		t.Errorf("e03's load is %s instead of unknown", got)
	}
	if s := g.engineState("e03"); s != "ready" {
		t.Errorf("e03 is %q because of its metrics", s)
	}
}

// spread sends n requests without a key, workers at a time, and returns how
// many each engine got.
func (r *running) spread(c *http.Client, engines []*enginetest.Script, n, workers int) []int {
	r.t.Helper()
	got := played(engines)
	atOnce(n, workers, func(i int) {
		if a := r.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), false), "x-penstock-affinity", "off"); !a.looksComplete() {
			r.t.Errorf("%d %v %s", a.status, a.err, a.body)
		}
	})
	for i, now := range played(engines) {
		got[i] = now - got[i]
	}
	return got
}

func TestC25_EnginesWithoutMetricsServe(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAfter(30*time.Millisecond))
	engines[0].SetPage("/metrics", enginetest.Page{Status: 501, ContentType: "application/json",
		Body: `{"error":{"code":501,"message":"This server does not support metrics endpoint.","type":"not_supported_error"}}`})
	engines[1].SetPage("/metrics", enginetest.Page{Status: 404})
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(3)...) // as in C62
	g.await("the metrics pages to be asked for", func() bool {
		return !slices.ContainsFunc(engines, func(e *enginetest.Script) bool { return e.PageHits("/metrics") == 0 })
	})
	for i, n := range g.spread(client(t), engines, 300, 12) {
		if n < 80 || n > 120 {
			t.Errorf("%s got %d of 300 requests", nth(i), n)
		}
		if s := g.engineState(nth(i)); s != "ready" {
			t.Errorf("%s is %q", nth(i), s)
		}
	}
	for line := range strings.Lines(g.logs.String()) {
		if strings.Contains(line, `"state":"down"`) {
			t.Errorf("an engine went down: %s", line)
		}
	}
}

func TestSlotsThatAnEngineTellsBoundIt(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e := startScript(t, playUntil(release))
	e.SetPage("/props", enginetest.Page{ContentType: "application/json", Body: `{"default_generation_settings":{"n_ctx":4096},"total_slots":4}`})
	g := startGateway(t, noQueue+engineTOML("e1", e.URL(), `dialect = "llamacpp"`), "e1")
	g.await("its slots to be known", func() bool {
		d := g.fleet.Set().ByName("e1").Detected()
		return d != nil && d.Slots == 4
	})
	g.await("its cap", func() bool {
		class := g.tables.Load().Classes[route.ClassKey{Model: "m"}]
		return strings.Contains(g.ask("GET", "/engines").body, `"max_in_flight": 8`) && // its 4 slots and 4 more
			class != nil && class.Candidates[0].Cap == 8
	})
	c := client(t)
	wait := g.streams(c, []*enginetest.Script{e}, 8)
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "one more", true)), 429, "overloaded")
	close(release)
	wait()
}

func TestC61_BurstsSpread(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(4)...) // as in C62
	c := client(t)
	// The lighter of two draws puts 0.8 % of these counts beyond 16 +- 2, and
	// none beyond 16 +- 6; a choice by stale or shared counts puts most there.
	beyond := 0
	for burst := range 20 {
		// A machine that was busy for seconds made some look silent; what the last
		// burst held is given back after its answers are there.
		g.await("all engines to be idle and trusted", func() bool {
			return !slices.ContainsFunc(g.fleet.Set().Engines, func(e *engine.Engine) bool {
				return e.InFlight() != 0 || !e.Ready() || e.Allowance().Factor() < 1
			})
		})
		open := make(chan struct{})
		for _, e := range engines {
			e.SetPlay(playUntil(open))
		}
		before := played(engines)
		var all together
		start := make(chan struct{})
		for i := range 64 {
			all.send(func() string {
				<-start
				return g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), false), "x-penstock-affinity", "off").notWhole()
			})
		}
		close(start)
		g.await("64 requests in flight", func() bool { return sum(played(engines)) == sum(before)+64 })
		for i, n := range played(engines) {
			if n -= before[i]; n < 14 || n > 18 {
				beyond++
				t.Logf("burst %d: %s got %d of 64 requests", burst, nth(i), n)
			}
			if n < 8 || n > 24 {
				t.Errorf("burst %d: %s got %d of 64 requests", burst, nth(i), n)
			}
		}
		close(open)
		all.wait(t)
	}
	if beyond > 5 {
		t.Errorf("%d of 80 counts are beyond 16 +- 2", beyond)
	}
}

func TestC62_PrefillCountsAsLoad(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAfter(200*time.Millisecond))               // holds back its header, too
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(3)...) // a plan goes by times, which a busy machine makes unlike
	c := client(t)
	var all together
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range 600 {
		<-tick.C
		all.send(func() string {
			return g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), true), "x-penstock-affinity", "off").notWhole()
		})
	}
	all.wait(t)
	for i, n := range played(engines) {
		if n < 180 || n > 220 {
			t.Errorf("%s got %d of 600 requests", nth(i), n)
		}
	}
}

func TestC63_HealthChecksLeaveTheCountsAlone(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 2, playHeld(release))
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines, pin(0), pin(1))), nths(2)...) // as in C62
	c := client(t)
	wait := g.streams(c, engines, 30, "x-penstock-require", "pin=e00")
	busy := g.fleet.Set().ByName("e00")
	before := played(engines)
	for i := range 200 {
		if i%40 == 0 { // a health check, and the model list, among the requests
			hits := engines[0].PageHits("/health")
			g.await("a health check", func() bool { busy.Suspect(); return engines[0].PageHits("/health") > hits })
		}
		g.chat(c, chatBody("m", fmt.Sprint("short ", i), i%2 == 0), "x-penstock-affinity", "off")
		if n := busy.InFlight(); n != 30 {
			t.Fatalf("%d in flight on e00 instead of the 30 streams", n)
		}
	}
	if n := g.metric(`penstock_inflight{engine="e00"}`); n != 30 {
		t.Errorf("the gauge says %g", n)
	}
	// Two draws of two engines are both the busy one in a quarter of the cases.
	if n := played(engines)[1] - before[1]; n < 125 {
		t.Errorf("the idle engine got %d of 200 requests", n)
	}
	close(release)
	wait()
}

func TestC67_ConnectionsAreKept(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL(), "max_in_flight = 400"), "e1")
	c := client(t)
	for range 15 {
		var all together
		for i := range 200 {
			all.send(func() string {
				return g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0)).notWhole()
			})
		}
		all.wait(t)
	}
	used := make(map[int]bool)
	for _, x := range e.Exchanges() {
		used[x.Conn] = true
	}
	if len(used) > 400 {
		t.Errorf("3,000 requests, 200 at once, took %d connections", len(used))
	}
	if n := g.metric(`penstock_retries_total{reason="dial_failed"}`); n != 0 {
		t.Errorf("%g dials failed", n)
	}
}

func TestC68_ClientsCannotMakeSeries(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e1", e.URL()), "e1")
	c := client(t)
	send := func(model string) answered { return g.post(c, "/v1/chat/completions", chatBody(model, "x", false)) }
	g.chat(c, chatBody("m", "x", false))
	wantRefusal(t, send("nobody's"), 404, "model_not_found")
	before, _ := g.page()
	odd := []string{"\"quoted\"", "two\nlines", "back\\slash", "{brace}", "\u2028\U0001F600", strings.Repeat("long", 2560)}
	atOnce(3000, 8, func(i int) {
		name, want := fmt.Sprint(odd[i%len(odd)], " ", i), 404
		if len(name) > 1000 {
			want = 400 // no name at all
		}
		if a := send(name); a.status != want {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	atOnce(100, 8, func(int) { send("m") })
	after, values := g.page()
	const ours = 5 // series that the gateway's own doings may begin meanwhile: a scrape that failed, a connection that was stale
	if after > before+ours {
		t.Errorf("the page grew from %d to %d series", before, after)
	}
	if names := slices.Sorted(maps.Keys(values["model"])); !slices.Equal(names, []string{"m", "other"}) {
		t.Errorf("models on the page: %.200q", names)
	}
	if n := g.metric(`penstock_requests_total{model="m",outcome="ok",tenant="default"}`); n != 101 {
		t.Errorf("%g requests for m are counted", n)
	}
	if n := g.metric(`penstock_requests_total{model="other",outcome="client",tenant="default"}`); n != 3001 {
		t.Errorf("%g requests for unknown models are counted", n)
	}
}

func TestC69_SeriesComeAndGoWithTheirEngines(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 3, playHeld(release))
	g := startGateway(t, fleetTOML(engines, pin(0), pin(1), pin(2)))
	first := g.ask("GET", "/metrics").body // before the first probe or after it
	for _, name := range nths(3) {
		if !regexp.MustCompile(`(?m)^penstock_engine_state\{engine="` + name + `",state="[a-z]+"\} 1$`).MatchString(first) {
			t.Errorf("%s has no state at the first scrape", name)
		}
	}
	for _, name := range nths(3) {
		g.await(name, func() bool { return g.weight(name) > 0 })
	}
	c := client(t)
	g.spread(c, engines, 60, 4)
	wait := g.streams(c, engines, 3, "x-penstock-require", "pin=e01")
	kill(engines[2])
	if err := g.rewrite(strings.Replace(fleetTOML(engines, pin(0), pin(1), pin(2)), engineTOML("e01", engines[1].URL(), pin(1)), "", 1)); err != nil {
		t.Fatal(err)
	}
	close(release)
	wait() // streams that end on an engine which is gone
	g.fleet.Set().ByName("e02").Suspect()
	g.await("e02 to read unhealthy", func() bool {
		return g.metric(`penstock_engine_state{engine="e02",state="down"}`) == 1 && g.metric(`penstock_engine_state{engine="e02",state="ready"}`) == 0
	})
	g.await("e01 to be out of the table", func() bool { return g.weight("e01") == 0 })
	before, values := g.page()
	if names := slices.Sorted(maps.Keys(values["engine"])); !slices.Equal(names, []string{"e00", "e02"}) {
		t.Errorf("engines on the page: %q", names)
	}
	kept := engineTOML("e00", engines[0].URL(), pin(0), "capacity = 100") + engineTOML("e02", engines[2].URL(), pin(2), "capacity = 1")
	for round := range 50 {
		text := kept
		for i := range 10 {
			text += engineTOML(fmt.Sprintf("churn-%d-%d", round, i), fmt.Sprintf("http://127.0.0.1:1/%d/%d", round, i), "models = [\"m\"]", "capacity = 1")
		}
		if err := g.rewrite(text); err != nil {
			t.Fatal(err)
		}
		g.chat(c, chatBody("m", fmt.Sprint(round), false))
	}
	if err := g.rewrite(kept); err != nil {
		t.Fatal(err)
	}
	g.await("the last engines to be gone", func() bool {
		_, values := g.page()
		return len(values["engine"]) == 2
	})
	if after, _ := g.page(); after > before {
		t.Errorf("500 addresses later the page has %d series instead of %d", after, before)
	}
}

func TestC64_WeightZeroMeansNone(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 3, playHeld(release))
	capacities := func(c ...int) string {
		var more []string
		for i, v := range c {
			more = append(more, fmt.Sprintf("capacity = %d\n%s", v, pin(i)))
		}
		return "[routing]\npolicy = \"capacity\"\n" + fleetTOML(engines, more...)
	}
	const patient = "[limits]\nstall = \"10m\"\n" // the streams are held for as long as this takes
	g := startGateway(t, patient+capacities(70, 30, 0), nths(2)...)
	g.await("e02 to be ready", func() bool { return g.engineState("e02") == "ready" })
	c := client(t)
	shares := func(n int, want ...float64) {
		t.Helper()
		asked := func() (all []int) { // without the gateway's own trials of an engine whose streams stand still
			for _, e := range engines {
				all = append(all, len(askedOf(e)))
			}
			return all
		}
		before := asked()
		atOnce(n, 16, func(i int) {
			if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("asked ", i), false), "x-penstock-affinity", "off"); !a.looksComplete() {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
		for i, now := range asked() {
			got := 100 * float64(now-before[i]) / float64(n)
			if want[i] == 0 && now != before[i] || got < want[i]-2 || got > want[i]+2 {
				t.Errorf("%s got %.2f %% of the requests, its weight is %g %%", nth(i), got, want[i])
			}
		}
	}
	shares(8000, 70, 30, 0)
	wait := g.streams(c, engines, 5, "x-penstock-require", "pin=e00")
	g.write(anyPorts + patient + capacities(0, 30, 10))
	if a := g.ask("POST", "/-/reload"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	g.await("the new weights", func() bool { return g.table("m", "e02") > 0 && g.table("m", "e00") == 0 })
	shares(8000, 0, 75, 25)
	if n := g.metric(`penstock_inflight{engine="e00"}`); n != 5 {
		t.Errorf("%g streams are in flight on e00", n)
	}
	close(release)
	wait()
}

// table is the weight of an engine in a class.
func (r *running) table(class, engine string) float64 {
	for k, p := range r.tables.Load().Classes {
		for i := range p.Candidates {
			if k.String() == class && p.Candidates[i].Engine.Name == engine {
				return p.Candidates[i].Weight
			}
		}
	}
	return 0
}
