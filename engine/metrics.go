package engine

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape is how one reading of a metrics page ended. Closed.
type scrape uint8

const (
	scrapeRead      scrape = iota // at least one field
	scrapeAbsent                  // 404, 405 or 501: the engine has no such page
	scrapeNameless                // a page with none of the known names: load unknown, never zero
	scrapeStatus                  // any other status
	scrapeTimeout                 // not there within its time
	scrapeRefused                 // nobody listens, or nowhere to connect to
	scrapeBroken                  // ended early, or not HTTP
	scrapeTooLarge                // over maxPageBytes
	scrapeTooMany                 // over maxPageSeries
	scrapeNotWanted               // the dialect has no signals
	scrapeCount
)

func (s scrape) String() string {
	return [...]string{"read", "absent", "no_known_names", "status", "timeout", "refused", "broken", "too_large",
		"too_many_series", "not_wanted"}[s]
}

// pollCounts counts what the poller did to one engine, over its Live's life.
type pollCounts struct {
	probes    [verdictCount]atomic.Uint64
	scrapes   [scrapeCount]atomic.Uint64
	malformed atomic.Uint64 // lines
	lists     atomic.Uint64 // model lists that could not be read
}

// Metrics shows a fleet to Prometheus. It reads the fleet when it is scraped,
// so that an engine has its series from the first scrape and loses them when
// it is removed.
type Metrics struct {
	fleet *Fleet
}

var (
	descState = prometheus.NewDesc("penstock_engine_state",
		"1 for the state that the engine is in, 0 for the others.", []string{"engine", "state"}, nil)
	descInflight = prometheus.NewDesc("penstock_inflight",
		"Attempts that hold a lease on the engine.", []string{"engine"}, nil)
	descSignalAge = prometheus.NewDesc("penstock_signal_age_seconds",
		"Time since the engine's metrics page last had a known signal; absent for engines without signals.", []string{"engine"}, nil)
	descProbes = prometheus.NewDesc("penstock_probes_total",
		"Health probes by what they found.", []string{"engine", "result"}, nil)
	descScrapeFailures = prometheus.NewDesc("penstock_scrape_failures_total",
		"Readings of the engine's metrics page that gave no signals, by reason.", []string{"engine", "reason"}, nil)
	descMalformed = prometheus.NewDesc("penstock_scrape_malformed_lines_total",
		"Lines of the engine's metrics page that were skipped because they cannot be read.", []string{"engine"}, nil)
	descLists = prometheus.NewDesc("penstock_model_list_failures_total",
		"Model lists of the engine that could not be read; the last one stays in use.", []string{"engine"}, nil)
)

// NewMetrics registers the fleet's metrics.
func NewMetrics(reg prometheus.Registerer, f *Fleet) (*Metrics, error) {
	m := &Metrics{fleet: f}
	if err := reg.Register(m); err != nil {
		return nil, err
	}
	return m, nil
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descState, descInflight, descSignalAge, descProbes, descScrapeFailures, descMalformed, descLists} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, e := range m.fleet.Set().Engines {
		e.collectState(ch, now)
		e.collectCounts(ch)
	}
}

func (e *Engine) collectState(ch chan<- prometheus.Metric, now time.Time) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{e.Name}, labels...)...)
	}
	state := e.Status().State
	for _, s := range States {
		v := 0.0
		if s == state {
			v = 1
		}
		gauge(descState, v, s.String())
	}
	gauge(descInflight, float64(e.InFlight()))
	if d := e.Detected(); e.Dialect != DialectOpenAI && (d == nil || d.Dialect != DialectOpenAI) {
		gauge(descSignalAge, now.Sub(time.Unix(0, e.signalAt.Load())).Seconds())
	}
}

func (e *Engine) collectCounts(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{e.Name}, labels...)...)
	}
	for v := range verdictCount {
		if n := e.polls.probes[v].Load(); n > 0 || v == healthy {
			counter(descProbes, n, v.String())
		}
	}
	for s := scrapeAbsent; s < scrapeNotWanted; s++ {
		if n := e.polls.scrapes[s].Load(); n > 0 {
			counter(descScrapeFailures, n, s.String())
		}
	}
	counter(descMalformed, e.polls.malformed.Load())
	counter(descLists, e.polls.lists.Load())
}
