package balancer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/balancer/problem"
	"penstock/route"
)

// simplePolicies are the policies that are functions of the situation alone.
var simplePolicies = map[string]func(*Situation) *route.Plan{
	"capacity": PlanCapacity, "nearest": PlanNearest, "waterfall": PlanWaterfall, "random": PlanRandom, "bounded-hash": PlanBoundedHash,
	"prefix": PlanPrefix, "round-robin": PlanRoundRobin, "least-request": PlanLeastRequest, "p2c": PlanP2C,
	"feedback": func(s *Situation) *route.Plan { p, _ := DefaultController.Plan(s, nil); return p },
}

// situations draws a situation: engines in a few clusters, some out or without
// capacity, rows of a few classes each at every source.
func situations(t *rapid.T) *Situation {
	s := &Situation{At: time.Unix(1_000_000, 0), Sources: []string{"A", "B", "C"}[:rapid.IntRange(1, 3).Draw(t, "sources")]}
	for j := range rapid.IntRange(1, 8).Draw(t, "engines") {
		capacity := rapid.SampledFrom([]float64{0, 1, 10, 10, 37.5, 1e-3, 1e5}).Draw(t, "capacity")
		s.Engines = append(s.Engines, EngineView{
			Name: fmt.Sprintf("e%d", j), Cluster: rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(t, "cluster"),
			Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0, Slots: 64, Capacity: capacity, Calibrated: rapid.IntRange(0, 9).Draw(t, "calibrated") > 0,
			Curve:   problem.Latency{Slope: 50, Limit: capacity},
			Signals: Signals{TTFT: rapid.Float64Range(1, 1000).Draw(t, "ttft"), TBOT: math.NaN(), Utilisation: 0.5, Waiting: 0},
		})
	}
	for range s.Sources {
		row := make([]float64, len(s.Engines))
		for j := range row {
			row[j] = float64(rapid.IntRange(1, 4).Draw(t, "rtt"))
		}
		s.RTT = append(s.RTT, row)
	}
	for class := range rapid.IntRange(1, 3).Draw(t, "classes") {
		var cands []int
		for j := range s.Engines {
			if rapid.IntRange(0, 3).Draw(t, "candidate") > 0 {
				cands = append(cands, j)
			}
		}
		work := rapid.SampledFrom([]float64{1, 1, 0.25, 5}).Draw(t, "work")
		for i := range s.Sources {
			r := Row{Source: i, Class: route.ClassKey{Model: fmt.Sprintf("m%d", class)}, DistanceWeight: 1, Work: work, Candidates: cands}
			for p := range r.Rate {
				r.Rate[p] = rapid.SampledFrom([]float64{0, 1, 7, 40}).Draw(t, "rate")
			}
			s.Rows = append(s.Rows, r)
		}
	}
	return s
}

// rowWeights is a plan's row by engine name.
func rowWeights(r *route.PlanRow) map[string]float64 {
	w := make(map[string]float64)
	for _, x := range r.Weights {
		w[x.Engine] = x.Weight
	}
	return w
}

// Whatever the situation, weights sum to 1 over candidates that take traffic,
// or to 0 where there is none; the loads are those of the weights.
func TestPlansAreProper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations(t)
		for name, plan := range simplePolicies {
			p := plan(s)
			if p.Policy != name || p.Certificate != nil || len(p.Rows) != len(s.Rows) || len(p.Engines) != len(s.Engines) {
				t.Fatalf("%s: %q with %d rows and %d engines", name, p.Policy, len(p.Rows), len(p.Engines))
			}
			loads := make(map[string]float64)
			for c := range p.Rows {
				row, in := &p.Rows[c], &s.Rows[c]
				takers := 0
				for _, j := range in.Candidates {
					if s.Engines[j].Ready && s.Engines[j].Capacity > 0 {
						takers++
					}
				}
				sum := 0.0
				for _, w := range row.Weights {
					j := slices.IndexFunc(s.Engines, func(e EngineView) bool { return e.Name == w.Engine })
					if !slices.Contains(in.Candidates, j) || !s.Engines[j].Ready || s.Engines[j].Capacity == 0 || !(w.Weight > 0) {
						t.Fatalf("%s: row %d gives %v to %s", name, c, w.Weight, w.Engine)
					}
					sum += w.Weight
					for p, rate := range in.Rate {
						loads[w.Engine] += rate * in.Work * (1 - row.Shed[p]) * w.Weight
					}
				}
				if want := float64(min(takers, 1)); math.Abs(sum-want) > 1e-9 {
					t.Fatalf("%s: row %d sums to %v with %d engines that take traffic", name, c, sum, takers)
				}
				if row.Source != s.Sources[in.Source] || row.Class != in.Class {
					t.Fatalf("%s: row %d is of %s, %v", name, c, row.Source, row.Class)
				}
			}
			for _, e := range p.Engines {
				if math.Abs(e.Load-loads[e.Name]) > 1e-9*(1+e.Load) || math.IsNaN(e.InFlight) || math.IsInf(e.Latency, 0) {
					t.Fatalf("%s: %+v, its weights bring %v", name, e, loads[e.Name])
				}
			}
		}
	})
}

// The order in which engines and rows are listed decides nothing.
func TestPlansDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations(t)
		seed := rapid.Uint64().Draw(t, "seed")
		other, rows := shuffled(s, rand.New(rand.NewPCG(seed, 1)))
		for name, plan := range simplePolicies {
			a, b := plan(s), plan(other)
			for c := range a.Rows {
				x, y := &a.Rows[c], &b.Rows[slices.Index(rows, c)]
				wx, wy := rowWeights(x), rowWeights(y)
				for _, e := range s.Engines {
					if math.Abs(wx[e.Name]-wy[e.Name]) > 1e-6 {
						t.Fatalf("%s: row %d gives %s %v or %v", name, c, e.Name, wx[e.Name], wy[e.Name])
					}
				}
				for p := range x.Shed {
					if math.Abs(x.Shed[p]-y.Shed[p]) > 1e-6 {
						t.Fatalf("%s: row %d sheds %v or %v", name, c, x.Shed, y.Shed)
					}
				}
			}
		}
	})
}

// shuffled is the same situation in another order; rows tells which row of s
// each of its rows is.
func shuffled(s *Situation, r *rand.Rand) (other *Situation, rows []int) {
	engines, rows := r.Perm(len(s.Engines)), r.Perm(len(s.Rows))
	other = &Situation{At: s.At, Sources: s.Sources}
	at := make([]int, len(engines))
	for to, from := range engines {
		other.Engines = append(other.Engines, s.Engines[from])
		at[from] = to
	}
	for i := range s.Sources {
		row := make([]float64, len(engines))
		for to, from := range engines {
			row[to] = s.RTT[i][from]
		}
		other.RTT = append(other.RTT, row)
	}
	for _, from := range rows {
		row := s.Rows[from]
		cands := make([]int, len(row.Candidates))
		for i, j := range row.Candidates {
			cands[i] = at[j]
		}
		slices.Sort(cands)
		row.Candidates = cands
		other.Rows = append(other.Rows, row)
	}
	return other, rows
}

// All of a row's demand is in one cluster, and none that has engines for it
// that take traffic is nearer.
func TestNearestIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations(t)
		p := PlanNearest(s)
		for c := range p.Rows {
			w := rowWeights(&p.Rows[c])
			least := math.Inf(1)
			for _, j := range s.Rows[c].Candidates {
				if s.Engines[j].Ready && s.Engines[j].Capacity > 0 {
					least = min(least, s.RTT[s.Rows[c].Source][j])
				}
			}
			cluster, distance := "", math.Inf(1)
			for _, j := range s.Rows[c].Candidates {
				if w[s.Engines[j].Name] > 0 {
					if cluster != "" && s.Engines[j].Cluster != cluster {
						t.Fatalf("row %d goes to %s and %s", c, cluster, s.Engines[j].Cluster)
					}
					cluster = s.Engines[j].Cluster
					distance = min(distance, s.RTT[s.Rows[c].Source][j])
				}
			}
			if cluster != "" && distance != least {
				t.Fatalf("row %d goes to %s at %v, the nearest is at %v", c, cluster, distance, least)
			}
		}
	})
}

// No engine goes beyond its effective capacity unless one of the rows on it has
// no room anywhere; and no row uses a cluster while a nearer one of its has
// room.
func TestWaterfallFillsBeforeItSpills(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations(t)
		p := PlanWaterfall(s)
		room := func(j int) bool {
			e := s.Engines[j]
			return e.Ready && p.Engines[j].Load < 0.95*e.Capacity*(1-1e-9)
		}
		stuck := make([]bool, len(s.Engines)) // by engine: a row on it has no room elsewhere
		for c := range p.Rows {
			row := &s.Rows[c]
			w := rowWeights(&p.Rows[c])
			if row.load(p.Rows[c].Shed) == 0 {
				continue
			}
			for _, j := range row.Candidates {
				if w[s.Engines[j].Name] < 1e-9 {
					continue
				}
				stuck[j] = stuck[j] || !slices.ContainsFunc(row.Candidates, room)
				for _, i := range row.Candidates {
					if room(i) && nearness(s, c, s.Engines[i].Cluster) < nearness(s, c, s.Engines[j].Cluster) {
						t.Fatalf("row %d uses %s while %s, nearer, has room", c, s.Engines[j].Name, s.Engines[i].Name)
					}
				}
			}
		}
		for j, e := range p.Engines {
			if e.Load > 0.95*e.Capacity*(1+1e-9) && !stuck[j] {
				t.Fatalf("%s has %v of %v, and all rows on it have room elsewhere", e.Name, e.Load, e.Capacity)
			}
		}
	})
}

// nearness is the distance of a cluster from a row.
func nearness(s *Situation, c int, cluster string) float64 {
	d := math.Inf(1)
	for _, j := range s.Rows[c].Candidates {
		if e := s.Engines[j]; e.Cluster == cluster && e.Ready && e.Capacity > 0 {
			d = min(d, s.RTT[s.Rows[c].Source][j])
		}
	}
	return d
}

// threeClusters is the worked example: A 90 of 100, B 120 of 100, C 40 of 80,
// capacities without their margin.
func threeClusters(toA, toC float64) *Situation {
	s := &Situation{At: time.Unix(1000, 0), Sources: []string{"A", "B", "C"}, RTT: [][]float64{{1, 40, 40}, {toA, 1, toC}, {40, 40, 1}}}
	for j, capacity := range []float64{100, 100, 80} {
		name := strings.ToLower(s.Sources[j])
		s.Engines = append(s.Engines, EngineView{Name: name, Cluster: s.Sources[j], Ready: true, Slots: 64, Capacity: capacity / 0.95,
			Curve: problem.Latency{Slope: 50, Limit: capacity}, Calibrated: true})
		s.Rows = append(s.Rows, Row{Source: j, Class: route.ClassKey{Model: "m"}, DistanceWeight: 1, Work: 1,
			Rate: [route.Priorities]float64{0, []float64{90, 120, 40}[j]}, Candidates: []int{0, 1, 2}})
	}
	return s
}

func TestThreeClusters(t *testing.T) {
	for _, c := range []struct {
		name     string
		plan     func(*Situation) *route.Plan
		toA, toC float64
		loads    [3]float64
	}{
		{"nearest", PlanNearest, 40, 30, [3]float64{90, 120, 40}},
		{"waterfall", PlanWaterfall, 40, 30, [3]float64{90, 100, 60}},
		{"waterfall", PlanWaterfall, 30, 40, [3]float64{100, 100, 50}},
		{"capacity", PlanCapacity, 40, 30, [3]float64{250 * 100 / 280.0, 250 * 100 / 280.0, 250 * 80 / 280.0}},
	} {
		p := c.plan(threeClusters(c.toA, c.toC))
		for j, want := range c.loads {
			if math.Abs(p.Engines[j].Load-want) > 1e-9*want {
				t.Errorf("%s, A at %v ms, C at %v ms: %s has %v, want %v", c.name, c.toA, c.toC, p.Engines[j].Name, p.Engines[j].Load, want)
			}
		}
		if c.name == "nearest" { // beyond what its curve knows: all slots
			if b := p.Engines[1]; b.InFlight != 64 || math.Abs(b.Latency-1000*64/120.0) > 1e-9 {
				t.Errorf("engine beyond its limit: %+v", b)
			}
		}
	}
	p := PlanCapacity(threeClusters(40, 30))
	rho := 250 * 100 / 280.0 / 100
	if a := p.Engines[0]; math.Abs(a.Latency-50/(1-rho)) > 1e-9 || math.Abs(a.InFlight-a.Load*a.Latency/1000) > 1e-9 {
		t.Errorf("engine at its load: %+v", a)
	}
}

// A cluster whose engines are out is no cluster: the next one has it all.
func TestNearestPassesOverWhatIsOut(t *testing.T) {
	s := threeClusters(40, 30)
	s.Engines[1].Ready = false
	if w := rowWeights(&PlanNearest(s).Rows[1]); w["c"] != 1 {
		t.Errorf("B with its own engine out goes to %v", w)
	}
}

// Policies that are a pick rule name it.
func TestPlansNameTheirRule(t *testing.T) {
	s := threeClusters(40, 30)
	for name, want := range map[string]route.Rule{"random": route.RuleRandom, "bounded-hash": route.RuleBoundedHash, "prefix": route.RulePrefix,
		"round-robin": route.RuleRoundRobin, "least-request": route.RuleLeastRequest, "p2c": route.RuleP2C,
		"capacity": route.RulePlanned, "nearest": route.RulePlanned, "waterfall": route.RulePlanned, "feedback": route.RulePlanned} {
		if got := simplePolicies[name](s).Rule; got != want {
			t.Errorf("%s picks by %v, want %v", name, got, want)
		}
	}
}

// Small changes of demand and capacities move nobody, larger ones do; none
// stays where that would fill an engine beyond what it may be given.
func TestPlansStay(t *testing.T) {
	s := threeClusters(40, 30)
	s.Rows[1].Rate[1] = 118 // B's own engine is full: 18 go to C
	first := PlanWaterfall(s)
	s.Last = first
	for _, c := range []struct {
		rate  float64
		moves bool
	}{{117.5, false}, {118.2, true}, {110, true}} {
		s.Rows[1].Rate[1] = c.rate
		w, was := rowWeights(&PlanWaterfall(s).Rows[1]), rowWeights(&first.Rows[1])
		if (w["b"] != was["b"]) != c.moves {
			t.Errorf("at %v weight of b %v, was %v at 118", c.rate, w["b"], was["b"])
		}
	}
	s = threeClusters(40, 30)
	s.Last = PlanCapacity(s)
	s.Engines[0].Capacity *= 1.01
	if p := PlanCapacity(s); rowWeights(&p.Rows[0])["a"] != rowWeights(&s.Last.Rows[0])["a"] {
		t.Error("one per cent of an engine's capacity moves conversations")
	}
	if p := PlanLeastRequest(s); rowWeights(&p.Rows[0])["a"] == rowWeights(&s.Last.Rows[0])["a"] {
		t.Error("the weights of another policy stay")
	}
	s.Engines[0].Ready = false
	if w := rowWeights(&PlanCapacity(s).Rows[0]); w["a"] != 0 {
		t.Errorf("an engine that is out has %v", w["a"])
	}
}
