package admin

import (
	"fmt"
	"strings"

	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// slot is where a key stands in a slot table.
type slot struct {
	Index     uint64 `json:"index"`
	Of        int    `json:"of"`
	Engine    string `json:"engine"`
	Alternate string `json:"alternate,omitempty"`
	Table     uint64 `json:"table"` // the one in use when the page was asked for
}

// slotOf finds the slot of a record's key in a table, nil where there is none.
func slotOf(r *selector.Record, t *route.Table) *slot {
	class := t.Classes[r.Class]
	if !r.Keyed || class == nil || !class.HasSlots() {
		return nil
	}
	at := class.Slot(r.Key)
	name := func(i uint16) string {
		if int(i) >= len(class.Candidates) {
			return ""
		}
		return class.Candidates[i].Engine.Name
	}
	return &slot{Index: class.SlotIndex(r.Key), Of: class.Slots(), Engine: name(at.Engine), Alternate: name(at.Alternate), Table: t.Version}
}

// excluded is an engine that may not serve a class, by what is known of it
// when the page is asked for.
type excluded struct {
	Engine string `json:"engine"`
	Why    string `json:"why"`
}

// excludedFrom lists the engines that the filters of a class leave out, with
// the first of them that does, and those that take no traffic.
func excludedFrom(k route.ClassKey, t *route.Table, engines []*engine.Engine) []excluded {
	out := []excluded{}
	m := t.Models[k.Model]
	if m == nil {
		return out // its model is gone, or it never had one
	}
	serves := make(map[*engine.Engine]bool, len(m.Engines))
	for _, e := range m.Engines {
		serves[e] = true
	}
	for _, e := range engines {
		if why := whyExcluded(e, m, k, serves[e]); why != "" {
			out = append(out, excluded{e.Name, why})
		}
	}
	return out
}

// whyExcluded is the reason of route.Candidates, or of the engine's state, in
// words; "" for a candidate that takes traffic.
func whyExcluded(e *engine.Engine, m *route.Model, k route.ClassKey, serves bool) string {
	switch missing := k.Caps &^ e.Can(); {
	case !serves:
		return "does not serve " + m.Name
	case missing != 0:
		return "cannot do " + missing.String()
	}
	for term := range strings.SplitSeq(k.Require, ",") {
		if term != "" && !route.Satisfies(e, term) {
			return "does not carry the label " + term
		}
	}
	if limit := e.ContextTokens(m.Name); k.Tier > 0 && int(k.Tier) <= len(m.Limits) && limit > 0 && limit <= m.Limits[k.Tier-1] {
		return fmt.Sprintf("the prompt is longer than its %d tokens", limit)
	}
	if s := e.Status(); !e.Ready() {
		return "is " + s.State.String() + ": " + s.Reason.String()
	}
	return ""
}
