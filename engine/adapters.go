package engine

import (
	"bytes"
	"strconv"
	"strings"
)

// maxAdapters bounds the adapters that one page can name.
const maxAdapters = 1024

// adapterReader finds the adapters in use in a metric whose labels list them
// and whose value is the time since when that holds: old series stay on the
// page, the newest one counts. It keeps what it read last, so that a page that
// says the same costs nothing.
type adapterReader struct {
	seen   bool
	newest float64
	labels []byte // of the newest series; part of the page

	lastLabels []byte
	last       *Adapters
}

func (r *adapterReader) reset() { r.seen, r.newest, r.labels = false, 0, nil }

func (r *adapterReader) saw(s *scanner) {
	if impossible(s.value) || r.seen && s.value <= r.newest {
		return
	}
	r.seen, r.newest, r.labels = true, s.value, s.labels
}

// read is the newest that was seen, nil if none was.
func (r *adapterReader) read() *Adapters {
	if !r.seen {
		return nil
	}
	if r.last != nil && bytes.Equal(r.labels, r.lastLabels) {
		return r.last
	}
	s := scanner{labels: r.labels}
	a := &Adapters{Running: adapterNames(s.labelValue("running_lora_adapters")), Waiting: adapterNames(s.labelValue("waiting_lora_adapters"))}
	if n, err := strconv.ParseUint(string(s.labelValue("max_lora")), 10, 16); err == nil {
		a.Max = int(n)
	}
	r.last, r.lastLabels = a, append(r.lastLabels[:0], r.labels...)
	return a
}

// adapterNames splits a label value that lists names with commas.
func adapterNames(escaped []byte) (names []string) {
	for name := range strings.SplitSeq(unescaped(escaped), ",") {
		if name = strings.TrimSpace(name); name != "" && len(name) <= maxModelBytes && len(names) < maxAdapters {
			names = append(names, name)
		}
	}
	return names
}

// unescaped is a label value as it was meant.
func unescaped(value []byte) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '\\' && i+1 < len(value) {
			i++
			if c = value[i]; c == 'n' {
				c = '\n'
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}
