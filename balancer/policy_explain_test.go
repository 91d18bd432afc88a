package balancer

import (
	"strings"
	"testing"
	"time"

	"penstock/route"
)

// Why each row of the worked example has its weights, in words.
func TestPoliciesSayWhy(t *testing.T) {
	s := threeClusters(40, 30)
	for _, c := range []struct {
		name string
		plan func(*Situation) *route.Plan
		want []string
	}{
		{"nearest", PlanNearest, []string{
			"All to B, 1.0 ms away, the nearest cluster with engines that take traffic; it is planned with 120 requests/s, more than the 100 that it may be given.",
			"The next one would be C, 30 ms away."}},
		{"waterfall", PlanWaterfall, []string{
			"83.3% to B, 1.0 ms away: it is full, and the rest goes on; planned with 100 of the 100 requests/s that it may be given.",
			"16.7% to C, 30 ms away; planned with 60 of the 80 requests/s that it may be given.",
			"None to A, 40 ms away, or further: nothing is left for it."}},
		{"capacity", PlanCapacity, []string{"In proportion to capacity, whatever is asked for: a 105/s, b 105/s, c 84.2/s."}},
		{"p2c", PlanP2C, []string{"In proportion to capacity, whatever is asked for: a 105/s, b 105/s, c 84.2/s.",
			"A request goes to the one of two engines, drawn evenly, with fewer in flight."}},
		{"round-robin", PlanRoundRobin, []string{"All engines that take traffic alike.", "A request goes to the next engine in turn."}},
	} {
		d := &Decision{Plan: c.plan(s), Situation: s}
		if got := strings.Join(d.Explain()[1].Text, "\n"); got != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s", c.name, got)
		}
	}
	s.Engines[1].Ready, s.Rows[1].Candidates = false, []int{1}
	if got := (&Decision{Plan: PlanNearest(s), Situation: s}).Explain()[1].Text; len(got) != 1 || got[0] != "No engine that may serve it takes traffic." {
		t.Errorf("without an engine: %q", got)
	}
}

func TestPoliciesSayWhatIsRefused(t *testing.T) {
	s := threeClusters(40, 30)
	for c := range s.Rows {
		s.Rows[c].Rate[2] = 60 // 430 on 280
	}
	text := strings.Join((&Decision{Plan: PlanNearest(s), Situation: s}).Explain()[0].Text, "\n")
	if want := "83.3% of the sheddable requests are refused: with all that comes before them the engines it may use would be above 95.0% of their capacity."; !strings.Contains(text, want) {
		t.Errorf("%s", text)
	}
}

func TestFeedbackSaysWhy(t *testing.T) {
	_, st := DefaultController.Plan(twoEngines(0, 299, 99), nil)
	s := twoEngines(5*time.Second, 299, 99)
	p, st := DefaultController.Plan(s, st)
	got := strings.Join((&Decision{Plan: p, Situation: s, Feedback: st}).Explain()[0].Text, "\n")
	want := `In proportion to capacity times a factor, which falls while an engine performs worse than the average and rises while it performs better.
49.1% to a: factor 0.98, score 1.18 against 1.00 (ttft 299 ms, 1.50 times the average).
50.9% to b: factor 1.02, score 0.82 against 1.00 (ttft 99 ms, 0.50 times the average).`
	if got != want {
		t.Errorf("%s", got)
	}
}
