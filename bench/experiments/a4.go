package experiments

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"penstock/balancer"
	"penstock/route"
)

// A4: what becomes of weights in a closed loop. Engines fill and empty as a
// fluid; a control cycle a second sees their signals only after a delay. The
// optimal policy weighs by demand and curves alone; the feedback policy by the
// signals, at three gains. Once the demand stays, once it rises by half, once a
// fifth of the capacity is lost. Demand is known to the cycle as it is, or as
// each source's gateway counts it when requests come by chance.

const (
	a4Steps  = 10  // of the fluid, a second
	a4Settle = 300 // s, not measured
	a4Window = 600 // s, measured while nothing changes
	a4After  = 300 // s, after a change

	a4Stays = "none"
	a4Rises = "demand +50 %"
	a4Lost  = "capacity -20 %"
)

// a4Policy makes a plan a cycle.
type a4Policy struct {
	name string
	new  func() func(*balancer.Situation) *route.Plan
}

var a4Policies = []a4Policy{
	{"optimal", func() func(*balancer.Situation) *route.Plan { return balancer.PlanOptimal }},
	{"feedback 0.2", feedbackAt(0.2)},
	{"feedback 0.1", feedbackAt(0.1)},
	{"feedback 0.05", feedbackAt(0.05)},
}

func feedbackAt(gain float64) func() func(*balancer.Situation) *route.Plan {
	return func() func(*balancer.Situation) *route.Plan {
		var st *balancer.FeedbackState
		return func(s *balancer.Situation) *route.Plan {
			var p *route.Plan
			p, st = balancer.Controller{Gain: gain}.Plan(s, st)
			return p
		}
	}
}

// a4Case is one run of all policies.
type a4Case struct {
	event   string
	counted bool
	a4Shape
	utilisation float64 // of the effective capacity, at the end
	delay       int     // s
}

// a4Shape is sources with a cluster each, and engines of a cluster.
type a4Shape struct{ sources, each int }

func a4Cases(short bool) (cases []a4Case) {
	utilisations, delays, shapes := []float64{0.6, 0.8, 0.9, 0.95}, []int{10, 30}, []a4Shape{{1, 3}, {3, 4}}
	if short {
		utilisations, delays, shapes = []float64{0.8, 0.95}, delays[:1], shapes[1:]
	}
	add := func(event string, counted bool, shape a4Shape, u float64, delay int) {
		cases = append(cases, a4Case{event: event, counted: counted, a4Shape: shape, utilisation: u, delay: delay})
	}
	for _, counted := range []bool{false, true} {
		for _, shape := range shapes {
			for _, delay := range delays {
				for _, u := range utilisations {
					add(a4Stays, counted, shape, u, delay)
				}
			}
		}
		for _, event := range []string{a4Rises, a4Lost} {
			for _, delay := range delays {
				add(event, counted, a4Shape{1, 5}, 0.9, delay)
				add(event, counted, a4Shape{5, 1}, 0.9, delay)
			}
		}
	}
	return cases
}

// a4Row is what one policy did in one case: the worst over the seeds, and the
// mean for Latency.
type a4Row struct {
	Event       string  `json:"event"`
	Counted     bool    `json:"counted"` // demand as gateways count it, not as it is
	Engines     int     `json:"engines"`
	Sources     int     `json:"sources"`
	Utilisation float64 `json:"utilisation"`
	DelayS      int     `json:"delay_s"`
	Policy      string  `json:"policy"`
	EngineCV    float64 `json:"engine_cv"`       // of any engine's share of all requests
	WeightCV    float64 `json:"weight_cv"`       // of any source's weight of 5 % or more
	Moved       float64 `json:"moved_a_minute"`  // part of all conversations
	Latency     float64 `json:"latency"`         // mean over the optimum
	P99         float64 `json:"p99"`             // of the seconds' mean latency, over the optimum
	Overload    float64 `json:"overload_s"`      // seconds in which an engine was offered more than it carries
	Feasible    int     `json:"feasible_cycles"` // after the event; -1 = never
	Overshoot   float64 `json:"overshoot"`       // of an engine's share beyond where it settled, relative
	Shed        float64 `json:"shed"`            // part of the demand refused
}

type a4Result struct {
	Rows []a4Row `json:"rows"`
}

func runA4(o Options) (result, error) {
	seeds := min(o.Seeds, 3)
	if o.Short {
		seeds = 1
	}
	r := &a4Result{}
	for _, c := range a4Cases(o.Short) {
		for _, policy := range a4Policies {
			row := a4Row{Event: c.event, Engines: c.sources * c.each, Sources: c.sources, Counted: c.counted, Utilisation: c.utilisation, DelayS: c.delay, Policy: policy.name}
			for seed := range seeds {
				row.add(runLoop(c, policy.new(), uint64(seed)+1), seeds)
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r, nil
}

func (r *a4Row) add(one a4Row, of int) {
	r.EngineCV, r.WeightCV, r.P99, r.Moved = max(r.EngineCV, one.EngineCV), max(r.WeightCV, one.WeightCV), max(r.P99, one.P99), max(r.Moved, one.Moved)
	r.Overload, r.Overshoot, r.Shed = max(r.Overload, one.Overload), max(r.Overshoot, one.Overshoot), max(r.Shed, one.Shed)
	r.Latency += one.Latency / float64(of)
	if r.Feasible >= 0 && (one.Feasible > r.Feasible || one.Feasible < 0) {
		r.Feasible = one.Feasible
	}
}

func (r *a4Result) print(w io.Writer) {
	fmt.Fprintln(w, "Utilisation of what the engines carry, after the event. Latency over that of the best constant weights; the worst of the seeds, for latency the mean.")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "event\tdemand\tsources x engines\tutilisation\tdelay\tpolicy\tengine CV\tweight CV\tmoved/min\tlatency\tp99\toverload\tfeasible after\tovershoot\tshed\t")
	for _, row := range r.Rows {
		all, one, feasible, overshoot := fmt.Sprintf("%.1f %%", 100*row.EngineCV), fmt.Sprintf("%.1f %%", 100*row.WeightCV), "-", "-"
		if row.Event != a4Stays {
			all, one, overshoot = "-", "-", fmt.Sprintf("%.1f %%", 100*row.Overshoot)
			if feasible = "never"; row.Feasible >= 0 {
				feasible = fmt.Sprintf("%d cycles", row.Feasible)
			}
		}
		known := "known"
		if row.Counted {
			known = "counted"
		}
		fmt.Fprintf(t, "%s\t%s\t%d x %d\t%.2f\t%d s\t%s\t%s\t%s\t%.1f %%\t%.3f\t%.2f\t%.0f s\t%s\t%s\t%.2f %%\t\n", row.Event, known, row.Sources, row.Engines, row.Utilisation, row.DelayS, row.Policy,
			all, one, 100*row.Moved, row.Latency, row.P99, row.Overload, feasible, overshoot, 100*row.Shed)
	}
	t.Flush()
}

// What the optimal policy is to keep.
const (
	a4CV, a4P99, a4Cycles, a4Overshoot = 0.01, 1.1, 2, 0.05
	a4Counted                          = 3 // cycles, where demand is counted
)

func (r *a4Result) missed() (list []string) {
	for _, row := range r.Rows {
		if row.Policy != "optimal" {
			continue
		}
		cycles, overshoot := a4Cycles, a4Overshoot
		if row.Counted { // each source knows the new demand when it has seen it, and by as much as chance has it
			cycles, overshoot = a4Counted, math.Inf(1)
		}
		at := fmt.Sprintf("%s, %d x %d, utilisation %g, delay %d s", row.Event, row.Sources, row.Engines, row.Utilisation, row.DelayS)
		if row.Event == a4Stays {
			if row.EngineCV > a4CV {
				list = append(list, fmt.Sprintf("%s: weight CV %.2g", at, row.EngineCV))
			}
			if row.P99 > a4P99 {
				list = append(list, fmt.Sprintf("%s: p99 %.3g of the optimum", at, row.P99))
			}
			if row.Overload > 0 {
				list = append(list, fmt.Sprintf("%s: %g s of overload", at, row.Overload))
			}
			continue
		}
		if row.Feasible < 0 || row.Feasible > cycles {
			list = append(list, fmt.Sprintf("%s: feasible after %d cycles", at, row.Feasible))
		}
		if row.Overshoot > overshoot {
			list = append(list, fmt.Sprintf("%s: overshoot %.2g", at, row.Overshoot))
		}
	}
	return list
}
