package sim

import (
	"math"
	"testing"
	"time"
)

// One engine whose steps take alpha + beta n, Poisson arrivals, no prompts to
// speak of: optimizer.md 1 has what comes of it in closed form, whatever the
// distribution of the answers' lengths.
//
//	TBOT(y) = (alpha+beta)/(1-rho),  rho = y beta o
//	occupancy: mean r rho/(1-rho), r = 1 + alpha/beta
func TestOneEngineIsItsClosedForm(t *testing.T) {
	const alpha, beta, output = 10.0, 1.0, 50.0 // ms, ms, tokens
	for _, c := range []struct {
		name  string
		sigma float64
		rho   float64
	}{{"equal answers", 0, 0.5}, {"log-normal answers", 0.8, 0.5}, {"log-normal answers, loaded", 0.8, 0.8}} {
		f := &Fleet{Regions: []Region{{Name: "here", Share: 1}},
			Engines: []EngineSpec{{Name: "e", Region: "here", Step: alpha, PerSeq: beta, Slots: 4096, KVTokens: 1 << 24, Chunk: 1 << 20}}}
		f.Network.RTT = map[string]map[string]float64{"here": {"here": 0}}
		if err := f.Complete(); err != nil {
			t.Fatal(err)
		}
		rate := c.rho * 1000 / (beta * (output - 1)) // requests/s; the first token comes of the prompt's step
		s := closedRun(t, f, &Traffic{Rate: rate, Requests: 30_000, Seed: 3, Prompt: 1, Output: output, OutputSigma: c.sigma})
		wantTBOT := (alpha + beta) / (1 - c.rho)
		wantMean := (1 + alpha/beta) * c.rho / (1 - c.rho)
		tbot := (s.E2E.Mean - s.TTFT.Mean) / (output - 1)
		off := tbot/wantTBOT - 1
		t.Logf("%s, rho %.1f: %.2f ms between tokens, the closed form has %.2f: off by %.1f %%", c.name, c.rho, tbot, wantTBOT, 100*off)
		if math.Abs(off) > 0.06 {
			t.Errorf("%s, rho %.1f: off by %.1f %%", c.name, c.rho, 100*off)
		}
		mean := s.Engines[0].Load * 4096
		if off := mean/wantMean - 1; math.Abs(off) > 0.08 {
			t.Errorf("%s, rho %.1f: %.2f requests on the engine, the closed form has %.2f: off by %.1f %%", c.name, c.rho, mean, wantMean, 100*off)
		}
	}
}

func closedRun(t *testing.T, f *Fleet, feed Feed) *Summary {
	t.Helper()
	p, _ := ParsePolicies("round-robin")
	p[0].foreign = newOnly // straight to the engine
	r, err := Run(Options{Fleet: f, Policy: p[0], Seed: 1}, feed)
	if err != nil {
		t.Fatal(err)
	}
	return r.Summarise(SLO{}, 20*time.Second)
}

// only sends all to the first engine.
type only struct{ plainRouter }

func newOnly(_ *world, g *gateway) router { return only{plainRouter{g}} }

func (only) pick(*world, *request) int { return 0 }

// A prompt computed in chunks takes its tokens' time, its steps' bases and the
// way there and back; the next turn takes the cached part less.
func TestOneRequestTakesItsTime(t *testing.T) {
	f := &Fleet{Regions: []Region{{Name: "here", Share: 1}, {Name: "there", Share: 0}},
		Engines: []EngineSpec{{Name: "e", Region: "there", Step: 20, PerSeq: 1, PerToken: 0.1, PrefillStep: 5, Slots: 8, KVTokens: 1 << 20, Chunk: 512}}}
	f.Network.RTT = map[string]map[string]float64{"here": {"here": 0, "there": 80}, "there": {"there": 0}}
	if err := f.Complete(); err != nil {
		t.Fatal(err)
	}
	blocks := make([]uint64, 62)
	for i := range blocks {
		blocks[i] = uint64(i) + 1
	}
	s := closedRun0(t, f, &List{Requests: []Request{
		{At: 0, Conversation: 1, Prompt: 1000, Output: 11, Blocks: blocks, BlockTokens: 16},
		{At: 10 * time.Second, Conversation: 1, Turn: 1, Prompt: 1000, Output: 11, Blocks: blocks, BlockTokens: 16},
	}})
	first, second := s.records[0], s.records[1]
	if want := float32(80 + 2*5 + 100); first.ttft != want {
		t.Errorf("first token after %v ms, want %v", first.ttft, want)
	}
	if want := float32(80 + 2*5 + 100 + 10*21); first.e2e != want {
		t.Errorf("all after %v ms, want %v", first.e2e, want)
	}
	cached := 62 * 16
	if want := float32(80 + 5 + 0.1*float64(1000-cached)); second.cached != int32(cached) || math.Abs(float64(second.ttft-want)) > 0.01 {
		t.Errorf("second turn: %d tokens cached, first token after %v ms, want %v", second.cached, second.ttft, want)
	}
}

func closedRun0(t *testing.T, f *Fleet, feed Feed) *Result {
	t.Helper()
	r, err := Run(Options{Fleet: f, Policy: Policy{Name: "only", foreign: newOnly}, Seed: 1}, feed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
