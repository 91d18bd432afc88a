package balancer

import (
	"encoding/binary"
	"math"

	"penstock/route"
)

// plannedShed is what must be refused at the sources so that the rest fits the
// effective capacities, by row and priority: for the policies that solve
// nothing (protection.md 2.5). Priorities are admitted in order; those of one
// priority are shed by the same fraction, save where engines that they alone
// may use leave more for some. An engine whose capacity is only guessed bounds
// nothing: nobody is refused for a guess. Where no engine takes traffic nothing
// is shed either: the reason is another then.
func plannedShed(s *Situation) [][route.Priorities]float64 {
	shed := make([][route.Priorities]float64, len(s.Rows))
	b := newBasins(s)
	if b == nil {
		return shed
	}
	for p := range route.Priorities {
		b.admit(p)
	}
	for c := range s.Rows {
		set := b.ofRow[c]
		if set < 0 {
			continue
		}
		for p := range route.Priorities {
			switch part := b.part[set][p]; {
			case part < rounding:
				shed[c][p] = 1
			case part < 1-rounding:
				shed[c][p] = 1 - part
			}
		}
	}
	return shed
}

// rounding is the part of a demand that is nothing, or all.
const rounding = 1e-9

// basins are the sets of engines that rows may use, and the engines in groups
// by which of the sets they are in. They are few, however many engines and
// sources there are.
type basins struct {
	ofRow   []int                       // set of a row, -1 where none of its engines takes traffic
	want    [][route.Priorities]float64 // by set: units of load
	part    [][route.Priorities]float64 // by set: the part that is admitted
	groups  [][]int                     // by set: the groups of its engines
	volume  []float64                   // by group: effective capacity, +Inf where it is not known
	fixed   []float64                   // by set: load admitted for good
	rest    []float64                   // by set, of a trial
	room    []float64                   // by group, of a trial
	flow    [][]float64                 // by set and place in groups, of a trial
	epsilon float64
}

// newBasins is nil where nothing can be too much.
func newBasins(s *Situation) *basins {
	b := &basins{ofRow: make([]int, len(s.Rows))}
	sets := make(map[string]int)
	var members [][]int
	total := 0.0
	for c := range s.Rows {
		row := &s.Rows[c]
		var id []byte
		var takers []int
		for _, j := range row.Candidates {
			if s.capacity(j) > 0 {
				id = binary.LittleEndian.AppendUint32(id, uint32(j))
				takers = append(takers, j)
			}
		}
		b.ofRow[c] = -1
		if len(takers) == 0 {
			continue
		}
		set, ok := sets[string(id)]
		if !ok {
			set = len(members)
			sets[string(id)] = set
			members = append(members, takers)
			b.want = append(b.want, [route.Priorities]float64{})
		}
		b.ofRow[c] = set
		for p, rate := range row.Rate {
			b.want[set][p] += rate * row.Work
			total += rate * row.Work
		}
	}
	if total <= 0 {
		return nil
	}
	b.group(s, members)
	b.part = make([][route.Priorities]float64, len(members))
	b.fixed, b.rest = make([]float64, len(members)), make([]float64, len(members))
	b.room = make([]float64, len(b.volume))
	b.epsilon = 1e-12 * total
	return b
}

// group takes engines of the same sets together.
func (b *basins) group(s *Situation, members [][]int) {
	setsOf := make(map[int][]byte) // by engine: the sets it is in
	for set, engines := range members {
		for _, j := range engines {
			setsOf[j] = binary.LittleEndian.AppendUint32(setsOf[j], uint32(set))
		}
	}
	groups := make(map[string]int)
	b.groups, b.flow = make([][]int, len(members)), make([][]float64, len(members))
	for j := range s.Engines {
		in := setsOf[j]
		if in == nil {
			continue
		}
		g, ok := groups[string(in)]
		if !ok {
			g = len(b.volume)
			groups[string(in)] = g
			b.volume = append(b.volume, 0)
			for ; len(in) > 0; in = in[4:] {
				set := binary.LittleEndian.Uint32(in)
				b.groups[set] = append(b.groups[set], g)
				b.flow[set] = append(b.flow[set], 0)
			}
		}
		if s.Engines[j].Calibrated {
			b.volume[g] += s.effective(j)
		} else {
			b.volume[g] = math.Inf(1)
		}
	}
}

// admit raises the admitted part of priority p in all sets alike. Sets that
// meet a bottleneck stop there, the others rise on.
func (b *basins) admit(p int) {
	rising := make(map[int]bool)
	for set := range b.want {
		if b.want[set][p] > 0 {
			rising[set] = true
		} else {
			b.part[set][p] = 1
		}
	}
	for len(rising) > 0 {
		level, narrow := b.level(p, rising)
		if narrow == nil {
			narrow = rising
		}
		for set := range narrow {
			if rising[set] {
				b.part[set][p] = level
				b.fixed[set] += level * b.want[set][p]
			}
		}
		for set := range narrow {
			delete(rising, set)
		}
	}
}

// level is the highest part at which the rising sets fit together with what is
// fixed, and the sets that keep it from rising further; nil at 1. It comes
// down from 1: each bottleneck of a level that is too high gives the next.
func (b *basins) level(p int, rising map[int]bool) (level float64, narrow map[int]bool) {
	level = 1
	for {
		cut := b.overfull(p, rising, level)
		if cut == nil {
			return level, narrow
		}
		room, want := 0.0, 0.0
		through := make(map[int]bool)
		for set := range b.want {
			if !cut[set] {
				continue
			}
			room -= b.fixed[set]
			if rising[set] {
				want += b.want[set][p]
			}
			for _, g := range b.groups[set] {
				if !through[g] {
					through[g] = true
					room += b.volume[g]
				}
			}
		}
		next := 0.0
		if want > 0 {
			next = max(0, room/want)
		}
		if want <= 0 || next >= level { // rounding: what is fixed is already at the brim
			return level, narrow
		}
		level, narrow = next, cut
	}
}

// overfull lets the sets' load flow into the groups and returns the sets of a
// bottleneck where not all of it finds room (the minimal cut), else nil. Loads
// take the shortest ways, so their number is bounded (Edmonds and Karp).
func (b *basins) overfull(p int, rising map[int]bool, level float64) map[int]bool {
	copy(b.room, b.volume)
	for set := range b.want {
		clear(b.flow[set])
		b.rest[set] = b.fixed[set]
		if rising[set] {
			b.rest[set] += level * b.want[set][p]
		}
		for i, g := range b.groups[set] { // what finds room at once
			f := min(b.rest[set], b.room[g])
			b.flow[set][i] += f
			b.rest[set] -= f
			b.room[g] -= f
		}
	}
	for {
		reached, found := b.augment()
		if !found {
			return reached
		}
	}
}

// augment moves load along one way from a set with a rest to a group with
// room. Without such a way it returns the sets that were reached, nil if no
// set has a rest.
func (b *basins) augment() (reached map[int]bool, found bool) {
	fromGroup := make([]int, len(b.want)) // by set: the group that led there, -1 for a start
	fromSet := make([]int, len(b.volume)) // by group: the set that led there, -1 for unseen
	for g := range fromSet {
		fromSet[g] = -1
	}
	var queue []int
	for set := range b.want {
		if b.rest[set] > b.epsilon {
			if reached == nil {
				reached = make(map[int]bool)
			}
			reached[set] = true
			fromGroup[set] = -1
			queue = append(queue, set)
		}
	}
	for len(queue) > 0 {
		set := queue[0]
		queue = queue[1:]
		for _, g := range b.groups[set] {
			if fromSet[g] >= 0 {
				continue
			}
			fromSet[g] = set
			if b.room[g] > b.epsilon {
				b.move(g, fromSet, fromGroup)
				return nil, true
			}
			for other := range b.want {
				if i := b.place(other, g); i >= 0 && !reached[other] && b.flow[other][i] > b.epsilon {
					reached[other] = true
					fromGroup[other] = g
					queue = append(queue, other)
				}
			}
		}
	}
	return reached, false
}

// move sends what fits along the way that ends at group g.
func (b *basins) move(g int, fromSet, fromGroup []int) {
	most := b.room[g]
	for at := g; ; {
		set := fromSet[at]
		if at = fromGroup[set]; at < 0 {
			most = min(most, b.rest[set])
			break
		}
		most = min(most, b.flow[set][b.place(set, at)])
	}
	b.room[g] -= most
	for at := g; ; {
		set := fromSet[at]
		b.flow[set][b.place(set, at)] += most
		if at = fromGroup[set]; at < 0 {
			b.rest[set] -= most
			return
		}
		b.flow[set][b.place(set, at)] -= most
	}
}

// place is where group g stands in the set's list, -1 if it is not in it.
func (b *basins) place(set, g int) int {
	for i, h := range b.groups[set] {
		if h == g {
			return i
		}
	}
	return -1
}
