package main

import (
	"fmt"
	"math"
	"time"

	"penstock/bench/report"
	"penstock/bench/sim"
)

// results are the runs in the form of a results file. There is no date and no
// machine in it: the same simulation has the same file.
func (r *simulateReport) results() *report.Results {
	all := &report.Results{Version: report.Version, Tool: "simulate", Title: r.trace, Commit: commitOf()}
	for i := range r.scenarios {
		s := &r.scenarios[i]
		for _, runs := range s.runs {
			all.Policies = append(all.Policies, policyOf(s.name, runs))
			for _, run := range runs {
				all.Runs = append(all.Runs, r.run(s, run))
			}
		}
	}
	return all
}

func policyOf(scenario string, runs []*sim.Summary) report.Policy {
	mean := sim.Average(runs)
	p := report.Policy{Name: mean.Policy, Scenario: scenario, Requests: mean.Requests, TTFT: report.Spread(mean.TTFT), E2E: report.Spread(mean.E2E)}
	for _, run := range runs {
		p.OK += run.OK
		p.Shed += run.ShedCount
	}
	return p
}

func (r *simulateReport) run(s *simulateScenario, v *sim.Summary) report.Run {
	inMS := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	run := report.Run{Name: v.Policy, Scenario: s.name, Seed: v.Seed, Seconds: v.Seconds,
		Settings: map[string]string{"trace": r.trace, "rate": fmt.Sprintf("%.4g requests/s", s.rate), "utilisation": fmt.Sprintf("%.2f", s.rate/s.capacity),
			"engines": fmt.Sprint(s.engines)},
		Requests: v.Requests, OK: v.OK, Good: v.Good, Shed: v.ShedCount, Errors: v.Requests - v.OK - v.ShedCount, Outcomes: v.Failed,
		SLO:          &report.SLO{TTFT: inMS(r.slo.TTFT), TBOT: inMS(r.slo.TBOT), E2E: inMS(r.slo.E2E)},
		PromptTokens: v.PromptTokens, CachedTokens: v.CachedTokens, OutputTokens: v.OutputTokens,
		Extra: []report.Metric{
			{Name: "turns elsewhere than the turn before", Unit: "%", Value: 100 * v.Moved, Better: report.Lower},
			{Name: "spill", Unit: "%", Value: 100 * v.Spill},
			{Name: "served in another region", Unit: "%", Value: 100 * v.Remote},
			{Name: "load of the fullest engine over the mean", Value: v.Imbalance, Better: report.Lower},
			{Name: "attempts per request", Value: v.Dispatches, Better: report.Lower},
		}}
	if v.Fill > 0 {
		run.Settings["threshold"] = fmt.Sprintf("%.1f", v.Fill)
	}
	ttft, e2e, tbot := v.Times()
	run.TTFT, run.E2E, run.TBOT = histogramOf(ttft), histogramOf(e2e), histogramOf(tbot)
	if n := len(v.Series); n > 1 {
		step, start := v.Series[1].At-v.Series[0].At, v.Series[0].At
		for _, line := range []struct {
			name, unit string
			of         func(*sim.Interval) float64
		}{
			{"offered", "1/s", func(i *sim.Interval) float64 { return i.Offered }},
			{"done", "1/s", func(i *sim.Interval) float64 { return i.Done }},
			{"shed", "1/s", func(i *sim.Interval) float64 { return i.Shed }},
			{"TTFT mean", "ms", func(i *sim.Interval) float64 { return whereDone(i, i.TTFT) }},
			{"E2E mean", "ms", func(i *sim.Interval) float64 { return whereDone(i, i.E2E) }},
		} {
			series := report.Series{Name: line.name, Unit: line.unit, Start: start, Step: step}
			for i := range v.Series {
				series.Values = append(series.Values, line.of(&v.Series[i]))
			}
			run.Series = append(run.Series, series)
		}
	}
	for _, f := range v.Flows {
		run.Flows = append(run.Flows, report.Flow{Source: f.Source, Engine: f.Engine, Requests: f.Requests, Mean: f.Mean})
	}
	return run
}

// whereDone is a mean of requests that came in an interval; none where none did.
func whereDone(i *sim.Interval, mean float64) float64 {
	if i.Done == 0 {
		return math.NaN()
	}
	return mean
}

func histogramOf(times []float64) *report.Histogram {
	h := &report.Histogram{}
	for _, v := range times {
		h.RecordMS(v)
	}
	return h
}
