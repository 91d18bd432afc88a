package selector

import (
	"slices"
	"strings"
	"sync/atomic"
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
	sole    [8]atomic.Pointer[soleModel]
	Records *Records
	Bound   Bindings
}

// New returns a selector over the published tables. It starts nothing.
func New(tables *route.Published, reg prometheus.Registerer) *Selector {
	return &Selector{tables: tables, memory: newMemory(), metrics: newMetrics(reg), Records: newRecords()}
}

// Class is a resolved class: the pool of engines that may serve the request,
// out of the table that was current. A request keeps it over its attempts.
type Class struct {
	pool    *route.Pool
	table   *route.Table
	model   *route.Model
	key     route.ClassKey
	traffic *route.Traffic // nil: nobody counts it
	shed    [route.Priorities]float64
}

// Model is the name of the class's model, one of the known names.
func (c Class) Model() string { return c.key.Model }

// String names the class as the table and the metrics do.
func (c Class) String() string { return c.key.String() }

// Several reports whether more than one engine may serve the class.
func (c Class) Several() bool { return c.pool != nil && len(c.pool.Candidates) > 1 }

// Resolve finds the class of a request. now dates the use of the class.
// A refusal says why no engine may ever serve it as things are configured; the
// class then has a key, where its model is known, and nobody to pick.
func (s *Selector) Resolve(model string, need Need, now time.Time) (Class, *Refusal) {
	t := s.tables.Load()
	m, key, class := t.Class(model, need)
	if m == nil {
		return Class{}, unknownModel(model, t.Untold)
	}
	c := Class{table: t, model: m, key: key}
	if class != nil {
		c.pool, c.traffic, c.shed = class.Pool, class.Traffic, class.Shed
	} else {
		cands := route.Candidates(m, key)
		if len(cands) == 0 {
			return c, c.refuse()
		}
		s.metrics.adHoc.Inc()
		c.pool = route.NewAdHoc(cands, route.ComponentOf(t, cands))
		c.traffic = t.Ledger.Of(key, now)
		t.Wants.Add(key, now)
	}
	c.pool.Touch(now.Unix())
	return c, nil
}

// soleModel is the answer to which model is meant where a request names none.
type soleModel struct {
	table *route.Table
	at    time.Time
	need  Need
	model string
	count int
}

const soleFor = 2 * time.Second

// SoleModel is the model that is meant where a request names none: the only
// one, adapters apart, that an engine which satisfies the need serves. count
// is how many there are; told says that a 0 is for good, as things are
// configured. It is worked out once per table, and again after a while: what
// an engine can do may show without a new table.
func (s *Selector) SoleModel(need Need, now time.Time) (model string, count int, told bool) {
	t := s.tables.Load()
	told = len(t.Models) > 0 && !t.Untold
	need.Context = 0 // the longest prompt changes nothing
	cell := &s.sole[uint64(need.Caps)*0x9e3779b97f4a7c15>>61]
	if known := cell.Load(); known != nil && known.table == t && known.need == need && now.Sub(known.at) < soleFor {
		return known.model, known.count, told
	}
	for name, m := range t.Models {
		if !m.Adapter && slices.ContainsFunc(m.Engines, func(e *engine.Engine) bool { return serves(e, need) }) {
			model = name
			count++
		}
	}
	if count != 1 {
		model = ""
	}
	cell.Store(&soleModel{table: t, at: now, need: need, model: model, count: count})
	return model, count, told
}

// Models lists the models of the ready engines that satisfy a canonical demand
// (route.Satisfies), each with the engines' own fields where an engine gave
// them, sorted by name.
func (s *Selector) Models(require string) []engine.Model {
	t := s.tables.Load()
	var list []engine.Model
	for name, m := range t.Models {
		if best, ok := listed(m, require); ok {
			best.ID = name
			list = append(list, best)
		}
	}
	slices.SortFunc(list, func(a, b engine.Model) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// listed is the entry of the first ready engine, by name, that gave fields
// for the model; stable while the same engines are ready.
func listed(m *route.Model, require string) (found engine.Model, ok bool) {
	for _, e := range m.Engines {
		if !e.Ready() || !route.Satisfies(e, require) {
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

// Load is what is in flight on the engines of a model that take traffic, and
// how much they take at once as far as is known.
func (s *Selector) Load(model string) (inFlight, room int64) {
	p := s.tables.Load().Classes[route.ClassKey{Model: model}]
	if p == nil {
		return 0, 0
	}
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Weight > 0 && c.Live.Ready() {
			inFlight += c.Live.InFlight()
			room += min(c.Cap, c.Live.Most())
		}
	}
	return inFlight, room
}

// Current is the class in the table of now, for a request that has waited: the
// engines it waits for may have changed. A class without a pool there stays as
// it is.
func (s *Selector) Current(c Class) Class {
	if t := s.tables.Load(); c.table != nil && t != c.table {
		if now := t.Classes[c.key]; now != nil {
			c.pool, c.traffic, c.table, c.model = now.Pool, now.Traffic, t, t.Models[c.key.Model]
		}
	}
	return c
}

// Key names the class, comparable.
func (c Class) Key() route.ClassKey { return c.key }

// Shed is the fraction of the class's requests of that priority that the table
// plans to refuse, 0 while there is room for it all the same.
func (c *Class) Shed(priority uint8) float64 {
	if c.shed[priority] > 0 && c.pool.Component.HasRoom() {
		return 0
	}
	return c.shed[priority]
}

// Seen reports whether the conversation of a key was here in the last ten minutes.
func (s *Selector) Seen(key uint64, now int64) bool { return s.memory.seen(key, now) }
