package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sourceCount is what the metrics tell of a source.
type sourceCount struct {
	failures uint64
	at       time.Time // of the last good answer
}

// countLocked keeps the counts of the sources in use.
func (d *Discovery) countLocked() {
	counts := make(map[source]*sourceCount, len(d.counts))
	keep := func(s source) {
		if counts[s] = d.counts[s]; counts[s] == nil {
			counts[s] = &sourceCount{}
		}
	}
	for _, p := range d.use.patterns {
		keep(p.source)
	}
	for _, l := range d.use.names {
		keep(l.source)
	}
	d.counts = counts
}

var (
	sourceLabels   = []string{"kind", "entry"}
	descDiscovered = prometheus.NewDesc("penstock_discovery_engines",
		"Engines that the entry of [discovery] lists.", sourceLabels, nil)
	descDiscoveryFailing = prometheus.NewDesc("penstock_discovery_failing",
		"1 while the entry's last answer cannot be used and the one before stays in use, else 0.", sourceLabels, nil)
	descDiscoveryFailures = prometheus.NewDesc("penstock_discovery_failures_total",
		"Look-ups that failed, and contents of files that were refused.", sourceLabels, nil)
	descDiscoveryAge = prometheus.NewDesc("penstock_discovery_age_seconds",
		"Time since the entry's last good answer; absent before the first.", sourceLabels, nil)
	descDiscoveryHeld = prometheus.NewDesc("penstock_discovery_held_engines",
		"Engines that are no longer listed and stay for a while, because too many went at once.", nil, nil)
	descDiscoverySkipped = prometheus.NewDesc("penstock_discovery_skipped_engines",
		"Engines that are listed and not used, by reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (d *Discovery) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descDiscovered, descDiscoveryFailing, descDiscoveryFailures, descDiscoveryAge, descDiscoveryHeld, descDiscoverySkipped} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (d *Discovery) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	show := func(s source, engines int, failing bool) {
		count, bad := d.counts[s], 0.0
		if failing {
			bad = 1
		}
		gauge(descDiscovered, float64(engines), s.kind, s.entry)
		gauge(descDiscoveryFailing, bad, s.kind, s.entry)
		ch <- prometheus.MustNewConstMetric(descDiscoveryFailures, prometheus.CounterValue, float64(count.failures), s.kind, s.entry)
		if !count.at.IsZero() {
			gauge(descDiscoveryAge, time.Since(count.at).Seconds(), s.kind, s.entry)
		}
	}
	var reasons [skipCount]int
	for _, p := range d.use.patterns {
		show(p.source, p.engines(), p.fails())
	}
	for _, l := range d.use.names {
		show(l.source, len(l.answer.places), l.failing != "")
	}
	for _, s := range d.skips {
		reasons[s.why]++
	}
	gauge(descDiscoveryHeld, float64(len(d.holds)))
	for why, n := range reasons {
		gauge(descDiscoverySkipped, float64(n), Skip(why).String())
	}
}
