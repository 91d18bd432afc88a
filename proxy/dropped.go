package proxy

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
)

const (
	// maxDroppedNames bounds the series: clients choose the names.
	maxDroppedNames     = 64
	maxDroppedNameBytes = 64
)

// droppedHeaders counts, by name, the client headers that no engine saw and
// that pass_headers could hand on: what an operator has to know to decide
// about it. The first maxDroppedNames names have a series of their own. A nil
// one counts nothing.
type droppedHeaders struct {
	total *prometheus.CounterVec
	other prometheus.Counter
	names atomic.Pointer[map[string]prometheus.Counter] // replaced, never changed; nil: not counted
	mu    sync.Mutex                                    // one replacement at a time
}

func newDroppedHeaders() *droppedHeaders {
	d := &droppedHeaders{total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_dropped_headers_total",
		Help: "Client headers that were not handed on and that pass_headers could name, by name."}, []string{"name"})}
	d.other = d.total.WithLabelValues("other")
	names := make(map[string]prometheus.Counter, len(usualKept))
	for _, name := range usualKept {
		names[name] = nil
	}
	d.names.Store(&names)
	return d
}

// usualKept are the names that nearly every request has and that are not
// counted: known from the start, so that they cost one look-up.
var usualKept = [...]string{"Authorization", "X-Api-Key", "Content-Length", "Accept-Encoding", "Connection"}

// count notes a header by its canonical name. No lock but for a new name.
func (d *droppedHeaders) count(name string) {
	if d == nil {
		return
	}
	counter, known := (*d.names.Load())[name]
	if !known {
		counter = d.learn(name)
	}
	if counter != nil {
		counter.Inc()
	}
}

// learn gives a name its counter: nil for what never passes or is understood
// here, that of all others once there are too many.
func (d *droppedHeaders) learn(name string) prometheus.Counter {
	if engine.KeptFromEngines(name) != engine.MayPass || headerKey(name) != KeyNone {
		return nil
	}
	if len(name) > maxDroppedNameBytes || len(*d.names.Load()) >= len(usualKept)+maxDroppedNames {
		return d.other
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := *d.names.Load()
	if counter, known := names[name]; known {
		return counter
	}
	if len(names) >= len(usualKept)+maxDroppedNames {
		return d.other
	}
	counter := d.total.WithLabelValues(strings.ToLower(name))
	next := maps.Clone(names)
	next[name] = counter
	d.names.Store(&next)
	return counter
}
