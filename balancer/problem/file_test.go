package problem

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

const valid = `{
  "name": "two clusters",
  "sources": ["A", "B"],
  "engines": [
    {"name": "a1", "cluster": "A", "capacity": 100, "latency": {"base_ms": 0, "slope_ms": 50, "limit": 100}},
    {"name": "b1", "cluster": "B", "capacity": 50, "latency": {"points": [[0, 40], [40, 60], [80, 200]]}}
  ],
  "classes": [{"name": "chat", "priority": "standard", "distance_weight": 1, "work": 1, "engines": ["a1", "b1"]}],
  "demand": [{"source": "A", "class": "chat", "rate": 90}, {"source": "B", "class": "chat", "rate": 60}],
  "rtt_ms": {"A": {"A": 1, "B": 40}, "B": {"A": 40, "B": 1}},
  "shed_price_ms": {"critical": 1000000, "standard": 300000, "sheddable": 100000},
  "shed_curvature": 0.5,
  "previous": [{"source": "A", "class": "chat", "weights": {"a1": 0.75, "gone": 0.25}}],
  "move_price_ms": 20
}`

func TestParseReadsEveryField(t *testing.T) {
	p, err := Parse([]byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case p.Name != "two clusters", len(p.Sources) != 2, len(p.Engines) != 2, len(p.Demand) != 2,
		p.Engines[0].Latency.Slope != 50, p.Engines[0].Latency.Limit != 100, p.Engines[1].Latency.Points[1] != Point{40, 60},
		p.Classes[0].Priority != Standard, p.Classes[0].All, !p.Classes[0].Allows(1),
		p.ShedPrice != defaultShedPrice, p.ShedCurvature != 0.5, p.MovePrice != 20,
		p.Previous[0].Weights[0] != Share{0, 0.75}, len(p.Previous[0].Weights) != 1,
		p.RTT[0][p.Engines[1].Place] != 40, p.Demand[1] != Demand{1, 0, 60}:
		t.Errorf("%+v", p)
	}
}

func TestParseFillsInWhatIsLeftOut(t *testing.T) {
	p, err := Parse([]byte(`{"sources": ["A"], "engines": [{"name": "a1", "capacity": 0, "latency": {"points": [[0, 5]]}}],
		"classes": [{"name": "c"}], "demand": [], "rtt_ms": {}, "shed_price_ms": {"critical": 7}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Class{Name: "c", Priority: Standard, DistanceWeight: 1, Work: 1, All: true}
	got := p.Classes[0]
	if got.Name != want.Name || got.Priority != want.Priority || got.DistanceWeight != 1 || got.Work != 1 || !got.All {
		t.Errorf("class %+v", got)
	}
	if p.ShedPrice != [Priorities]float64{7, 300000, 100000} || p.ShedCurvature != 0.5 || p.MovePrice != 0 {
		t.Errorf("%+v", p)
	}
}

// An engine's own round trip wins over its cluster's, source by source.
func TestRoundTripsOfEngines(t *testing.T) {
	p, err := Parse([]byte(`{"sources": ["A", "B"], "engines": [
		{"name": "a1", "cluster": "A", "capacity": 1, "latency": {"points": [[0, 5], [1, 5]]}},
		{"name": "a2", "cluster": "A", "capacity": 1, "latency": {"points": [[0, 5], [1, 5]]}}],
		"classes": [{"name": "c"}], "demand": [{"source": "A", "class": "c", "rate": 1}, {"source": "B", "class": "c", "rate": 1}],
		"rtt_ms": {"A": {"A": 1, "a2": 3}, "B": {"A": 9, "B": 0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	trip := func(s, j int) float64 { return p.RTT[s][p.Engines[j].Place] }
	if trip(0, 0) != 1 || trip(0, 1) != 3 || trip(1, 0) != 9 || trip(1, 1) != 9 {
		t.Errorf("%v", p.RTT)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, old, new, field string }{
		{"unknown source in demand", `{"source": "B", "class"`, `{"source": "X", "class"`, `demand[1].source`},
		{"two engines of one name", `"name": "b1"`, `"name": "a1"`, `engines[1].name`},
		{"points and slope", `{"points": [[0, 40]`, `{"slope_ms": 3, "points": [[0, 40]`, `engines[1].latency`},
		{"first load is 5", `[[0, 40]`, `[[5, 40]`, `engines[1].latency.points[0][0]`},
		{"points end below the capacity", `"capacity": 50`, `"capacity": 81`, `engines[1].latency.points`},
		{"unknown priority", `"priority": "standard"`, `"priority": "urgent"`, `classes[0].priority`},
		{"negative round trip", `"B": 40}, "B"`, `"B": -3}, "B"`, `rtt_ms.A.B`},
		{"second document", "\n}", "\n} {}", `text after the document`},
		{"text after the document", "\n}", "\n} x", `text after the document`},

		{"negative rate", `"rate": 90`, `"rate": -1`, `demand[0].rate`},
		{"rate of another type", `"rate": 90`, `"rate": "90"`, `demand[0].rate`},
		{"rate null", `"rate": 90`, `"rate": null`, `demand[0].rate`},
		{"rate true", `"rate": 90`, `"rate": true`, `demand[0].rate`},
		{"rate too large", `"rate": 90`, `"rate": 1e999`, `demand[0].rate`},
		{"no rate", `, "rate": 90`, ``, `demand[0]: has no "rate"`},
		{"name of another type", `"name": "two clusters"`, `"name": 2`, `name`},
		{"source of another type", `["A", "B"]`, `["A", 3]`, `sources[1]`},
		{"empty sources", `["A", "B"]`, `[]`, `sources`},
		{"source twice", `["A", "B"]`, `["A", "B", "A"]`, `sources[2]`},
		{"empty name", `"name": "a1"`, `"name": ""`, `engines[0].name`},
		{"unknown field", `"shed_curvature"`, `"shed_curve"`, `shed_curve`},
		{"unknown field of an engine", `"cluster": "A", `, `"cluster": "A", "url": "x", `, `engines[0].url`},
		{"member twice", `"shed_curvature": 0.5`, `"shed_curvature": 0.5, "shed_curvature": 0.5`, `shed_curvature`},
		{"round trip twice", `"A": {"A": 1, "B": 40}`, `"A": {"A": 1, "A": 1, "B": 40}`, `rtt_ms.A.A`},
		{"work 0", `"work": 1`, `"work": 0`, `classes[0].work`},
		{"negative work", `"work": 1`, `"work": -1`, `classes[0].work`},
		{"negative distance weight", `"distance_weight": 1`, `"distance_weight": -1`, `classes[0].distance_weight`},
		{"unknown engine of a class", `"engines": ["a1", "b1"]`, `"engines": ["a1", "c1"]`, `classes[0].engines[1]`},
		{"engine of a class twice", `"engines": ["a1", "b1"]`, `"engines": ["a1", "a1"]`, `classes[0].engines[1]`},
		{"unknown class", `"B", "class": "chat"`, `"B", "class": "code"`, `demand[1].class`},
		{"row twice", `{"source": "B", "class"`, `{"source": "A", "class"`, `demand[1]`},
		{"limit below capacity", `"limit": 100`, `"limit": 99`, `engines[0].latency.limit`},
		{"no limit", `, "limit": 100`, ``, `engines[0].latency`},
		{"negative capacity", `"capacity": 100`, `"capacity": -100`, `engines[0].capacity`},
		{"negative slope", `"slope_ms": 50`, `"slope_ms": -50`, `engines[0].latency.slope_ms`},
		{"no points", `[[0, 40], [40, 60], [80, 200]]`, `[]`, `engines[1].latency`},
		{"half a point", `[40, 60]`, `[40]`, `engines[1].latency.points[1]`},
		{"a point and a half", `[40, 60]`, `[40, 60, 1]`, `engines[1].latency.points[1]`},
		{"loads do not rise", `[40, 60]`, `[0, 60]`, `engines[1].latency.points[1][0]`},
		{"times fall", `[40, 60]`, `[40, 39]`, `engines[1].latency.points[1][1]`},
		{"slopes fall", `[40, 60]`, `[40, 150]`, `engines[1].latency.points[2]`},
		{"missing round trip", `"B": {"A": 40, "B": 1}`, `"B": {"B": 1}`, `rtt_ms.B`},
		{"no round trips of a source", `, "B": {"A": 40, "B": 1}`, ``, `rtt_ms.B`},
		{"unknown source of round trips", `"B": {"A": 40`, `"C": {"A": 40`, `rtt_ms.C`},
		{"round trip to nowhere", `"A": {"A": 1`, `"A": {"X": 1, "A": 1`, `rtt_ms.A.X`},
		{"unknown priority of a price", `"critical": 1000000`, `"urgent": 1000000`, `shed_price_ms.urgent`},
		{"negative price", `"critical": 1000000`, `"critical": -1`, `shed_price_ms.critical`},
		{"negative curvature", `"shed_curvature": 0.5`, `"shed_curvature": -0.5`, `shed_curvature`},
		{"negative move price", `"move_price_ms": 20`, `"move_price_ms": -20`, `move_price_ms`},
		{"weights above 1", `"gone": 0.25`, `"gone": 0.26`, `previous[0].weights`},
		{"negative weight of an engine that is gone", `"gone": 0.25`, `"gone": -0.25`, `previous[0].weights.gone`},
		{"unknown source of the last table", `"previous": [{"source": "A"`, `"previous": [{"source": "C"`, `previous[0].source`},
		{"cut off", "\n}", "", `the document ends here`},
		{"no JSON", `{`, `sources`, `the document`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(valid, c.old, c.new, 1)
			if c.old == "\n}" {
				at := strings.LastIndex(valid, c.old)
				text = valid[:at] + c.new
			}
			if text == valid {
				t.Fatalf("%q is not in the file", c.old)
			}
			p, err := Parse([]byte(text))
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error %v, problem %v", err, p)
			}
			if !strings.Contains(err.Error(), c.field) {
				t.Errorf("the error does not name %s:\n%v", c.field, err)
			}
		})
	}
}

// Every fault that does not hide others is reported.
func TestAllFaultsAreReported(t *testing.T) {
	text := strings.NewReplacer(`"rate": 90`, `"rate": -90`, `"work": 1`, `"work": 0`, `"limit": 100`, `"limit": 10`).Replace(valid)
	_, err := Parse([]byte(text))
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("%v", err)
	}
	if err := faults[:0].Error(); err != "" {
		t.Errorf("no faults read %q", err)
	}
	if text := append(Faults{}, make(Faults, 30)...).Error(); !strings.HasSuffix(text, "and 10 more") {
		t.Errorf("30 faults read %q", text)
	}
}

// A problem that was not read from a file keeps the same rules.
func TestValidateLooksAtTheLastTable(t *testing.T) {
	for name, weights := range map[string][]Share{
		"out of order": {{1, 0.5}, {0, 0.5}}, "twice": {{0, 0.5}, {0, 0.5}}, "not allowed": {{2, 0.5}}, "above 1": {{0, 0.75}, {1, 0.75}},
	} {
		p, err := Parse([]byte(valid))
		if err != nil {
			t.Fatal(err)
		}
		p.Engines = append(p.Engines, p.Engines[0])
		p.Previous[0].Weights = weights
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "previous[0].weights") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What rounding does to points passes.
func TestPointsMayBeRounded(t *testing.T) {
	text := strings.Replace(valid, `[[0, 40], [40, 60], [80, 200]]`, `[[0, 40], [40, 60], [80, 79.9999999999]]`, 1)
	if _, err := Parse([]byte(text)); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	for _, name := range []string{"points", "move-price-dead-band", "zero-capacity", "overload-3"} {
		data, err := os.ReadFile("../testdata/problems/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		var k Certifier
		c := k.Certify(p, shedAll(p))
		if math.IsNaN(c.Bound) && !math.IsInf(c.Objective, 0) && c.Objective < 1e300 {
			t.Errorf("bound %v, objective %v", c.Bound, c.Objective)
		}
	})
}
