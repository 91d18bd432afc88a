package engine

import (
	"bytes"
	"math"
	"time"
)

// pageStats is what a page was like, apart from its meaning.
type pageStats struct {
	series    int
	malformed int
	overflow  bool // more than maxPageSeries: the Sample is not to be used
}

// collector turns the pages of one dialect into Samples. It belongs to one
// goroutine and does not allocate after it was made.
type collector struct {
	dialect *dialect
	byName  map[string][]int // metric name to the tallies it feeds
	tallies []tally
	plan    []planned
}

// tally gathers the series of one spelling of one source.
type tally struct {
	series  *series
	combine combine
	seen    bool
	broken  bool // a part was NaN, Inf or negative: the whole is unknown
	value   float64
}

// planned is a signal with the tallies of its sources: alternatives, parts,
// spellings.
type planned struct {
	field Field
	from  [][][]int
}

func newCollector(d *dialect) *collector {
	c := &collector{dialect: d, byName: make(map[string][]int)}
	for _, sig := range d.signals {
		p := planned{field: sig.field}
		for _, alternative := range sig.from {
			var parts [][]int
			for i := range alternative {
				var spellings []int
				for _, name := range alternative[i].names {
					n := len(c.tallies)
					c.tallies = append(c.tallies, tally{series: &alternative[i], combine: sig.combine})
					c.byName[name] = append(c.byName[name], n)
					spellings = append(spellings, n)
				}
				parts = append(parts, spellings)
			}
			p.from = append(p.from, parts)
		}
		c.plan = append(c.plan, p)
	}
	return c
}

// read makes a Sample of a page that had been read at now. A page with none
// of the known names gives a Sample without fields.
func (c *collector) read(page []byte, now time.Time) (Sample, pageStats) {
	for i := range c.tallies {
		t := &c.tallies[i]
		t.seen, t.broken, t.value = false, false, 0
	}
	s := scanner{rest: page}
	for s.next() {
		for _, i := range c.byName[string(s.name)] {
			t := &c.tallies[i]
			if t.series.label == "" || s.labelIs(t.series.label, t.series.value) {
				t.add(s.value)
			}
		}
	}
	sample := Sample{At: now}
	for _, p := range c.plan {
		if v, ok := c.resolve(p); ok {
			sample.set(p.field, v)
		}
	}
	return sample, pageStats{series: s.series, malformed: s.malformed, overflow: s.overflow}
}

func (t *tally) add(v float64) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0) || v < 0:
		t.broken = true
	case t.combine == maximum:
		t.value = max(t.value, v)
	default:
		t.value += v
	}
	t.seen = true
}

// resolve takes the first alternative that is whole.
func (c *collector) resolve(p planned) (float64, bool) {
	for _, parts := range p.from {
		total, whole := 0.0, true
		for _, spellings := range parts {
			v, ok := c.spelling(spellings)
			total += v
			whole = whole && ok
		}
		if whole && !math.IsInf(total, 0) {
			return total, true
		}
	}
	return 0, false
}

func (c *collector) spelling(tallies []int) (float64, bool) {
	for _, i := range tallies {
		if t := &c.tallies[i]; t.seen {
			return t.value, !t.broken
		}
	}
	return 0, false
}

// familyOn is the dialect whose metric families the page carries, nil if it
// carries none of ours.
func familyOn(page []byte) *dialect {
	found := len(dialects)
	s := scanner{rest: page}
	for found > 0 && s.next() {
		for i := range dialects[:found] {
			if f := dialects[i].family; f != "" && bytes.HasPrefix(s.name, []byte(f)) {
				found = i
				break
			}
		}
	}
	if found == len(dialects) {
		return nil
	}
	return &dialects[found]
}
