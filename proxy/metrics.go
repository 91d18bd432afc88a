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
	sent      *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	limited   *prometheus.CounterVec
	retries   *prometheus.CounterVec
	sheds     *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	seconds   prometheus.Histogram
	ttft      prometheus.Histogram
	tbot      prometheus.Histogram
	overhead  prometheus.Histogram
	running   atomic.Int64
	searches  *prometheus.CounterVec
	denied    *prometheus.CounterVec
	queue     [protect.Sheddable + 1]prometheus.Observer
	doneAdded prometheus.Counter
	unfitKeys prometheus.Counter
	panics    prometheus.Counter
	conns     *connMetrics

	dropped *droppedHeaders
	engines sync.Map                                 // engine name -> *engineMetrics
	keep    atomic.Pointer[func(engine string) bool] // of the last ForgetEngines; nil: all

	mu      sync.Mutex                // guards what is below, and the making of series with a tenant
	labels  map[string]bool           // tenants with a label of their own
	tenants map[string]*tenantMetrics // by label
}

// otherModel is the label of names that nobody serves: clients make those up.
const otherModel = "other"

// latencyBuckets reach from a millisecond to the half hour that a slow model
// may take over a long answer.
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560}

func newMetrics(reg prometheus.Registerer, memory *protect.Memory, gates *gates) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		dropped: newDroppedHeaders(), tenants: make(map[string]*tenantMetrics),
		requests: counter("penstock_requests_total", "Requests by model, tenant and how they ended.", "model", "tenant", "outcome"),
		attempts: counter("penstock_attempts_total", "Attempts on an engine by how they ended.", "engine", "outcome"),
		sent:     counter("penstock_dispatches_total", "Attempts of which the engine was sent at least a part.", "engine"),
		tokens:   counter("penstock_tokens_total", "Tokens as engines counted them: prompt, cached (part of prompt), completion.", "model", "tenant", "kind"),
		limited:  counter("penstock_rate_limited_total", "Requests refused by their tenant's limit, by tenant and limit (requests, tokens).", "tenant", "limit"),
		retries:  counter("penstock_retries_total", "Further attempts by the cause of the one before.", "reason"),
		sheds:    counter("penstock_shed_total", "Requests refused on purpose, by reason.", "reason"),
		refusals: counter("penstock_refusals_total", "Requests outside the inference paths that were answered with an error, by status.", "status"),
		seconds:  histogram("penstock_request_seconds", "Time from a request's arrival to its end.", latencyBuckets),
		ttft:     histogram("penstock_ttft_seconds", "Time from a request's arrival to its first content.", latencyBuckets),
		tbot:     histogram("penstock_tbot_seconds", "Mean time between the content events of a stream.", latencyBuckets[:14]),
		overhead: histogram("penstock_overhead_seconds", "Time of a request in the gateway outside engines.",
			[]float64{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, .01, .02, .05, .1, .5, 1}),
		searches:  counter("penstock_id_searches_total", "Searches among the engines for an id that nobody remembers, by result.", "result"),
		doneAdded: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_done_added_total", Help: "Complete streams that lacked [DONE], which the gateway added."}),
		unfitKeys: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_unfit_keys_total", Help: "Affinity ids that were ignored as too long or malformed."}),
		panics:    prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_panics_total", Help: "Requests that ended in a panic of the gateway."}),
	}
	m.denied = counter("penstock_retries_denied_total", "Further attempts that the retry budget did not pay for, by the cause of the one before.", "reason")
	queue := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "penstock_queue_seconds", Help: "Time that requests waited for an engine, of those that did, by priority.",
		Buckets: latencyBuckets[:14]}, []string{"priority"})
	for p := range m.queue {
		m.queue[p] = queue.WithLabelValues(protect.Priority(p).String())
	}
	for r := shedNot + 1; r < shedReasons; r++ {
		m.sheds.WithLabelValues(r.String())
	}
	for c := range causes {
		if o := causes[c].outcome; o == OutcomeNotProcessed || o == OutcomeAmbiguous && repeatable(Cause(c)) {
			m.retries.WithLabelValues(Cause(c).String())
			m.denied.WithLabelValues(Cause(c).String())
		}
	}
	for _, result := range searchResults {
		m.searches.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.attempts, m.sent, m.tokens, m.retries, m.sheds, m.refusals, m.seconds, m.ttft, m.tbot,
			m.overhead, m.doneAdded, m.unfitKeys, m.panics, m.searches, m.limited, m.dropped.total, m.denied, queue, gates,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_requests_running", Help: "Requests being served."},
				func() float64 { return float64(m.running.Load()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_body_bytes", Help: "Bytes held for request bodies."},
				func() float64 { return float64(memory.Held()) }))
	}
	return m
}

// queued books the wait of one request for an engine.
func (m *metrics) queued(p protect.Priority, d time.Duration) { m.queue[p].Observe(d.Seconds()) }

func (m *metrics) shed(reason string) { m.sheds.WithLabelValues(reason).Inc() }

// How a search for an id ended.
const (
	searchFound   = "found"
	searchUnknown = "unknown"
	searchUnsure  = "unsure"  // an engine did not answer
	searchRefused = "refused" // too many at once
)

var searchResults = [...]string{searchFound, searchUnknown, searchUnsure, searchRefused}

func (m *metrics) search(result string) { m.searches.WithLabelValues(result).Inc() }

func (m *metrics) refused(status int) { m.refusals.WithLabelValues(strconv.Itoa(status)).Inc() }

// engineMetrics are the handles of one engine.
type engineMetrics struct {
	attempts [len(outcomeNames)]prometheus.Counter
	sent     prometheus.Counter
}

// attempt counts one attempt; handles are resolved once per engine. sent says
// that the engine may have read something of the request.
func (m *metrics) attempt(engine string, o Outcome, sent bool) {
	v, ok := m.engines.Load(engine)
	if !ok {
		// The last answers of an engine that was removed bring no series back.
		if keep := m.keep.Load(); keep != nil && !(*keep)(engine) {
			return
		}
		handles := &engineMetrics{sent: m.sent.WithLabelValues(engine)}
		for i := range handles.attempts {
			handles.attempts[i] = m.attempts.WithLabelValues(engine, Outcome(i).String())
		}
		v, _ = m.engines.LoadOrStore(engine, handles)
	}
	em := v.(*engineMetrics)
	em.attempts[o].Inc()
	if sent {
		em.sent.Inc()
	}
}

// ForgetEngines drops the series of engines that keep does not name.
func (h *Handler) ForgetEngines(keep func(name string) bool) {
	h.metrics.keep.Store(&keep)
	h.metrics.engines.Range(func(name, _ any) bool {
		if n := name.(string); !keep(n) {
			h.metrics.engines.Delete(name)
			h.metrics.attempts.DeletePartialMatch(prometheus.Labels{"engine": n})
			h.metrics.sent.DeletePartialMatch(prometheus.Labels{"engine": n})
		}
		return true
	})
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
