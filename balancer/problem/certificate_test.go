package problem

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// solved is what is known of the optimum of a problem in testdata.
type solved struct {
	Objective, Lower, Upper float64
	Loads                   []struct {
		Engine string
		Load   float64
		Price  float64 `json:"price_ms"`
	}
}

func solvedProblems(t *testing.T) map[string]*Problem {
	t.Helper()
	files, err := filepath.Glob("../testdata/problems/*.json")
	if err != nil || len(files) != 48 {
		t.Fatalf("%d files in testdata/problems, %v", len(files), err)
	}
	problems := make(map[string]*Problem)
	for _, file := range files {
		if strings.HasSuffix(file, ".optimum.json") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		problems[strings.TrimSuffix(filepath.Base(file), ".json")] = p
	}
	return problems
}

// The prices that come with the known optima prove, by our dual value, the
// lower bounds that were computed elsewhere.
func TestBoundOfKnownPrices(t *testing.T) {
	var k Certifier
	for name, p := range solvedProblems(t) {
		data, err := os.ReadFile("../testdata/problems/" + name + ".optimum.json")
		if err != nil {
			t.Fatal(err)
		}
		var known solved
		if err := json.Unmarshal(data, &known); err != nil {
			t.Fatal(err)
		}
		plan := shedAll(p)
		for j, l := range known.Loads {
			if p.Engines[j].Name != l.Engine {
				t.Fatalf("%s: engine %d is %s, not %s", name, j, p.Engines[j].Name, l.Engine)
			}
			plan.Price[j] = l.Price
		}
		c := k.Certify(p, plan)
		if math.Abs(c.Bound-known.Lower) > 1e-10*math.Max(known.Lower, 1e-9) {
			t.Errorf("%s: bound %.15g, want %.15g", name, c.Bound, known.Lower)
		}
		if c.Objective < known.Lower {
			t.Errorf("%s: shedding all costs %v, less than the optimum %v", name, c.Objective, known.Lower)
		}
	}
}

// shedAll is the plan that is always there.
func shedAll(p *Problem) *Plan {
	var t Plan
	t.Reset(len(p.Demand), len(p.Engines))
	for c := range p.Demand {
		t.Shed[c] = 1
		t.Start = append(t.Start, 0)
	}
	return &t
}

// No prices give a bound above what some plan costs.
func TestBoundIsBelowEveryPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		plan := drawPlan(t, p)
		var k Certifier
		c := k.Certify(p, plan)
		if !(c.Bound <= c.Objective+1e-9*math.Max(math.Abs(c.Bound), c.Objective)) {
			t.Fatalf("bound %v above objective %v", c.Bound, c.Objective)
		}
	})
}

func drawLatency(t *rapid.T, capacity float64) Latency {
	number := func(from, to float64, name string) float64 { return rapid.Float64Range(from, to).Draw(t, name) }
	switch rapid.SampledFrom([]string{"curve", "cap", "flat", "points"}).Draw(t, "kind") {
	case "curve":
		return Latency{Base: number(0, 100, "base"), Slope: number(1, 1000, "slope"), Limit: capacity}
	case "cap":
		return Latency{Base: number(0, 100, "base"), Slope: number(1, 1000, "slope"), Limit: capacity * number(1, 2, "limit")}
	case "flat":
		return Latency{Base: number(0, 100, "base"), Limit: capacity}
	}
	at, time, steep := 0.0, number(0, 100, "time"), 0.0
	points := []Point{{0, time}}
	for range rapid.IntRange(1, 4).Draw(t, "points") {
		step := capacity * number(0.1, 1, "step")
		steep += rapid.SampledFrom([]float64{0, 1, 30}).Draw(t, "steeper") / capacity
		at, time = at+step, time+steep*step
		points = append(points, Point{at, time})
	}
	points = append(points, Point{at + capacity, time + steep*capacity*2})
	return Latency{Points: points}
}

func drawProblem(t *rapid.T) *Problem {
	p := &Problem{Sources: []string{"A", "B"}, ShedPrice: defaultShedPrice,
		ShedCurvature: rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "curvature"),
		MovePrice:     rapid.SampledFrom([]float64{0, 20}).Draw(t, "move")}
	number := func(from, to float64, name string) float64 { return rapid.Float64Range(from, to).Draw(t, name) }
	for range rapid.IntRange(1, 4).Draw(t, "engines") {
		e := Engine{Place: len(p.Engines), Capacity: number(1, 100, "capacity")}
		e.Latency = drawLatency(t, e.Capacity)
		p.Engines = append(p.Engines, e)
	}
	for range p.Sources {
		var row []float64
		for range p.Engines {
			row = append(row, number(0, 300, "rtt"))
		}
		p.RTT = append(p.RTT, row)
	}
	p.Classes = []Class{{Priority: Standard, DistanceWeight: 1, Work: 1, All: true},
		{Priority: Sheddable, DistanceWeight: 3, Work: number(0.1, 4, "work"), Engines: []int{0}}}
	for s := range p.Sources {
		for k := range p.Classes {
			p.Demand = append(p.Demand, Demand{s, k, number(0, 50, "rate")})
			row := Previous{Source: s, Class: k}
			for j := range p.Engines {
				if p.Classes[k].Allows(j) {
					row.Weights = append(row.Weights, Share{j, number(0, 1, "weight") / float64(len(p.Engines))})
				}
			}
			p.Previous = append(p.Previous, row)
		}
	}
	if err := p.Validate(); err != nil {
		t.Fatalf("the drawn problem is not valid: %v", err)
	}
	return p
}

// drawPlan is feasible, with any prices.
func drawPlan(t *rapid.T, p *Problem) *Plan {
	plan := &Plan{Start: []int{0}}
	room := make([]float64, len(p.Engines))
	for j, e := range p.Engines {
		room[j] = 0.99 * e.Capacity
		plan.Price = append(plan.Price, rapid.Float64Range(0, 1e6).Draw(t, "price"))
	}
	for _, d := range p.Demand {
		left, work := 1.0, d.Rate*p.Classes[d.Class].Work
		for j := range p.Engines {
			if !p.Classes[d.Class].Allows(j) {
				continue
			}
			w := left * rapid.Float64Range(0, 1).Draw(t, "share")
			if work > 0 {
				w = min(w, room[j]/work)
			}
			room[j] -= w * work
			left -= w
			plan.Weights = append(plan.Weights, Share{j, w})
		}
		plan.Start, plan.Shed = append(plan.Start, len(plan.Weights)), append(plan.Shed, max(0, left))
	}
	return plan
}

// G* is the largest v y - G(y), G' the derivative of G.
func TestLatencyIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Float64Range(1e-3, 1e3).Draw(t, "capacity")
		l := drawLatency(t, capacity)
		g := func(y float64) float64 { return y * l.Congestion(y) }
		y := capacity * rapid.Float64Range(0, 0.999).Draw(t, "y")
		v := rapid.Float64Range(0, 1e5).Draw(t, "v")
		if got := l.Conjugate(v, capacity); got < v*y-g(y)-1e-9*math.Max(got, 1) {
			t.Fatalf("G*(%v) = %v, but at load %v it is %v", v, got, y, v*y-g(y))
		}
		// At the marginal cost of y, y itself is a maximum.
		left, right := l.Marginal(y)
		if left > right {
			t.Fatalf("at %v the left derivative %v is above the right one %v", y, left, right)
		}
		for _, v := range []float64{left, right} {
			if got, want := l.Conjugate(v, capacity), v*y-g(y); math.Abs(got-want) > 1e-8*math.Max(math.Abs(want), v*y+1e-9) {
				t.Fatalf("G*(%v) = %v, want %v from load %v", v, got, want, y)
			}
		}
	})
}
