package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// print is the table for people: what made it, then the weights of each source
// and class with the heaviest first, why they are so, and what changed.
func (t routingTable) print(w io.Writer) error {
	facts := newFacts(w)
	facts.add("table", strconv.FormatUint(t.Version, 10))
	facts.add("policy", t.Policy)
	facts.add("rule", ruleText(t.Rule))
	facts.add("reason", t.Reason)
	if c := t.Certificate; c != nil {
		text := fmt.Sprintf("gap %.2g (objective %.6g, bound %.6g)", c.Gap, c.Objective, c.Bound)
		if c.Damping > 0 {
			text += fmt.Sprintf("; what moves slowly costs %.2g%% on top", 100*c.Damping)
		}
		facts.add("certificate", text)
	} else {
		facts.add("certificate", "none: this policy does not solve for the optimum, or has not yet")
	}
	if t.Plan != nil {
		if !t.Plan.Leads {
			facts.add("planned by", "another gateway, which says why")
		}
		facts.add("unknown yet", strings.Join(t.Plan.Uncalibrated, ", "))
	}
	if err := facts.print(); err != nil {
		return err
	}
	if len(t.Weights) == 0 {
		_, err := fmt.Fprintln(w, "\nno weights yet: no class has been asked for")
		return err
	}
	for _, part := range []func(io.Writer) error{t.printWeights, t.printShed, t.printWhy, t.printFeedback, t.printEngines, t.printChanges} {
		if err := part(w); err != nil {
			return err
		}
	}
	return nil
}

func (t routingTable) printWeights(w io.Writer) error {
	fmt.Fprintln(w)
	rows := slices.Clone(t.Weights)
	slices.SortFunc(rows, func(a, b weight) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Class, b.Class),
			cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Engine, b.Engine))
	})
	lines := newTable(w, "SOURCE", "CLASS", "ENGINE", "WEIGHT")
	first := map[string]string{} // class that was printed with the same weights
	for len(rows) > 0 {
		of := rows[:1]
		for len(of) < len(rows) && rows[len(of)].Source == of[0].Source && rows[len(of)].Class == of[0].Class {
			of = rows[:len(of)+1]
		}
		rows = rows[len(of):]
		var same strings.Builder
		for _, r := range of {
			fmt.Fprintf(&same, "%q %q %v ", r.Source, r.Engine, r.Weight)
		}
		if like := first[same.String()]; like != "" {
			lines.row(of[0].Source, of[0].Class, "as "+like)
			continue
		}
		first[same.String()] = of[0].Class
		for i, r := range of {
			source, class := r.Source, r.Class
			if i > 0 {
				source, class = `"`, `"`
			}
			const width = 20 // of a bar that means all
			bar := strings.Repeat("#", min(max(int(r.Weight*width+0.5), 0), width))
			lines.row(source, class, r.Engine, share(&r.Weight), cmp.Or(bar, "."))
		}
	}
	return lines.print()
}

// alike joins what has the same text: names in the order of the first of each.
type alike struct {
	texts []string
	names map[string][]string
}

func (a *alike) add(text, name string) {
	if a.names == nil {
		a.names = map[string][]string{}
	}
	if len(a.names[text]) == 0 {
		a.texts = append(a.texts, text)
	}
	a.names[text] = append(a.names[text], name)
}

// of are the names that share a text, the first few of many.
func (a *alike) of(text string) string {
	const shown = 4
	names := a.names[text]
	if len(names) > shown+1 {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}

func (t routingTable) printShed(w io.Writer) error {
	if len(t.Shed) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	lines := newTable(w, "REFUSED AT", "CLASS", "PRIORITY", "SHARE")
	for _, r := range t.Shed {
		lines.row(r.Source, r.Class, r.Priority, share(&r.Fraction))
	}
	return lines.print()
}

// printWhy has a paragraph for each source and class that was planned, one for
// all classes of which the same is to be said.
func (t routingTable) printWhy(w io.Writer) error {
	if t.Plan == nil {
		return nil
	}
	var said alike
	for _, r := range t.Plan.Rows {
		if r.Why == nil {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, " from %s\n", plainText(r.Source))
		if err := r.Why.print(&b); err != nil {
			return err
		}
		said.add(b.String(), plainText(r.Class))
	}
	for _, text := range said.texts {
		if _, err := fmt.Fprintf(w, "\n%s%s", said.of(text), text); err != nil {
			return err
		}
	}
	return nil
}

func (y *planWhy) print(w io.Writer) error {
	for _, sentence := range y.Text {
		fmt.Fprintf(w, "  %s\n", plainText(sentence))
	}
	if len(y.Options) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	lines := newTable(w, "  ENGINE", "WEIGHT", "WAY", "TIME THERE", "PRICE", "ONE MORE COSTS")
	for _, o := range y.Options {
		lines.row("  "+o.Engine, share(&o.Weight), ms(&o.Network), ms(&o.Latency), ms(&o.Price), ms(&o.Marginal))
	}
	return lines.print()
}

func (t routingTable) printFeedback(w io.Writer) error {
	if t.Feedback == nil {
		return nil
	}
	for i := range t.Feedback.Engines {
		e := &t.Feedback.Engines[i]
		e.Engine, e.Clamped = plainText(e.Engine), plainText(e.Clamped)
	}
	fmt.Fprintln(w)
	return t.Feedback.Print(w)
}

func (t routingTable) printEngines(w io.Writer) error {
	if t.Plan == nil || len(t.Plan.Engines) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	lines := newTable(w, "ENGINE", "PLANNED LOAD", "CAPACITY", "USED", "TIME THERE", "MORE CAPACITY SAVES")
	for _, e := range t.Plan.Engines {
		used := 0.0
		if e.Capacity > 0 {
			used = e.Load / e.Capacity
		}
		saves := ""
		if e.CapacityPrice > 0 {
			saves = ms(&e.CapacityPrice) + " a request"
		}
		latency := ""
		if e.Latency > 0 {
			latency = ms(&e.Latency)
		}
		lines.row(e.Engine, short(e.Load)+"/s", short(e.Capacity)+"/s", share(&used), latency, saves)
	}
	return lines.print()
}

// What people see of changes: the last tables, and of each the first causes; the
// document has more.
const (
	changesShown = 5
	causesShown  = 6
)

func (t routingTable) printChanges(w io.Writer) error {
	for i, c := range t.Changes {
		if i == changesShown {
			break
		}
		fmt.Fprintf(w, "\ntable %d, %s, %s\n", c.Version, c.At.Local().Format("15:04:05"), plainText(c.Reason))
		for _, cause := range c.Causes[:min(len(c.Causes), causesShown)] {
			fmt.Fprintf(w, "  because of: %s\n", plainText(cause))
		}
		if more := len(c.Causes) - causesShown; more > 0 {
			fmt.Fprintf(w, "  and of %d more; --json lists all\n", more)
		}
		var moves alike
		for _, m := range c.Moves {
			var parts []string
			for _, e := range m.Engines {
				parts = append(parts, fmt.Sprintf("%s %s to %s", e.Engine, share(&e.From), share(&e.To)))
			}
			moves.add(share(&m.Share)+"\x00"+plainText(after(": ", strings.Join(parts, ", "))), plainText(m.Class))
		}
		for _, text := range moves.texts {
			part, to, _ := strings.Cut(text, "\x00")
			fmt.Fprintf(w, "  %s of %s moves%s\n", part, moves.of(text), to)
		}
		if len(c.Moves) == 0 {
			fmt.Fprintln(w, "  no weight moves")
		}
	}
	return nil
}

// after is text behind a mark, nothing where there is none.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}
