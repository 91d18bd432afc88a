package balancer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/engine"
	"penstock/route"
)

// PolicyCapacity is the name of the policy in tables.
const PolicyCapacity = "capacity"

// Build makes the next table from the engines, the last table and the classes
// that requests asked for. Pools and components that did not change are those
// of the last table, so that an equal table costs nothing. same reports that
// nothing at all changed: the last table stays.
func Build(set *engine.Set, last *route.Table, wanted []route.ClassKey, now time.Time) (next *route.Table, same bool) {
	next = &route.Table{
		Version: last.Version + 1, Built: now, Policy: PolicyCapacity, Source: last.Source,
		Models: make(map[string]*route.Model), Classes: make(map[route.ClassKey]*route.Pool), Wants: last.Wants,
	}
	next.Models, next.Untold = modelsOf(set)
	components := componentsOf(next.Models, last)
	built := make(map[string]*route.Pool) // by candidate set
	same = last.Version > 0 && next.Untold == last.Untold && sameModels(next.Models, last.Models)
	for _, key := range classesOf(next.Models, wanted) {
		cands := route.Candidates(next.Models[key.Model], key)
		if len(cands) == 0 {
			continue
		}
		comp := components[cands[0].Live.ID]
		for i := range cands {
			cands[i].Share = comp.share[cands[i].Live.ID]
		}
		id := setID(cands)
		pool := built[id]
		if pool == nil {
			prev := last.Classes[key]
			if prev != nil && prev.Component == comp.counter && slices.EqualFunc(prev.Candidates, cands, sameCandidate) && !prev.Drained(now.Unix()) {
				pool = prev
			} else {
				if prev != nil && prev.LastUsed() == 0 {
					// No conversation is anywhere yet: what a start leaves depends on
					// the weights alone, not on the order in which engines came up.
					prev = nil
				}
				pool = route.NewPool(cands, comp.counter, prev, now.Unix())
			}
			built[id] = pool
		}
		next.Classes[key] = pool
		same = same && last.Classes[key] == pool
	}
	return next, same && len(next.Classes) == len(last.Classes)
}

func sameCandidate(a, b route.Candidate) bool { return a == b }

// setID is a candidate set as a map key.
func setID(cands []route.Candidate) string {
	b := make([]byte, 0, 2*len(cands))
	for i := range cands {
		b = binary.LittleEndian.AppendUint16(b, cands[i].Live.ID)
	}
	return string(b)
}

// modelsOf collects who serves what. An engine's last list stays good while
// the engine is out, so that its models are unavailable, not unknown.
func modelsOf(set *engine.Set) (models map[string]*route.Model, untold bool) {
	models = make(map[string]*route.Model)
	for _, e := range set.Engines {
		list, known := e.Serves()
		if !known {
			untold = true
		}
		for _, em := range list {
			m := models[em.ID]
			if m == nil {
				m = &route.Model{Name: em.ID}
				models[em.ID] = m
			}
			if n := len(m.Engines); n > 0 && m.Engines[n-1] == e {
				continue // listed twice
			}
			m.Engines = append(m.Engines, e)
			if em.ContextTokens > 0 {
				m.Limits = append(m.Limits, em.ContextTokens)
			} else {
				m.Unlimited = true
			}
		}
	}
	for _, m := range models {
		slices.Sort(m.Limits)
		m.Limits = slices.Compact(m.Limits)
	}
	return models, untold
}

func sameModels(a, b map[string]*route.Model) bool {
	return maps.EqualFunc(a, b, func(x, y *route.Model) bool {
		return slices.Equal(x.Engines, y.Engines) && slices.Equal(x.Limits, y.Limits) && x.Unlimited == y.Unlimited
	})
}

// classesOf lists the plain class of every model, then the wanted ones whose
// model is still known, in a fixed order.
func classesOf(models map[string]*route.Model, wanted []route.ClassKey) []route.ClassKey {
	var keys []route.ClassKey
	for _, name := range slices.Sorted(maps.Keys(models)) {
		keys = append(keys, route.ClassKey{Model: name})
	}
	plain := len(keys)
	for _, k := range wanted {
		if m := models[k.Model]; m != nil && int(k.Tier) <= len(m.Limits) && (k.Caps != 0 || k.Tier != 0 || k.Require != "") {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys[plain:], func(a, b route.ClassKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// component is a set of engines connected by models, with the planned share
// of its in-flight that each engine should hold.
type component struct {
	counter *route.Component
	share   map[uint16]float64
}

// componentsOf groups the engines; the result is by engine id. A component
// with the same engines as in the last table keeps its counter.
func componentsOf(models map[string]*route.Model, last *route.Table) map[uint16]*component {
	parent := make(map[uint16]uint16)
	byID := make(map[uint16]*engine.Engine)
	find := func(id uint16) uint16 {
		for parent[id] != id {
			parent[id] = parent[parent[id]]
			id = parent[id]
		}
		return id
	}
	for _, m := range models {
		for _, e := range m.Engines {
			if byID[e.ID] == nil {
				byID[e.ID], parent[e.ID] = e, e.ID
			}
			parent[find(e.ID)] = find(m.Engines[0].ID)
		}
	}
	members := make(map[uint16][]*engine.Engine)
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		root := find(id)
		members[root] = append(members[root], byID[id])
	}
	old := countersOf(last)
	byEngine := make(map[uint16]*component, len(byID))
	for _, engines := range members {
		c := newComponent(engines, old)
		for _, e := range engines {
			byEngine[e.ID] = c
		}
	}
	return byEngine
}

func newComponent(engines []*engine.Engine, old map[string]*route.Component) *component {
	cands := make([]route.Candidate, len(engines))
	sum := int64(0)
	for i, e := range engines {
		cands[i] = route.Candidate{Engine: e, Live: e.Live, Cap: e.Cap()}
		sum += e.InFlight()
	}
	route.Weigh(cands)
	c := &component{counter: old[engineIDs(engines)], share: make(map[uint16]float64, len(engines))}
	if c.counter == nil {
		c.counter = route.NewComponent(engineIDs(engines), sum)
	}
	for i := range cands {
		c.share[cands[i].Live.ID] = cands[i].Share
	}
	return c
}

// countersOf finds the component counters of a table by their engines.
func countersOf(t *route.Table) map[string]*route.Component {
	found := make(map[string]*route.Component)
	for _, p := range t.Classes {
		found[p.Component.Members] = p.Component
	}
	return found
}

// engineIDs is a set of engines, sorted by id, as a map key.
func engineIDs(engines []*engine.Engine) string {
	var b bytes.Buffer
	for _, e := range engines {
		b.WriteByte(byte(e.ID))
		b.WriteByte(byte(e.ID >> 8))
	}
	return b.String()
}
