package experiments

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"

	"penstock/selector"
)

// A7: what the in-flight bound does. Sessions of which some are much busier than
// others (Zipf) keep engines busy with answers of their own length, weights as
// uneven as fleets are. No slot's engine and no alternate may take a request
// beyond its bound, nobody one beyond its cap; few may spill by chance, and a
// session that spills again comes to the same alternate.

const (
	a7Engines  = 40
	a7Sessions = 20_000
	a7Zipf     = 1.05
	a7InFlight = 4000.0 // on average, over all engines
	a7Answer   = 2.0    // s
	a7Flat     = 200    // v of the Zipf distribution: the busiest sessions are about alike
)

// a7Row is one kind of sessions.
type a7Row struct {
	Sessions   string  `json:"sessions"`
	Picks      int     `json:"picks"`
	OverBound  int     `json:"over_bound"`
	OverCap    int     `json:"over_cap"`
	Spilled    float64 `json:"spilled"` // part of the picks
	Returned   float64 `json:"returned_to_same"`
	SpillPairs int     `json:"spills_after_a_spill"`
	evenly     bool
}

type a7Result struct {
	Rows []*a7Row `json:"rows"`
}

// leaves is a heap of leases by when they end.
type leaves []leaving

type leaving struct {
	at    float64
	lease selector.Lease
}

func (h leaves) Len() int           { return len(h) }
func (h leaves) Less(i, j int) bool { return h[i].at < h[j].at }
func (h leaves) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *leaves) Push(x any)        { *h = append(*h, x.(leaving)) }
func (h *leaves) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func runA7(o Options) (result, error) {
	picks := 1_000_000
	if o.Short {
		picks = 150_000
	}
	r := &a7Result{}
	for k, row := range []*a7Row{{Sessions: "all alike", evenly: true}, {Sessions: "Zipf"}} {
		o.progress(float64(k)/2, row.Sessions)
		if err := row.play(picks); err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

func (r *a7Row) play(picks int) error {
	dice := rand.New(rand.NewPCG(7, 0xa7))
	f := newTabled(a7Engines)
	f.publish(drawWeights(dice, a7Engines), 0)
	s := selector.New(f.tables, nil)
	class := f.class(s, 0)
	keyer := selector.NewKeyer("", "")
	zipf := rand.NewZipf(dice, a7Zipf, a7Flat, a7Sessions-1)
	last := make(map[uint64]string) // where a session last spilled to
	same, again, spilled := 0, 0, 0
	var under leaves
	now := 0.0
	for n := range picks {
		now += dice.ExpFloat64() * a7Answer / a7InFlight
		for len(under) > 0 && under[0].at <= now {
			l := heap.Pop(&under).(leaving)
			l.lease.Release()
		}
		session := zipf.Uint64()
		if r.evenly {
			session = dice.Uint64N(100 * a7Sessions)
		}
		a := selector.Ask{Key: keyer.KeyOfDigest(tabledModel, "", session+1), Keyed: true, EarlierTurns: true, Now: int64(now), Chance: dice.Uint64() | 1}
		var d selector.Decision
		lease := s.Pick(class, &a, &d)
		if lease.Engine == nil {
			return fmt.Errorf("pick %d found no engine with room", n)
		}
		took := d.Looks[d.N-1]
		if int64(took.InFlight)+1 > lease.Engine.Cap() {
			r.OverCap++
		}
		if d.Why != selector.WhySpillDraw && int64(took.InFlight)+1 > took.Bound() {
			r.OverBound++
		}
		if d.Why == selector.WhyAlternate || d.Why == selector.WhySpillDraw {
			spilled++
			if before, was := last[session]; was {
				if again++; before == lease.Engine.Name {
					same++
				}
			}
			last[session] = lease.Engine.Name
		}
		heap.Push(&under, leaving{now + a7Answer*dice.ExpFloat64(), lease})
	}
	r.Picks, r.Spilled, r.SpillPairs = picks, float64(spilled)/float64(picks), again
	r.Returned = float64(same) / float64(max(again, 1))
	return nil
}

const (
	a7Chance = 0.005
	a7Same   = 0.95
)

func (r *a7Result) missed() (bad []string) {
	for _, row := range r.Rows {
		if row.OverBound > 0 || row.OverCap > 0 {
			bad = append(bad, fmt.Sprintf("sessions %s: %d picks beyond a bound, %d beyond a cap", row.Sessions, row.OverBound, row.OverCap))
		}
		if row.evenly && row.Spilled > a7Chance {
			bad = append(bad, fmt.Sprintf("at most 0.5 %% spill by chance: %.2f %%", 100*row.Spilled))
		}
		if !row.evenly && row.SpillPairs > 0 && row.Returned < a7Same {
			bad = append(bad, fmt.Sprintf("95 %% of spills come to the same alternate again: %.1f %%", 100*row.Returned))
		}
	}
	return bad
}

func (r *a7Result) print(w io.Writer) {
	fmt.Fprintf(w, "%d engines of log-normal weights, %.0f requests in flight, sessions all alike or as Zipf (s = %.2f, v = %d)\n\n", a7Engines, a7InFlight, a7Zipf, a7Flat)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sessions\tpicks\tbeyond a bound\tbeyond a cap\tspill\tspilled before\tto the same alternate\t")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2f%%\t%d\t%.1f%%\t\n", row.Sessions, row.Picks, row.OverBound, row.OverCap, 100*row.Spilled, row.SpillPairs, 100*row.Returned)
	}
	_ = t.Flush()
}
