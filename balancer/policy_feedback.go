package balancer

import (
	"math"
	"time"

	"penstock/route"
)

// The feedback policy steers by what engines show: each has a factor on its
// capacity, and every few seconds one that performs worse than the fleet's
// average loses some of it, one that performs better gains. It needs no
// profile, and it rings: signals come late, and the more the fleet is used the
// more latency answers to a change of weight (optimizer.md 7). A gain that is
// calm at night oscillates at the peak.

// Controller is how the feedback policy steers.
type Controller struct {
	// Gain is the part of an engine's distance from the average that one step
	// takes back. Higher: faster, and unstable at a lower utilisation.
	Gain float64
}

// DefaultController is calm up to about 0.8 of what engines can carry.
var DefaultController = Controller{Gain: 0.1}

const (
	feedbackPeriod = 5 * time.Second  // between steps
	feedbackSmooth = 10 * time.Second // time constant of the signals
	feedbackForget = 30 * time.Second // a signal that is not measured any more counts as average

	feedbackMaxStep   = 0.2 // of a factor, up or down
	feedbackMaxFactor = 8   // and its inverse
)

// The score's parts: each signal against the average of the engine's fleet,
// so that 1 is average and more is worse.
const (
	PartTTFT = iota
	PartTBOT
	PartUtilisation
	PartErrors
	FeedbackParts
)

var feedbackPartNames = [FeedbackParts]string{"ttft", "tbot", "utilisation", "errors"}

// feedbackShare is each part's share of the score.
var feedbackShare = [FeedbackParts]float64{0.35, 0.35, 0.2, 0.1}

// feedbackFloor is added to a signal before it is compared: shares near zero
// have no meaningful ratio. In the signal's unit.
var feedbackFloor = [FeedbackParts]float64{1, 0.1, 0.05, 0.1}

// FeedbackState is what the policy remembers from cycle to cycle. Immutable.
type FeedbackState struct {
	At      time.Time // of the last cycle
	Stepped time.Time // of the last step
	Gain    float64
	Engines []FeedbackEngine // sorted by name, as the Situation's
}

// FeedbackEngine is one engine's way to its factor.
type FeedbackEngine struct {
	Name     string
	Smoothed [FeedbackParts]float64 // NaN: not measured, or not for long
	measured [FeedbackParts]time.Time
	Parts    [FeedbackParts]float64 // at the last step: against the average
	Score    float64                // of the parts by their shares; 0 where the engine is out
	Step     float64                // the factor's relative change
	Factor   float64                // on the capacity; the fleet's mean is 1
	Clamp    FeedbackClamp
}

// FeedbackClamp says what held a step back.
type FeedbackClamp uint8

const (
	ClampNone FeedbackClamp = iota
	ClampStep               // the largest step
	ClampLow                // the smallest factor
	ClampHigh               // the largest factor
)

func (c FeedbackClamp) String() string {
	return [...]string{"", "largest step", "smallest factor", "largest factor"}[c]
}

// Plan is one cycle: weights in proportion to capacity times factor, and the
// state for the next cycle. last is nil at the start.
func (f Controller) Plan(s *Situation, last *FeedbackState) (*route.Plan, *FeedbackState) {
	next := f.remember(s, last)
	if s.At.Sub(next.Stepped) >= feedbackPeriod {
		next.step(s, f.Gain)
		next.Stepped = s.At
	}
	k := newSketch(s)
	for c := range s.Rows {
		for i, j := range s.Rows[c].Candidates {
			k.flow[c][i] = s.capacity(j) * next.Engines[j].Factor
		}
	}
	return k.plan(Feedback, route.RulePlanned), next
}

// planFeedbackOnce is a first cycle: by capacity, for the policy knows nothing
// yet.
func planFeedbackOnce(s *Situation) *route.Plan {
	p, _ := DefaultController.Plan(s, nil)
	return p
}

// remember carries the engines' factors on and smooths the new signals into
// the old. An engine that is new begins at the average.
func (f Controller) remember(s *Situation, last *FeedbackState) *FeedbackState {
	next := &FeedbackState{At: s.At, Stepped: s.At, Gain: f.Gain, Engines: make([]FeedbackEngine, len(s.Engines))}
	var known map[string]*FeedbackEngine
	passed := 0.0
	if last != nil {
		next.Stepped = last.Stepped
		passed = s.At.Sub(last.At).Seconds()
		known = make(map[string]*FeedbackEngine, len(last.Engines))
		for i := range last.Engines {
			known[last.Engines[i].Name] = &last.Engines[i]
		}
	}
	fresh := 1 - math.Exp(-passed/feedbackSmooth.Seconds())
	for j := range s.Engines {
		e, view := &next.Engines[j], &s.Engines[j]
		before := known[view.Name]
		if before != nil {
			*e = *before
		} else {
			*e = FeedbackEngine{Name: view.Name, Factor: 1, Score: 1, Parts: [FeedbackParts]float64{1, 1, 1, 1}}
			for part := range e.Smoothed {
				e.Smoothed[part] = math.NaN()
			}
		}
		for part, v := range view.Signals.parts() {
			switch {
			case math.IsNaN(v) || v < 0 || math.IsInf(v, 0) || s.capacity(j) <= 0:
				if s.capacity(j) <= 0 || s.At.Sub(e.measured[part]) > feedbackForget {
					e.Smoothed[part] = math.NaN()
				}
				continue
			case math.IsNaN(e.Smoothed[part]):
				e.Smoothed[part] = v
			default:
				e.Smoothed[part] += fresh * (v - e.Smoothed[part])
			}
			e.measured[part] = s.At
		}
	}
	return next
}

func (g *Signals) parts() [FeedbackParts]float64 {
	return [FeedbackParts]float64{g.TTFT, g.TBOT, g.Utilisation, g.Errors}
}

// step moves every engine's factor by its score against the average of those
// that share classes with it.
func (st *FeedbackState) step(s *Situation, gain float64) {
	fleet := s.fleets()
	var sum, count [FeedbackParts]map[int]float64
	for part := range FeedbackParts {
		sum[part], count[part] = make(map[int]float64), make(map[int]float64)
		for j := range st.Engines {
			if v := st.Engines[j].Smoothed[part]; s.capacity(j) > 0 && !math.IsNaN(v) {
				sum[part][fleet[j]] += v + feedbackFloor[part]
				count[part][fleet[j]]++
			}
		}
	}
	for j := range st.Engines {
		e := &st.Engines[j]
		e.Score, e.Step, e.Clamp = 0, 0, ClampNone
		if s.capacity(j) <= 0 {
			continue // its factor waits for its return
		}
		e.Score = 1
		for part := range FeedbackParts {
			e.Parts[part] = 1
			if n := count[part][fleet[j]]; n > 0 && !math.IsNaN(e.Smoothed[part]) {
				e.Parts[part] = (e.Smoothed[part] + feedbackFloor[part]) / (sum[part][fleet[j]] / n)
			}
			e.Score += feedbackShare[part] * (e.Parts[part] - 1)
		}
		e.Step = gain * (1 - e.Score)
		if most := min(max(e.Step, -feedbackMaxStep), feedbackMaxStep); most != e.Step {
			e.Step, e.Clamp = most, ClampStep
		}
		e.Factor *= 1 + e.Step
	}
	st.level(s, fleet)
}

// level makes each fleet's mean factor 1, by capacity, and holds the factors
// within their range.
func (st *FeedbackState) level(s *Situation, fleet []int) {
	sum, capacity := make(map[int]float64), make(map[int]float64)
	for j := range st.Engines {
		sum[fleet[j]] += s.capacity(j) * st.Engines[j].Factor
		capacity[fleet[j]] += s.capacity(j)
	}
	for j := range st.Engines {
		e := &st.Engines[j]
		if s.capacity(j) <= 0 {
			continue
		}
		e.Factor *= capacity[fleet[j]] / sum[fleet[j]]
		switch {
		case e.Factor < 1.0/feedbackMaxFactor:
			e.Factor, e.Clamp = 1.0/feedbackMaxFactor, ClampLow
		case e.Factor > feedbackMaxFactor:
			e.Factor, e.Clamp = feedbackMaxFactor, ClampHigh
		}
	}
}

// fleets numbers the sets of engines that classes connect, by engine.
func (s *Situation) fleets() []int {
	sets := newUnion(len(s.Engines))
	for c := range s.Rows {
		sets.join(s.Rows[c].Candidates)
	}
	fleet := make([]int, len(s.Engines))
	for j := range fleet {
		fleet[j] = sets.find(j)
	}
	return fleet
}
