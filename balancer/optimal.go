package balancer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
	"penstock/route"
)

// MostGap is the largest gap with which a plan is published. The goal is
// solve.Enough.
const MostGap = 1e-4

// Proof is what a component's certificate is recomputed from: the problem, a
// price for each of its engines, and the flows of its optimum.
type Proof struct {
	Problem     *problem.Problem
	Plan        *problem.Plan
	Certificate route.Certificate
	Marginal    []float64 // ms per request, by demand row
}

// solveFunc solves a problem; the plan is the caller's to keep.
type solveFunc func(*problem.Problem) (*Proof, error)

// Result says how a component's part of a plan came about.
type Result uint8

const (
	Solved       Result = iota // certified, gap at most solve.Enough
	Loose                      // certified, gap at most MostGap
	Kept                       // the solver failed or could not prove enough: the last weights, less engines that are gone
	Idle                       // nothing is asked for: the last weights, or by capacity
	Uncalibrated               // nothing is known of the engines: by slots
	results
)

func (r Result) String() string {
	return [results]string{"solved", "loose", "kept", "idle", "uncalibrated"}[r]
}

// Decision is a plan with what it rests on.
type Decision struct {
	Plan    *route.Plan
	Proofs  []*Proof // of the components that were solved
	Results [results]int
	Errors  []error // why components were kept

	Situation *Situation
	Feedback  *FeedbackState // under the feedback policy: why each engine has its weight
	parts     []solvedPart
}

// PlanOptimal minimises the mean latency of all requests.
func PlanOptimal(s *Situation) *route.Plan { return decideOptimal(s, solveOnce).Plan }

// decideOptimal plans component by component. One that cannot be solved keeps
// its last weights and does not keep the others from theirs.
func decideOptimal(s *Situation, by solveFunc) *Decision {
	d := &Decision{Plan: &route.Plan{Policy: Optimal.String(), Rows: make([]route.PlanRow, len(s.Rows)), Engines: make([]route.PlanEngine, len(s.Engines))}}
	for c := range s.Rows {
		d.Plan.Rows[c] = route.PlanRow{Source: s.Sources[s.Rows[c].Source], Class: s.Rows[c].Class, Guessed: true}
	}
	for j := range s.Engines {
		d.Plan.Engines[j] = s.planned(j, 0)
		if e := &s.Engines[j]; e.Ready && !e.Calibrated {
			d.Plan.Uncalibrated = append(d.Plan.Uncalibrated, e.Name)
		}
	}
	for _, r := range routingsOf(s) {
		d.Results[d.decide(s, r, by)]++
	}
	d.Plan.Certificate = certificateOf(d.Proofs)
	return d
}

func (d *Decision) decide(s *Situation, r *routing, by solveFunc) Result {
	switch {
	case !r.knows(s):
		d.guess(s, r)
		return Uncalibrated
	case !(r.asked() > 0):
		d.hold(s, r)
		return Idle
	}
	r.build(s)
	proof, err := r.solve(by)
	if err == nil && !(proof.Certificate.Gap <= MostGap) {
		err = fmt.Errorf("gap %.2g", proof.Certificate.Gap)
	}
	if err != nil {
		d.Errors = append(d.Errors, err)
		d.hold(s, r)
		return Kept
	}
	target, shed := r.merged(proof)
	d.take(s, r, proof, target, shed)
	if proof.Certificate.Gap > solve.Enough {
		return Loose
	}
	return Solved
}

// solve solves the component's problem so that all priorities of a stream share
// its weights.
func (r *routing) solve(by solveFunc) (*Proof, error) {
	proof, err := by(&r.problem)
	if err != nil {
		return nil, err
	}
	weights, shed := r.merged(proof)
	proof.certify(r, weights, shed)
	if proof.Certificate.Gap <= solve.Enough || len(r.problem.Previous) == 0 {
		return proof, nil
	}
	// Priorities that lose more or less than before keep other shares of the
	// weights in use. What is moved is counted of what is served now.
	r.problem.Previous = nil
	r.addPrevious(shed)
	second, err := by(&r.problem)
	if err != nil {
		return nil, err
	}
	weights, shed = r.merged(second)
	second.certify(r, weights, shed)
	return second, nil
}

// knows reports whether a component can be solved: some engine that takes
// traffic is calibrated, and all have a curve.
func (r *routing) knows(s *Situation) bool {
	known := false
	for _, j := range r.engines {
		if e := &s.Engines[j]; s.capacity(j) > 0 {
			if !(e.Curve.Zero() > 0) {
				return false
			}
			known = known || e.Calibrated
		}
	}
	return known
}

// solveOnce solves with a solver of its own.
func solveOnce(p *problem.Problem) (*Proof, error) { return prove(new(solve.Solver), p) }

// prove solves a problem. What a fault of the solver does is an error.
func prove(solver *solve.Solver, p *problem.Problem) (proof *Proof, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("solver: %v", fault)
		}
	}()
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	begun := time.Now()
	r := solver.Solve(p, solve.Auto)
	took := time.Since(begun)
	c := r.Certificate
	if math.IsNaN(c.Gap) || math.IsInf(c.Objective, 0) || math.IsInf(c.Bound, 0) {
		return nil, errors.New("numbers too large to compute with")
	}
	plan := &problem.Plan{Start: clone(r.Plan.Start), Weights: clone(r.Plan.Weights), Shed: clone(r.Plan.Shed), Price: clone(r.Plan.Price)}
	return &Proof{Problem: p, Plan: plan, Marginal: clone(c.Marginal), Certificate: route.Certificate{Objective: c.Objective, Bound: c.Bound, Gap: c.Gap,
		Method: r.Method.String(), Iterations: r.Iterations, Took: took}}, nil
}

func clone[T any](v []T) []T { return append([]T(nil), v...) }

// certificateOf adds up those of components: each bounds its own part.
func certificateOf(proofs []*Proof) *route.Certificate {
	if len(proofs) == 0 {
		return nil
	}
	var c route.Certificate
	damped := 0.0
	for _, p := range proofs {
		c.Objective += p.Certificate.Objective
		c.Bound += p.Certificate.Bound
		damped += p.Certificate.Damping * p.Certificate.Objective
		c.Iterations += p.Certificate.Iterations
		c.Took += p.Certificate.Took
		c.Method = max(c.Method, p.Certificate.Method)
	}
	c.Gap = (c.Objective - c.Bound) / max(c.Objective, leastObjective)
	c.Damping = damped / max(c.Objective, leastObjective)
	return &c
}

// leastObjective keeps a gap finite where nothing costs anything.
const leastObjective = 1e-9
