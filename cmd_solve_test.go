package main

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// solveFile is a problem file as a reader of interface.md would decode it.
type solveFile struct {
	Sources []string
	Engines []struct {
		Name, Cluster string
		Capacity      float64
		Latency       struct {
			Base   float64 `json:"base_ms"`
			Slope  float64 `json:"slope_ms"`
			Limit  float64
			Points [][2]float64
		}
	}
	Classes []solveClass
	Demand  []struct {
		Source, Class string
		Rate          float64
	}
	RTT       map[string]map[string]float64 `json:"rtt_ms"`
	ShedPrice map[string]float64            `json:"shed_price_ms"`
	Curvature *float64                      `json:"shed_curvature"`
	Previous  []struct {
		Source, Class string
		Weights       map[string]float64
	}
	MovePrice float64 `json:"move_price_ms"`
}

type solveClass struct {
	Name, Priority string
	Distance       *float64 `json:"distance_weight"`
	Work           *float64
	Engines        *[]string
}

func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// zero is T(0) of engine j, congestion y (T(y) - T(0)), conjugate the largest
// v y - y (T(y) - T(0)).
func (f *solveFile) zero(j int) float64 {
	l := f.Engines[j].Latency
	if len(l.Points) > 0 {
		return l.Points[0][1]
	}
	return l.Base + l.Slope
}

func (f *solveFile) congestion(j int, y float64) float64 {
	l := f.Engines[j].Latency
	if len(l.Points) == 0 {
		if y == 0 || l.Slope == 0 {
			return 0
		}
		return y * l.Slope * (1/(1-y/l.Limit) - 1)
	}
	for k := 1; k < len(l.Points); k++ {
		a, b := l.Points[k-1], l.Points[k]
		if y <= b[0]*(1+1e-12) {
			return y * (a[1] + (b[1]-a[1])/(b[0]-a[0])*(y-a[0]) - l.Points[0][1])
		}
	}
	return math.NaN()
}

func (f *solveFile) conjugate(j int, v float64) float64 {
	e := f.Engines[j]
	candidates := []float64{e.Capacity}
	if l := e.Latency; len(l.Points) > 0 {
		for k := 1; k < len(l.Points); k++ {
			a, b := l.Points[k-1], l.Points[k]
			slope := (b[1] - a[1]) / (b[0] - a[0])
			candidates = append(candidates, a[0])
			if slope > 0 {
				candidates = append(candidates, min(max((v-a[1]+l.Points[0][1]+slope*a[0])/2/slope, a[0]), b[0]))
			}
		}
	} else if l.Slope > 0 {
		if y := l.Limit * (1 - math.Sqrt(l.Slope/(v+l.Slope))); y < e.Capacity || l.Limit <= e.Capacity {
			candidates = []float64{y}
		}
	}
	best := 0.0
	for _, y := range candidates {
		best = max(best, v*min(y, e.Capacity)-f.congestion(j, min(y, e.Capacity)))
	}
	return best
}

// recompute is objective, bound and the largest violation, from the file and
// the printed document alone.
func recompute(t *testing.T, f *solveFile, r solveReport) (objective, bound, violation float64) {
	engine := map[string]int{}
	for j, e := range f.Engines {
		engine[e.Name] = j
	}
	rtt := func(source string, j int) float64 {
		if v, own := f.RTT[source][f.Engines[j].Name]; own {
			return v
		}
		return f.RTT[source][f.Engines[j].Cluster]
	}
	load := make([]float64, len(f.Engines))
	for i, d := range f.Demand {
		class := f.Classes[slices.IndexFunc(f.Classes, func(c solveClass) bool { return c.Name == d.Class })]
		nu, work, kappa := or(class.Distance, 1), or(class.Work, 1), or(f.Curvature, 0.5)
		if class.Priority == "" {
			class.Priority = "standard"
		}
		pi, given := f.ShedPrice[class.Priority]
		if !given {
			pi = map[string]float64{"critical": 1e6, "standard": 3e5, "sheddable": 1e5}[class.Priority]
		}
		var was map[string]float64
		for _, p := range f.Previous {
			if p.Source == d.Source && p.Class == d.Class {
				was = p.Weights
			}
		}
		z, total := 0.0, 0.0
		for _, s := range r.Shed {
			if s.Source == d.Source && s.Class == d.Class {
				z = s.Fraction
			}
		}
		for _, w := range r.Weights {
			if w.Source != d.Source || w.Class != d.Class {
				continue
			}
			j := engine[w.Engine]
			if class.Engines != nil && !slices.Contains(*class.Engines, w.Engine) {
				t.Errorf("%s/%s has a weight on %s, which is not allowed", d.Source, d.Class, w.Engine)
			}
			total += w.Weight
			load[j] += w.Flow * work
			objective += w.Flow * (nu*rtt(d.Source, j) + work*f.zero(j))
			if was != nil {
				objective += f.MovePrice * max(0, w.Flow-d.Rate*was[w.Engine])
			}
		}
		objective += d.Rate * work * pi * (z + kappa*z*z/2)
		violation = max(violation, math.Abs(total+z-1), -z)

		// The row's dual at its marginal cost, which no engine undercuts.
		mu := r.Marginal[i].Value
		cost := func(j int) float64 { return nu*rtt(d.Source, j) + work*(f.zero(j)+r.Loads[j].Price) }
		move := 0.0
		if was != nil {
			move = f.MovePrice
		}
		kept := 0.0
		for j, e := range f.Engines {
			if class.Engines != nil && !slices.Contains(*class.Engines, e.Name) {
				continue
			}
			mu = min(mu, cost(j)+move)
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			j, there := engine[name]
			if there && move > 0 && (class.Engines == nil || slices.Contains(*class.Engines, name)) {
				kept += was[name] * max(0, mu-cost(j))
			}
		}
		shed := 0.0
		if top := mu - work*pi; top > 0 {
			z := 1.0
			if kappa > 0 && pi > 0 {
				z = min(1, top/(work*pi*kappa))
			}
			shed = mu*z - work*pi*(z+kappa*z*z/2)
		}
		bound += d.Rate * (mu - kept - shed)
	}
	for j, e := range f.Engines {
		objective += f.congestion(j, load[j])
		bound -= f.conjugate(j, r.Loads[j].Price)
		violation = max(violation, math.Abs(load[j]-r.Loads[j].Load)/max(e.Capacity, 1e-300), -r.Loads[j].Price)
		if load[j] > e.Capacity {
			violation = max(violation, load[j]/e.Capacity-1)
		}
	}
	return objective, bound, violation
}

// Every problem with a known optimum, through the command line.
func TestSolveKnownProblems(t *testing.T) {
	files, err := filepath.Glob("balancer/testdata/problems/*.optimum.json")
	if err != nil || len(files) != 24 {
		t.Fatalf("%d optima, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".optimum.json")
		t.Run(filepath.Base(name), func(t *testing.T) {
			var known struct{ Objective, Upper float64 }
			var f solveFile
			readJSON(t, file, &known)
			readJSON(t, name+".json", &f)
			for _, method := range []string{"auto", "gradient", "interior"} {
				code, stdout, stderr := penstock(t, "solve", "--problem", name+".json", "--json", "--method", method)
				if code != exitDone || stderr != "" {
					t.Fatalf("exit %d, stderr %q", code, stderr)
				}
				var r solveReport
				if err := json.Unmarshal([]byte(stdout), &r); err != nil {
					t.Fatal(err)
				}
				objective, bound, violation := recompute(t, &f, r)
				scale := max(known.Objective, 1e-9)
				switch {
				case r.Status != "optimal" || r.Gap > 1e-6 || r.Seconds <= 0:
					t.Errorf("%s: status %s, gap %v, %v s", method, r.Status, r.Gap, r.Seconds)
				case violation > 1e-9:
					t.Errorf("%s: rows or capacities are violated by %v", method, violation)
				case math.Abs(objective-r.Objective) > 1e-9*scale || math.Abs(objective-known.Objective) > 1e-6*scale:
					t.Errorf("%s: objective %v, recomputed %v, known %v", method, r.Objective, objective, known.Objective)
				case math.Abs(bound-r.Bound) > 1e-7*scale || bound > known.Upper*(1+1e-9)+1e-9:
					t.Errorf("%s: bound %v, recomputed %v, the optimum is at most %v", method, r.Bound, bound, known.Upper)
				case math.Abs(r.Gap-(objective-bound)/scale) > 1e-7:
					t.Errorf("%s: gap %v, recomputed %v", method, r.Gap, (objective-bound)/scale)
				}
			}
		})
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// The example is a problem, and its answer reads like this.
func TestSolveExample(t *testing.T) {
	code, example, stderr := penstock(t, "solve", "--example")
	if code != exitDone || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	path := writeFile(t, "problem.json", example)
	code, stdout, stderr := penstock(t, "solve", "--problem", path, "--method", "interior")
	if code != exitDone || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	lines := strings.Split(stdout, "\n")
	if !strings.HasPrefix(lines[1], "status        optimal: gap ") || !strings.HasPrefix(lines[3], "method        interior, ") {
		t.Errorf("%s", stdout)
	}
	lines[1], lines[3] = "status", "method"
	want := `problem       two clusters
status
mean latency  190.6444 ms over 150 requests/s served, nothing shed
method

SOURCE  CLASS  RATE  ENGINE  WEIGHT  OF DEMAND             FLOW  ONE MORE COSTS
A       chat   90/s  a1      77.8%   ################      70/s  556.56 ms
"       "      "     b1      22.2%   ####                  20/s  "
B       chat   60/s  b1      100.0%  ####################  60/s  497.56 ms

ENGINE  CLUSTER  LOAD  CAPACITY  UTILISATION  OF CAPACITY           LATENCY    PRICE      CAPACITY PRICE
a1      A        70/s  100/s     70.0%        ##############        166.67 ms  505.56 ms  -
b1      B        80/s  80/s      100.0%       ####################  200 ms     456.56 ms  16.556 ms
`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSolveReadsStandardInput(t *testing.T) {
	cmd := newSolveCommand()
	var out strings.Builder
	cmd.SetIn(strings.NewReader(solveExample))
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--problem", "-", "--json"})
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), `"status": "optimal"`) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// What is shed is said, and weights too small for a line are counted.
func TestSolveSaysWhatIsShedAndHidden(t *testing.T) {
	_, stdout, _ := penstock(t, "solve", "--problem", "balancer/testdata/problems/overload-3.json")
	for _, want := range []string{"200.8/s (66.9%) shed", "(shed)", "CAPACITY PRICE"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	var report solveReport
	report.Weights = []solvedShare{{"A", "c", "a", 0.9999, 1}, {"A", "c", "b", 0.0001, 1}}
	report.Marginal = []solvedRow{{"A", "c", 1}}
	var b strings.Builder
	p, err := readProblem(nil, "balancer/testdata/problems/single.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := report.printWeights(&b, p); err != nil || !strings.Contains(b.String(), "1 weights below 0.05% are not shown") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestSolveRefusesBadFiles(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown source":     {`"source": "B", "class": "chat", "rate"`, `"source": "X", "class": "chat", "rate"`, `demand[1].source: "X" is not in sources`},
		"two of one name":    {`"name": "b1"`, `"name": "a1"`, `engines[1].name: "a1" is the name of number 0 already`},
		"points and a slope": {`{"points"`, `{"slope_ms": 3, "points"`, `engines[1].latency: has points and slope_ms`},
		"first load":         {`[[0, 40]`, `[[5, 40]`, `engines[1].latency.points[0][0]: the first load is 5: want 0`},
		"capacity":           {`"capacity": 80`, `"capacity": 90`, `engines[1].latency.points: end at load 80, below the capacity 90`},
		"priority":           {`"priority": "standard"`, `"priority": "urgent"`, `classes[0].priority: "urgent" is no priority: want critical, standard, sheddable`},
		"round trip":         {`"B": 40}`, `"B": -3}`, `rtt_ms.A.B: is -3: want 0 or more`},
		"second document":    {`"move_price_ms": 20` + "\n}", `"move_price_ms": 20` + "\n} {}", `text after the document`},
		"too large":          {`"rate": 60`, `"rate": 1e308`, `its numbers are too large to compute with`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(solveExample, c.old, c.new, 1)
			if text == solveExample {
				t.Fatalf("%s is not in the example", c.old)
			}
			path := writeFile(t, "bad.json", text)
			code, stdout, stderr := penstock(t, "solve", "--problem", path, "--json")
			if code != exitFailed || stdout != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, path) {
				t.Errorf("exit %d, stdout %q, stderr %s, want %s", code, stdout, stderr, c.want)
			}
		})
	}
	if code, _, stderr := penstock(t, "solve", "--problem", writeFile(t, "empty.json", " \n")); code != exitFailed || !strings.Contains(stderr, "there is nothing in it") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, stdout, stderr := penstock(t, "solve", "--problem", "not/there.json"); code != exitFailed || stdout != "" || !strings.Contains(stderr, "not/there.json") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestSolveUsage(t *testing.T) {
	for args, want := range map[string]string{
		"solve":                                  "solve needs a problem: --problem FILE",
		"solve --problem x --method simplex":     "must be auto, gradient or interior",
		"solve --example --problem x":            "want either --problem FILE or --example",
		"solve problem.json":                     "want no argument",
		"solve --problem problem.json --verbose": "unknown flag: --verbose",
	} {
		code, stdout, stderr := penstock(t, strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}
