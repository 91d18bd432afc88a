package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"penstock/balancer/problem"
	"penstock/route"
)

// Why says why a row of a plan has its weights.
type Why struct {
	Marginal float64  `json:"marginal_ms"` // what one more request would cost all
	Options  []Option `json:"options"`     // those with weight, the largest first, then the nearest to getting some
	RunnerUp string   `json:"runner_up,omitempty"`
	Dearer   float64  `json:"runner_up_ms"` // what a request would cost more there
	Text     []string `json:"text"`         // the same in sentences
}

// Option is what one more request of the row would cost on an engine: its way,
// its time there at the planned load, and what it makes others wait, or takes
// from them where the engine is full.
type Option struct {
	Engine   string  `json:"engine"`
	Weight   float64 `json:"weight"`
	Network  float64 `json:"network_ms"`
	Latency  float64 `json:"latency_ms"`
	Price    float64 `json:"price_ms"`
	Marginal float64 `json:"marginal_ms"`

	load, capacity float64
	full           bool
}

// Certificate is that of the decision's solution; nil where nothing was solved.
func (d *Decision) Certificate() *route.Certificate { return certificateOf(d.Proofs) }

// solvedPart is a component with its proof.
type solvedPart struct {
	r     *routing
	proof *Proof
}

const (
	mostOptions = 32
	mostSpare   = 3 // options without weight
)

// Explain says for each row of the plan why it has its weights.
func (d *Decision) Explain() []*Why {
	all := make([]*Why, len(d.Plan.Rows))
	engines := make(map[string]*route.PlanEngine, len(d.Plan.Engines))
	for i := range d.Plan.Engines {
		engines[d.Plan.Engines[i].Name] = &d.Plan.Engines[i]
	}
	for _, part := range d.parts {
		for i := range part.r.streams {
			for _, c := range part.r.streams[i].rows {
				if c < len(all) {
					all[c] = d.why(part, i, &d.Plan.Rows[c], engines)
				}
			}
		}
	}
	for c := range all {
		if all[c] == nil {
			all[c] = &Why{Options: []Option{}, Text: d.unsolved(c)}
		}
	}
	return all
}

// unsolved is why a row that nobody solved has its weights.
func (d *Decision) unsolved(c int) []string {
	row := &d.Plan.Rows[c]
	switch {
	case d.Plan.Policy != Optimal.String():
		return d.byPolicy(c)
	case len(row.Weights) == 0:
		return []string{"No engine that may serve it takes traffic."}
	case row.Guessed && len(d.Plan.Uncalibrated) > 0:
		return []string{"By slots: too little is known of the engines' speed yet."}
	case row.Guessed:
		return []string{"By capacity: nothing is asked for yet."}
	}
	return []string{"As in the table before: nothing is asked for, too little is known, or the solver has failed."}
}

func (d *Decision) why(part solvedPart, stream int, row *route.PlanRow, engines map[string]*route.PlanEngine) *Why {
	p, f := &part.r.problem, &part.r.streams[stream]
	given := make(map[string]float64, len(row.Weights))
	for _, w := range row.Weights {
		given[w.Engine] = w.Weight
	}
	w := &Why{Options: []Option{}}
	for c, of := range part.r.demand {
		if of.stream == stream && part.proof.Marginal[c] > w.Marginal {
			w.Marginal = part.proof.Marginal[c]
		}
	}
	var used, spare []Option
	for _, j := range f.candidates {
		o := part.option(f, part.r.at[j], given, engines)
		switch {
		case o.Weight > 0:
			used = append(used, o)
		case o.capacity > 0:
			spare = append(spare, o)
		}
	}
	slices.SortStableFunc(used, func(a, b Option) int { return cmp.Compare(b.Weight, a.Weight) })
	slices.SortStableFunc(spare, func(a, b Option) int { return cmp.Compare(a.Marginal, b.Marginal) })
	w.Options = append(w.Options, used[:min(len(used), mostOptions)]...)
	w.Options = append(w.Options, spare[:min(len(spare), mostSpare)]...)
	if len(spare) > 0 {
		w.RunnerUp, w.Dearer = spare[0].Engine, max(0, spare[0].Marginal-w.Marginal)
	}
	w.say(used, spare, row, p)
	w.sayRoom(d, part, stream, row)
	return w
}

func (part solvedPart) option(f *stream, at int, given map[string]float64, engines map[string]*route.PlanEngine) Option {
	e := &part.r.problem.Engines[at]
	o := Option{Engine: e.Name, Weight: given[e.Name], capacity: e.Capacity,
		Network: f.distance * part.r.problem.RTT[f.source][e.Place]}
	if planned := engines[e.Name]; planned != nil {
		o.load = planned.Load
		o.Latency = planned.Latency * f.work
	}
	o.Marginal = o.Network + f.work*(e.Latency.Zero()+part.proof.Plan.Price[at])
	if o.Latency == 0 {
		o.Latency = f.work * e.Latency.Zero()
	}
	o.Price = max(0, o.Marginal-o.Network-o.Latency)
	o.full = e.Capacity > 0 && o.load >= e.Capacity*(1-1e-6)
	return o
}

const mostSaid = 6 // engines

// say puts the options in words.
func (w *Why) say(used, spare []Option, row *route.PlanRow, p *problem.Problem) {
	for i, o := range used {
		if i == mostSaid {
			w.Text = append(w.Text, fmt.Sprintf("%d more engines have the rest.", len(used)-mostSaid))
			break
		}
		text := fmt.Sprintf("%s to %s: %s away, %s there at %s of the %s requests/s that it may be given", percent(o.Weight), o.Engine,
			millis(o.Network), millis(o.Latency), figure(o.load), figure(o.capacity))
		if o.full {
			text += "; it is full"
		}
		w.Text = append(w.Text, text+".")
	}
	if w.RunnerUp != "" {
		s := spare[0]
		w.Text = append(w.Text, fmt.Sprintf("Next would be %s, for %s more a request: %s away, %s there.", s.Engine, millis(w.Dearer), millis(s.Network), millis(s.Latency)))
	} else if len(used) > 1 {
		w.Text = append(w.Text, "All engines that may serve it are in use; a request more costs the same on each, but for what moving it is worth.")
	}
	for k, z := range row.Shed {
		if z > 0 {
			w.Text = append(w.Text, fmt.Sprintf("%s of its %s requests are refused here: all that may serve them is full, and one more would cost %s.",
				percent(z), problem.Priority(k), millis(p.ShedPrice[k])))
		}
	}
}

// sayRoom tells where this row gives way: engines near to it that rows with
// fewer choices need, so that it goes further.
func (w *Why) sayRoom(d *Decision, part solvedPart, stream int, row *route.PlanRow) {
	p, f := &part.r.problem, &part.r.streams[stream]
	given := make(map[string]float64, len(row.Weights))
	far := 0.0 // the way, with the engine unloaded, of the furthest it takes
	for _, weight := range row.Weights {
		given[weight.Engine] = weight.Weight
	}
	idle := func(at int) float64 {
		return f.distance*p.RTT[f.source][p.Engines[at].Place] + f.work*p.Engines[at].Latency.Zero()
	}
	mine := make(map[int]bool, len(f.candidates))
	for _, j := range f.candidates {
		mine[j] = true
		if given[p.Engines[part.r.at[j]].Name] > 0.001 {
			far = max(far, idle(part.r.at[j]))
		}
	}
	for i := range part.r.streams {
		other := &part.r.streams[i]
		if i == stream || len(other.candidates) >= len(f.candidates) || slices.ContainsFunc(other.candidates, func(j int) bool { return !mine[j] }) {
			continue
		}
		other.sayWay(d, part, w, far, idle)
	}
}

// sayWay names the engines of a bound stream that a free one would take if it
// were alone.
func (f *stream) sayWay(d *Decision, part solvedPart, w *Why, far float64, idle func(at int) float64) {
	p := &part.r.problem
	bound := make(map[string]float64)
	row := &d.Plan.Rows[f.rows[0]]
	rate := f.total() * f.work
	for _, weight := range row.Weights {
		bound[weight.Engine] = rate * weight.Weight
	}
	var names []string
	taken, most := 0.0, 0.0
	for _, j := range f.candidates {
		at := part.r.at[j]
		e := &p.Engines[at]
		if price := part.proof.Plan.Price[at]; bound[e.Name] > 0.01*e.Capacity && idle(at) < far && price > 0 {
			names = append(names, e.Name)
			taken += bound[e.Name]
			most += e.Capacity
		}
	}
	if len(names) == 0 {
		return
	}
	w.Text = append(w.Text, fmt.Sprintf("It makes room on %s: %s from %s may go nowhere else and takes %s of the %s requests/s there.",
		list(names), row.Class, row.Source, figure(taken), figure(most)))
}

func list(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:4], ", ") + fmt.Sprintf(" and %d more", len(names)-4)
	}
	return strings.Join(names, ", ")
}

func percent(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }

func millis(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.1f ms", v)
	case v < 10_000:
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.1f s", v/1000)
}
