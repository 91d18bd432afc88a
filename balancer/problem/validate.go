package problem

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Fault is one thing wrong with a problem: where and why.
type Fault struct{ Field, Reason string }

// Faults are all that were found, in the order of the file.
type Faults []Fault

// Error has a line for each of the first faults: a file with a systematic
// mistake has thousands.
func (f Faults) Error() string {
	const most = 20
	var b strings.Builder
	for i, fault := range f {
		if i == most {
			fmt.Fprintf(&b, "\nand %d more", len(f)-most)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s", fault.Field, fault.Reason)
	}
	return b.String()
}

func (f *Faults) addf(field, format string, args ...any) {
	*f = append(*f, Fault{field, fmt.Sprintf(format, args...)})
}

// pointSlack lets points rounded to a few digits pass: slopes may decrease by
// this share.
const pointSlack = 1e-9

// mostPrevious is the largest sum of the weights of a row of the last table.
const mostPrevious = 1 + 1e-6

// Validate returns every fault of the numbers, as Faults. That indices are in
// range and names unique is the builder's duty (Parse does it for files).
func (p *Problem) Validate() error {
	var f Faults
	if len(p.Sources) == 0 {
		f.addf("sources", "is empty: want at least one")
	}
	for i := range p.Engines {
		p.Engines[i].validate(fmt.Sprintf("engines[%d]", i), &f)
	}
	for i, c := range p.Classes {
		f.notNegative(fmt.Sprintf("classes[%d].distance_weight", i), c.DistanceWeight)
		if f.notNegative(fmt.Sprintf("classes[%d].work", i), c.Work) && c.Work == 0 {
			f.addf(fmt.Sprintf("classes[%d].work", i), "is 0: want the load of a request, above 0")
		}
	}
	for i, d := range p.Demand {
		f.notNegative(fmt.Sprintf("demand[%d].rate", i), d.Rate)
	}
	p.validateRoundTrips(&f)
	for i, v := range p.ShedPrice {
		f.notNegative("shed_price_ms."+Priority(i).String(), v)
	}
	f.notNegative("shed_curvature", p.ShedCurvature)
	f.notNegative("move_price_ms", p.MovePrice)
	p.validatePrevious(&f)
	if len(f) > 0 {
		return f
	}
	return nil
}

// notNegative also reports whether the value is a legal one.
func (f *Faults) notNegative(field string, v float64) bool {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		f.addf(field, "is not a finite number")
	case v < 0:
		f.addf(field, "is %v: want 0 or more", v)
	default:
		return true
	}
	return false
}

func (e *Engine) validate(field string, f *Faults) {
	capacity := f.notNegative(field+".capacity", e.Capacity)
	l, field := &e.Latency, field+".latency"
	if len(l.Points) > 0 {
		if l.validatePoints(field+".points", f) && capacity && e.Capacity > l.Points[len(l.Points)-1].Load {
			f.addf(field+".points", "end at load %v, below the capacity %v", l.Points[len(l.Points)-1].Load, e.Capacity)
		}
		return
	}
	f.notNegative(field+".base_ms", l.Base)
	f.notNegative(field+".slope_ms", l.Slope)
	if f.notNegative(field+".limit", l.Limit) && capacity && l.Limit < e.Capacity {
		f.addf(field+".limit", "%v is below the capacity %v", l.Limit, e.Capacity)
	}
}

func (l *Latency) validatePoints(field string, f *Faults) bool {
	before := len(*f)
	for i, p := range l.Points {
		at := fmt.Sprintf("%s[%d]", field, i)
		if !f.notNegative(at+"[0]", p.Load) || !f.notNegative(at+"[1]", p.Time) {
			continue
		}
		switch {
		case i == 0 && p.Load != 0:
			f.addf(at+"[0]", "the first load is %v: want 0", p.Load)
		case i > 0 && p.Load <= l.Points[i-1].Load:
			f.addf(at+"[0]", "load %v is not above the one before, %v", p.Load, l.Points[i-1].Load)
		case i > 0 && p.Time < l.Points[i-1].Time:
			f.addf(at+"[1]", "time %v ms is below the one before, %v ms", p.Time, l.Points[i-1].Time)
		case i > 1 && len(*f) == before && l.steepness(i-1) < l.steepness(i-2)*(1-pointSlack):
			f.addf(at, "the slope to it, %v, is below the one before, %v: load times latency would not be convex", l.steepness(i-1), l.steepness(i-2))
		}
	}
	return len(*f) == before
}

// validateRoundTrips wants a round trip from each row's source to every engine
// that its class allows.
func (p *Problem) validateRoundTrips(f *Faults) {
	for s, row := range p.RTT {
		for place, v := range row {
			if !math.IsNaN(v) {
				f.notNegative(fmt.Sprintf("rtt_ms.%s.%s", p.Sources[s], p.placeName(place)), v)
			}
		}
	}
	type pair struct{ source, place int }
	told := make(map[pair]bool)
	for _, d := range p.Demand {
		p.Classes[d.Class].each(len(p.Engines), func(j int) {
			at := pair{d.Source, p.Engines[j].Place}
			if math.IsNaN(p.RTT[at.source][at.place]) && !told[at] {
				told[at] = true
				f.addf("rtt_ms."+p.Sources[d.Source], "has no entry for engine %q or its cluster %q, which class %q may use",
					p.Engines[j].Name, p.Engines[j].Cluster, p.Classes[d.Class].Name)
			}
		})
	}
}

// placeName is what the file calls a column of the round trips.
func (p *Problem) placeName(place int) string {
	at := slices.IndexFunc(p.Engines, func(e Engine) bool { return e.Place == place })
	if at < 0 {
		return fmt.Sprintf("[%d]", place)
	}
	last := slices.IndexFunc(p.Engines[at+1:], func(e Engine) bool { return e.Place == place })
	if last < 0 {
		return p.Engines[at].Name
	}
	return p.Engines[at].Cluster
}

// each calls do with every engine that the class allows, of n.
func (c *Class) each(n int, do func(engine int)) {
	if c.All {
		for j := range n {
			do(j)
		}
		return
	}
	for _, j := range c.Engines {
		do(j)
	}
}

func (p *Problem) validatePrevious(f *Faults) {
	for i, row := range p.Previous {
		sum, last := 0.0, -1
		for _, w := range row.Weights {
			if w.Engine <= last || !p.Classes[row.Class].Allows(w.Engine) {
				f.addf(fmt.Sprintf("previous[%d].weights.%s", i, p.Engines[w.Engine].Name), "is out of order, or not allowed to the class")
			}
			last = w.Engine
			if f.notNegative(fmt.Sprintf("previous[%d].weights.%s", i, p.Engines[w.Engine].Name), w.Weight) {
				sum += w.Weight
			}
		}
		if sum > mostPrevious {
			f.addf(fmt.Sprintf("previous[%d].weights", i), "sum to %v: want at most 1", sum)
		}
	}
}
