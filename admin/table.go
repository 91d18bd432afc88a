package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"penstock/balancer"
	"penstock/balancer/problem"
	"penstock/route"
)

// table is GET /table.
type table struct {
	Version     uint64       `json:"version"`
	Built       string       `json:"built"`
	Reason      string       `json:"reason"`
	Policy      string       `json:"policy"`
	Rule        string       `json:"rule"`
	Certificate *certificate `json:"certificate,omitempty"`
	Weights     []weight     `json:"weights"`
	Shed        []shed       `json:"shed"`

	Plan    *plan    `json:"plan,omitempty"`   // what the weights follow; absent where capacity alone decides
	Proofs  []proof  `json:"proofs,omitempty"` // of this cycle's solution, one for each connected set of engines and classes
	Changes []change `json:"changes"`          // of the last tables, the newest first

	Feedback *balancer.FeedbackReport `json:"feedback,omitempty"` // under that policy
}

type certificate struct {
	Objective  float64 `json:"objective"` // ms per second
	Bound      float64 `json:"bound"`
	Gap        float64 `json:"gap"`
	Damping    float64 `json:"damping"` // what the weights in use cost on top, as a share of the objective
	Method     string  `json:"method"`
	Iterations int     `json:"iterations"`
	TookMS     float64 `json:"took_ms"`
}

type weight struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Engine string  `json:"engine"`
	Weight float64 `json:"weight"`
	Slots  int     `json:"slots"`
	Of     int     `json:"of_slots"`
}

type shed struct {
	Source   string  `json:"source"`
	Class    string  `json:"class"`
	Priority string  `json:"priority"`
	Fraction float64 `json:"fraction"`
}

// plan is for all sources.
type plan struct {
	Epoch        uint64       `json:"epoch"`
	Version      uint64       `json:"version"`
	Leads        bool         `json:"leads"` // this gateway made it
	Uncalibrated []string     `json:"uncalibrated"`
	Engines      []planEngine `json:"engines"`
	Rows         []planRow    `json:"rows"`
}

type planEngine struct {
	Engine        string  `json:"engine"`
	Load          float64 `json:"load"` // requests/s of the mean request
	Capacity      float64 `json:"capacity"`
	Latency       float64 `json:"latency_ms"` // at that load; 0 = not known
	InFlight      float64 `json:"in_flight"`
	Price         float64 `json:"price_ms"`
	CapacityPrice float64 `json:"capacity_price_ms"`
}

type planRow struct {
	Source  string             `json:"source"`
	Class   string             `json:"class"`
	Guessed bool               `json:"guessed"` // for want of demand, or of knowledge of engines
	Weights map[string]float64 `json:"weights"`
	Shed    map[string]float64 `json:"shed,omitempty"`
	Why     *balancer.Why      `json:"why,omitempty"`
}

// proof is all that it takes to compute a certificate again: the bound from
// problem and prices, the objective from problem and solution.
type proof struct {
	Problem     *problem.Problem   `json:"problem"` // as penstock solve reads it
	Prices      map[string]float64 `json:"prices_ms"`
	Solution    []solved           `json:"solution"`
	Certificate certificate        `json:"certificate"`
}

type solved struct {
	Source  string             `json:"source"`
	Class   string             `json:"class"` // of the problem
	Weights map[string]float64 `json:"weights"`
	Shed    float64            `json:"shed"`
}

type change struct {
	Version     uint64       `json:"version"`
	At          string       `json:"at"`
	Reason      string       `json:"reason"`
	Policy      string       `json:"policy"`
	Certificate *certificate `json:"certificate,omitempty"`
	Causes      []string     `json:"causes"`
	Moves       []move       `json:"moves"`
}

type move struct {
	Class   string  `json:"class"`
	Share   float64 `json:"share"`
	Slots   float64 `json:"slots"`
	Engines []shift `json:"engines"`
}

type shift struct {
	Engine string  `json:"engine"`
	From   float64 `json:"from"`
	To     float64 `json:"to"`
}

func tablePage(t *route.Table, d *balancer.Decision, changes []balancer.Change) table {
	page := table{Version: t.Version, Built: t.Built.UTC().Format(time.RFC3339Nano), Reason: t.Reason.String(), Policy: t.Policy, Rule: t.Rule.String(),
		Weights: []weight{}, Shed: []shed{}, Changes: []change{}}
	for key, p := range t.Classes {
		counts := p.SlotCounts()
		for i := range p.Candidates {
			page.Weights = append(page.Weights, weight{Source: t.Source, Class: key.String(), Engine: p.Candidates[i].Engine.Name,
				Weight: p.Candidates[i].Weight, Slots: counts[i], Of: p.Slots()})
		}
		for k, fraction := range p.Shed {
			if fraction > 0 {
				page.Shed = append(page.Shed, shed{t.Source, key.String(), problem.Priority(k).String(), fraction})
			}
		}
	}
	slices.SortFunc(page.Weights, func(a, b weight) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Engine, b.Engine))
	})
	slices.SortFunc(page.Shed, func(a, b shed) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Priority, b.Priority))
	})
	if t.Plan != nil {
		page.Certificate = certificateOf(t.Plan.Certificate)
		page.Plan = planOf(t.Plan)
		if d != nil && d.Plan == t.Plan {
			page.Plan.Leads = true
			for i, why := range d.Explain() {
				page.Plan.Rows[i].Why = why
			}
			if newest := d.Certificate(); newest != nil {
				page.Certificate = certificateOf(newest)
			}
			page.Feedback = d.Feedback.Report()
			for _, p := range d.Proofs {
				page.Proofs = append(page.Proofs, proofOf(p))
			}
		}
	}
	for _, c := range changes {
		page.Changes = append(page.Changes, changeOf(c))
	}
	return page
}

func certificateOf(c *route.Certificate) *certificate {
	if c == nil {
		return nil
	}
	return &certificate{c.Objective, c.Bound, c.Gap, c.Damping, c.Method, c.Iterations, ms(c.Took)}
}

func planOf(p *route.Plan) *plan {
	page := &plan{Epoch: p.Epoch, Version: p.Version, Uncalibrated: append([]string{}, p.Uncalibrated...), Engines: []planEngine{}, Rows: []planRow{}}
	for _, e := range p.Engines {
		page.Engines = append(page.Engines, planEngine{e.Name, e.Load, e.Capacity, e.Latency, e.InFlight, e.Price, e.CapacityPrice})
	}
	for _, r := range p.Rows {
		row := planRow{Source: r.Source, Class: r.Class.String(), Guessed: r.Guessed, Weights: make(map[string]float64, len(r.Weights))}
		for _, w := range r.Weights {
			row.Weights[w.Engine] = w.Weight
		}
		for k, fraction := range r.Shed {
			if fraction > 0 {
				if row.Shed == nil {
					row.Shed = make(map[string]float64)
				}
				row.Shed[problem.Priority(k).String()] = fraction
			}
		}
		page.Rows = append(page.Rows, row)
	}
	return page
}

func proofOf(p *balancer.Proof) proof {
	page := proof{Problem: p.Problem, Prices: make(map[string]float64, len(p.Problem.Engines)), Solution: []solved{}, Certificate: *certificateOf(&p.Certificate)}
	for j := range p.Problem.Engines {
		page.Prices[p.Problem.Engines[j].Name] = p.Plan.Price[j]
	}
	for c, d := range p.Problem.Demand {
		row := solved{Source: p.Problem.Sources[d.Source], Class: p.Problem.Classes[d.Class].Name, Weights: make(map[string]float64), Shed: p.Plan.Shed[c]}
		for _, w := range p.Plan.Row(c) {
			row.Weights[p.Problem.Engines[w.Engine].Name] = w.Weight
		}
		page.Solution = append(page.Solution, row)
	}
	return page
}

func changeOf(c balancer.Change) change {
	page := change{Version: c.Version, At: c.At.UTC().Format(time.RFC3339Nano), Reason: c.Reason.String(), Policy: c.Policy,
		Certificate: certificateOf(c.Certificate), Causes: append([]string{}, c.Causes...), Moves: []move{}}
	for _, m := range c.Moves {
		of := move{Class: m.Class, Share: m.Share, Slots: m.Slots, Engines: []shift{}}
		for _, s := range m.Engines {
			of.Engines = append(of.Engines, shift(s))
		}
		page.Moves = append(page.Moves, of)
	}
	return page
}
