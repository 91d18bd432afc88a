package experiments

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

// A1: whatever the problem, the solver proves its solution to a part in a
// million and violates no capacity. Maps of A2 and small random problems with
// classes, priorities, sheds, last weights and engines that few may use.

type a1Result struct {
	Problems  int     `json:"problems"`
	WorstGap  float64 `json:"worst_gap"`
	Beyond    int     `json:"beyond_1e-7"` // the goal, not the aim
	Violated  int     `json:"capacities_violated"`
	WorstOver float64 `json:"worst_over"` // load over capacity, minus 1
	bad       []string
}

func runA1(o Options) (result, error) {
	n := 500
	if o.Short {
		n = 60
	}
	r := &a1Result{WorstOver: -1}
	var solver solve.Solver
	for seed := range uint64(n) {
		o.progress(float64(seed)/float64(n), "problems")
		p := randomProblem(seed)
		if err := p.Validate(); err != nil {
			return nil, fmt.Errorf("problem %d: %w", seed, err)
		}
		r.judge(seed, p, solver.Solve(p, solve.Auto))
	}
	return r, nil
}

func (r *a1Result) judge(seed uint64, p *problem.Problem, s *solve.Result) {
	r.Problems++
	gap := s.Certificate.Gap
	r.WorstGap = max(r.WorstGap, gap)
	if gap > 1e-7 {
		r.Beyond++
	}
	if !(gap <= solve.Enough) {
		r.bad = append(r.bad, fmt.Sprintf("gap %.2g of problem %d", gap, seed))
	}
	load := make([]float64, len(p.Engines))
	for c := range p.Demand {
		d := &p.Demand[c]
		for _, w := range s.Plan.Row(c) {
			load[w.Engine] += d.Rate * w.Weight * p.Classes[d.Class].Work
		}
	}
	for j := range load {
		over := load[j]/p.Engines[j].Capacity - 1
		r.WorstOver = max(r.WorstOver, over)
		if over > 1e-9 {
			r.Violated++
			r.bad = append(r.bad, fmt.Sprintf("engine %d of problem %d is %.2g above its capacity", j, seed, over))
		}
	}
}

// randomProblem draws one; from underloaded to twice what there is.
func randomProblem(seed uint64) *problem.Problem {
	dice := rand.New(rand.NewPCG(seed, 0xa1))
	places := 1 + dice.IntN(6)
	p := &problem.Problem{Name: fmt.Sprint("a1-", seed), ShedPrice: [problem.Priorities]float64{3e7, 3e6, 3e5}, ShedCurvature: 0.5}
	for i := range 1 + dice.IntN(6) {
		p.Sources = append(p.Sources, fmt.Sprint("s", i))
		row := make([]float64, places)
		for k := range row {
			row[k] = 1 + 200*dice.Float64()
		}
		p.RTT = append(p.RTT, row)
	}
	total := 0.0
	for j := range 1 + dice.IntN(40) {
		base, slope, limit := 200*dice.Float64(), 20+3000*dice.Float64(), math.Exp(4*dice.Float64())
		e := problem.Engine{Name: fmt.Sprint("e", j), Place: dice.IntN(places), Capacity: limit * (0.6 + 0.35*dice.Float64()),
			Latency: problem.Latency{Base: base, Slope: slope, Limit: limit}}
		total += e.Capacity
		p.Engines = append(p.Engines, e)
	}
	for k := range 1 + dice.IntN(3) {
		p.Classes = append(p.Classes, problem.Class{Name: fmt.Sprint("c", k), Priority: problem.Priority(dice.IntN(problem.Priorities)),
			DistanceWeight: 1 + float64(dice.IntN(2)), Work: 0.25 + 2*dice.Float64(), All: true})
	}
	want := total * (0.2 + 1.8*dice.Float64())
	sum := 0.0
	for i := range p.Sources {
		for k := range p.Classes {
			rate := dice.Float64()
			sum += rate * p.Classes[k].Work
			p.Demand = append(p.Demand, problem.Demand{Source: i, Class: k, Rate: rate})
		}
	}
	for c := range p.Demand {
		p.Demand[c].Rate *= want / sum
	}
	return p
}

func (r *a1Result) missed() []string { return r.bad }

func (r *a1Result) print(w io.Writer) {
	fmt.Fprintf(w, "%d problems: worst gap %.2g (%d above 1e-7), %d capacities violated, the fullest engine %.2g from its capacity\n",
		r.Problems, r.WorstGap, r.Beyond, r.Violated, r.WorstOver)
}
