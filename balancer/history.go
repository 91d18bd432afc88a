package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"penstock/route"
)

// historySize is how many tables are remembered with what they changed.
const historySize = 64

// Change is what one table changed, and why.
type Change struct {
	Version     uint64
	At          time.Time
	Reason      route.Reason
	Policy      string
	Certificate *route.Certificate
	Moves       []Move   // by class, where weights changed
	Causes      []string // in words, the first ones first
}

// Move is what a class's weights changed by.
type Move struct {
	Class   string
	Share   float64 // of the class's demand: total variation
	Slots   float64 // share of the slots that another engine has now; drained ones aside
	Engines []Shift // the largest first
}

// Shift is the change of one engine's weight.
type Shift struct {
	Engine   string
	From, To float64
}

// history is a ring of changes. Its methods are safe for concurrent use.
type history struct {
	mu   sync.Mutex // guards ring
	ring []Change   // the newest last
}

func (h *history) add(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) == historySize {
		h.ring = slices.Delete(h.ring, 0, 1)
	}
	h.ring = append(h.ring, c)
}

// Changes are those of the last tables, the newest first.
func (l *Loop) Changes() []Change {
	l.history.mu.Lock()
	defer l.history.mu.Unlock()
	list := slices.Clone(l.history.ring)
	slices.Reverse(list)
	return list
}

// changeOf compares two tables, and the situations that they were made in; nil
// where nothing was planned.
func changeOf(last, next *route.Table, before, after *Situation) Change {
	c := Change{Version: next.Version, At: next.Built, Reason: next.Reason, Policy: next.Policy}
	if next.Plan != nil {
		c.Certificate = next.Plan.Certificate
	}
	if next.Policy != last.Policy && last.Policy != "" {
		c.Causes = append(c.Causes, "policy "+next.Policy+" instead of "+last.Policy)
	}
	for key, pool := range next.Classes {
		was := last.Classes[key]
		if was == nil {
			c.Moves = append(c.Moves, Move{Class: key.String(), Share: 1, Slots: 1})
			continue
		}
		if was.Pool == pool.Pool {
			continue
		}
		if m := moveOf(was.Pool, pool.Pool); m.Share > 0 || m.Slots > 0 {
			m.Class = key.String()
			c.Moves = append(c.Moves, m)
		}
	}
	slices.SortFunc(c.Moves, func(a, b Move) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Class, b.Class)) })
	c.Causes = append(c.Causes, standingsOf(last, next)...)
	if before != nil && after != nil {
		c.Causes = append(c.Causes, causesOf(before, after)...)
	}
	if len(c.Causes) > mostCauses {
		more := len(c.Causes) - mostCauses
		c.Causes = append(c.Causes[:mostCauses:mostCauses], fmt.Sprintf("and %d more", more))
	}
	return c
}

const (
	mostCauses = 12
	mostShifts = 8
)

func moveOf(was, now *route.Pool) Move {
	var m Move
	weights := make(map[string]float64, len(was.Candidates))
	for i := range was.Candidates {
		weights[was.Candidates[i].Engine.Name] = was.Candidates[i].Weight
	}
	shift := func(name string, from, to float64) {
		m.Share += max(0, to-from)
		if math.Abs(to-from) > 1e-6 {
			m.Engines = append(m.Engines, Shift{name, from, to})
		}
	}
	for i := range now.Candidates {
		c := &now.Candidates[i]
		shift(c.Engine.Name, weights[c.Engine.Name], c.Weight)
		delete(weights, c.Engine.Name)
	}
	for name, w := range weights {
		shift(name, w, 0)
	}
	if m.Share < 1e-6 {
		m.Share = 0
	}
	m.Slots = now.MovedFrom(was)
	slices.SortFunc(m.Engines, func(a, b Shift) int {
		return cmp.Or(cmp.Compare(math.Abs(b.To-b.From), math.Abs(a.To-a.From)), cmp.Compare(a.Engine, b.Engine))
	})
	m.Engines = m.Engines[:min(len(m.Engines), mostShifts)]
	return m
}

// standingsOf are the engines that came, left, and take traffic or none since
// the last table.
func standingsOf(last, next *route.Table) (causes []string) {
	taking := func(t *route.Table) map[string]bool {
		m := make(map[string]bool)
		for _, p := range t.Classes {
			for i := range p.Candidates {
				c := &p.Candidates[i]
				m[c.Engine.Name] = m[c.Engine.Name] || c.Weight > 0
			}
		}
		return m
	}
	was, now := taking(last), taking(next)
	for name, takes := range now {
		before, known := was[name]
		switch {
		case !known && takes:
			causes = append(causes, "engine "+name+" came")
		case takes && !before && known:
			causes = append(causes, "engine "+name+" takes traffic")
		case !takes && before:
			causes = append(causes, "engine "+name+" takes no traffic")
		}
	}
	for name := range was {
		if _, known := now[name]; !known {
			causes = append(causes, "engine "+name+" left")
		}
	}
	slices.Sort(causes)
	return causes
}

// What of a situation counts as a cause.
const (
	tellDemand   = 0.05
	tellCapacity = 0.02
	tellTrip     = 1 // ms
)

// causesOf are the differences of two situations that move weights, the
// largest of each kind first.
func causesOf(before, after *Situation) []string {
	type cause struct {
		size float64
		text string
	}
	var demand, engines []cause
	type rowKey struct {
		source string
		class  route.ClassKey
	}
	was := make(map[rowKey]float64)
	for i := range before.Rows {
		r := &before.Rows[i]
		was[rowKey{before.Sources[r.Source], r.Class}] = r.asked()
	}
	for i := range after.Rows {
		r := &after.Rows[i]
		source := after.Sources[r.Source]
		from, to := was[rowKey{source, r.Class}], r.asked()
		if size := math.Abs(to - from); size > tellDemand*max(from, to) {
			demand = append(demand, cause{size, fmt.Sprintf("demand for %s at %s from %s to %s requests/s", r.Class, source, figure(from), figure(to))})
		}
	}
	known := make(map[string]int, len(before.Engines))
	for j := range before.Engines {
		known[before.Engines[j].Name] = j
	}
	for j := range after.Engines {
		e := &after.Engines[j]
		i, ok := known[e.Name]
		if !ok || !e.Ready || !before.Engines[i].Ready {
			continue
		}
		b := &before.Engines[i]
		if e.Calibrated && !b.Calibrated {
			engines = append(engines, cause{math.Inf(1), fmt.Sprintf("engine %s is calibrated: %s requests/s", e.Name, figure(e.Capacity))})
		} else if size := math.Abs(e.Capacity-b.Capacity) / max(e.Capacity, b.Capacity); size > tellCapacity {
			engines = append(engines, cause{size, fmt.Sprintf("capacity of %s from %s to %s requests/s", e.Name, figure(b.Capacity), figure(e.Capacity))})
		}
		for k, source := range after.Sources {
			if n, ok := slices.BinarySearch(before.Sources, source); ok && math.Abs(after.RTT[k][j]-before.RTT[n][i]) > tellTrip {
				engines = append(engines, cause{math.Abs(after.RTT[k][j] - before.RTT[n][i]), fmt.Sprintf("round trip from %s to %s from %s to %s ms", source, e.Name,
					figure(before.RTT[n][i]), figure(after.RTT[k][j]))})
			}
		}
	}
	var causes []string
	for _, list := range [][]cause{demand, engines} {
		slices.SortStableFunc(list, func(a, b cause) int { return cmp.Compare(b.size, a.size) })
		for _, c := range list {
			causes = append(causes, c.text)
		}
	}
	return causes
}

// figure is a number with three digits that matter.
func figure(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
