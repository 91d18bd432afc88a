package proxy

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	budgetDesc = prometheus.NewDesc("penstock_retry_budget",
		"Further attempts that the last ten seconds would still allow, of the model that has the fewest left.", nil, nil)
	utilisationDesc = prometheus.NewDesc("penstock_utilisation",
		"What is in flight and waits, over what the engines of the model take at once; mean of the last second, at most 2.", []string{"model"}, nil)
	waitingDesc = prometheus.NewDesc("penstock_queue_waiting", "Requests that wait for an engine.", nil, nil)
)

// Describe and Collect make the gates a collector of their own: what they tell
// is read when it is asked for.
func (gs *gates) Describe(to chan<- *prometheus.Desc) {
	to <- budgetDesc
	to <- utilisationDesc
	to <- waitingDesc
}

// Collect implements prometheus.Collector.
func (gs *gates) Collect(to chan<- prometheus.Metric) {
	left := math.Inf(1)
	now := time.Now()
	for model, g := range *gs.byModel.Load() {
		u := g.u.Value()
		left = min(left, g.budget.Left(u, now))
		to <- prometheus.MustNewConstMetric(utilisationDesc, prometheus.GaugeValue, u, model)
	}
	if math.IsInf(left, 1) {
		left = gs.spare.Left(0, now)
	}
	to <- prometheus.MustNewConstMetric(budgetDesc, prometheus.GaugeValue, left)
	to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(gs.waiting.Load()))
}
