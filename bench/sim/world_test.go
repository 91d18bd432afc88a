package sim

import (
	"encoding/json"
	"testing"
	"time"
)

// threeRegions is a small fleet of two kinds of GPU in three regions.
func threeRegions(t testing.TB) *Fleet {
	f := &Fleet{
		Regions: []Region{{Name: "us-east-1", Share: 0.6}, {Name: "eu-west-1", Share: 0.3}, {Name: "ap-northeast-1", Share: 0.1}},
		Engines: []EngineSpec{
			{Name: "us", Region: "us-east-1", Count: 2, Profile: "llama-3.1-8b/rtxpro6000", Slots: 128},
			{Name: "eu", Region: "eu-west-1", Count: 2, Profile: "llama-3.1-8b/rtx4090", Slots: 64},
			{Name: "ap", Region: "ap-northeast-1", Count: 2, Profile: "llama-3.1-8b/rtxpro6000", Slots: 128},
		},
	}
	if err := f.Complete(); err != nil {
		t.Fatal(err)
	}
	return f
}

func chat(requests int, rate float64, seed uint64) *Traffic {
	return &Traffic{Rate: rate, Requests: requests, Seed: seed, Prompt: 400, PromptSigma: 0.8, Output: 200, OutputSigma: 0.7, Turns: 4, Pause: 10 * time.Second,
		System: 256, BlockTokens: 16}
}

func runOf(t testing.TB, f *Fleet, policy string, feed Feed, seed uint64) *Summary {
	t.Helper()
	p, err := ParsePolicies(policy)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(Options{Fleet: f, Policy: p[0], Seed: seed}, feed)
	if err != nil {
		t.Fatal(err)
	}
	return r.Summarise(SLO{TTFT: 2 * time.Second}, 5*time.Second)
}

func TestSameSeedSameResult(t *testing.T) {
	f := threeRegions(t)
	for _, name := range PolicyNames() {
		if name == waterfallTuned {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := json.Marshal(runOf(t, f, name, chat(500, 25, 1), 7))
			b, _ := json.Marshal(runOf(t, f, name, chat(500, 25, 1), 7))
			if string(a) != string(b) {
				t.Errorf("two runs of one seed differ:\n%s\n%s", a, b)
			}
		})
	}
}

// Every policy serves what fits easily, each request once, and keeps to what it
// is for.
func TestEveryPolicyServes(t *testing.T) {
	f := threeRegions(t)
	const requests = 600
	for _, name := range PolicyNames() {
		if name == waterfallTuned {
			continue
		}
		p, err := ParsePolicies(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(Options{Fleet: f, Policy: p[0], Seed: 7}, chat(requests, 10, 1))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.records) != requests {
			t.Errorf("%s: %d of %d requests ended", name, len(r.records), requests)
		}
		s := r.Summarise(SLO{}, 0)
		if s.Success != 1 || s.Dispatches != 1 {
			t.Errorf("%s: %.3f succeed, %.3f attempts each: %v", name, s.Success, s.Dispatches, s.Failed)
		}
		if name == "nearest" && s.Remote > 0.05 /* before the first plan */ || name == "consistent-hash" && s.Moved != 0 {
			t.Errorf("%s: %.3f served elsewhere, %.3f of turns moved", name, s.Remote, s.Moved)
		}
		if s.TTFT.Mean <= 0 || s.E2E.Mean <= s.TTFT.Mean || s.E2E.P99 < s.E2E.P50 || s.KVHit <= 0.1 {
			t.Errorf("%s: %+v %+v, hit %.3f", name, s.TTFT, s.E2E, s.KVHit)
		}
	}
}
