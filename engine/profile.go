package engine

import (
	"fmt"
	"math"
	"strconv"
)

// Profile is what the configuration tells of an engine's latency under load, in
// one of three forms: Base + Slope/(1 - load/Limit), linear between Points, or
// how long the steps take in which it works. Times are in ms, loads in
// requests/s.
type Profile struct {
	Base, Slope, Limit float64

	Points [][2]float64 // load, latency

	Step, PerSeq, PerToken float64 // a step, each sequence in it, each prompt token in it
	Slots                  float64 // sequences at once; 0 = not told

	Name string // of a shipped profile, or the file that it is from; "" = written in place
}

// pointSlack lets points rounded to a few digits pass, as in a problem file.
const pointSlack = 1e-9

// Validate reports every fault of the profile, with keys as a table has them.
func (p *Profile) Validate() []Fault {
	var faults []Fault
	add := func(key string, value float64, want string) {
		faults = append(faults, Fault{key, strconv.FormatFloat(value, 'g', -1, 64), want})
	}
	for _, v := range []struct {
		key   string
		value float64
	}{
		{"base_ms", p.Base}, {"slope_ms", p.Slope}, {"limit", p.Limit},
		{"step_ms", p.Step}, {"per_seq_ms", p.PerSeq}, {"per_token_ms", p.PerToken}, {"slots", p.Slots},
	} {
		if !(v.value >= 0) || math.IsInf(v.value, 0) {
			add(v.key, v.value, "a finite number, 0 or more")
		}
	}
	if len(faults) > 0 {
		return faults
	}
	curve, steps := p.Base > 0 || p.Slope > 0 || p.Limit > 0, p.Steps() || p.Step > 0 || p.PerToken > 0 || p.Slots > 0
	forms := 0
	for _, has := range []bool{curve, len(p.Points) > 0, steps} {
		if has {
			forms++
		}
	}
	switch {
	case forms != 1:
		faults = append(faults, Fault{"", "", "either base_ms, slope_ms and limit, or points, or step_ms, per_seq_ms and per_token_ms"})
	case curve && p.Limit == 0:
		add("limit", p.Limit, "the load in requests/s at which latency grows without bound, above 0")
	case curve && p.Base+p.Slope == 0:
		add("slope_ms", p.Slope, "a latency above 0, base_ms + slope_ms")
	case steps && p.PerSeq == 0:
		add("per_seq_ms", p.PerSeq, "the time that each sequence adds to a step, above 0")
	case len(p.Points) > 0:
		faults = pointFaults(p.Points)
	}
	return faults
}

// Steps reports whether the profile tells how long steps take.
func (p *Profile) Steps() bool { return p.PerSeq > 0 }

// Most is the highest load that the profile has a latency for; infinite where
// it is one of steps.
func (p *Profile) Most() float64 {
	switch {
	case len(p.Points) > 0:
		return p.Points[len(p.Points)-1][0]
	case p.Limit > 0:
		return p.Limit
	}
	return math.Inf(1)
}

func pointFaults(points [][2]float64) []Fault {
	fault := func(i int, want string) []Fault {
		return []Fault{{"points", fmt.Sprintf("[%v, %v]", points[i][0], points[i][1]), want}}
	}
	if len(points) < 2 {
		return fault(0, "two or more [load, latency] pairs")
	}
	slope := 0.0
	for i, p := range points {
		for _, v := range p {
			if !(v >= 0) || math.IsInf(v, 0) {
				return fault(i, "finite numbers, 0 or more")
			}
		}
		if i == 0 {
			if p[0] != 0 {
				return fault(i, "a first point at load 0")
			}
			continue
		}
		last := points[i-1]
		if p[0] <= last[0] {
			return fault(i, "loads that grow from point to point")
		}
		next := (p[1] - last[1]) / (p[0] - last[0])
		if next < slope*(1-pointSlack) || next < 0 {
			return fault(i, "times whose growth never slows: the slope to this point is less than the one before")
		}
		slope = next
	}
	if points[len(points)-1][1] == 0 {
		return fault(len(points)-1, "a latency above 0")
	}
	return nil
}
