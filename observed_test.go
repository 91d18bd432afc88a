package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/protect"
	"penstock/route"
)

// Demand is counted as it comes in: by priority, repeats apart, whether or not
// an engine takes it, and on through new tables. Answers count their tokens.
func TestDemandIsCounted(t *testing.T) {
	t.Parallel()
	sim, url := startSim(t, enginetest.Config{Name: "e1"})
	g := startGateway(t, engineTOML("e1", url), "e1")
	c := client(t)
	chat := func(more string, headers ...string) answered {
		body := strings.Replace(chatBody("m", strings.Repeat("word ", 80), true), `{`, `{"stream_options":{"include_usage":true},`+more, 1)
		return g.post(c, "/v1/chat/completions", body, headers...)
	}
	for range 3 {
		if a := chat(`"max_tokens":5,`); a.status != 200 {
			t.Fatal(a)
		}
	}
	chat(`"max_tokens":5,"n":2,`, "x-penstock-priority", "critical")
	chat("", "x-penstock-priority", "sheddable", "x-stainless-retry-count", "2")
	chat("", "x-penstock-priority", "sheddable", "x-stainless-retry-count", "0")
	g.post(c, "/v1/chat/completions", chatBody("other", "x", true)) // nobody's demand: 404
	setFaults(t, sim, "status=500")
	chat("", "x-penstock-priority", "sheddable")

	traffic := g.tables.Load().Classes[route.ClassKey{Model: "m"}].Traffic
	std, crit, shed := traffic.Counts(uint8(protect.Standard)), traffic.Counts(uint8(protect.Critical)), traffic.Counts(uint8(protect.Sheddable))
	if std.Offered != 3 || std.Retries != 0 || std.Limited != 3 || std.Limit != 15 || std.Answers != 3 || std.Output != 15 || std.Asked != 3*100 {
		t.Errorf("standard: %+v", std)
	}
	// The second and third had their prompt cached.
	if std.Prompt == 0 || std.Cached == 0 || std.Cached >= std.Prompt {
		t.Errorf("standard: %+v", std)
	}
	if crit.Offered != 1 || crit.Limit != 10 {
		t.Errorf("critical: %+v", crit)
	}
	if shed.Offered != 2 || shed.Retries != 1 || shed.Limited != 0 || shed.Answers != 2 {
		t.Errorf("sheddable: %+v", shed)
	}
	g.order("e1", engine.Cordon)
	g.await("a table without the engine", func() bool { return g.weight("e1") == 0 })
	if a := chat(""); a.status != 503 {
		t.Error(a)
	}
	now := g.tables.Load().Classes[route.ClassKey{Model: "m"}].Traffic
	if now != traffic || now.Counts(uint8(protect.Standard)).Offered != 4 {
		t.Errorf("after a new table: %+v", now.Counts(uint8(protect.Standard)))
	}
}

// Each attempt tells what it showed of its engine.
func TestAnswersAreSeen(t *testing.T) {
	t.Parallel()
	const ttft, tbot = 30 * time.Millisecond, 10 * time.Millisecond
	sim, url := startSim(t, enginetest.Config{Name: "e1", TTFT: ttft, TBOT: tbot})
	g := startGateway(t, engineTOML("e1", url), "e1")
	c := client(t)
	live := g.fleet.Set().ByName("e1").Live
	take := func() engine.Answer {
		t.Helper()
		list := live.TakeAnswers(nil)
		if len(list) != 1 {
			t.Fatalf("%d answers: %+v", len(list), list)
		}
		return list[0]
	}
	chat := func(more string, stream bool) engine.Answer {
		t.Helper()
		g.post(c, "/v1/chat/completions", strings.Replace(chatBody("m", strings.Repeat("word ", 300), stream), `{`, `{`+more, 1))
		return take()
	}
	first := chat(`"stream_options":{"include_usage":true},"max_tokens":8,`, true)
	if first.How != engine.EndedWhole || !first.Counted || first.Output != 8 || first.Prompt == 0 || !first.Cold || first.InFlightFrom != 1 || first.InFlightTo != 1 {
		t.Errorf("%+v", first)
	}
	if first.TTFT <= 0 || first.TBOT < tbot/2 || first.Total < first.TTFT+7*first.TBOT/2 || first.At.IsZero() {
		t.Errorf("%+v", first)
	}
	second := chat(`"max_tokens":8,`, true) // no usage: events are counted
	if second.Counted || second.Output < 7 || second.Prompt == 0 || second.Cold {
		t.Errorf("%+v", second)
	}
	whole := chat(`"max_tokens":8,`, false)
	if !whole.Counted || whole.Output != 8 || whole.TTFT != 0 || whole.TBOT != 0 || whole.Total < 7*tbot/2 || whole.Cached == 0 {
		t.Errorf("%+v", whole)
	}
	for fault, how := range map[string]engine.Ended{"status=500": engine.EndedFault, "status=429": engine.EndedBusy, "status=400": engine.EndedElse,
		"reset-after=3": engine.EndedFault, "empty": engine.EndedFault} {
		setFaults(t, sim, fault)
		if a := chat("", true); a.How != how {
			t.Errorf("%s: %+v", fault, a)
		}
	}
	if hows, lost := live.Endings(); hows[engine.EndedWhole] != 3 || hows[engine.EndedFault] != 3 || lost != 0 {
		t.Errorf("%v, %d lost", hows, lost)
	}
}

func setFaults(t *testing.T, s *enginetest.Sim, texts ...string) {
	t.Helper()
	faults, err := enginetest.ParseFaults(texts)
	if err != nil {
		t.Fatal(err)
	}
	s.SetFaults(faults...)
}

// Round trips are measured, or stand in the configuration, which a reload
// changes; demand reaches the plan as it is asked for.
func TestPlansSeeNetworkAndDemand(t *testing.T) {
	t.Parallel()
	_, near := startSim(t, enginetest.Config{Name: "near"})
	_, far := startSim(t, enginetest.Config{Name: "far"})
	text := func(ms int) string {
		return "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[gateway]\nsource = \"here\"\nreplicas = 2\n" +
			fmt.Sprintf("[routing]\npolicy = \"optimal\"\nperiod = \"100ms\"\n[network]\nrtt_ms = { here = { there = %d } }\n", ms) +
			engineTOML("near", near) + engineTOML("far", far, `cluster = "there"`)
	}
	g := startGateway(t, text(80), "near", "far")
	c := client(t)
	trips := func(far, near float64) func() bool {
		return func() bool {
			d := g.loop.Decision()
			return d != nil && d.Situation.RTT[0][0] == far && d.Situation.RTT[0][1] <= near && d.Situation.Guessed == 0
		}
	}
	if page := do(http.DefaultClient, adminGet(t, g.admin+"/engines")).body; strings.Contains(page, `"round_trip_ms":null`) || !strings.Contains(page, `"round_trip_ms":`) {
		t.Errorf("engines %s", page)
	}
	g.await("round trips", trips(80, 50)) // that of the near one is measured, on a machine that may be busy
	file, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.file, bytes.Replace(file, []byte("there = 80"), []byte("there = 7"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := g.reload(false); err != nil {
		t.Fatal(err)
	}
	g.await("the round trip of the new file", trips(7, 50))
	began := time.Now()
	for i := range 30 {
		g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("question ", i), true), "x-penstock-priority", "critical")
	}
	var rate float64
	g.await("demand in the plan", func() bool {
		for _, row := range g.loop.Decision().Situation.Rows {
			rate = max(rate, row.Rate[protect.Critical])
		}
		return rate > 0 && time.Since(began) > time.Second
	})
	// Of two gateways, as far as this one knows: twice its own.
	if most := 2 * 31 / min(1, time.Since(began).Seconds()); rate > most || rate < 2*30/(time.Since(began).Seconds()+1)/2 {
		t.Errorf("a demand of %.1f/s is planned, want at most %.1f", rate, most)
	}
}

func adminGet(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
