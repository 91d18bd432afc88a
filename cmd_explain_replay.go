package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"penstock/selector"
)

// replayed is a decision made again from its record.
type replayed struct {
	ID     string       `json:"id"`
	Engine string       `json:"engine"` // that the replay comes to; "" = none
	Why    string       `json:"why"`
	Same   bool         `json:"same"` // as the record has it
	Steps  []replayStep `json:"steps"`
}

// replayStep is one engine that was looked at, in order.
type replayStep struct {
	Engine   string `json:"engine"`
	InFlight int64  `json:"in_flight"`
	Bound    int64  `json:"bound"`
	State    string `json:"state"`
	Allowed  bool   `json:"allowed"`
}

// replay decides again. What an engine was (out, tried before, the heavier of
// two) is in the record; whether it had room is computed.
func (r requestRecord) replay(cmd *cobra.Command, asJSON bool) error {
	again := replayed{ID: r.ID, Why: r.Why, Steps: []replayStep{}}
	for _, c := range r.Candidates {
		if c.InFlight == nil || c.Share == nil || c.Component == nil || c.Cap == nil {
			return fmt.Errorf("the record of %s does not have what the bounds follow from: an older gateway wrote it", plainText(r.ID))
		}
		factor := 1.0
		if c.Factor != nil {
			factor = *c.Factor
		}
		step := replayStep{Engine: c.Engine, InFlight: int64(*c.InFlight), Bound: selector.Bound(*c.Share, *c.Component, *c.Cap, factor), State: c.State}
		switch c.State {
		case "picked", "at_bound", "at_cap":
			step.Allowed = step.InFlight < step.Bound
		}
		again.Steps = append(again.Steps, step)
		if step.Allowed {
			again.Engine = c.Engine
			break
		}
	}
	again.Same = again.Engine == r.Engine && len(again.Steps) == len(r.Candidates)
	if err := again.print(cmd, asJSON, r.Engine); err != nil {
		return err
	}
	if !again.Same {
		return fmt.Errorf("the replay comes to %q, the record has %q", again.Engine, r.Engine)
	}
	return nil
}

func (a replayed) print(cmd *cobra.Command, asJSON bool, was string) error {
	if asJSON {
		return printJSON(cmd, a)
	}
	w := cmd.OutOrStdout()
	facts := newFacts(w)
	facts.add("request", a.ID)
	facts.add("replay", a.Engine+" ("+a.Why+")")
	facts.add("record", was)
	if err := facts.print(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	lines := newTable(w, "STEP", "ENGINE", "IN FLIGHT", "BOUND", "SO")
	for i, s := range a.Steps {
		so := "takes it"
		if !s.Allowed {
			so = map[string]string{"out": "takes no traffic", "tried": "was tried before", "heavier": "is the heavier of two"}[s.State]
			if so == "" {
				so = "has no room"
			}
		}
		lines.row(strconv.Itoa(i+1), s.Engine, strconv.FormatInt(s.InFlight, 10), strconv.FormatInt(s.Bound, 10), so)
	}
	return lines.print()
}
