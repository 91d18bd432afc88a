package balancer

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// FeedbackReport is a FeedbackState for JSON: why each engine has its weight
// under the feedback policy.
type FeedbackReport struct {
	Gain     float64                `json:"gain"`
	PeriodMS float64                `json:"period_ms"`
	SmoothMS float64                `json:"smooth_ms"`
	Target   float64                `json:"target"` // the score of the average
	MaxStep  float64                `json:"max_step"`
	Stepped  time.Time              `json:"stepped"`
	Engines  []FeedbackEngineReport `json:"engines"`
}

// FeedbackEngineReport is one engine's part of it.
type FeedbackEngineReport struct {
	Engine  string               `json:"engine"`
	Parts   []FeedbackPartReport `json:"parts"`
	Score   float64              `json:"score"`
	Step    float64              `json:"step"`
	Factor  float64              `json:"factor"`
	Clamped string               `json:"clamped,omitempty"`
}

// FeedbackPartReport is one signal: smoothed, and against the average.
type FeedbackPartReport struct {
	Signal    string   `json:"signal"`
	Smoothed  *float64 `json:"smoothed"` // ms or a share; null: not measured, counts as average
	Relative  float64  `json:"relative"`
	InScoreBy float64  `json:"share"`
}

// Report is the state as explained to people and programs; safe on nil.
func (st *FeedbackState) Report() *FeedbackReport {
	if st == nil {
		return nil
	}
	r := &FeedbackReport{Gain: st.Gain, PeriodMS: ms(feedbackPeriod), SmoothMS: ms(feedbackSmooth), Target: 1,
		MaxStep: feedbackMaxStep, Stepped: st.Stepped, Engines: make([]FeedbackEngineReport, len(st.Engines))}
	for i := range st.Engines {
		e := &st.Engines[i]
		line := FeedbackEngineReport{Engine: e.Name, Score: e.Score, Step: e.Step, Factor: e.Factor, Clamped: e.Clamp.String()}
		for part := range FeedbackParts {
			p := FeedbackPartReport{Signal: feedbackPartNames[part], Relative: e.Parts[part], InScoreBy: feedbackShare[part]}
			if v := e.Smoothed[part]; !math.IsNaN(v) {
				p.Smoothed = &v
			}
			line.Parts = append(line.Parts, p)
		}
		r.Engines[i] = line
	}
	return r
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Print writes the report as text to read aloud.
func (r *FeedbackReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "Every %g s each engine's score, over %g s, is held against the fleet's average, %.2f: above it is worse.\n",
		r.PeriodMS/1000, r.SmoothMS/1000, r.Target)
	fmt.Fprintf(w, "Its factor on the capacity moves by %g of the difference (the gain), at most by %g %%.\n\n", r.Gain, 100*r.MaxStep)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "ENGINE")
	for part, name := range feedbackPartNames {
		fmt.Fprintf(t, "\t%s x%g", name, feedbackShare[part])
	}
	fmt.Fprint(t, "\tSCORE\tSTEP\tFACTOR\tHELD BY\n")
	for _, e := range r.Engines {
		fmt.Fprint(t, e.Engine)
		for part, p := range e.Parts {
			fmt.Fprintf(t, "\t%.2f (%s)", p.Relative, signalText(part, p.Smoothed))
		}
		score := fmt.Sprintf("%.3f", e.Score)
		if e.Score == 0 {
			score = "out"
		}
		fmt.Fprintf(t, "\t%s\t%+.1f%%\t%.3f\t%s\n", score, 100*e.Step, e.Factor, e.Clamped)
	}
	return t.Flush()
}

func signalText(part int, v *float64) string {
	switch {
	case v == nil:
		return "not measured"
	case part == PartTTFT || part == PartTBOT:
		return fmt.Sprintf("%.4g ms", *v)
	}
	return fmt.Sprintf("%.0f%%", 100**v)
}
