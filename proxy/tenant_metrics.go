package proxy

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/protect"
)

// maxTenantLabels bounds the tenants with series of their own; those after
// them in the configuration share the label "other".
const maxTenantLabels = 200

// tenantMetrics are the handles of one tenant label.
type tenantMetrics struct {
	all    *metrics
	label  string
	models sync.Map // model name -> *modelMetrics
	gone   bool     // the label is no longer configured; guarded by all.mu
}

// modelMetrics are the handles of one model of one tenant.
type modelMetrics struct {
	all                        *metrics
	requests                   [len(outcomeNames)]prometheus.Counter
	prompt, cached, completion prometheus.Counter
}

// keepTenants says which tenants have a label of their own from now on and
// drops the series of those that had one.
func (m *metrics) keepTenants(labels map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labels = labels
	for label, tm := range m.tenants {
		if labels[label] {
			continue
		}
		tm.gone = true
		delete(m.tenants, label)
		for _, series := range []*prometheus.CounterVec{m.requests, m.tokens, m.limited} {
			series.DeletePartialMatch(prometheus.Labels{"tenant": label})
		}
	}
}

// forTenant finds the handles of a tenant, which is a configured name or one
// of the reserved ones.
func (m *metrics) forTenant(name string) *tenantMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forTenantLocked(name)
}

func (m *metrics) forTenantLocked(name string) *tenantMetrics {
	if !m.labels[name] {
		name = otherTenants
	}
	if tm := m.tenants[name]; tm != nil {
		return tm
	}
	tm := &tenantMetrics{all: m, label: name}
	m.tenants[name] = tm
	return tm
}

// forModel finds the handles of a known model; "" stands for all others. The
// class that named it exists, so a client cannot make up a series.
func (tm *tenantMetrics) forModel(model string) *modelMetrics {
	if model == "" {
		model = otherModel
	}
	if v, ok := tm.models.Load(model); ok {
		return v.(*modelMetrics)
	}
	m := tm.all
	m.mu.Lock()
	defer m.mu.Unlock()
	if tm.gone { // the last answers of a tenant that was removed bring no series back
		tm = m.forTenantLocked(otherTenants)
	}
	mm := &modelMetrics{all: m,
		prompt:     m.tokens.WithLabelValues(model, tm.label, "prompt"),
		cached:     m.tokens.WithLabelValues(model, tm.label, "cached"),
		completion: m.tokens.WithLabelValues(model, tm.label, "completion"),
	}
	for i := range mm.requests {
		mm.requests[i] = m.requests.WithLabelValues(model, tm.label, Outcome(i).String())
	}
	v, _ := tm.models.LoadOrStore(model, mm)
	return v.(*modelMetrics)
}

// limited counts a request that the tenant's own limit refused.
func (tm *tenantMetrics) limited(by protect.Spent) {
	m := tm.all
	m.mu.Lock()
	defer m.mu.Unlock()
	if tm.gone {
		tm = m.forTenantLocked(otherTenants)
	}
	m.limited.WithLabelValues(tm.label, by.String()).Inc()
}
