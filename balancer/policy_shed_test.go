package balancer

import (
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"penstock/route"
)

// hall is the least room that any group of rows leaves: effective capacity of
// all engines that they may use, less what they are admitted with, of the
// priorities up to p. It looks at every group of rows.
func hall(s *Situation, shed [][route.Priorities]float64, p int) (least float64, tight []uint) {
	least = math.Inf(1)
	for group := uint(1); group < 1<<len(s.Rows); group++ {
		load, room := 0.0, 0.0
		used := make(map[int]bool)
		for c := range s.Rows {
			if group>>c&1 == 0 || s.nobody(c) { // nobody takes its traffic: not a matter of room
				continue
			}
			for q := 0; q <= p; q++ {
				load += s.Rows[c].Rate[q] * s.Rows[c].Work * (1 - shed[c][q])
			}
			for _, j := range s.Rows[c].Candidates {
				e := s.Engines[j]
				if used[j] || !e.Ready || e.Capacity == 0 {
					continue
				}
				used[j] = true
				if e.Calibrated {
					room += 0.95 * e.Capacity
				} else {
					room = math.Inf(1)
				}
			}
		}
		if len(used) == 0 {
			continue
		}
		least = min(least, room-load)
		if room-load <= 1e-7*(1+load) {
			tight = append(tight, group)
		}
	}
	return least, tight
}

func (s *Situation) nobody(c int) bool {
	for _, j := range s.Rows[c].Candidates {
		if s.capacity(j) > 0 {
			return false
		}
	}
	return true
}

// What is admitted fits, checked over every group of rows; and nobody is shed
// without a group of rows that is full, in which nobody of its priority is
// shed less than it.
func TestShedIsWhatDoesNotFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations(t)
		for j := range s.Engines {
			if s.Engines[j].Capacity == 1e5 {
				s.Engines[j].Capacity = 60 // all of a size, so that a tolerance tells full from not
			}
		}
		shed := plannedShed(s)
		for p := range route.Priorities {
			least, tight := hall(s, shed, p)
			if least < -1e-6 {
				t.Fatalf("priorities up to %d are admitted with %v beyond what fits: %v", p, -least, shed)
			}
			for c := range s.Rows {
				if shed[c][p] < 0 || shed[c][p] > 1 {
					t.Fatalf("row %d sheds %v", c, shed[c])
				}
				if shed[c][p] == 0 || s.Rows[c].Rate[p] == 0 {
					continue
				}
				if !bottleneck(s, shed, tight, c, p) {
					t.Fatalf("row %d sheds %v of priority %d: no full group explains it: %v", c, shed[c][p], p, shed)
				}
			}
		}
	})
}

// bottleneck looks for a full group with row c in which nobody sheds less than
// it at priority p: more for it would be less for one that has no more.
func bottleneck(s *Situation, shed [][route.Priorities]float64, tight []uint, c, p int) bool {
	for _, group := range tight {
		if group>>c&1 == 0 {
			continue
		}
		holds := true
		for rest := group; rest != 0; rest &= rest - 1 {
			if r := bits.TrailingZeros(rest); s.Rows[r].Rate[p] > 0 && shed[r][p] < shed[c][p]-1e-6 {
				holds = false // it could give way to row c
			}
		}
		if holds {
			return true
		}
	}
	return false
}

// The plain case of protection.md 2.5: priorities in order, the marginal one in
// part, equal at all sources.
func TestShedByPriority(t *testing.T) {
	s := threeClusters(40, 30) // effective 280
	rates := [][route.Priorities]float64{{50, 50, 50}, {10, 100, 50}, {0, 60, 50}}
	for c := range s.Rows {
		s.Rows[c].Rate = rates[c]
	}
	for c, got := range plannedShed(s) { // 60 + 210 of 280: 10 of 150 are left for the last
		want := [route.Priorities]float64{0, 0, 1 - 10.0/150}
		for p := range got {
			if math.Abs(got[p]-want[p]) > 1e-9 {
				t.Errorf("row %d sheds %v, want %v", c, got, want)
			}
		}
	}
	s.Engines[2].Calibrated = false
	for c, got := range plannedShed(s) {
		if got != [route.Priorities]float64{} {
			t.Errorf("row %d sheds %v although nobody knows what c carries", c, got)
		}
	}
}

// Rows bound to one engine are shed for it alone; those that have others too
// are not, once they have made room.
func TestShedWhereEnginesAreFew(t *testing.T) {
	s := threeClusters(40, 30)
	s.Rows[1].Candidates = []int{1} // 120 on 100
	shed := plannedShed(s)
	if got := shed[1][1]; math.Abs(got-20.0/120) > 1e-9 {
		t.Errorf("the bound row sheds %v, want a sixth", got)
	}
	if shed[0][1] != 0 || shed[2][1] != 0 {
		t.Errorf("the others shed %v and %v", shed[0], shed[2])
	}
}

// Heavy requests count by their work.
func TestShedCountsWork(t *testing.T) {
	s := threeClusters(40, 30)
	for c := range s.Rows {
		s.Rows[c].Work = 2 // 500 on 280
	}
	for _, got := range plannedShed(s) {
		if math.Abs(got[1]-(1-280.0/500)) > 1e-9 {
			t.Errorf("sheds %v", got)
		}
	}
}

func BenchmarkPlannedShed(b *testing.B) {
	s := largeSituation(100, 1000)
	for b.Loop() {
		plannedShed(s)
	}
}

func BenchmarkWaterfall(b *testing.B) {
	s := largeSituation(100, 1000)
	for b.Loop() {
		PlanWaterfall(s)
	}
}

// largeSituation has engines in 24 clusters and one class at every source, at
// 0.9 of what they carry.
func largeSituation(sources, engines int) *Situation {
	s := &Situation{}
	all := make([]int, engines)
	for j := range engines {
		all[j] = j
		s.Engines = append(s.Engines, EngineView{Name: string(rune('a'+j%26)) + string(rune('0'+j/26)), Cluster: string(rune('A' + j%24)), Ready: true,
			Capacity: float64(10 + j%7), Calibrated: true})
	}
	total := 0.0
	for j := range s.Engines {
		total += s.Engines[j].Capacity
	}
	for i := range sources {
		s.Sources = append(s.Sources, string(rune('A'+i%24))+string(rune('0'+i/24)))
		row := make([]float64, engines)
		for j := range row {
			row[j] = float64((i*7 + j%24*13) % 250)
		}
		s.RTT = append(s.RTT, row)
		s.Rows = append(s.Rows, Row{Source: i, Work: 1, Rate: [route.Priorities]float64{0, 0.9 * total / float64(sources)}, Candidates: all})
	}
	return s
}
