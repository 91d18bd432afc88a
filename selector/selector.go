package selector

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
	"penstock/route"
)

// Need is what a request demands of an engine beyond the model.
type Need = route.Need

// Selector picks engines from the published table.
type Selector struct {
	tables  *route.Published
	memory  *memory
	metrics *metrics
	Records *Records
}

// New returns a selector over the published tables. It starts nothing.
func New(tables *route.Published, reg prometheus.Registerer) *Selector {
	return &Selector{tables: tables, memory: newMemory(), metrics: newMetrics(reg), Records: newRecords()}
}

// Class is a resolved class: the pool of engines that may serve the request,
// out of the table that was current. A request keeps it over its attempts.
type Class struct {
	pool  *route.Pool
	table *route.Table
	model *route.Model
	key   route.ClassKey
}

// Model is the name of the class's model, one of the known names.
func (c Class) Model() string { return c.key.Model }

// String names the class as the table and the metrics do.
func (c Class) String() string { return c.key.String() }

// Resolve finds the class of a request. now dates the use of the class.
// A refusal says why no engine may ever serve it as things are configured.
func (s *Selector) Resolve(model string, need Need, now time.Time) (Class, *Refusal) {
	t := s.tables.Load()
	m, key, pool := t.Class(model, need)
	if m == nil {
		return Class{}, unknownModel(model, t.Untold)
	}
	c := Class{pool: pool, table: t, model: m, key: key}
	if pool == nil {
		cands := route.Candidates(m, key)
		if len(cands) == 0 {
			return Class{}, c.refuse()
		}
		s.metrics.adHoc.Inc()
		c.pool = route.NewAdHoc(cands, route.ComponentOf(t, cands))
		t.Wants.Add(key, now)
	}
	c.pool.Touch(now.Unix())
	return c, nil
}

// Models lists the models that ready engines serve, each with the engines'
// own fields where an engine gave them, sorted by name.
func (s *Selector) Models() []engine.Model {
	t := s.tables.Load()
	var list []engine.Model
	for name, m := range t.Models {
		if best, ok := listed(m); ok {
			best.ID = name
			list = append(list, best)
		}
	}
	slices.SortFunc(list, func(a, b engine.Model) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// listed is the entry of the first ready engine, by name, that gave fields
// for the model; stable while the same engines are ready.
func listed(m *route.Model) (found engine.Model, ok bool) {
	for _, e := range m.Engines {
		if !e.Ready() {
			continue
		}
		models, _ := e.Serves()
		for _, em := range models {
			if em.ID != m.Name {
				continue
			}
			if em.Raw != nil {
				return em, true
			}
			found, ok = em, true
		}
	}
	return found, ok
}

// AnyReady reports whether some engine takes traffic and has weight.
func (s *Selector) AnyReady() bool {
	for _, p := range s.tables.Load().Classes {
		for i := range p.Candidates {
			if c := &p.Candidates[i]; c.Weight > 0 && c.Live.Ready() {
				return true
			}
		}
	}
	return false
}
