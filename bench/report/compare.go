package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Comparison is all that was compared in one scenario.
type Comparison struct {
	Scenario string
	Tool     string
	Names    []string // in the order of the files; those ahead first where ranked
	Seeds    []uint64
	Rows     []Row
	Winner   Verdict
	runs     map[string][]*Run // by name, in the order of Seeds
	measures []measure
}

// Row is one measure for every name.
type Row struct {
	Label, Unit, Better string
	Cells               []Estimate // in the order of Names
	Best                int        // index; -1 where none is better than the others
}

// Pair is what one name is less another, seed by seed.
type Pair struct {
	Label, Unit, Better string
	Name, Against       string
	Diff                Estimate // negative: Name has less
	Base                float64  // mean of Against
	Ahead               int      // seeds in which Name is better
	N                   int      // pairs
}

// Verdict says who won.
type Verdict struct {
	Name  string // empty: nobody can be told apart from the others
	First string // the best mean, sure or not
	Label string // of the measure that decides
	Unit  string
	Pairs []Pair   // the first against each other one
	Same  []string // others whose figure is that of the first in every seed
	Sure  bool     // against all others but those
	Notes []string
}

// Compare puts runs side by side: one comparison for each scenario, in the order of the files.
func Compare(files []*Results) ([]*Comparison, error) {
	var all []*Comparison
	at := map[string]*Comparison{}
	for _, f := range files {
		for i := range f.Runs {
			r := &f.Runs[i]
			c := at[r.Scenario]
			if c == nil {
				c = &Comparison{Scenario: r.Scenario, Tool: f.Tool, runs: map[string][]*Run{}}
				at[r.Scenario] = c
				all = append(all, c)
			}
			if err := c.add(r); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range all {
		c.measure()
	}
	return all, nil
}

func (c *Comparison) add(r *Run) error {
	if !slices.Contains(c.Names, r.Name) {
		c.Names = append(c.Names, r.Name)
	}
	if !slices.Contains(c.Seeds, r.Seed) {
		c.Seeds = append(c.Seeds, r.Seed)
	}
	for _, other := range c.runs[r.Name] {
		if other.Seed == r.Seed {
			return fmt.Errorf("%s, scenario %q, seed %d: two runs of the same; give one of them another name", r.Name, r.Scenario, r.Seed)
		}
	}
	c.runs[r.Name] = append(c.runs[r.Name], r)
	return nil
}

// measure fills the rows and finds the winner.
func (c *Comparison) measure() {
	slices.Sort(c.Seeds)
	c.measures = slices.Clone(measures)
	for _, name := range c.Names {
		slices.SortFunc(c.runs[name], func(a, b *Run) int { return int(min(max(int64(a.Seed)-int64(b.Seed), -1), 1)) })
		for _, r := range c.runs[name] {
			for _, m := range r.Extra {
				if !slices.ContainsFunc(c.measures, func(have measure) bool { return have.key == "extra_"+m.Name }) {
					c.measures = append(c.measures, extraMeasure(m))
				}
			}
		}
	}
	c.rank()
	kept := c.measures[:0]
	for _, m := range c.measures {
		row := Row{Label: m.label, Unit: m.unit, Better: m.better, Best: -1}
		any := false
		for _, name := range c.Names {
			e := estimate(c.values(name, m))
			any = any || e.N > 0
			row.Cells = append(row.Cells, e)
		}
		if !any {
			continue
		}
		row.Best = best(row)
		c.Rows = append(c.Rows, row)
		kept = append(kept, m)
	}
	c.measures = kept
	c.judge()
}

// rank puts the names in the order of the first measure.
func (c *Comparison) rank() {
	m := measures[0]
	at := map[string]float64{}
	for _, name := range c.Names {
		at[name] = estimate(c.values(name, m)).Mean
	}
	slices.SortStableFunc(c.Names, func(a, b string) int {
		switch x, y := at[a], at[b]; {
		case math.IsNaN(x) && math.IsNaN(y):
			return 0
		case math.IsNaN(y) || x < y:
			return -1
		case math.IsNaN(x) || x > y:
			return 1
		}
		return 0
	})
}

func (c *Comparison) values(name string, m measure) (values []float64) {
	for _, r := range c.runs[name] {
		if v := m.of(r); !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return values
}

// best is the index of the best mean; -1 where all are equal or no direction is better.
func best(r Row) int {
	at, differ := -1, false
	for i, e := range r.Cells {
		if e.N == 0 {
			continue
		}
		if at >= 0 && e.Mean != r.Cells[at].Mean {
			differ = true
		}
		if at < 0 || r.Better == Lower && e.Mean < r.Cells[at].Mean || r.Better == Higher && e.Mean > r.Cells[at].Mean {
			at = i
		}
	}
	if r.Better == "" || !differ {
		return -1
	}
	return at
}

// pair compares two names over the seeds that both have.
func (c *Comparison) pair(m measure, name, against string) Pair {
	p := Pair{Label: m.label, Unit: m.unit, Better: m.better, Name: name, Against: against}
	var diffs, bases []float64
	for _, a := range c.runs[name] {
		for _, b := range c.runs[against] {
			x, y := m.of(a), m.of(b)
			if a.Seed != b.Seed || math.IsNaN(x) || math.IsNaN(y) {
				continue
			}
			diffs, bases = append(diffs, x-y), append(bases, y)
			if m.better == Lower && x < y || m.better == Higher && x > y {
				p.Ahead++
			}
		}
	}
	p.N, p.Diff, p.Base = len(diffs), estimate(diffs), estimate(bases).Mean
	return p
}

// judge finds who has the best mean end-to-end latency, by how much and how
// surely, and what must be said beside it.
func (c *Comparison) judge() {
	v := &c.Winner
	if len(c.Names) == 0 {
		return
	}
	m := measures[0]
	v.First, v.Label, v.Unit = c.Names[0], m.label, m.unit
	v.Sure = true
	for _, other := range c.Names[1:] {
		p := c.pair(m, v.First, other)
		v.Pairs = append(v.Pairs, p)
		if p.N > 0 && p.Diff.Mean == 0 && p.Ahead == 0 {
			v.Same = append(v.Same, other)
			continue
		}
		v.Sure = v.Sure && p.Diff.sure() && p.Diff.Mean < 0
	}
	if v.Sure = v.Sure && len(v.Same)+1 < len(c.Names); v.Sure {
		v.Name = v.First
	}
	v.Notes = c.notes()
}

// notes are what makes latencies not the whole truth: who serves fewer has it easier.
func (c *Comparison) notes() (notes []string) {
	if len(c.Names) < 2 {
		return nil
	}
	if len(c.Seeds) < 2 {
		notes = append(notes, "One seed: nothing says how much of the difference is chance. Run more (--rounds, --seeds).")
	} else if len(c.Seeds) < 5 {
		notes = append(notes, fmt.Sprintf("%d seeds: the intervals are wide; five or more say more.", len(c.Seeds)))
	}
	served := func(name string) float64 {
		ok, all := 0, 0
		for _, r := range c.runs[name] {
			ok, all = ok+r.OK, all+r.Requests
		}
		return share(ok, all)
	}
	first := served(c.Names[0])
	for _, other := range c.Names[1:] {
		if s := served(other); s > first+1 {
			notes = append(notes, fmt.Sprintf("%s answered %.1f %% of its requests, %s %.1f %%: latencies are of those that were answered, and who answers fewer has it easier.", c.Names[0], first, other, s))
		}
	}
	for _, name := range c.Names {
		worst, runs := 0.0, 0
		for _, r := range c.runs[name] {
			if lag := r.Lag.Quantile(0.99); lag > 20 && lag > 0.05*r.E2E.Mean() {
				worst = math.Max(worst, lag)
				runs++
			}
		}
		if runs > 0 {
			notes = append(notes, fmt.Sprintf("%s: the generator itself was late in %d of %d runs, up to %.0f ms at the 99th percentile; that is in these latencies. Use a lower rate or more machine.", name, runs, len(c.runs[name]), worst))
		}
	}
	return notes
}

// Sentence is the result in words.
func (c *Comparison) Sentence() string {
	v := &c.Winner
	if len(c.Names) < 2 {
		return fmt.Sprintf("%s alone: there is nothing to compare it with.", v.First)
	}
	first := strings.Join(append([]string{v.First}, v.Same...), " and ")
	if len(v.Same)+1 == len(c.Names) {
		return fmt.Sprintf("%s have the same mean end-to-end latency in every seed: nobody is better.", first)
	}
	near := v.Pairs[len(v.Same)]
	if near.N == 0 {
		return c.unpaired(near)
	}
	by := fmt.Sprintf("%s against %s", amount(near), near.Against)
	switch {
	case v.Sure:
		return fmt.Sprintf("%s: the lowest mean end-to-end latency, %s, and that is sure against every other.", wins(first, v.Same), by)
	case near.N < 2:
		return fmt.Sprintf("%s: the lowest mean end-to-end latency, %s; with one seed nobody can say how sure that is.", first, by)
	case near.Diff.sure():
		return fmt.Sprintf("%s: the lowest mean end-to-end latency, %s, but not surely so against every other.", first, by)
	}
	return fmt.Sprintf("%s: the lowest mean end-to-end latency, %s, which is within chance.", first, by)
}

// unpaired is the result where no seed has a latency of both.
func (c *Comparison) unpaired(p Pair) string {
	m := measures[0]
	switch none := len(c.values(p.Against, m)) == 0; {
	case none && len(c.values(p.Name, m)) == 0:
		return "nobody has a whole answer: there is no latency to compare."
	case none:
		return fmt.Sprintf("%s has whole answers, %s has none: there is no latency to compare it with.", p.Name, p.Against)
	}
	return fmt.Sprintf("%s and %s have no seed in common in which both have whole answers: nothing can be compared.", p.Name, p.Against)
}

func wins(first string, same []string) string {
	if len(same) > 0 {
		return first + ", with the same figures, win"
	}
	return first + " wins"
}

// amount is a difference with its interval, in words.
func amount(p Pair) string {
	word := "less"
	if p.Diff.Mean > 0 {
		word = "more"
	}
	text := fmt.Sprintf("%s %s %s (%.1f %%)", figure(math.Abs(p.Diff.Mean)), p.Unit, word, 100*math.Abs(p.Diff.Mean)/p.Base)
	if !math.IsNaN(p.Diff.Half) {
		text = fmt.Sprintf("%s ± %s %s %s (%.1f ± %.1f %%, better in %d of %d seeds)", figure(math.Abs(p.Diff.Mean)), figure(p.Diff.Half), p.Unit, word,
			100*math.Abs(p.Diff.Mean)/p.Base, 100*p.Diff.Half/p.Base, p.Ahead, p.N)
	}
	return text
}

// figure is a number with three digits.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 1000:
		return thousands(v)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a == 0:
		return "0"
	case a < 0.005:
		return fmt.Sprintf("%.1e", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
