package main

import (
	"time"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

// solveReport is the document of `penstock solve --json`. Its numbers suffice,
// with the problem file, to recompute objective and bound.
type solveReport struct {
	Status      string        `json:"status"`
	Objective   float64       `json:"objective"` // ms per second
	Bound       float64       `json:"bound"`
	Gap         float64       `json:"gap"`
	MeanLatency float64       `json:"mean_latency_ms"`
	Weights     []solvedShare `json:"weights"`
	Shed        []solvedShed  `json:"shed"`
	Loads       []solvedLoad  `json:"loads"`
	Marginal    []solvedRow   `json:"marginal_ms"`
	Method      string        `json:"method"`
	Iterations  int           `json:"iterations"`
	Seconds     float64       `json:"seconds"`

	served float64 // requests/s
}

type solvedShare struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Engine string  `json:"engine"`
	Weight float64 `json:"weight"`
	Flow   float64 `json:"flow"`
}

type solvedShed struct {
	Source   string  `json:"source"`
	Class    string  `json:"class"`
	Fraction float64 `json:"fraction"`
}

type solvedLoad struct {
	Engine        string  `json:"engine"`
	Load          float64 `json:"load"`
	Utilisation   float64 `json:"utilisation"`
	Price         float64 `json:"price_ms"`
	CapacityPrice float64 `json:"capacity_price_ms"`
}

type solvedRow struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Value  float64 `json:"value"`
}

func newSolveReport(p *problem.Problem, result *solve.Result, took time.Duration) solveReport {
	c, plan := result.Certificate, result.Plan
	r := solveReport{
		Status: "feasible", Objective: c.Objective, Bound: c.Bound, Gap: c.Gap, MeanLatency: c.MeanLatency,
		Weights: []solvedShare{}, Shed: []solvedShed{}, Loads: []solvedLoad{}, Marginal: []solvedRow{},
		Method: result.Method.String(), Iterations: result.Iterations, Seconds: took.Seconds(), served: c.Served,
	}
	if c.Gap <= solve.Enough {
		r.Status = "optimal"
	}
	for i, d := range p.Demand {
		source, class := p.Sources[d.Source], p.Classes[d.Class].Name
		for _, w := range plan.Row(i) {
			if w.Weight > 0 {
				r.Weights = append(r.Weights, solvedShare{source, class, p.Engines[w.Engine].Name, w.Weight, w.Weight * d.Rate})
			}
		}
		if plan.Shed[i] > 0 {
			r.Shed = append(r.Shed, solvedShed{source, class, plan.Shed[i]})
		}
		r.Marginal = append(r.Marginal, solvedRow{source, class, c.Marginal[i]})
	}
	for j, e := range p.Engines {
		l := solvedLoad{Engine: e.Name, Load: c.Load[j], Price: plan.Price[j], CapacityPrice: c.CapacityPrice[j]}
		if e.Capacity > 0 {
			l.Utilisation = l.Load / e.Capacity
		}
		r.Loads = append(r.Loads, l)
	}
	return r
}
