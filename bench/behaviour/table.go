package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// table is a part of the report: rows by targets.
type table struct {
	title   string
	rows    []*row
	targets []*target
	cells   []*cell // by row, then by target
}

func newTable(title string, rows []*row, targets []*target) *table {
	t := &table{title: title, rows: rows, targets: targets}
	for _, r := range rows {
		for _, x := range targets {
			t.cells = append(t.cells, &cell{row: r, target: x})
		}
	}
	return t
}

func (t *table) cell(r, x int) *cell { return t.cells[r*len(t.targets)+x] }

// marks is the legend of every table.
const marks = "✓ right   ✗ wrong   ~ wrong, waits for a part of Penstock that is not built   ! could not be run"

// cellText is a cell as it stands in the table.
func (c *cell) cellText() string {
	switch {
	case c.target.skip != "":
		return "not here"
	case c.verdict == isSkipped:
		return c.text
	}
	return c.verdict.mark() + " " + c.text
}

// grid is the table with its head, turned where there are more targets than rows fit beside each other.
func (t *table) grid(turned bool) [][]string {
	var grid [][]string
	if turned {
		head := []string{"policy"}
		wanted := []string{"wanted"}
		for _, r := range t.rows {
			head = append(head, r.name)
			wanted = append(wanted, r.wanted)
		}
		grid = append(grid, head)
		for x, target := range t.targets {
			line := []string{target.title()}
			if target.policy != nil {
				line[0] += ", " + target.policy.title
			}
			for r := range t.rows {
				line = append(line, t.cell(r, x).cellText())
			}
			grid = append(grid, line)
		}
		return append(grid, wanted)
	}
	head := []string{"row", "wanted"}
	for _, x := range t.targets {
		head = append(head, x.title())
	}
	grid = append(grid, head)
	for r, row := range t.rows {
		line := []string{row.name, row.wanted}
		for x := range t.targets {
			line = append(line, t.cell(r, x).cellText())
		}
		grid = append(grid, line)
	}
	return append(grid, t.totals())
}

// totals counts what is right in every column.
func (t *table) totals() []string {
	line := []string{"right", fmt.Sprintf("%d rows", len(t.rows))}
	for x, target := range t.targets {
		if target.skip != "" {
			line = append(line, "")
			continue
		}
		n, waits := 0, 0
		for r := range t.rows {
			switch t.cell(r, x).verdict {
			case isRight:
				n++
			case isWaiting:
				waits++
			}
		}
		text := fmt.Sprint(n)
		if waits > 0 {
			text += fmt.Sprintf(", %d wait", waits)
		}
		line = append(line, text)
	}
	return line
}

// columnWidth is how wide a column of the text table may be.
const columnWidth = 24

// writeText prints the grid with its cells wrapped.
func writeText(w io.Writer, title string, grid [][]string) error {
	fmt.Fprintf(w, "%s\n\n", title)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, line := range grid {
		var cells [][]string
		height := 0
		for _, text := range line {
			lines := wrap(text, columnWidth)
			cells = append(cells, lines)
			height = max(height, len(lines))
		}
		for n := range height {
			for _, c := range cells {
				if n < len(c) {
					fmt.Fprint(out, c[n])
				}
				fmt.Fprint(out, "\t")
			}
			fmt.Fprintln(out)
		}
		if i < len(grid)-1 {
			fmt.Fprintln(out, strings.Repeat("\t", len(line)))
		}
	}
	return out.Flush()
}

// wrap breaks a text between words.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// writeMarkdown prints the grid as a table of Markdown.
func writeMarkdown(w io.Writer, title string, grid [][]string) error {
	fmt.Fprintf(w, "### %s\n\n", title)
	for i, line := range grid {
		escaped := make([]string, 0, len(line))
		for _, text := range line {
			escaped = append(escaped, strings.NewReplacer("|", `\|`, "\n", " ").Replace(text))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(escaped, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// report is the run as a JSON document.
type report struct {
	Date    string         `json:"date"`
	Machine string         `json:"machine"`
	Repeat  int            `json:"repetitions"`
	Targets []reportTarget `json:"targets"`
	Rows    []reportRow    `json:"rows"`
	Costs   []costRow      `json:"costs,omitempty"`
}

type reportTarget struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Skipped string `json:"skipped,omitempty"`
}

type reportRow struct {
	Table  string       `json:"table"`
	Name   string       `json:"name"`
	Wanted string       `json:"wanted"`
	Cells  []reportCell `json:"cells"`
}

type reportCell struct {
	Target  string        `json:"target"`
	Policy  string        `json:"policy,omitempty"`
	Verdict string        `json:"verdict"`
	Text    string        `json:"text"`
	Waits   string        `json:"waits_for,omitempty"`
	Seen    []observation `json:"seen,omitempty"`
}

func (r *report) add(t *table) {
	for i, row := range t.rows {
		out := reportRow{Table: t.title, Name: row.name, Wanted: row.wanted}
		for x, target := range t.targets {
			c := t.cell(i, x)
			rc := reportCell{Target: target.name(), Verdict: c.verdict.String(), Text: c.text, Seen: c.seen}
			if target.policy != nil {
				rc.Policy = target.policy.title
			}
			if c.verdict == isWaiting {
				rc.Waits = row.waits
			}
			out.Cells = append(out.Cells, rc)
		}
		r.Rows = append(r.Rows, out)
	}
}

func (r *report) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// notes are what a reader has to know beside the tables: what Penstock's
// column waits for, and what waited and is right now.
func notes(tables []*table) (lines []string) {
	for _, t := range tables {
		for _, c := range t.cells {
			if c.target.peer != penstock || c.row.waits == "" {
				continue
			}
			switch c.verdict {
			case isWaiting:
				lines = append(lines, fmt.Sprintf("waits  %s: %s", c.row.name, c.row.waits))
			case isRight:
				lines = append(lines, fmt.Sprintf("right, though it is marked as waiting: %s", c.row.name))
			}
		}
	}
	return slices.Compact(lines)
}

// faults are the cells that make the run fail: Penstock's that are wrong, and
// those of any target that could not be run.
func faults(tables []*table) (lines []string) {
	for _, t := range tables {
		for _, c := range t.cells {
			ours := c.target.peer == penstock || c.target.peer == nil
			if c.verdict == isError || ours && c.verdict == isWrong {
				lines = append(lines, fmt.Sprintf("%s: %s: %s (wanted: %s)", c.target.name(), c.row.name, c.text, c.row.wanted))
			}
		}
	}
	return lines
}
