package report

import "math"

// measure is a figure of a run that is compared.
type measure struct {
	key, label, unit, better string
	of                       func(*Run) float64 // NaN: the run does not have it
}

// measures are compared in this order; the first one that all have decides who won.
var measures = []measure{
	{"e2e_mean", "E2E mean", "ms", Lower, func(r *Run) float64 { return r.E2E.Mean() }},
	{"e2e_p50", "E2E p50", "ms", Lower, func(r *Run) float64 { return r.E2E.Quantile(0.50) }},
	{"e2e_p95", "E2E p95", "ms", Lower, func(r *Run) float64 { return r.E2E.Quantile(0.95) }},
	{"e2e_p99", "E2E p99", "ms", Lower, func(r *Run) float64 { return r.E2E.Quantile(0.99) }},
	{"ttft_mean", "TTFT mean", "ms", Lower, func(r *Run) float64 { return r.TTFT.Mean() }},
	{"ttft_p50", "TTFT p50", "ms", Lower, func(r *Run) float64 { return r.TTFT.Quantile(0.50) }},
	{"ttft_p95", "TTFT p95", "ms", Lower, func(r *Run) float64 { return r.TTFT.Quantile(0.95) }},
	{"ttft_p99", "TTFT p99", "ms", Lower, func(r *Run) float64 { return r.TTFT.Quantile(0.99) }},
	{"tbot_mean", "TBOT mean", "ms", Lower, func(r *Run) float64 { return r.TBOT.Mean() }},
	{"tbot_p99", "TBOT p99", "ms", Lower, func(r *Run) float64 { return r.TBOT.Quantile(0.99) }},
	{"good_rate", "goodput", "1/s", Higher, func(r *Run) float64 { return perSecond(r.Good, r.Seconds, r.SLO) }},
	{"good_share", "good", "%", Higher, func(r *Run) float64 { return goodShare(r) }},
	{"output_rate", "output tokens", "1/s", Higher, func(r *Run) float64 { return float64(r.OutputTokens) / r.Seconds }},
	{"shed_share", "shed", "%", Lower, func(r *Run) float64 { return share(r.Shed, r.Requests) }},
	{"error_share", "errors", "%", Lower, func(r *Run) float64 { return share(r.Errors, r.Requests) }},
	{"cached_share", "prompt cached", "%", Higher, func(r *Run) float64 { return cachedShare(r) }},
}

func perSecond(n int, seconds float64, slo *SLO) float64 {
	if slo == nil || seconds == 0 {
		return math.NaN()
	}
	return float64(n) / seconds
}

func goodShare(r *Run) float64 {
	if r.SLO == nil {
		return math.NaN()
	}
	return share(r.Good, r.Requests)
}

func cachedShare(r *Run) float64 {
	if r.CachedTokens == 0 {
		return math.NaN()
	}
	return share(r.CachedTokens, r.PromptTokens)
}

// share in percent.
func share(n, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return 100 * float64(n) / float64(of)
}

// extraMeasure is a figure that only some tools know.
func extraMeasure(m Metric) measure {
	return measure{"extra_" + m.Name, m.Name, m.Unit, m.Better, func(r *Run) float64 {
		for _, x := range r.Extra {
			if x.Name == m.Name {
				return x.Value
			}
		}
		return math.NaN()
	}}
}
