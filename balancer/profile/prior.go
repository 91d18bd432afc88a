package profile

import (
	"math"
	"slices"

	"penstock/route"
)

// Shares of a step's time alpha that a sequence and a prompt token add where
// nothing is known: between those of small and large models on one GPU.
const (
	plausibleStep     = 15 // ms
	plausiblePerSeq   = 0.03
	plausiblePerToken = 0.005
)

// plausible fills in what a speed lacks. An engine whose steps cost nothing but
// their sequences is one; a sequence or a token that costs nothing is not.
func plausible(s route.Speed) route.Speed {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
	switch {
	case positive(s.Step):
	case positive(s.PerSeq):
		s.Step = 0
	default:
		s.Step = plausibleStep
	}
	if !positive(s.PerSeq) {
		s.PerSeq = plausiblePerSeq * s.Step
	}
	if !positive(s.PerToken) {
		s.PerToken = plausiblePerToken * max(s.Step, s.PerSeq)
	}
	return s
}

// Typical is the median of what is known of engines, by the evidence for each:
// what to expect of one more that serves the same model. Its Answers are 0; so
// is the rest where nothing is known.
func Typical(speeds []route.Speed) route.Speed {
	var known []route.Speed
	for _, s := range speeds {
		if s.Answers >= 1 && s.PerSeq > 0 {
			known = append(known, s)
		}
	}
	median := func(of func(route.Speed) float64) float64 {
		type weighed struct{ value, weight float64 }
		var values []weighed
		total := 0.0
		for _, s := range known {
			if v := of(s); v > 0 {
				w := min(s.Answers, 100) // beyond, more answers make nobody more typical
				values = append(values, weighed{v, w})
				total += w
			}
		}
		slices.SortFunc(values, func(a, b weighed) int {
			switch {
			case a.value < b.value:
				return -1
			case a.value > b.value:
				return 1
			}
			return 0
		})
		passed := 0.0
		for i, v := range values {
			passed += v.weight
			if passed == total/2 && i+1 < len(values) && values[i+1].value > v.value {
				return math.Sqrt(v.value * values[i+1].value)
			}
			if passed >= total/2 {
				return v.value
			}
		}
		return 0
	}
	return route.Speed{
		Step:     median(func(s route.Speed) float64 { return s.Step }),
		PerSeq:   median(func(s route.Speed) float64 { return s.PerSeq }),
		PerToken: median(func(s route.Speed) float64 { return s.PerToken }),
		Slots:    median(func(s route.Speed) float64 { return s.Slots }),
	}
}

// Merge is what several gateways learned of one engine, each counting by its
// evidence. Slots are the most that one of them saw: none can see more than
// there are.
func Merge(speeds []route.Speed) route.Speed {
	var m route.Speed
	for _, s := range speeds {
		if !(s.Answers > 0) || !(s.PerSeq > 0) {
			m.Slots, m.Held = max(m.Slots, s.Slots), max(m.Held, s.Held)
			continue
		}
		m.Step += s.Answers * s.Step
		m.PerSeq += s.Answers * s.PerSeq
		m.PerToken += s.Answers * s.PerToken
		m.Slots, m.Held = max(m.Slots, s.Slots), max(m.Held, s.Held)
		m.Answers += s.Answers
		for i, v := range s.Doubt {
			m.Doubt[i] += s.Answers * s.Answers * v
		}
	}
	if m.Answers > 0 {
		m.Step, m.PerSeq, m.PerToken = m.Step/m.Answers, m.PerSeq/m.Answers, m.PerToken/m.Answers
		for i := range m.Doubt {
			m.Doubt[i] /= m.Answers * m.Answers
		}
	}
	return m
}
