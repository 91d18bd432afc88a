package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHistogram: within three digits of what sorting says, before and after a file.
func TestHistogram(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	var h, left, right Histogram
	var all []float64
	for i := range 20_000 {
		d := time.Duration(math.Exp(dice.NormFloat64()*2+12) * float64(time.Microsecond) / 1000)
		all = append(all, float64(d)/1e6)
		h.Record(d)
		if i%3 == 0 {
			left.Record(d)
		} else {
			right.Record(d)
		}
	}
	left.Merge(&right)
	slices.Sort(all)
	text, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	var again Histogram
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*Histogram{"recorded": &h, "merged": &left, "read again": &again} {
		if g.Count() != 20_000 {
			t.Errorf("%s: count %d", name, g.Count())
		}
		for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
			want := all[int(math.Ceil(q*20_000))-1]
			if got := g.Quantile(q); math.Abs(got/want-1) > 0.01 {
				t.Errorf("%s: quantile %g is %g, want %g", name, q, got, want)
			}
		}
		sum := 0.0
		for _, v := range all {
			sum += v
		}
		if want := sum / 20_000; math.Abs(g.Mean()/want-1) > 1e-6 {
			t.Errorf("%s: mean %g, want %g", name, g.Mean(), want)
		}
	}
	second, err := json.Marshal(&again)
	if err != nil || string(second) != string(text) {
		t.Error("a histogram that was read is not written as it was")
	}
}

func TestHistogramBounds(t *testing.T) {
	var h Histogram
	h.Record(-time.Second)
	h.Record(100 * time.Hour)
	if h.Count() != 2 || h.Quantile(0) != 0 || h.Max() != longestUS/1e3 {
		t.Errorf("count %d, from %g to %g ms", h.Count(), h.Quantile(0), h.Max())
	}
	var none *Histogram
	if none.Count() != 0 || !math.IsNaN(none.Mean()) || !math.IsNaN(none.Quantile(0.5)) {
		t.Error("a histogram that is not there has figures")
	}
}

// TestParseFaults: a file that is not right says why.
func TestParseFaults(t *testing.T) {
	for text, want := range map[string]string{
		``:                                    "the file ends too early: no whole JSON document",
		`{"version":`:                         "the file ends too early: no whole JSON document",
		"{\n\"version\" 1}":                   "line 2: invalid character",
		`{"version":"x"}`:                     `version = "x": want "penstock-results/1"`,
		`{"version":"penstock-results/1"}`:    "runs: none",
		`{"version":1}`:                       "line 1: version is a number: want string",
		`{"version":"x","nonsense":1}`:        `unknown field "nonsense"`,
		`{"version":"penstock-results/1"} {}`: "line 1: something follows the document",
		`{"version":"penstock-results/1","runs":[{"name":""}]}`:                                                                                 "runs[0].name: missing",
		`{"version":"penstock-results/1","runs":[{"name":"a","ok":2,"requests":1}]}`:                                                            "runs[0]: ok 2 + shed 0 + errors 0 are more than the 1 requests",
		`{"version":"penstock-results/1","runs":[{"name":"a","ok":1,"requests":1,"good":2}]}`:                                                   "runs[0]: 2 good answers of 1",
		`{"version":"penstock-results/1","runs":[{"name":"a","series":[{"name":"s","values":[1]}]}]}`:                                           "runs[0].series[0].step_s = 0: want more than 0",
		`{"version":"penstock-results/1","runs":[{"name":"a","extra":[{"name":"s","better":"up"}]}]}`:                                           `runs[0].extra[0].better = "up": want lower, higher or nothing`,
		`{"version":"penstock-results/1","runs":[{"name":"a","ttft_ms":{"count":3,"mean":1,"max":1,"buckets_us":"1000:2"}}]}`:                   "count = 3, but the buckets have 2",
		`{"version":"penstock-results/1","runs":[{"name":"a","ttft_ms":{"count":2,"mean":9,"p50":1,"p99":1,"max":1,"buckets_us":"1000:2"}}]}`:   "mean: want a number between 0 and max",
		`{"version":"penstock-results/1","runs":[{"name":"a","ttft_ms":{"count":-2,"mean":1,"p50":1,"p99":1,"max":1,"buckets_us":"1000:-2"}}]}`: `buckets_us: "1000:-2": want TIME:COUNT`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", text, err, want)
		}
	}
}

func TestValues(t *testing.T) {
	text, err := json.Marshal(Values{1, math.NaN(), 2.5})
	if err != nil || string(text) != "[1,null,2.5]" {
		t.Fatalf("%s, %v", text, err)
	}
	var v Values
	if err := json.Unmarshal(text, &v); err != nil || len(v) != 3 || v[2] != 2.5 || !math.IsNaN(v[1]) {
		t.Errorf("%v, %v", v, err)
	}
}
