package proxy

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/protect"
)

// metrics are the instruments of this package. Label values come from closed
// lists and from the names of engines and models that are known.
type metrics struct {
	requests  *prometheus.CounterVec
	attempts  *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	retries   *prometheus.CounterVec
	sheds     *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	seconds   prometheus.Histogram
	ttft      prometheus.Histogram
	tbot      prometheus.Histogram
	overhead  prometheus.Histogram
	running   prometheus.Gauge
	doneAdded prometheus.Counter
	unfitKeys prometheus.Counter
	panics    prometheus.Counter

	models  sync.Map                                 // model name -> *modelMetrics
	engines sync.Map                                 // engine name -> *[outcomes]prometheus.Counter
	keep    atomic.Pointer[func(engine string) bool] // of the last ForgetEngines; nil: all
}

// tenant is the label of requests while there are no tenants.
const tenant = "default"

// otherModel is the label of names that nobody serves: clients make those up.
const otherModel = "other"

// latencyBuckets reach from a millisecond to the half hour that a slow model
// may take over a long answer.
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560}

func newMetrics(reg prometheus.Registerer, memory *protect.Memory) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		requests: counter("penstock_requests_total", "Requests by model, tenant and how they ended.", "model", "tenant", "outcome"),
		attempts: counter("penstock_attempts_total", "Attempts on an engine by how they ended.", "engine", "outcome"),
		tokens:   counter("penstock_tokens_total", "Tokens as engines counted them: prompt, cached (part of prompt), completion.", "model", "tenant", "kind"),
		retries:  counter("penstock_retries_total", "Further attempts by the cause of the one before.", "reason"),
		sheds:    counter("penstock_shed_total", "Requests refused on purpose, by reason.", "reason"),
		refusals: counter("penstock_refusals_total", "Requests outside the inference paths that were answered with an error, by status.", "status"),
		seconds:  histogram("penstock_request_seconds", "Time from a request's arrival to its end.", latencyBuckets),
		ttft:     histogram("penstock_ttft_seconds", "Time from a request's arrival to its first content.", latencyBuckets),
		tbot:     histogram("penstock_tbot_seconds", "Mean time between the content events of a stream.", latencyBuckets[:14]),
		overhead: histogram("penstock_overhead_seconds", "Time of a request in the gateway outside engines.",
			[]float64{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, .01, .02, .05, .1, .5, 1}),
		running:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_requests_running", Help: "Requests being served."}),
		doneAdded: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_done_added_total", Help: "Complete streams that lacked [DONE], which the gateway added."}),
		unfitKeys: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_unfit_keys_total", Help: "Affinity ids that were ignored as too long or malformed."}),
		panics:    prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_panics_total", Help: "Requests that ended in a panic of the gateway."}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.attempts, m.tokens, m.retries, m.sheds, m.refusals, m.seconds, m.ttft, m.tbot,
			m.overhead, m.running, m.doneAdded, m.unfitKeys, m.panics,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_body_bytes", Help: "Bytes held for request bodies."},
				func() float64 { return float64(memory.Held()) }))
	}
	return m
}

func (m *metrics) shed(reason string) { m.sheds.WithLabelValues(reason).Inc() }

func (m *metrics) refused(status int) { m.refusals.WithLabelValues(strconv.Itoa(status)).Inc() }

// attempt counts one attempt; handles are resolved once per engine.
func (m *metrics) attempt(engine string, o Outcome) {
	v, ok := m.engines.Load(engine)
	if !ok {
		// The last answers of an engine that was removed bring no series back.
		if keep := m.keep.Load(); keep != nil && !(*keep)(engine) {
			return
		}
		handles := new([len(outcomeNames)]prometheus.Counter)
		for i := range handles {
			handles[i] = m.attempts.WithLabelValues(engine, Outcome(i).String())
		}
		v, _ = m.engines.LoadOrStore(engine, handles)
	}
	v.(*[len(outcomeNames)]prometheus.Counter)[o].Inc()
}

// ForgetEngines drops the series of engines that keep does not name.
func (h *Handler) ForgetEngines(keep func(name string) bool) {
	h.metrics.keep.Store(&keep)
	h.metrics.engines.Range(func(name, _ any) bool {
		if n := name.(string); !keep(n) {
			h.metrics.engines.Delete(name)
			h.metrics.attempts.DeletePartialMatch(prometheus.Labels{"engine": n})
		}
		return true
	})
}

// modelMetrics are the handles of one model.
type modelMetrics struct {
	all                        *metrics
	requests                   [len(outcomeNames)]prometheus.Counter
	prompt, cached, completion prometheus.Counter
}

// forModel finds the handles of a known model; "" stands for all others. The
// class that named it exists, so a client cannot make up a series.
func (m *metrics) forModel(model string) *modelMetrics {
	if model == "" {
		model = otherModel
	}
	if v, ok := m.models.Load(model); ok {
		return v.(*modelMetrics)
	}
	mm := &modelMetrics{all: m,
		prompt:     m.tokens.WithLabelValues(model, tenant, "prompt"),
		cached:     m.tokens.WithLabelValues(model, tenant, "cached"),
		completion: m.tokens.WithLabelValues(model, tenant, "completion"),
	}
	for i := range mm.requests {
		mm.requests[i] = m.requests.WithLabelValues(model, tenant, Outcome(i).String())
	}
	v, _ := m.models.LoadOrStore(model, mm)
	return v.(*modelMetrics)
}

// finish books one request. A time to first content of zero means there was none.
func (mm *modelMetrics) finish(o Outcome, total, ttft, tbot, overhead time.Duration, u usage) {
	mm.requests[o].Inc()
	mm.all.seconds.Observe(total.Seconds())
	mm.all.overhead.Observe(overhead.Seconds())
	if ttft > 0 {
		mm.all.ttft.Observe(ttft.Seconds())
	}
	if tbot > 0 {
		mm.all.tbot.Observe(tbot.Seconds())
	}
	if u.Known {
		mm.prompt.Add(float64(u.Prompt))
		mm.cached.Add(float64(u.Cached))
		mm.completion.Add(float64(u.Completion))
	}
}
