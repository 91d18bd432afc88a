package selector

import (
	"strings"

	"penstock/engine"
	"penstock/route"
)

// Refused says why no engine can be picked.
type Refused uint8

const (
	UnknownModel      Refused = iota // no engine serves that name
	ModelNotTold                     // unknown, but some engine has not said what it serves
	CapabilityNowhere                // no engine of the model is configured with the capability
	CapabilityOut                    // those that have it are out
	RequirementUnmet                 // no engine that is in satisfies the labels demanded
	NoHealthyEngine                  // the engines of the model are out
	AllFull                          // every candidate is at its in-flight cap
	NoOtherEngine                    // all candidates have been tried
	HolderOut                        // the engine that holds what the request names is out
	refusedCount
)

func (r Refused) String() string {
	return [...]string{"unknown_model", "model_not_told", "capability_nowhere", "capability_out",
		"requirement_unmet", "no_healthy_engine", "engines_full", "no_other_engine", "holder_out"}[r]
}

// Refusal is a pick that could not be made, with what a client may be told.
type Refusal struct {
	Why        Refused
	Model      string
	Missing    engine.Capability // of CapabilityNowhere and CapabilityOut
	Require    string            // of RequirementUnmet: the canonical demand
	Residency  bool              // the demand names residency
	LabelKnown bool              // some engine of the model carries the labels, but is out
}

func unknownModel(model string, untold bool) *Refusal {
	why := UnknownModel
	if untold {
		why = ModelNotTold
	}
	return &Refusal{Why: why, Model: model}
}

// refuse finds out, off the hot path, which demand leaves no engine. It names
// the first of: labels that nobody carries, capabilities that nobody has,
// then the same among those that are in.
func (c Class) refuse() *Refusal {
	r := &Refusal{Model: c.key.Model, Require: c.key.Require,
		Residency: strings.HasPrefix(c.key.Require, "residency=") || strings.Contains(c.key.Require, ",residency=")}
	labelled, able, labelledReady, ready := 0, 0, 0, 0
	var missing engine.Capability = c.key.Caps
	for _, e := range c.model.Engines {
		has := route.Satisfies(e, c.key.Require)
		can := e.Can()&c.key.Caps == c.key.Caps
		missing &^= e.Can()
		if e.Ready() {
			ready++
		}
		if has {
			labelled++
			if e.Ready() {
				labelledReady++
			}
		}
		if has && can {
			able++
		}
	}
	r.LabelKnown = labelled > 0
	if missing == 0 {
		missing = c.key.Caps
	}
	switch {
	case labelled == 0:
		r.Why = RequirementUnmet
	case able == 0:
		r.Why, r.Missing = CapabilityNowhere, missing
	case labelledReady == 0 && c.key.Require != "":
		r.Why = RequirementUnmet
	case ready == 0 || c.key.Caps == 0:
		r.Why = NoHealthyEngine
	default:
		r.Why, r.Missing = CapabilityOut, c.key.Caps
	}
	return r
}
