package balancer

import "github.com/prometheus/client_golang/prometheus"

var (
	ruleDesc = prometheus.NewDesc("penstock_metrics_distrust",
		"1 for the rule by which an engine's own word about its load is not taken as it is, 0 for the others.", []string{"engine", "why"}, nil)
	ghostDesc = prometheus.NewDesc("penstock_ghost_load",
		"Requests in an engine that no gateway known here sent there.", []string{"engine"}, nil)
	ruleBeganDesc = prometheus.NewDesc("penstock_engine_data_rules_total",
		"Times that a rule about the data of an engine began to hold.", []string{"rule"}, nil)
)

// Describe implements prometheus.Collector.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ruleDesc, ghostDesc, ruleBeganDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Any goroutine may call it.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	for r := range dataRules {
		ch <- prometheus.MustNewConstMetric(ruleBeganDesc, prometheus.CounterValue, float64(o.shown.began[r].Load()), r.String())
	}
	last := o.shown.last.Load()
	if last == nil {
		return
	}
	for _, s := range *last {
		for _, r := range [...]DataRule{Missing, Stale, Distrusted, Lying, Frozen} {
			holds := 0.0
			if s.facts.Rule == r {
				holds = 1
			}
			ch <- prometheus.MustNewConstMetric(ruleDesc, prometheus.GaugeValue, holds, s.engine, r.String())
		}
		ch <- prometheus.MustNewConstMetric(ghostDesc, prometheus.GaugeValue, s.facts.Foreign, s.engine)
	}
}
