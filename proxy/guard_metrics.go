package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/protect"
)

var (
	descBreaker = prometheus.NewDesc("penstock_breaker_state",
		"The engine's breaker: 0 closed, 1 open, 2 half open.", []string{"engine"}, nil)
	descPenalty = prometheus.NewDesc("penstock_penalty",
		"What penalties leave of the engine's weight, 1 for all of it.", []string{"engine"}, nil)
	descFactor = prometheus.NewDesc("penstock_engine_factor",
		"What penalty, slow start and \"full\" together leave of the engine's weight.", []string{"engine"}, nil)
	descAttention = prometheus.NewDesc("penstock_engine_needs_attention",
		"1 for an engine that has been out or under a penalty for so long that a person should look at it.", []string{"engine"}, nil)
	descOpened = prometheus.NewDesc("penstock_breaker_opened_total",
		"Times that the engine's breaker opened, by what opened it.", []string{"engine", "why"}, nil)
	descBreakerProbes = prometheus.NewDesc("penstock_breaker_probes_total",
		"Requests of the gateway's own to the engine while its breaker was open, by result.", []string{"engine", "result"}, nil)
	descPanic = prometheus.NewDesc("penstock_panic_mode",
		"1 while so little of some model's capacity is left that penalties and breakers are ignored.", nil, nil)
)

// Describe implements prometheus.Collector.
func (gs *guards) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBreaker, descPenalty, descFactor, descAttention, descPanic, descOpened, descBreakerProbes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Engines have their series from the
// first scrape on.
func (gs *guards) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := map[bool]float64{true: 1}
	if gs.fleet == nil {
		return
	}
	for _, e := range gs.fleet.Set().Engines {
		g := gs.of(e)
		gauge(descBreaker, float64(g.breaker.State()), e.Name)
		gauge(descPenalty, g.penalty.Factor(now), e.Name)
		gauge(descFactor, e.Allowance().Factor(), e.Name)
		for why := range g.opens {
			ch <- prometheus.MustNewConstMetric(descOpened, prometheus.CounterValue, float64(g.opens[why].Load()), e.Name, protect.Trip(why).String())
		}
		for r := range g.probes {
			ch <- prometheus.MustNewConstMetric(descBreakerProbes, prometheus.CounterValue, float64(g.probes[r].Load()), e.Name, probeResults[r])
		}
		gauge(descAttention, flag[e.Protection().Attention != ""], e.Name)
	}
	gs.mu.Lock()
	panics := false
	for _, p := range gs.pools {
		panics = panics || p.panics
	}
	gs.mu.Unlock()
	gauge(descPanic, flag[panics])
}
