package balancer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/balancer/problem"
	"penstock/route"
)

// situationOf makes a random situation: several models on overlapping engines,
// some of them out, unknown, without capacity or at points, some sources
// without demand.
func situationOf(r *rand.Rand) *Situation {
	s := &Situation{At: time.Unix(1000, 0)}
	for i := range 1 + r.IntN(4) {
		s.Sources = append(s.Sources, fmt.Sprintf("s%d", i))
	}
	n := 1 + r.IntN(12)
	equal := r.IntN(3) == 0
	known := r.IntN(4) > 0
	for j := range n {
		e := EngineView{Name: fmt.Sprintf("e%02d", j), Cluster: s.Sources[r.IntN(len(s.Sources))], Ready: r.IntN(8) > 0,
			Slots: float64(1 + r.IntN(64)), Calibrated: known && r.IntN(10) > 0 || known && j == 0}
		limit := math.Exp(r.Float64() * 6)
		e.Capacity = limit * (0.5 + r.Float64()/2)
		e.Curve = problem.Latency{Base: 500 * r.Float64(), Slope: 1 + 1000*r.Float64(), Limit: limit}
		switch r.IntN(12) {
		case 0:
			e.Capacity = 0
		case 1:
			e.Curve = problem.Latency{Points: []problem.Point{{Load: 0, Time: 100}, {Load: limit / 2, Time: 150}, {Load: limit, Time: 900}}}
		}
		if equal {
			e.Capacity, e.Curve = 20, problem.Latency{Slope: 100, Limit: 20}
		}
		s.Engines = append(s.Engines, e)
	}
	s.RTT = make([][]float64, len(s.Sources))
	for i := range s.RTT {
		for j := range s.Engines {
			ms := 1.0
			if s.Engines[j].Cluster != s.Sources[i] {
				ms = float64(10 + 20*i)
			}
			s.RTT[i] = append(s.RTT[i], ms)
		}
	}
	utilisation := []float64{0, 0.1, 0.5, 0.8, 0.95, 1, 1.5, 4}[r.IntN(8)]
	total := 0.0
	for j := range s.Engines {
		total += s.capacity(j)
	}
	for m := range 1 + r.IntN(4) {
		var cands []int
		for j := range s.Engines {
			if r.IntN(3) > 0 || j == m%n {
				cands = append(cands, j)
			}
		}
		for i := range s.Sources {
			row := Row{Source: i, Class: route.ClassKey{Model: fmt.Sprintf("m%d", m)}, DistanceWeight: 1, Work: 0.25 + 2*r.Float64(), Candidates: cands}
			if r.IntN(5) > 0 {
				for p := range row.Rate {
					row.Rate[p] = r.Float64() * utilisation * total / float64(4*len(s.Sources)) * float64(r.IntN(2))
				}
			}
			s.Rows = append(s.Rows, row)
		}
	}
	return s
}

// check finds what is wrong with a plan, from the situation and the plan alone.
func check(s *Situation, p *route.Plan) error {
	index := map[string]int{}
	for j := range s.Engines {
		index[s.Engines[j].Name] = j
	}
	if len(p.Rows) != len(s.Rows) || len(p.Engines) != len(s.Engines) {
		return fmt.Errorf("%d rows, %d engines", len(p.Rows), len(p.Engines))
	}
	loads := make([]float64, len(s.Engines))
	for c := range s.Rows {
		row, planned := &s.Rows[c], &p.Rows[c]
		if planned.Class != row.Class || planned.Source != s.Sources[row.Source] {
			return fmt.Errorf("row %d is of %v at %s", c, planned.Class, planned.Source)
		}
		allowed := map[int]bool{}
		room := 0.0
		for _, j := range row.Candidates {
			allowed[j] = true
			room += s.capacity(j)
		}
		sum := 0.0
		for _, w := range planned.Weights {
			j := index[w.Engine]
			if !(w.Weight > 0) || !allowed[j] || s.capacity(j) == 0 {
				return fmt.Errorf("row %d: weight %v on %s", c, w.Weight, w.Engine)
			}
			sum += w.Weight
			for k, rate := range row.Rate {
				loads[j] += rate * (1 - planned.Shed[k]) * row.Work * w.Weight
			}
		}
		if room > 0 && math.Abs(sum-1) > 1e-9 || room == 0 && sum != 0 {
			return fmt.Errorf("row %d: weights sum to %v", c, sum)
		}
		for k, z := range planned.Shed {
			if !(z >= 0 && z <= 1) || z > 0 && room == 0 {
				return fmt.Errorf("row %d: priority %d sheds %v", c, k, z)
			}
		}
	}
	guessed := false // a capacity that nobody knows bounds nothing
	for j := range s.Engines {
		guessed = guessed || s.capacity(j) > 0 && !s.Engines[j].Calibrated
		if math.Abs(loads[j]-p.Engines[j].Load) > 1e-9*(1+loads[j]) {
			return fmt.Errorf("%s: load %v, said to be %v", s.Engines[j].Name, loads[j], p.Engines[j].Load)
		}
	}
	for j := range s.Engines {
		if !guessed && loads[j] > 0.95*s.capacity(j)*(1+1e-9) {
			return fmt.Errorf("%s: load %v, capacity %v", s.Engines[j].Name, loads[j], s.capacity(j))
		}
	}
	return nil
}

// Whatever the situation, the plan is valid, within capacities and certified,
// and so are those that follow it when demand and engines change.
func TestRandomSituations(t *testing.T) {
	solved := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := situationOf(r)
		for step := range 3 {
			d := decideOptimal(s, solveOnce)
			for _, err := range d.Errors {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			if err := check(s, d.Plan); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			for _, p := range d.Proofs {
				solved++
				if !(p.Certificate.Gap <= 1e-6) {
					t.Errorf("seed %d step %d: gap %v", seed, step, p.Certificate.Gap)
				}
				if p.Certificate.Damping < -1e-9 {
					t.Errorf("seed %d step %d: damping gains %v", seed, step, p.Certificate.Damping)
				}
			}
			s.Last = d.Plan
			for c := range s.Rows {
				for k := range s.Rows[c].Rate {
					s.Rows[c].Rate[k] *= 0.8 + 0.5*r.Float64()
				}
			}
			if j := r.IntN(len(s.Engines)); step == 1 {
				s.Engines[j].Ready = !s.Engines[j].Ready
			}
		}
	}
	if solved < 500 {
		t.Errorf("only %d problems were solved", solved)
	}
}

// pair is a situation of two engines and one source.
func pair(rate float64) *Situation {
	return &Situation{Sources: []string{"s"}, RTT: [][]float64{{1, 1}},
		Engines: []EngineView{
			{Name: "a", Cluster: "s", Ready: true, Slots: 8, Capacity: 40, Calibrated: true, Curve: problem.Latency{Slope: 100, Limit: 40}},
			{Name: "b", Cluster: "s", Ready: true, Slots: 8, Capacity: 20, Calibrated: true, Curve: problem.Latency{Slope: 200, Limit: 20}}},
		Rows: []Row{{Class: route.ClassKey{Model: "m"}, DistanceWeight: 1, Work: 1, Rate: [3]float64{0, rate, 0}, Candidates: []int{0, 1}}}}
}

func weightOf(p *route.Plan, row int, engine string) float64 {
	for _, w := range p.Rows[row].Weights {
		if w.Engine == engine {
			return w.Weight
		}
	}
	return 0
}

// A solver that fails leaves the last weights, with engines that are gone
// given to where there is room.
func TestFailingSolver(t *testing.T) {
	fails := func(*problem.Problem) (*Proof, error) { return nil, errors.New("broken") }
	s := pair(30)
	first := decideOptimal(s, solveOnce).Plan
	s.Last = first
	d := decideOptimal(s, fails)
	if d.Results[Kept] != 1 || len(d.Proofs) != 0 || !samePlan(first, d.Plan) || len(d.Errors) != 1 {
		t.Errorf("%+v after %+v, results %v", d.Plan.Rows, first.Rows, d.Results)
	}
	s.Engines[0].Ready = false
	if p := decideOptimal(s, fails).Plan; weightOf(p, 0, "b") != 1 {
		t.Errorf("a is gone: %+v", p.Rows)
	}
	s.Last = nil
	s.Engines[0].Ready = true
	if p := decideOptimal(s, fails).Plan; math.Abs(weightOf(p, 0, "a")-2.0/3) > 1e-9 || !p.Rows[0].Guessed {
		t.Errorf("without a last plan weights are not by capacity: %+v", p.Rows)
	}
}

// Three engines, one gone: what it had goes where there is room, not by weight.
func TestHoldPoursToRoom(t *testing.T) {
	s := pair(30)
	s.Engines = append(s.Engines, EngineView{Name: "c", Cluster: "s", Ready: false, Slots: 8, Capacity: 100, Calibrated: true, Curve: problem.Latency{Slope: 100, Limit: 100}})
	s.RTT[0] = append(s.RTT[0], 1)
	s.Rows[0].Candidates = []int{0, 1, 2}
	s.Last = &route.Plan{Policy: "optimal", Rows: []route.PlanRow{{Source: "s", Class: s.Rows[0].Class,
		Weights: []route.PlanWeight{{Engine: "a", Weight: 0.2}, {Engine: "b", Weight: 0.6}, {Engine: "c", Weight: 0.2}}}},
		Engines: []route.PlanEngine{{Name: "a", Capacity: 40}, {Name: "b", Capacity: 20}, {Name: "c", Capacity: 100}}}
	d := decideOptimal(s, func(*problem.Problem) (*Proof, error) { return nil, errSlow })
	// a has 0.95*40-6 = 32 left, b 0.95*20-18 = 1: the lost fifth goes 32 to 1.
	if a, b := weightOf(d.Plan, 0, "a"), weightOf(d.Plan, 0, "b"); math.Abs(a-(0.2+0.2*32/33)) > 1e-9 || math.Abs(a+b-1) > 1e-9 {
		t.Errorf("weights a %v, b %v", a, b)
	}
}

// An engine that was out is back at once at the weight that it is worth, for as
// little as there is to do and as much as a move costs: else nothing would ever
// be worth one, and it would stay without requests.
func TestEngineThatIsBack(t *testing.T) {
	for name, spoil := range map[string]func(e *EngineView){
		"out by its health":  func(e *EngineView) { e.Ready = false },
		"out by its breaker": func(e *EngineView) { e.Capacity = 0 },
	} {
		s := pair(1)
		s.Engines[1] = s.Engines[0]
		s.Engines[1].Name = "b"
		s.Rows[0].Cache = 500 // ms of prompt that a conversation has to compute again elsewhere
		well := s.Engines[0]
		for range 3 {
			s.Last = decideOptimal(s, solveOnce).Plan
		}
		spoil(&s.Engines[0])
		for range 3 {
			s.Last = decideOptimal(s, solveOnce).Plan
		}
		if w := weightOf(s.Last, 0, "a"); w != 0 {
			t.Fatalf("%s: weight %v", name, w)
		}
		s.Engines[0] = well
		s.Engines[0].Capacity *= 0.7 // its penalty lasts
		for cycle := range 10 {
			s.Last = decideOptimal(s, solveOnce).Plan
			if w := weightOf(s.Last, 0, "a"); w < 0.45 || w > 0.55 {
				t.Errorf("%s: weight %v in cycle %d after its return", name, w, cycle)
			}
		}
	}
}

// Unknown engines share by slots, and are named.
func TestUncalibrated(t *testing.T) {
	s := pair(30)
	for j := range s.Engines {
		s.Engines[j].Calibrated = false
	}
	s.Engines[0].Slots = 24
	d := decideOptimal(s, solveOnce)
	if w := weightOf(d.Plan, 0, "a"); w != 0.75 || len(d.Plan.Uncalibrated) != 2 || d.Plan.Certificate != nil || d.Results[Uncalibrated] != 1 {
		t.Errorf("weight %v, uncalibrated %v, certificate %v", w, d.Plan.Uncalibrated, d.Plan.Certificate)
	}
	// What was learned stays when it is not known any more.
	known := pair(30)
	s.Last = decideOptimal(known, solveOnce).Plan
	if d := decideOptimal(s, solveOnce); !samePlan(s.Last, d.Plan) {
		t.Errorf("learned weights %+v were dropped for %+v", s.Last.Rows, d.Plan.Rows)
	}
}

// A step of demand is feasible within two cycles, however small the slot
// budget: it does not hold where an engine would be above its capacity.
func TestStepChange(t *testing.T) {
	s := pair(10)
	s.RTT[0][1] = 100 // b is far: little demand stays at a
	for range 20 {
		s.Last = decideOptimal(s, solveOnce).Plan
	}
	if w := weightOf(s.Last, 0, "a"); w < 0.9 {
		t.Fatalf("a has %v of a small demand", w)
	}
	s.Rows[0].Rate[1] = 50
	for range 2 {
		s.Last = decideOptimal(s, solveOnce).Plan
	}
	if err := check(s, s.Last); err != nil || s.Last.Rows[0].Shed[1] > 0 {
		t.Errorf("after two cycles: %v, shed %v", err, s.Last.Rows[0].Shed)
	}
}

// Without need weights move by the budget, cycle after cycle, to the solution.
func TestSlotBudget(t *testing.T) {
	s := pair(12)
	s.Last = &route.Plan{Policy: "optimal", Rows: []route.PlanRow{{Source: "s", Class: s.Rows[0].Class, Weights: []route.PlanWeight{{Engine: "a", Weight: 0.3}, {Engine: "b", Weight: 0.7}}}},
		Engines: []route.PlanEngine{{Name: "a", Capacity: 40}, {Name: "b", Capacity: 20}}}
	was := 0.3
	for range 20 {
		d := decideOptimal(s, solveOnce)
		w := weightOf(d.Plan, 0, "a")
		if w-was > SlotBudget+1e-12 || w < was-1e-12 {
			t.Fatalf("weight of a from %v to %v", was, w)
		}
		if w-was > SlotBudget-1e-9 && !(d.Plan.Certificate.Damping > 0) {
			t.Error("damping costs nothing")
		}
		was, s.Last = w, d.Plan
	}
	if was < 0.8 {
		t.Errorf("weight of a stays at %v", was)
	}
}

// Under constant demand with noise weights hardly move once they have settled:
// now and then by the dead band, where the demand that they settled at was far off.
func TestStationary(t *testing.T) {
	for _, c := range []struct{ rate, noise float64 }{{20, 0.03}, {60, 0.02}, {85, 0.01}} {
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 2))
			s := pair(0)
			s.Engines = append(s.Engines, s.Engines[0])
			s.Engines[2].Name = "c"
			s.RTT[0] = append(s.RTT[0], 1)
			s.Rows[0].Candidates = []int{0, 1, 2}
			moves := 0
			var weights [2]float64 // of a: sum and sum of squares
			for cycle := range 300 {
				s.Rows[0].Rate[1] = c.rate * (1 + c.noise*r.NormFloat64())
				last := s.Last
				s.Last = decideOptimal(s, solveOnce).Plan
				if cycle <= 20 {
					continue
				}
				if !samePlanWeights(last, s.Last) {
					moves++
				}
				w := weightOf(s.Last, 0, "a")
				weights[0] += w
				weights[1] += w * w
			}
			mean := weights[0] / 279
			cv := math.Sqrt(max(0, weights[1]/279-mean*mean)) / mean
			if moves > 14 || cv > 0.01 {
				t.Errorf("rate %v, seed %d: the weights moved %d times in 279 cycles, CV %.2g", c.rate, seed, moves, cv)
			}
		}
	}
}

func samePlanWeights(a, b *route.Plan) bool {
	for _, w := range a.Rows[0].Weights {
		if weightOf(b, 0, w.Engine) != w.Weight {
			return false
		}
	}
	return len(a.Rows[0].Weights) == len(b.Rows[0].Weights)
}
