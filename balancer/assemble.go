package balancer

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"penstock/balancer/profile"
	"penstock/route"
)

// Inputs are what a Situation is made of.
type Inputs struct {
	At      time.Time
	Source  string                  // of this gateway: what is wanted here has a row, asked for or not
	Engines []EngineView            // in any order
	Models  map[string]*route.Model // who serves what
	Demands []*route.Demand         // of every gateway
	Wanted  []route.ClassKey
	// Network is the configured round trip from a source to an engine; ok is
	// false where the configuration says nothing.
	Network func(source string, e *EngineView) (ms float64, ok bool)
	Last    *route.Plan
}

// demandLife is how long the demand of a gateway counts that tells no more.
const demandLife = 30 * time.Second

// Assemble joins what gateways tell with what is known of engines. Pure.
func Assemble(in *Inputs) *Situation {
	s := &Situation{At: in.At, Engines: slices.Clone(in.Engines), Last: in.Last}
	slices.SortFunc(s.Engines, func(a, b EngineView) int { return strings.Compare(a.Name, b.Name) })
	demands := slices.DeleteFunc(slices.Clone(in.Demands), func(d *route.Demand) bool { return in.At.Sub(d.At) > demandLife })
	s.Sources = sourcesOf(in.Source, demands)
	index := make(map[string]int, len(s.Engines))
	for j := range s.Engines {
		index[s.Engines[j].Name] = j
	}
	rows, means, lately := rowsOf(in, s, demands, index)
	s.Rows = rows
	surge(s, lately)
	calibrate(s, means, demands, index)
	s.RTT, s.Guessed = tripsOf(in, s, demands, index)
	return s
}

func sourcesOf(own string, demands []*route.Demand) []string {
	names := []string{own}
	for _, d := range demands {
		names = append(names, d.Source)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rowsOf adds up the demand of gateways by source and class, with the mean
// request of each row; zero where nobody knows it. A class that is wanted here
// and not asked for has a row of rate 0.
func rowsOf(in *Inputs, s *Situation, demands []*route.Demand, index map[string]int) ([]Row, []profile.Request, [][route.LatelyWindows]route.Lately) {
	type key struct {
		source int
		class  route.ClassKey
	}
	type sum struct {
		Row
		tokens profile.Request // times the rate
		lately [route.LatelyWindows]route.Lately
	}
	rows := make(map[key]*sum)
	row := func(source string, class route.ClassKey) *sum {
		at, _ := slices.BinarySearch(s.Sources, source)
		k := key{at, class}
		if r, ok := rows[k]; ok {
			return r
		}
		if of := rowOf(in, at, class, index); of != nil {
			rows[k] = &sum{Row: *of}
		} else {
			rows[k] = nil
		}
		return rows[k]
	}
	for _, class := range classesOf(in.Models, in.Wanted) {
		row(in.Source, class)
	}
	for _, d := range demands {
		for _, told := range d.Rows {
			if r := row(d.Source, told.Class); r != nil && told.Priority < route.Priorities && told.Rate > 0 {
				replicas := float64(max(1, d.Replicas))
				rate := told.Rate * replicas
				for w, l := range told.Lately {
					r.lately[w].Requests += replicas * l.Requests
					r.lately[w].Expected += replicas * l.Expected
					r.lately[w].Variance += replicas * replicas * l.Variance // what one has seen stands for all
				}
				r.Rate[told.Priority] += rate
				r.tokens.Prompt += rate * told.Prompt
				r.tokens.Cached += rate * told.Cached
				r.tokens.Output += rate * told.Output
			}
		}
	}
	list := make([]*sum, 0, len(rows))
	for _, r := range rows {
		if r != nil {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), compareClasses(a.Class, b.Class))
	})
	all, means, lately := make([]Row, len(list)), make([]profile.Request, len(list)), make([][route.LatelyWindows]route.Lately, len(list))
	for i, r := range list {
		all[i], lately[i] = r.Row, r.lately
		if rate := r.asked(); rate > 0 {
			means[i] = profile.Request{Prompt: r.tokens.Prompt / rate, Cached: r.tokens.Cached / rate, Output: r.tokens.Output / rate}
		}
	}
	return all, means, lately
}

// asked is the row's demand in requests/s.
func (r *Row) asked() float64 {
	sum := 0.0
	for _, rate := range r.Rate {
		sum += rate
	}
	return sum
}

// rowOf is an empty row; nil where no engine may serve the class.
func rowOf(in *Inputs, source int, class route.ClassKey, index map[string]int) *Row {
	m := in.Models[class.Model]
	if m == nil || int(class.Tier) > len(m.Limits) {
		return nil
	}
	r := &Row{Source: source, Class: class, DistanceWeight: 1, Work: 1}
	for _, c := range route.Candidates(m, class) {
		if j, ok := index[c.Engine.Name]; ok {
			r.Candidates = append(r.Candidates, j)
		}
	}
	if len(r.Candidates) == 0 {
		return nil
	}
	slices.Sort(r.Candidates)
	return r
}

func compareClasses(a, b route.ClassKey) int {
	return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Caps, b.Caps), cmp.Compare(a.Tier, b.Tier), strings.Compare(a.Require, b.Require))
}
