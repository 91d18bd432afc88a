package report

import (
	"fmt"
	"math"
	"strings"
)

// Markdown is the comparisons as a page of text with tables.
func Markdown(files []*Results, all []*Comparison) string {
	var b strings.Builder
	for i, c := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", inline(orName(c.Scenario)), inline(c.Sentence()))
		head, rows := c.Table()
		markdownTable(&b, head, rows)
		if len(c.Winner.Pairs) > 0 {
			fmt.Fprintf(&b, "\nMean end-to-end latency of %s less that of the others, seed by seed, with 95 %% intervals:\n\n", inline(c.Winner.First))
			var pairs [][]string
			for _, p := range c.Winner.Pairs {
				pairs = append(pairs, p.cells())
			}
			markdownTable(&b, pairHead, pairs)
		}
		for _, note := range c.Winner.Notes {
			fmt.Fprintf(&b, "\n%s\n", inline(note))
		}
	}
	if origin := Origin(files); origin != "" {
		fmt.Fprintf(&b, "\n%s\n", inline(origin))
	}
	return b.String()
}

var pairHead = []string{"AGAINST", "DIFFERENCE ms", "IN PERCENT", "BETTER IN", "SURE"}

// cells are a pair as a row of pairHead.
func (p Pair) cells() []string {
	if p.N == 0 {
		return []string{p.Against, "-", "-", "no common seed", "-"}
	}
	diff, percent, sure := figure(p.Diff.Mean), fmt.Sprintf("%+.1f", 100*p.Diff.Mean/p.Base), "one seed"
	if !math.IsNaN(p.Diff.Half) {
		diff += " ±" + figure(p.Diff.Half)
		percent += fmt.Sprintf(" ±%.1f", 100*p.Diff.Half/p.Base)
		if sure = "no"; p.Diff.sure() {
			sure = "yes"
		}
	}
	return []string{p.Against, diff, percent, fmt.Sprintf("%d of %d", p.Ahead, p.N), sure}
}

func orName(scenario string) string {
	if scenario == "" {
		return "Results"
	}
	return scenario
}

func markdownTable(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + inline(cell) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, r := range rows {
		line(r)
	}
}

// inline keeps text from being markup.
func inline(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ", "<", "&lt;", "`", "'", "*", "\\*", "_", "\\_").Replace(s)
}

// Origin says where results come from.
func Origin(files []*Results) string {
	var parts []string
	seen := map[string]bool{}
	for _, f := range files {
		text := "penstock " + f.Tool
		if f.Commit != "" {
			text += ", commit " + f.Commit
		}
		if f.Date != "" {
			text += ", " + f.Date
		}
		if m := f.Machine; m != nil {
			text += fmt.Sprintf(", %s, %d processors", m.OS, m.CPUs)
			if m.Model != "" {
				text += " (" + m.Model + ")"
			}
			text += ", " + m.Go
		}
		if !seen[text] {
			seen[text] = true
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}
