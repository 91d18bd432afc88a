package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram is a distribution of times, in microseconds to three digits, from
// 1 us to 4 hours; what is longer counts as that. Mean and count are exact. The
// zero value is empty. Not safe for concurrent use.
type Histogram struct {
	h   *hdrhistogram.Histogram
	sum float64 // us
	max int64
}

const (
	longestUS = 4 * 3600 * 1e6
	digits    = 3
)

// Record adds a time; what is negative counts as nothing.
func (h *Histogram) Record(d time.Duration) { h.add(float64(d)/1e3, 1) }

// RecordMS adds a time in ms.
func (h *Histogram) RecordMS(ms float64) { h.add(ms*1e3, 1) }

func (h *Histogram) add(us float64, n int64) {
	if h.h == nil {
		h.h = hdrhistogram.New(1, longestUS, digits)
	}
	us = min(max(us, 0), longestUS)
	h.sum += us * float64(n)
	whole := int64(math.Round(us))
	h.max = max(h.max, whole)
	_ = h.h.RecordValues(whole, n) // within its bounds by the line above
}

// Merge adds all of another one.
func (h *Histogram) Merge(o *Histogram) {
	if o.Count() == 0 {
		return
	}
	if h.h == nil {
		h.h = hdrhistogram.New(1, longestUS, digits)
	}
	h.h.Merge(o.h)
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// Count is how many were recorded. A nil histogram is empty.
func (h *Histogram) Count() int64 {
	if h == nil || h.h == nil {
		return 0
	}
	return h.h.TotalCount()
}

// Mean in ms; NaN where nothing was recorded.
func (h *Histogram) Mean() float64 {
	if h.Count() == 0 {
		return math.NaN()
	}
	return h.sum / float64(h.Count()) / 1e3
}

// Quantile in ms, q from 0 to 1; NaN where nothing was recorded.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Count() == 0 {
		return math.NaN()
	}
	return float64(min(h.h.ValueAtPercentile(100*q), h.max)) / 1e3
}

// Max in ms.
func (h *Histogram) Max() float64 {
	if h.Count() == 0 {
		return math.NaN()
	}
	return float64(h.max) / 1e3
}

// step is a point of the cumulative distribution: this share took no longer.
type step struct{ ms, share float64 }

// cdf are the steps of the distribution.
func (h *Histogram) cdf() []step {
	if h.Count() == 0 {
		return nil
	}
	var steps []step
	seen := int64(0)
	for _, b := range h.h.Distribution() {
		if b.Count > 0 {
			seen += b.Count
			steps = append(steps, step{float64(min(b.To, h.max)) / 1e3, float64(seen) / float64(h.Count())})
		}
	}
	return steps
}

// histogramJSON is a histogram in a file: figures to read, buckets to go on with.
type histogramJSON struct {
	Count   int64   `json:"count"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P95     float64 `json:"p95"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
	Buckets buckets `json:"buckets_us"`
}

// buckets are pairs of an upper end in us and a count that is not 0. In a file
// they are one line of text, "1023:2 1100:1": as an array of arrays they would be
// most of its lines.
type buckets [][2]int64

func (b buckets) MarshalText() ([]byte, error) {
	var text []byte
	for i, x := range b {
		if i > 0 {
			text = append(text, ' ')
		}
		text = fmt.Appendf(text, "%d:%d", x[0], x[1])
	}
	return text, nil
}

func (b *buckets) UnmarshalText(text []byte) error {
	for one := range strings.FieldsSeq(string(text)) {
		us, count, _ := strings.Cut(one, ":")
		x, errX := strconv.ParseInt(us, 10, 64)
		n, errN := strconv.ParseInt(count, 10, 64)
		if errX != nil || errN != nil || x < 0 || n <= 0 {
			return fmt.Errorf("buckets_us: %q: want TIME:COUNT, how many took no longer", one)
		}
		*b = append(*b, [2]int64{x, n})
	}
	return nil
}

// MarshalJSON writes figures in ms and the buckets in us.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	out := histogramJSON{}
	if h.Count() > 0 {
		out = histogramJSON{h.Count(), h.Mean(), h.Quantile(0.50), h.Quantile(0.90), h.Quantile(0.95), h.Quantile(0.99), h.Max(), nil}
		for _, b := range h.h.Distribution() {
			if b.Count > 0 {
				out.Buckets = append(out.Buckets, [2]int64{b.To, b.Count})
			}
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the buckets; mean and maximum are as they were.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var in histogramJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*h = Histogram{}
	for _, b := range in.Buckets {
		if b[1] > math.MaxInt64/4-h.Count() {
			return fmt.Errorf("buckets_us: %d:%d: too many", b[0], b[1])
		}
		h.add(float64(b[0]), b[1])
	}
	if h.Count() != in.Count {
		return fmt.Errorf("count = %d, but the buckets have %d", in.Count, h.Count())
	}
	if h.Count() > 0 {
		if !(in.Mean >= 0) || in.Mean > in.Max*1.001 {
			return errors.New("mean: want a number between 0 and max")
		}
		h.sum, h.max = in.Mean*1e3*float64(in.Count), int64(math.Round(in.Max*1e3))
	}
	return nil
}
