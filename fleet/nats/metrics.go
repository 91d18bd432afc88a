package nats

import (
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"penstock/fleet"
)

// about is what a message was.
type about uint8

const (
	aboutTable about = iota
	aboutReport
	abouts
)

func (a about) String() string { return [...]string{"table", "report"}[a] }

// counter adds up what was sent.
type counter struct{ messages, bytes atomic.Uint64 }

func (c *counter) add(bytes int) {
	c.messages.Add(1)
	c.bytes.Add(uint64(bytes))
}

type counts struct {
	refused                    [abouts][fleet.Gap + 1]atomic.Uint64
	plans                      [fleet.NotNewer + 1]atomic.Uint64
	elected, lost, taken       atomic.Uint64
	forgotten                  atomic.Uint64
	reportBytes, snapshotBytes counter
}

var (
	plansDesc = prometheus.NewDesc("penstock_plans_refused_total",
		"Plans of this gateway that the fleet refused, by why.", []string{"why"}, nil)
	gatewaysDesc = prometheus.NewDesc("penstock_fleet_gateways", "Gateways whose demand counts.", nil, nil)
	leadsDesc    = prometheus.NewDesc("penstock_fleet_leads", "1 where this gateway plans for all.", nil, nil)
	epochDesc    = prometheus.NewDesc("penstock_fleet_epoch", "Epoch of the gateway that leads.", nil, nil)
	refusedDesc  = prometheus.NewDesc("penstock_fleet_refused_total",
		"Messages of other gateways that were not taken, by what they were and why.", []string{"what", "why"}, nil)
	electedDesc   = prometheus.NewDesc("penstock_fleet_elected_total", "Times that this gateway became the leader.", nil, nil)
	forgottenDesc = prometheus.NewDesc("penstock_fleet_lease_forgotten_total",
		"Times that the fleet's store did not have the lease that it had accepted from this gateway.", nil, nil)
	connectedDesc = prometheus.NewDesc("penstock_fleet_connected", "1 while the fleet's store is reached.", nil, nil)
	lostDesc      = prometheus.NewDesc("penstock_fleet_connections_lost_total", "Times that the fleet's store was lost.", nil, nil)
	takenDesc     = prometheus.NewDesc("penstock_fleet_plans_taken_total", "Plans of other gateways that were taken.", nil, nil)
	ageDesc       = prometheus.NewDesc("penstock_fleet_plan_age_seconds", "Since whoever leads last confirmed the plan in use.", nil, nil)
	bytesDesc     = prometheus.NewDesc("penstock_fleet_sent_bytes_total", "Bytes that this gateway sent to the fleet, by what.", []string{"what"}, nil)
	sentDesc      = prometheus.NewDesc("penstock_fleet_sent_total", "Messages that this gateway sent to the fleet, by what.", []string{"what"}, nil)
)

// Describe and Collect make a Member a prometheus.Collector.
func (m *Member) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{plansDesc, gatewaysDesc, leadsDesc, epochDesc, refusedDesc, electedDesc, forgottenDesc, connectedDesc, lostDesc, takenDesc, ageDesc, bytesDesc, sentDesc} {
		ch <- d
	}
}

// Collect reads the member as it is.
func (m *Member) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for w := range m.counts.plans {
		count(plansDesc, m.counts.plans[w].Load(), fleet.Why(w).String())
	}
	for a := range abouts {
		for why := fleet.Oversized; why <= fleet.Gap; why++ {
			count(refusedDesc, m.counts.refused[a][why].Load(), a.String(), why.String())
		}
	}
	count(electedDesc, m.counts.elected.Load())
	count(forgottenDesc, m.counts.forgotten.Load())
	count(lostDesc, m.counts.lost.Load())
	count(takenDesc, m.counts.taken.Load())
	for a, c := range map[about]*counter{aboutTable: &m.counts.snapshotBytes, aboutReport: &m.counts.reportBytes} {
		count(bytesDesc, c.bytes.Load(), a.String())
		count(sentDesc, c.messages.Load(), a.String())
	}
	st := m.Status()
	gauge(connectedDesc, truth(st.Store == "reached"))
	gauge(leadsDesc, truth(st.Leader == m.me.Name))
	gauge(epochDesc, float64(st.Epoch))
	gauge(ageDesc, m.PlanAge().Seconds())
	gauge(gatewaysDesc, float64(m.gateways(st)))
}

// gateways counts them by the digest where this gateway does not lead.
func (m *Member) gateways(st fleet.Status) int {
	if !st.Partial {
		return len(st.Gateways)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.digest.Gateways {
		n += c.N
	}
	return max(n, len(st.Gateways))
}

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// warning is what the log says once in warnEvery.
type warning struct{ about, why string }

const (
	warnEvery   = time.Minute
	maxWarnings = 1024
)

// warn logs a line unless the same was said lately.
func (m *Member) warn(w warning, line string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warnLocked(w, line, args...)
}

func (m *Member) warnLocked(w warning, line string, args ...any) {
	now := time.Now()
	if last, said := m.warned[w]; said && now.Sub(last) < warnEvery {
		return
	}
	if len(m.warned) >= maxWarnings {
		clear(m.warned)
	}
	m.warned[w] = now
	m.log.Warn(line, args...)
}

// refuseLocked counts a message that is not taken, and says so, once a minute
// for each sender and reason.
func (m *Member) refuseLocked(a about, why fleet.Refusal, h fleet.Header, msg *natsgo.Msg) {
	m.counts.refused[a][why].Add(1)
	m.warnLocked(warning{a.String() + " " + msg.Subject + " " + h.From.Name, why.String()}, a.String()+" refused", "why", why.String(),
		"sender", h.From.Name, "subject", msg.Subject, "epoch", h.Epoch, "seq", h.Seq, "bytes", len(msg.Data))
}

// Sent is what a member has sent so far.
type Sent struct{ Tables, TableBytes, Reports, ReportBytes uint64 }

// Sent counts what this member has sent.
func (m *Member) Sent() Sent {
	t, r := &m.counts.snapshotBytes, &m.counts.reportBytes
	return Sent{t.messages.Load(), t.bytes.Load(), r.messages.Load(), r.bytes.Load()}
}
