package solve

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/balancer/problem"
)

var all = []Method{Auto, Gradient, Interior}

func readProblem(t testing.TB, name string) *problem.Problem {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../testdata/problems", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := problem.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// Every problem with a known optimum, by every method.
func TestKnownOptima(t *testing.T) {
	files, err := filepath.Glob("../testdata/problems/*.optimum.json")
	if err != nil || len(files) != 24 {
		t.Fatalf("%d optima, %v", len(files), err)
	}
	var s Solver
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".optimum.json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var known struct {
				Objective, Upper float64
				Mean             float64 `json:"mean_latency_ms"`
				Served           float64
				Loads            []struct{ Load float64 }
				Shed             []struct{ Fraction float64 }
			}
			if err := json.Unmarshal(data, &known); err != nil {
				t.Fatal(err)
			}
			p := readProblem(t, name)
			for _, method := range all {
				r := s.Solve(p, method)
				proved := check(t, p, r, 1e-9)
				c := r.Certificate
				if math.Abs(c.Objective-known.Objective) > 1e-9*known.Objective || proved.bound > known.Upper*(1+1e-9) {
					t.Errorf("%v: objective %.15g, bound %.15g; the optimum is %.15g", method, c.Objective, proved.bound, known.Objective)
				}
				if math.Abs(c.MeanLatency-known.Mean) > 1e-6*known.Mean || math.Abs(c.Served-known.Served) > 1e-7*known.Served {
					t.Errorf("%v: mean latency %v of %v/s, want %v of %v/s", method, c.MeanLatency, c.Served, known.Mean, known.Served)
				}
				shed := 0
				for _, z := range r.Plan.Shed {
					if z > 1e-9 {
						shed++
					}
				}
				if shed != len(known.Shed) && name != "zero-demand" {
					t.Errorf("%v: %d rows are shed, want %d", method, shed, len(known.Shed))
				}
				for j, l := range known.Loads {
					// Loads are unique wherever latency rises.
					if rises := p.Engines[j].Latency.Slope > 0; rises && math.Abs(c.Load[j]-l.Load) > 1e-5*p.Engines[j].Capacity {
						t.Errorf("%v: engine %d has load %v, want %v", method, j, c.Load[j], l.Load)
					}
				}
			}
		})
	}
}

// The two variants of the worked example, to the digits that are known of it.
func TestWorkedExample(t *testing.T) {
	var s Solver
	c := s.Solve(readProblem(t, "worked-example-curves"), Auto).Certificate
	if math.Abs(c.MeanLatency-472.5674) > 5e-5 {
		t.Errorf("mean latency %v", c.MeanLatency)
	}
	for j, want := range []float64{89.299, 89.299, 71.401} {
		if math.Abs(c.Load[j]-want) > 5e-4 {
			t.Errorf("load of engine %d is %v, want %v", j, c.Load[j], want)
		}
	}
	// With flat latencies B keeps 100 and sends 20 to C, the nearer one.
	c = s.Solve(readProblem(t, "worked-example-flat"), Auto).Certificate
	for j, want := range []float64{90, 100, 60} {
		if math.Abs(c.Load[j]-want) > 1e-9 {
			t.Errorf("flat: load of engine %d is %v, want %v", j, c.Load[j], want)
		}
	}
}

// Rows of demand 0 still have somewhere to go, unless nothing can take it.
func TestRowsWithoutDemand(t *testing.T) {
	p := readProblem(t, "zero-capacity")
	for c := range p.Demand {
		p.Demand[c].Rate = 0
	}
	var s Solver
	plan := s.Solve(p, Auto).Plan
	if row := plan.Row(0); len(row) != 1 || p.Engines[row[0].Engine].Name != "a2" || row[0].Weight != 1 || plan.Shed[0] != 0 {
		t.Errorf("chat: %v, shed %v", row, plan.Shed[0])
	}
	if len(plan.Row(1)) != 0 || plan.Shed[1] != 1 {
		t.Errorf("pinned: %v, shed %v", plan.Row(1), plan.Shed[1])
	}
	// Beside real demand it goes where one more request costs least.
	p = readProblem(t, "worked-example-curves")
	p.Demand[1].Rate = 0
	r := s.Solve(p, Auto)
	check(t, p, r, 1e-9)
	if row := r.Plan.Row(1); len(row) != 1 || p.Engines[row[0].Engine].Name != "b1" {
		t.Errorf("an idle row goes to %v", row)
	}
}
