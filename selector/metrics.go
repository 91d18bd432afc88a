package selector

import "github.com/prometheus/client_golang/prometheus"

// metrics are the instruments of this package, their handles resolved once.
type metrics struct {
	picks [whyCount]prometheus.Counter
	adHoc prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	picks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_picks_total", Help: "Picks by the rule that decided."}, []string{"why"})
	m := &metrics{adHoc: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "penstock_picks_without_table_total", Help: "Requests of a class that had no slot table yet."})}
	for w := range m.picks {
		m.picks[w] = picks.WithLabelValues(Why(w).String())
	}
	if reg != nil {
		reg.MustRegister(picks, m.adHoc)
	}
	return m
}
