package sim

import (
	"compress/gzip"
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// measuredRequest is a request of a real engine: what it asked for and when its
// tokens came, in seconds.
type measuredRequest struct {
	prompt, output        int
	arrival, first, whole float64
}

func readMeasured(t *testing.T) map[string][]measuredRequest {
	f, err := os.Open("testdata/vllm_requests.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	runs := make(map[string][]measuredRequest)
	for _, row := range rows[1:] {
		var v [9]float64
		for i := 2; i < 9; i++ {
			if v[i], err = strconv.ParseFloat(row[i], 64); err != nil {
				t.Fatal(err)
			}
		}
		runs[row[0]] = append(runs[row[0]], measuredRequest{int(v[2]), int(v[3]), v[4], v[7], v[8]})
	}
	return runs
}

// Four runs of 300 requests of vLLM 0.19 on real GPUs, played on an engine with
// the shipped profile of the model and GPU: nothing is fitted to these requests.
// Slots are those of the runs. Only the smallest card ran out of KV memory: it is
// what its own gauges say, running requests over the part in use.
func TestAgainstMeasuredRequests(t *testing.T) {
	runs := readMeasured(t)
	for _, c := range []struct {
		run, profile string
		slots, kv    int
		off          float64 // most that the mean time to the last token may be off
	}{
		{"lss_rtx4090_llama-3.1-8b", "llama-3.1-8b/rtx4090", 128, 56_000, 0.25},
		{"lss_rtxpro6000_llama-3.1-8b", "llama-3.1-8b/rtxpro6000", 128, 500_000, 0.08},
		{"lss_rtxpro6000_qwen3-32b", "qwen3-32b/rtxpro6000x2", 128, 400_000, 0.25},
		{"lss_rtxpro6000_qwen3-30b-a3b-instruct-2507", "qwen3-30b-a3b/rtxpro6000", 256, 300_000, 0.08},
	} {
		f := &Fleet{Regions: []Region{{Name: "here", Share: 1}}, Engines: []EngineSpec{{Name: "e", Region: "here", Profile: c.profile, Slots: c.slots, KVTokens: c.kv, Chunk: 2048}}}
		f.Network.RTT = map[string]map[string]float64{"here": {"here": 0}}
		if err := f.Complete(); err != nil {
			t.Fatal(err)
		}
		list := &List{}
		var first, whole []float64
		for _, m := range runs[c.run] {
			list.Requests = append(list.Requests, Request{At: time.Duration(m.arrival * 1e9), Prompt: m.prompt, Output: m.output})
			first, whole = append(first, 1000*(m.first-m.arrival)), append(whole, 1000*(m.whole-m.arrival))
		}
		r, err := Run(Options{Fleet: f, Policy: Policy{Name: "only", foreign: newOnly}, Seed: 1}, list)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Summarise(SLO{}, 0)
		a, b := spreadOfAny(first), spreadOfAny(whole)
		off := func(got, want float64) float64 { return 100 * (got/want - 1) }
		t.Logf("%s: TTFT mean %.0f ms, measured %.0f (%+.0f %%), p99 %+.0f %%; E2E mean %.0f ms, measured %.0f (%+.1f %%), p50 %+.1f %%, p99 %+.1f %%", c.profile,
			s.TTFT.Mean, a.Mean, off(s.TTFT.Mean, a.Mean), off(s.TTFT.P99, a.P99), s.E2E.Mean, b.Mean, off(s.E2E.Mean, b.Mean), off(s.E2E.P50, b.P50), off(s.E2E.P99, b.P99))
		if math.Abs(s.E2E.Mean/b.Mean-1) > c.off {
			t.Errorf("%s: the mean time to the last token is off by %.1f %%", c.profile, off(s.E2E.Mean, b.Mean))
		}
	}
}
