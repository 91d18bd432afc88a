package route

import (
	"strings"

	"penstock/engine"
)

// Satisfies reports whether an engine carries every label of a canonical
// demand "name=value,name=value". The empty demand is satisfied by all.
func Satisfies(e *engine.Engine, require string) bool {
	for require != "" {
		var term string
		term, require, _ = strings.Cut(require, ",")
		name, value, _ := strings.Cut(term, "=")
		if !e.Satisfies(name, value) {
			return false
		}
	}
	return true
}

// Candidates are the engines that may serve a class, weighted by capacity.
// The filter is membership and fails closed: it knows nothing of load, health
// or policy, and no path picks from anything but its result.
func Candidates(m *Model, k ClassKey) []Candidate {
	tooShort := 0 // context lengths up to this many tokens are excluded
	if k.Tier > 0 {
		tooShort = m.Limits[k.Tier-1]
	}
	var cands []Candidate
	for _, e := range m.Engines {
		if e.Can()&k.Caps != k.Caps || !Satisfies(e, k.Require) {
			continue
		}
		if limit := e.ContextTokens(m.Name); limit > 0 && limit <= tooShort {
			continue
		}
		cands = append(cands, Candidate{Engine: e, Live: e.Live, Cap: e.Cap()})
	}
	Weigh(cands)
	return cands
}

// Weigh sets weights and shares in proportion to capacity, over the
// candidates that take traffic or soon will (engine.Live.Planned). Where capacity is not known of all, those
// without one count by their in-flight cap, at the rate of those that have
// both; with no capacity at all the caps alone decide.
func Weigh(cands []Candidate) {
	rate, both := 0.0, 0.0
	for i := range cands {
		if c := cands[i].Engine.Capacity; c != nil {
			rate += *c
			both += float64(cands[i].Cap)
		}
	}
	perPlace := 1.0
	if both > 0 && rate > 0 {
		perPlace = rate / both
	}
	sum := 0.0
	for i := range cands {
		c := &cands[i]
		switch {
		case !c.Live.Planned():
			c.Weight = 0
		case c.Engine.Capacity != nil:
			c.Weight = *c.Engine.Capacity
		default:
			c.Weight = float64(c.Cap) * perPlace
		}
		sum += c.Weight
	}
	if sum <= 0 {
		return
	}
	for i := range cands {
		cands[i].Weight /= sum
		cands[i].Share = cands[i].Weight
	}
}

// ComponentOf finds the in-flight counter of the component that the
// candidates belong to in t. A class's candidates are engines of one model,
// so they share one; a component of their own if the table has none yet.
func ComponentOf(t *Table, cands []Candidate) *Component {
	for _, p := range t.Classes {
		if p.ByID(cands[0].Live.ID) != None {
			return p.Component
		}
	}
	return &Component{}
}
