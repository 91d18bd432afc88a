package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// TestC69_SeriesFollowTheFleet: every engine has its series from the first
// scrape, and none after its removal.
func TestC69_SeriesFollowTheFleet(t *testing.T) {
	f := NewFleet()
	reg := prometheus.NewPedanticRegistry()
	if _, err := NewMetrics(reg, f); err != nil {
		t.Fatal(err)
	}
	configs := []Config{{Name: "a", URL: "http://10.0.0.1"}, {Name: "b", URL: "http://10.0.0.2"}, {Name: "c", URL: "http://10.0.0.3", Dialect: DialectOpenAI}}
	apply := func(c []Config) {
		t.Helper()
		if err := f.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	// series lists the samples of the families given, all without a name.
	series := func(families ...string) (lines []string) {
		t.Helper()
		found, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		for _, mf := range found {
			if len(families) > 0 && !slices.Contains(families, mf.GetName()) {
				continue
			}
			if _, err := expfmt.MetricFamilyToText(&page, mf); err != nil {
				t.Fatal(err)
			}
		}
		for line := range strings.Lines(page.String()) {
			if line[0] != '#' {
				lines = append(lines, line)
			}
		}
		return lines
	}
	compare := func(want string, families ...string) {
		t.Helper()
		if got := strings.Join(series(families...), ""); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	apply(configs)
	b := f.Set().ByName("b")
	b.SetStatus(Down, ReasonRefused, time.Now())
	b.polls.probes[refused].Add(3)
	b.polls.scrapes[scrapeTimeout].Add(2)
	b.polls.malformed.Add(7)
	f.Set().ByName("a").Acquire(10)
	f.Set().ByName("c").SetOrder(Cordon, time.Now())
	compare(`penstock_engine_state{engine="a",state="cordoned"} 0
penstock_engine_state{engine="a",state="down"} 0
penstock_engine_state{engine="a",state="drained"} 0
penstock_engine_state{engine="a",state="draining"} 0
penstock_engine_state{engine="a",state="half_open"} 0
penstock_engine_state{engine="a",state="open"} 0
penstock_engine_state{engine="a",state="ready"} 0
penstock_engine_state{engine="a",state="starting"} 1
penstock_engine_state{engine="b",state="cordoned"} 0
penstock_engine_state{engine="b",state="down"} 1
penstock_engine_state{engine="b",state="drained"} 0
penstock_engine_state{engine="b",state="draining"} 0
penstock_engine_state{engine="b",state="half_open"} 0
penstock_engine_state{engine="b",state="open"} 0
penstock_engine_state{engine="b",state="ready"} 0
penstock_engine_state{engine="b",state="starting"} 0
penstock_engine_state{engine="c",state="cordoned"} 1
penstock_engine_state{engine="c",state="down"} 0
penstock_engine_state{engine="c",state="drained"} 0
penstock_engine_state{engine="c",state="draining"} 0
penstock_engine_state{engine="c",state="half_open"} 0
penstock_engine_state{engine="c",state="open"} 0
penstock_engine_state{engine="c",state="ready"} 0
penstock_engine_state{engine="c",state="starting"} 0
penstock_inflight{engine="a"} 1
penstock_inflight{engine="b"} 0
penstock_inflight{engine="c"} 0
`, "penstock_engine_state", "penstock_inflight")
	if ages := series("penstock_signal_age_seconds"); len(ages) != 2 {
		t.Errorf("want those of a and b: %q", ages)
	}
	apply(configs[1:2])
	compare(`penstock_inflight{engine="b"} 0
penstock_probes_total{engine="b",result="healthy"} 0
penstock_probes_total{engine="b",result="refused"} 3
penstock_scrape_failures_total{engine="b",reason="timeout"} 2
penstock_scrape_malformed_lines_total{engine="b"} 7
`, "penstock_inflight", "penstock_probes_total", "penstock_scrape_failures_total", "penstock_scrape_malformed_lines_total")
	steady := len(series())
	for i := range 500 {
		apply([]Config{configs[1], {Name: "churn", URL: "http://10.1.0." + string(rune('0'+i%10))}})
	}
	apply(configs[1:2])
	if n := len(series()); n != steady {
		t.Errorf("%d series after churn, want %d", n, steady)
	}
}
