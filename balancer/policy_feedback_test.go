package balancer

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/route"
)

// twoEngines is a situation with two equal engines that show these times to
// first token.
func twoEngines(at time.Duration, a, b float64) *Situation {
	s := &Situation{At: time.Unix(1000, 0).Add(at), Sources: []string{"A"}, RTT: [][]float64{{1, 1}}}
	for j, ttft := range []float64{a, b} {
		s.Engines = append(s.Engines, EngineView{Name: string(rune('a' + j)), Cluster: "A", Ready: true, Slots: 64, Capacity: 10, Calibrated: true,
			Signals: Signals{TTFT: ttft, TBOT: math.NaN(), Utilisation: math.NaN(), Errors: math.NaN(), Waiting: math.NaN()}})
	}
	s.Rows = []Row{{Class: route.ClassKey{Model: "m"}, Work: 1, Rate: [route.Priorities]float64{0, 10, 0}, Candidates: []int{0, 1}}}
	return s
}

// The first step, computed by hand: 299 and 99 ms against 199 ms, a floor of
// 1 ms on each, a share of 0.35 of the score.
func TestFeedbackStep(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 299, 99), nil)
	if e := st.Engines[0]; e.Factor != 1 {
		t.Fatalf("steps at once: %+v", e)
	}
	p, st := DefaultController.Plan(twoEngines(5*time.Second, 299, 99), st)
	up, down := 1+0.1*0.35*0.5, 1-0.1*0.35*0.5
	for i, want := range []float64{down, up} {
		if e := st.Engines[i]; math.Abs(e.Factor-want) > 1e-12 || e.Clamp != ClampNone {
			t.Errorf("factor of %s: %v, want %v", e.Name, e.Factor, want)
		}
	}
	if w := rowWeights(&p.Rows[0]); math.Abs(w["a"]-down/2) > 1e-12 {
		t.Errorf("weights %v", w)
	}
	p2, again := DefaultController.Plan(twoEngines(6*time.Second, 299, 99), st)
	if !reflect.DeepEqual(p2.Rows, p.Rows) || again.Stepped != st.Stepped {
		t.Error("steps again after a second")
	}
}

// Signals are smoothed with a time constant of 10 s, whatever the cycle is.
func TestFeedbackSmooths(t *testing.T) {
	for _, cycle := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second} {
		_, st := DefaultController.Plan(twoEngines(0, 100, 100), nil)
		for at := cycle; at <= 10*time.Second; at += cycle {
			_, st = DefaultController.Plan(twoEngines(at, 200, 100), st)
		}
		if got, want := st.Engines[0].Smoothed[PartTTFT], 200-100/math.E; math.Abs(got-want) > 1e-6 {
			t.Errorf("cycle %v: 10 s after 100 became 200 it is %v, want %v", cycle, got, want)
		}
	}
}

func TestFeedbackClamps(t *testing.T) {
	wild := Controller{Gain: 3}
	_, st := wild.Plan(twoEngines(0, 1000, 10), nil)
	_, st = wild.Plan(twoEngines(5*time.Second, 1000, 10), st)
	if a, b := st.Engines[0], st.Engines[1]; a.Step != -0.2 || a.Clamp != ClampStep || b.Step != 0.2 || b.Clamp != ClampStep {
		t.Errorf("largest step: %+v, %+v", a, b)
	}
	for at := 10 * time.Second; at < 200*time.Second; at += 5 * time.Second {
		_, st = wild.Plan(twoEngines(at, 1000, 10), st)
	}
	if a := st.Engines[0]; a.Factor != 1.0/8 || a.Clamp != ClampLow {
		t.Errorf("smallest factor: %+v", a)
	}
}

// What is not measured is average; a measurement is forgotten after a while,
// so that an engine without traffic gets some again.
func TestFeedbackWithoutSignals(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 1000, 10), nil)
	for at := 5 * time.Second; at <= 60*time.Second; at += 5 * time.Second {
		_, st = DefaultController.Plan(twoEngines(at, math.NaN(), 10), st)
	}
	if e := st.Engines[0]; !math.IsNaN(e.Smoothed[PartTTFT]) || e.Score != 1 || e.Step != 0 {
		t.Errorf("%+v", e)
	}
}

// The state of a cycle is not touched by the next: a decision can be repeated.
func TestFeedbackIsPure(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 300, 100), nil)
	before := append([]FeedbackEngine(nil), st.Engines...)
	p1, s1 := DefaultController.Plan(twoEngines(5*time.Second, 300, 100), st)
	p2, s2 := DefaultController.Plan(twoEngines(5*time.Second, 300, 100), st)
	if !reflect.DeepEqual(p1, p2) || s1.Engines[0].Factor != s2.Engines[0].Factor || st.Engines[0].Factor != before[0].Factor {
		t.Error("the same cycle twice differs")
	}
}

// An engine that is out keeps its factor for its return and counts in no
// average; a new one begins with 1.
func TestFeedbackComingAndGoing(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 300, 100), nil)
	_, st = DefaultController.Plan(twoEngines(5*time.Second, 300, 100), st)
	factor := st.Engines[0].Factor
	s := twoEngines(10*time.Second, 1e9, 100)
	s.Engines[0].Ready = false
	p, st := DefaultController.Plan(s, st)
	if w := rowWeights(&p.Rows[0]); w["b"] != 1 || st.Engines[0].Factor != factor || st.Engines[1].Score != 1 {
		t.Errorf("with a out: %v, %+v", w, st.Engines)
	}
	s = twoEngines(15*time.Second, 300, 100)
	s.Engines[1].Name = "c"
	if _, st = DefaultController.Plan(s, st); st.Engines[1].Factor <= 1 || st.Engines[1].Factor > 1.2 {
		t.Errorf("new engine begins with %v", st.Engines[1].Factor)
	}
}

func TestFeedbackReport(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 299, 99), nil)
	_, st = DefaultController.Plan(twoEngines(5*time.Second, 299, 99), st)
	var b bytes.Buffer
	if err := st.Report().Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `Every 5 s each engine's score, over 10 s, is held against the fleet's average, 1.00: above it is worse.
Its factor on the capacity moves by 0.1 of the difference (the gain), at most by 20 %.

ENGINE  ttft x0.35     tbot x0.35           utilisation x0.2     errors x0.1          SCORE  STEP   FACTOR  HELD BY
a       1.50 (299 ms)  1.00 (not measured)  1.00 (not measured)  1.00 (not measured)  1.175  -1.8%  0.983   
b       0.50 (99 ms)   1.00 (not measured)  1.00 (not measured)  1.00 (not measured)  0.825  +1.8%  1.018   
`
	if b.String() != want {
		t.Errorf("text:\n%s", b.String())
	}
	text, err := json.Marshal(st.Report())
	if err != nil || !strings.Contains(string(text), `"signal":"tbot","smoothed":null,"relative":1`) {
		t.Errorf("JSON: %v, %s", err, text)
	}
	if (*FeedbackState)(nil).Report() != nil {
		t.Error("a report of nothing")
	}
}
