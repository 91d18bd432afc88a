package report

import (
	"fmt"
	"math"
)

// short are the measures of a table that fits a screen.
var short = []string{"e2e_mean", "e2e_p50", "e2e_p99", "ttft_p50", "ttft_p99", "tbot_mean", "good_rate", "good_share", "shed_share", "error_share", "cached_share"}

// Table is the comparison as cells: a row for each name, the best one first.
func (c *Comparison) Table() (head []string, rows [][]string) {
	head = []string{"NAME", "RUNS", "REQUESTS"}
	rows = make([][]string, len(c.Names))
	for i, name := range c.Names {
		n := 0
		for _, r := range c.runs[name] {
			n += r.Requests
		}
		rows[i] = []string{name, fmt.Sprint(len(c.runs[name])), fmt.Sprint(n)}
	}
	for _, key := range short {
		for at, m := range c.measures {
			if m.key != key {
				continue
			}
			head = append(head, m.label+unitOf(m.unit))
			for i := range c.Names {
				rows[i] = append(rows[i], c.Rows[at].Cells[i].text())
			}
		}
	}
	return head, rows
}

func unitOf(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + unit
}

// text is the mean with its interval.
func (e Estimate) text() string {
	switch {
	case e.N == 0:
		return "-"
	case math.IsNaN(e.Half) || e.Half == 0:
		return figure(e.Mean)
	}
	return figure(e.Mean) + " ±" + figure(e.Half)
}
