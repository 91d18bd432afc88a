package fleet

import "github.com/prometheus/client_golang/prometheus"

var (
	refusedDesc = prometheus.NewDesc("penstock_plans_refused_total",
		"Plans of this gateway that the fleet refused, by why.", []string{"why"}, nil)
	gatewaysDesc = prometheus.NewDesc("penstock_fleet_gateways",
		"Gateways whose demand counts.", nil, nil)
	leadsDesc = prometheus.NewDesc("penstock_fleet_leads",
		"1 where this gateway plans for all.", nil, nil)
	epochDesc = prometheus.NewDesc("penstock_fleet_epoch",
		"Epoch of the gateway that leads.", nil, nil)
)

// Describe and Collect make a Member a prometheus.Collector.
func (s *Member) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{refusedDesc, gatewaysDesc, leadsDesc, epochDesc} {
		ch <- d
	}
}

// Collect reads the fleet as it is.
func (s *Member) Collect(ch chan<- prometheus.Metric) {
	status := s.Status()
	s.memory.mu.Lock()
	refused := s.refused
	s.memory.mu.Unlock()
	for w := range whys {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(refused[w]), w.String())
	}
	leads := 0.0
	if status.Leader == s.name {
		leads = 1
	}
	ch <- prometheus.MustNewConstMetric(gatewaysDesc, prometheus.GaugeValue, float64(len(status.Gateways)))
	ch <- prometheus.MustNewConstMetric(leadsDesc, prometheus.GaugeValue, leads)
	ch <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(status.Epoch))
}
