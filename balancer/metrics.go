package balancer

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/route"
)

// metrics are the instruments of this package.
type metrics struct {
	published [route.ReasonPolicy + 1]prometheus.Counter
	plans     [results]prometheus.Counter
	gap       prometheus.Gauge
	guessed   prometheus.Gauge
	confirmed atomic.Int64 // UnixNano of the last cycle that published or confirmed the table
}

func newMetrics(reg prometheus.Registerer, tables *route.Published) *metrics {
	m := &metrics{}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_tables_total", Help: "Tables published, by what changed."}, []string{"reason"})
	for r := range m.published {
		m.published[r] = vec.WithLabelValues(route.Reason(r).String())
	}
	plans := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_plans_total",
		Help: "Plans of connected sets of engines and classes, by how they came about."}, []string{"result"})
	for r := range m.plans {
		m.plans[r] = plans.WithLabelValues(Result(r).String())
	}
	m.gap = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_certificate_gap",
		Help: "Proven relative distance of the last solution from the optimum; NaN where nothing was solved."})
	m.gap.Set(math.NaN())
	m.guessed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_round_trips_guessed",
		Help: "Round trips from a source to an engine that are neither configured nor measured."})
	if reg != nil {
		reg.MustRegister(vec, plans, m.gap, m.guessed, weights{tables},
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "penstock_table_version", Help: "Version of the table in use."},
				func() float64 { return float64(tables.Load().Version) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "penstock_table_age_seconds", Help: "Time since the control cycle published or confirmed the table."},
				func() float64 {
					if at := m.confirmed.Load(); at > 0 {
						return time.Since(time.Unix(0, at)).Seconds()
					}
					return 0
				}))
	}
	return m
}

// decided counts what a cycle decided.
func (m *metrics) decided(d *Decision) {
	for r, n := range d.Results {
		m.plans[r].Add(float64(n))
	}
	if c := certificateOf(d.Proofs); c != nil {
		m.gap.Set(c.Gap)
	}
	m.guessed.Set(float64(d.Situation.Guessed))
}

// weights reads penstock_weight out of the current table, so that classes and
// engines that are gone leave no series.
type weights struct{ tables *route.Published }

var weightDesc = prometheus.NewDesc("penstock_weight",
	"Fraction of a class's demand at a source that an engine should get.", []string{"source", "class", "engine"}, nil)

func (w weights) Describe(ch chan<- *prometheus.Desc) { ch <- weightDesc }

func (w weights) Collect(ch chan<- prometheus.Metric) {
	t := w.tables.Load()
	for k, p := range t.Classes {
		for i := range p.Candidates {
			ch <- prometheus.MustNewConstMetric(weightDesc, prometheus.GaugeValue,
				p.Candidates[i].Weight, t.Source, k.String(), p.Candidates[i].Engine.Name)
		}
	}
}
