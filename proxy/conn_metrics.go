package proxy

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a connection was ended although its client did not ask for it.
const (
	endedByFrames = "flood"  // frames that no request accounts for
	endedByResets = "resets" // requests taken back as soon as they were made
)

// connMetrics are the instruments of client connections.
type connMetrics struct {
	open       prometheus.Gauge
	ended      *prometheus.CounterVec
	handshakes *prometheus.CounterVec
	h2Errors   *prometheus.CounterVec

	log    *slog.Logger
	said   atomic.Int64 // when a connection that was given up was last logged, in Unix seconds
	mu     sync.Mutex
	errors map[string]prometheus.Counter // by net/http's names
}

// maxH2Errors bounds the label: net/http has about 60 names.
const maxH2Errors = 100

func newConnMetrics(reg prometheus.Registerer, log *slog.Logger) *connMetrics {
	m := &connMetrics{
		log:  log,
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_client_connections", Help: "Open connections of clients."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_client_connections_given_up_total",
			Help: "Connections of clients that were ended for what they sent: a flood of frames, or requests reset at once."}, []string{"reason"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_tls_handshake_failures_total",
			Help: "TLS handshakes of clients that failed, by reason."}, []string{"reason"}),
		h2Errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_h2_errors_total",
			Help: "Faults of HTTP/2 clients in the protocol, by net/http's name for them."}, []string{"error"}),
		errors: make(map[string]prometheus.Counter),
	}
	for _, reason := range []string{endedByFrames, endedByResets} {
		m.ended.WithLabelValues(reason)
	}
	for _, reason := range handshakeFaults {
		m.handshakes.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.open, m.ended, m.handshakes, m.h2Errors)
	}
	return m
}

// h2Error counts a fault by its name.
func (m *connMetrics) h2Error(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.errors[name]
	if !ok {
		if len(m.errors) >= maxH2Errors {
			name = "other"
		}
		c = m.h2Errors.WithLabelValues(name)
		m.errors[name] = c
	}
	c.Inc()
}

// gaveUp counts a connection that was ended, and logs at most one a second.
func (m *connMetrics) gaveUp(why string, from net.Addr) {
	m.ended.WithLabelValues(why).Inc()
	now := time.Now().Unix()
	if last := m.said.Load(); last < now && m.said.CompareAndSwap(last, now) && m.log != nil {
		m.log.Warn("client connection given up", "reason", why, "client", from.String())
	}
}
