package engine

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// pageStats is what a page was like, apart from its meaning.
type pageStats struct {
	series    int
	malformed int
	overflow  bool // more than maxPageSeries: the Sample is not to be used
}

// collector turns the pages of one dialect into Samples. It belongs to one
// goroutine and does not allocate after its first pages.
type collector struct {
	dialect  *dialect
	byName   map[string][]int // metric name to the tallies it feeds
	tallies  []tally
	plan     []planned
	adapters adapterReader
}

// tally gathers the series of one spelling of one source.
type tally struct {
	series  *series
	combine combine
	seen    bool
	broken  bool // a part was NaN, Inf or negative: the whole is unknown
	value   float64
	copied  []copied // of a dialect with copies: one for each thing that is copied
}

// copied is what the copies of one thing have in common, and the largest.
type copied struct {
	key   uint64 // hash of the labels that do not number copies
	value float64
}

// maxCopied bounds the things of one metric that have copies: more than any
// engine has data-parallel ranks. A page beyond it makes the field unknown.
const maxCopied = 512

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
		t.seen, t.broken, t.value, t.copied = false, false, 0, t.copied[:0]
	}
	c.adapters.reset()
	s := scanner{rest: page}
	for s.next() {
		for _, i := range c.byName[string(s.name)] {
			t := &c.tallies[i]
			if t.series.label != "" && !s.labelIs(t.series.label, t.series.value) {
				continue
			}
			if len(c.dialect.copies) > 0 && t.combine == sum {
				t.addCopy(s.value, keyWithout(s.labels, c.dialect.copies))
			} else {
				t.add(s.value)
			}
		}
		if c.dialect.adapters != "" && string(s.name) == c.dialect.adapters {
			c.adapters.saw(&s)
		}
	}
	sample := Sample{At: now, Adapters: c.adapters.read()}
	for _, p := range c.plan {
		if v, ok := c.resolve(p); ok {
			sample.set(p.field, v)
		}
	}
	return sample, pageStats{series: s.series, malformed: s.malformed, overflow: s.overflow}
}

func impossible(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }

func (t *tally) add(v float64) {
	switch {
	case impossible(v):
		t.broken = true
	case t.combine == maximum:
		t.value = max(t.value, v)
	default:
		t.value += v
	}
	t.seen = true
}

// addCopy adds v once for all series of the same key: their largest.
func (t *tally) addCopy(v float64, key uint64) {
	t.seen = true
	if impossible(v) {
		t.broken = true
		return
	}
	for i := range t.copied {
		if c := &t.copied[i]; c.key == key {
			t.value += max(0, v-c.value)
			c.value = max(c.value, v)
			return
		}
	}
	if len(t.copied) == maxCopied {
		t.broken = true
		return
	}
	t.copied = append(t.copied, copied{key, v})
	t.value += v
}

// keyWithout hashes labels, in whatever order they stand, but for those left out.
func keyWithout(labels []byte, leftOut []string) (key uint64) {
	for {
		name, value, whole, rest := nextLabel(labels)
		if whole == nil {
			return key
		}
		if value != nil && !slices.Contains(leftOut, string(name)) {
			key += xxhash.Sum64(whole)
		}
		labels = rest
	}
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

// kindsOn is the set of dialects whose metric families the page carries.
func kindsOn(page []byte) (found kinds) {
	s := scanner{rest: page}
	for s.next() {
		for i := range dialects {
			for _, f := range dialects[i].families {
				if bytes.HasPrefix(s.name, []byte(f)) {
					found |= 1 << i
				}
			}
		}
	}
	return found
}
