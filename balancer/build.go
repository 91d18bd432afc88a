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

// Build makes the next table from the engines, the last table and the classes
// that requests asked for. Pools and components that did not change are those
// of the last table, so that an equal table costs nothing. same reports that
// nothing at all changed: the last table stays. saved, if any, is the table of
// the process before: pools that change are then made from its own. Weights
// are those of the plan where it has a row for a class, else by capacity.
func Build(set *engine.Set, last *route.Table, saved *route.Saved, plan *route.Plan, wanted []route.ClassKey, now time.Time) (next *route.Table, same bool) {
	next = &route.Table{
		Version: last.Version + 1, Built: now, Policy: Capacity.String(), Source: last.Source, Plan: plan,
		Models: make(map[string]*route.Model), Classes: make(map[route.ClassKey]*route.Class), Wants: last.Wants, Ledger: last.Ledger, Shared: last.Shared,
	}
	next.Models, next.Untold = modelsOf(set)
	next.Engines = enginesByID(set)
	if plan != nil {
		next.Policy, next.Rule = plan.Policy, plan.Rule
	}
	rows, prices := plannedRows(plan, last.Source), pricesOf(plan)
	components := componentsOf(next.Models, len(next.Engines), last, rows)
	built := make(map[string]*route.Pool) // by candidate set
	same = last.Models != nil && samePlanAs(next.Plan, last.Plan) && next.Policy == last.Policy && next.Rule == last.Rule && next.Untold == last.Untold && sameModels(next.Models, last.Models) && slices.Equal(next.Engines, last.Engines)
	for _, key := range classesOf(next.Models, wanted) {
		cands := route.Candidates(next.Models[key.Model], key)
		if len(cands) == 0 {
			continue
		}
		comp := components[cands[0].Live.ID]
		rows.weigh(key, cands)
		for i := range cands {
			cands[i].Share = comp.share[cands[i].Live.ID]
		}
		prices.set(cands, last.Classes[key])
		id := setID(cands)
		pool := built[id]
		if pool == nil {
			prev := last.Classes[key]
			if prev != nil && prev.Component == comp.counter && slices.EqualFunc(prev.Candidates, cands, sameCandidate) && prev.Shared == last.Shared && !prev.Drained(now.Unix()) {
				pool = prev.Pool
			} else {
				// Where no conversation is anywhere yet, what a start leaves depends on
				// the weights alone, not on the order in which engines came up.
				var from *route.Pool
				if prev != nil && prev.LastUsed() != 0 {
					from = prev.Pool
				}
				if before := saved.Pool(key, set.Engines, now.Unix()); before != nil {
					from = before
				}
				newPool := route.NewPool
				if last.Shared {
					newPool = route.NewSharedPool
				}
				pool = newPool(cands, comp.counter, from, now.Unix())
			}
			built[id] = pool
		}
		traffic := next.Ledger.Of(key, now)
		shed := rows.shed(key)
		if was := last.Classes[key]; was != nil && was.Pool == pool && was.Traffic == traffic && was.Shed == shed {
			next.Classes[key] = was
			continue
		}
		next.Classes[key] = &route.Class{Pool: pool, Traffic: traffic, Shed: shed}
		same = false
	}
	return next, same && len(next.Classes) == len(last.Classes)
}

// samePlanAs reports whether two are one plan, of whatever age: a table says which
// plan it follows, also where that is new for other sources alone.
func samePlanAs(a, b *route.Plan) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Epoch == b.Epoch && a.Version == b.Version
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
				m = &route.Model{Name: em.ID, Adapter: true}
				models[em.ID] = m
			}
			if n := len(m.Engines); n > 0 && m.Engines[n-1] == e {
				continue // listed twice
			}
			m.Engines = append(m.Engines, e)
			m.Adapter = m.Adapter && em.Parent != ""
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

func enginesByID(set *engine.Set) []*engine.Engine {
	size := 0
	for _, e := range set.Engines {
		size = max(size, int(e.ID)+1)
	}
	byID := make([]*engine.Engine, size)
	for _, e := range set.Engines {
		byID[e.ID] = e
	}
	return byID
}

func sameModels(a, b map[string]*route.Model) bool {
	return maps.EqualFunc(a, b, func(x, y *route.Model) bool {
		return slices.Equal(x.Engines, y.Engines) && slices.Equal(x.Limits, y.Limits) && x.Unlimited == y.Unlimited && x.Adapter == y.Adapter
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

// componentsOf groups the engines, of ids below that; the result is by engine id. A component
// with the same engines as in the last table keeps its counter.
func componentsOf(models map[string]*route.Model, ids int, last *route.Table, rows planned) map[uint16]*component {
	byID := make(map[uint16]*engine.Engine)
	sets := newUnion(ids)
	for _, m := range models {
		for _, e := range m.Engines {
			byID[e.ID] = e
			sets.join([]int{int(m.Engines[0].ID), int(e.ID)})
		}
	}
	members := make(map[int][]*engine.Engine)
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		root := sets.find(int(id))
		members[root] = append(members[root], byID[id])
	}
	old := countersOf(last)
	byEngine := make(map[uint16]*component, len(byID))
	for _, engines := range members {
		c := newComponent(engines, old, rows)
		for _, e := range engines {
			byEngine[e.ID] = c
		}
	}
	return byEngine
}

func newComponent(engines []*engine.Engine, old map[string]*route.Component, rows planned) *component {
	cands := make([]route.Candidate, len(engines))
	sum := int64(0)
	for i, e := range engines {
		cands[i] = route.Candidate{Engine: e, Live: e.Live, Cap: e.Cap()}
		sum += e.InFlight()
	}
	route.Weigh(cands)
	inFlight := rows.share(cands)
	c := &component{counter: old[engineIDs(engines)], share: make(map[uint16]float64, len(engines))}
	if c.counter == nil {
		c.counter = route.NewComponent(engineIDs(engines), sum)
	}
	c.counter.Plan(inFlight)
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
