package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"penstock/route"
)

// print is the record for people: first what became of the request, then what
// could have, then how it went.
func (r requestRecord) print(w io.Writer) error {
	facts := newFacts(w)
	facts.add("request", r.ID)
	if !r.Time.IsZero() {
		facts.add("at", r.Time.Local().Format("2006-01-02 15:04:05.000 MST"))
	}
	facts.add("model", r.asked())
	facts.add("class", r.Class)
	facts.add("tenant", join(", ", r.Tenant, r.Priority))
	facts.add("source", r.Source)
	facts.add("key", r.keyText())
	facts.add("slot", r.slotText())
	facts.add("served by", join(": ", cmp.Or(r.Engine, "no engine"), r.Why))
	facts.add("rule", ruleText(r.Rule))
	facts.add("planned", r.plannedText())
	facts.add("outcome", r.ended())
	facts.add("usage", usageText(r.Usage))
	if err := facts.print(); err != nil {
		return err
	}
	if err := r.printCandidates(w); err != nil {
		return err
	}
	if err := r.printExcluded(w); err != nil {
		return err
	}
	return r.printAttempts(w)
}

// slotText is where the key's conversations go while all is well.
func (r requestRecord) slotText() string {
	s := r.Slot
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d, now of %s", s.Index, s.Of, cmp.Or(s.Engine, "no engine"))
	if s.Alternate != "" {
		text += ", alternate " + s.Alternate
	}
	if s.Table != r.Table {
		text += fmt.Sprintf(" (table %d)", s.Table)
	}
	return text
}

// ruleText says how engines are picked, where that is not the planned way.
func ruleText(name string) string {
	for r := route.RulePlanned; r <= route.RulePrefix; r++ {
		if r.String() == name && r.Explain() != "" {
			return strings.ReplaceAll(name, "_", "-") + ": " + r.Explain()
		}
	}
	return ""
}

func (r requestRecord) asked() string {
	if r.Stream {
		return join(", ", r.Model, "streamed")
	}
	return r.Model
}

// plannedText says what the table had in mind.
func (r requestRecord) plannedText() string {
	if r.Table == 0 {
		return ""
	}
	text := "by table " + strconv.FormatUint(r.Table, 10)
	if p := r.Planned; p != nil {
		text += ", which gives " + cmp.Or(r.Engine, "it") + " " + share(&p.Share) + " of this class"
		if p.RunnerUp != "" {
			text += "; next would be " + p.RunnerUp + ", " + ms(&p.Dearer) + " dearer"
		}
	}
	return text
}

func (r requestRecord) keyText() string {
	if r.KeySource == "" || r.KeySource == "none" {
		return "none: any engine would do as well"
	}
	if r.Key == "" {
		return "from " + r.KeySource
	}
	return string(r.Key) + ", from " + r.KeySource
}

func (r requestRecord) ended() string {
	if r.Outcome == "" {
		return "still running"
	}
	text := r.Outcome
	if r.Status != 0 {
		text += ", status " + strconv.Itoa(r.Status)
	}
	text = join(", ", text, r.Code)
	if r.TTFT != nil {
		text += ", first content after " + ms(r.TTFT)
	}
	if r.Total != nil {
		text += ", " + ms(r.Total) + " in all"
	}
	return text
}

func (r requestRecord) printCandidates(w io.Writer) error {
	if len(r.Candidates) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "CANDIDATE", "WEIGHT", "IN FLIGHT", "BOUND", "STATE", "ROLE")
	for _, c := range r.Candidates {
		var roles []string
		if c.Engine == r.Engine {
			roles = append(roles, "served")
		}
		if r.Slot != nil && c.Engine == r.Slot.Alternate {
			roles = append(roles, "alternate")
		}
		state := c.State
		if c.Cost != nil {
			state += ", would cost " + ms(c.Cost)
		}
		t.row(c.Engine, share(c.Weight), number(c.InFlight), number(c.Bound), state, strings.Join(roles, ", "))
	}
	return t.print()
}

// excludedShown is enough to see why; --json has all.
const excludedShown = 20

func (r requestRecord) printExcluded(w io.Writer) error {
	if len(r.Excluded) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "LEFT OUT", "WHY")
	for _, e := range r.Excluded[:min(len(r.Excluded), excludedShown)] {
		t.row(e.Engine, e.Why)
	}
	if err := t.print(); err != nil || len(r.Excluded) <= excludedShown {
		return err
	}
	_, err := fmt.Fprintf(w, "and %d more; --json lists all\n", len(r.Excluded)-excludedShown)
	return err
}

func (r requestRecord) printAttempts(w io.Writer) error {
	if len(r.Attempts) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "ATTEMPT", "ENGINE", "OUTCOME", "TOOK")
	for i, a := range r.Attempts {
		t.row(strconv.Itoa(i+1), a.Engine, join(": ", cmp.Or(a.Outcome, "running"), a.Cause), ms(a.Ms))
	}
	return t.print()
}

// facts are name and value pairs, one a line; a fact without a value is left out.
type facts struct{ table }

func newFacts(w io.Writer) facts { return facts{table{newTabWriter(w)}} }

func (f facts) add(name, value string) {
	if value != "" {
		f.row(name, value)
	}
}

func usageText(usage map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		if n, ok := usage[name].(float64); ok {
			parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+strconv.FormatFloat(n, 'f', -1, 64))
		}
	}
	return strings.Join(parts, ", ")
}

// join joins those that are not empty.
func join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

func ms(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v < 10:
		return strconv.FormatFloat(*v, 'f', 1, 64) + " ms"
	case *v < 10_000:
		return strconv.FormatFloat(*v, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(*v/1000, 'f', 1, 64) + " s"
}

func share(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(100**v, 'f', 1, 64) + "%"
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}
