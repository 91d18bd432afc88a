package experiments

import (
	"container/heap"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// A6: what it costs conversations that weights change all the time. On virtual
// time, 100,000 conversations are live, their turns are picked by the gateway's
// selector with leases that last as long as answers, and every five seconds a
// new table is made of weights that wander, with a jump now and then.

const (
	a6Engines = 200
	a6Period  = 5         // s between tables
	a6Answer  = 2.0       // s that an answer takes on average
	a6Turns   = 6         // of a conversation on average
	a6Gap     = 30.0      // s from turn to turn on average
	a6Wander  = 0.03      // of a weight's logarithm in one period
	a6Return  = 0.95      // what is left of it one period later
	a6Jump    = 12        // periods from jump to jump: a tenth of the engines halve or come back
	a6Silence = 4 * a6Gap // nobody waits longer
	a6Memory  = route.KVLifetime
)

// a6Row is one way for weights to change.
type a6Row struct {
	Gateways      int     `json:"gateways"` // that share tables and not what they remember
	Calm          bool    `json:"calm"`     // weights wander a tenth as much and never jump
	Tables        int     `json:"tables"`
	Live          int     `json:"live_conversations"`
	Turns         int     `json:"turns"`
	TV            float64 `json:"tv"`                  // of weights from table to table, mean
	SlotMoves     float64 `json:"slot_moves"`          // part of the slots, mean
	WorstMoves    float64 `json:"worst_moves_over_tv"` // largest moves - 1.02 TV of a table
	PlannedMoves  int     `json:"planned_moves"`       // live conversations whose slot moved
	PlannedShare  float64 `json:"planned_moves_share"` // of the live ones, mean of tables
	Misses        int     `json:"forced_misses"`       // turns elsewhere than the turn before, for another reason than a bound
	MissesOfMoves float64 `json:"forced_misses_share"` // of planned moves
	Spills        int     `json:"spills"`              // turns elsewhere because of a bound, there and back
}

type a6Result struct {
	Rows []a6Row `json:"rows"`
}

func runA6(o Options) (result, error) {
	conversations, tables := 100_000, 120
	if o.Short {
		conversations, tables = 5_000, 20
	}
	r := &a6Result{}
	for _, way := range []a6Row{{Calm: true}, {}} {
		way.Live = conversations
		r.Rows = append(r.Rows, newA6(way).run(tables))
	}
	return r, nil
}

// a6 is the state of one run.
type a6 struct {
	*tabled
	dice      *rand.Rand
	selector  *selector.Selector
	keyer     selector.Keyer
	base      []float64 // logarithms of weights without what wanders
	wander    []float64
	halved    []bool
	talks     []a6Talk
	due       a6Queue
	measuring bool
	row       a6Row
}

// a6Talk is a conversation in one of the live places.
type a6Talk struct {
	key    uint64
	number uint32 // how many there were in this place before
	turns  uint32
	at     *engine.Engine // of the turn before
}

func newA6(way a6Row) *a6 {
	a := &a6{tabled: newTabled(a6Engines), dice: rand.New(rand.NewPCG(6, 0xa6)), keyer: selector.NewKeyer("", ""), row: way,
		wander: make([]float64, a6Engines), halved: make([]bool, a6Engines), talks: make([]a6Talk, way.Live)}
	for range a6Engines {
		a.base = append(a.base, a.dice.NormFloat64())
	}
	a.selector = selector.New(a.tables, nil)
	for i := range a.talks {
		a.begin(i)
		heap.Push(&a.due, a6Event{at: a.dice.Float64() * a6Gap, talk: i})
	}
	return a
}

// begin puts a new conversation in a place.
func (a *a6) begin(i int) {
	t := &a.talks[i]
	*t = a6Talk{number: t.number + 1}
	t.key = a.keyer.Key(tabledModel, "", selector.DomainID, fmt.Sprintf("%d/%d", i, t.number))
}

// run warms up for the time that a cache lasts, then counts.
func (a *a6) run(tables int) a6Row {
	warm := int(a6Memory) / a6Period
	weights := a.weights()
	pool := a.publish(weights, 0)
	for n := 1; n <= warm+tables; n++ {
		a.measuring = n > warm
		now := int64(n * a6Period)
		a.until(float64(now))
		a.change(n)
		next := a.weights()
		before := pool
		pool = a.publish(next, now)
		if a.measuring {
			a.compare(before, pool, variation(weights, next))
		}
		weights = next
	}
	n := float64(a.row.Tables)
	a.row.TV, a.row.SlotMoves = a.row.TV/n, a.row.SlotMoves/n
	a.row.PlannedShare = float64(a.row.PlannedMoves) / n / float64(len(a.talks))
	a.row.MissesOfMoves = float64(a.row.Misses) / float64(max(1, a.row.PlannedMoves))
	return a.row
}

// change lets weights wander and, now and then, jump.
func (a *a6) change(n int) {
	by := a6Wander
	if a.row.Calm {
		by /= 10
	}
	for i := range a.wander {
		a.wander[i] = a6Return*a.wander[i] + by*a.dice.NormFloat64()
	}
	if n%a6Jump == 0 && !a.row.Calm {
		for i := range a.halved {
			if i%10 == n/a6Jump%10 {
				a.halved[i] = !a.halved[i]
			}
		}
	}
}

func (a *a6) weights() []float64 {
	w := make([]float64, a6Engines)
	for i := range w {
		w[i] = math.Exp(a.base[i] + a.wander[i])
		if a.halved[i] {
			w[i] /= 2
		}
	}
	return normalise(w)
}

// compare counts what moved from one table to the next.
func (a *a6) compare(before, after *route.Pool, tv float64) {
	moved := 0
	slots := after.Slots()
	for s := range slots {
		key := uint64(s) * (math.MaxUint64/uint64(slots) + 1)
		if before.Slot(key).Engine != after.Slot(key).Engine {
			moved++
		}
	}
	share := float64(moved) / float64(slots)
	a.row.Tables++
	a.row.TV += tv
	a.row.SlotMoves += share
	a.row.WorstMoves = max(a.row.WorstMoves, share-1.02*tv)
	for i := range a.talks {
		if k := a.talks[i].key; before.Slot(k).Engine != after.Slot(k).Engine {
			a.row.PlannedMoves++
		}
	}
}

// until lets turns begin and answers end before an instant.
func (a *a6) until(end float64) {
	for a.due.Len() > 0 && a.due[0].at < end {
		e := heap.Pop(&a.due).(a6Event)
		if e.lease != nil {
			e.lease.Release()
			continue
		}
		a.turn(e.talk, e.at)
	}
}

// turn picks an engine for the next turn of a conversation.
func (a *a6) turn(i int, at float64) {
	t := &a.talks[i]
	now := int64(at)
	ask := selector.Ask{Key: t.key, Keyed: true, EarlierTurns: t.turns > 0, Now: now}
	var d selector.Decision
	lease := a.selector.Pick(a.class(a.selector, now), &ask, &d)
	if lease.Engine == nil {
		panic("no engine has room")
	}
	if a.measuring {
		a.row.Turns++
		if t.at != nil && t.at != lease.Engine {
			if atBound(&d) {
				a.row.Spills++
			} else {
				a.row.Misses++
			}
		}
	}
	if !atBound(&d) { // who was spilled returns
		t.at = lease.Engine
	}
	t.turns++
	heap.Push(&a.due, a6Event{at: at + a6Answer*a.dice.ExpFloat64(), lease: &lease})
	if a.dice.IntN(a6Turns) == 0 {
		a.begin(i)
	}
	heap.Push(&a.due, a6Event{at: at + min(a6Silence, a6Gap*a.dice.ExpFloat64()), talk: i})
}

// atBound reports whether a pick passed over an engine for its bound.
func atBound(d *selector.Decision) bool {
	return slices.ContainsFunc(d.Looks[:d.N], func(l selector.Look) bool { return l.Fit == selector.AtBound })
}

// a6Event is a turn, or the end of an answer where there is a lease.
type a6Event struct {
	at    float64
	talk  int
	lease *selector.Lease
}

type a6Queue []a6Event

func (q a6Queue) Len() int           { return len(q) }
func (q a6Queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q a6Queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *a6Queue) Push(x any)        { *q = append(*q, x.(a6Event)) }
func (q *a6Queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func (x *a6Row) kind() string {
	if x.Calm {
		return "calm"
	}
	return "restless"
}

func (r *a6Result) missed() (bad []string) {
	for _, w := range r.Rows {
		where := w.kind() + " weights: "
		if w.WorstMoves > 0.001 {
			bad = append(bad, where+fmt.Sprintf("moves <= 1.02 TV + 0.1 %%, one table moved %.3f %% more than 1.02 TV", 100*w.WorstMoves))
		}
		if w.PlannedShare > 1.02*w.TV+0.001 {
			bad = append(bad, where+fmt.Sprintf("conversations moved <= 1.02 TV + 0.1 %%: %.3f %% for TV %.3f %%", 100*w.PlannedShare, 100*w.TV))
		}
		if w.MissesOfMoves > 0.05 {
			bad = append(bad, where+fmt.Sprintf("forced cache misses <= 5 %% of planned moves: %.1f %%", 100*w.MissesOfMoves))
		}
	}
	return bad
}

func (r *a6Result) print(w io.Writer) {
	fmt.Fprintf(w, "%d engines, tables every %d s, conversations of %d turns %.0f s apart on average\n\n", a6Engines, a6Period, a6Turns, a6Gap)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "weights\ttables\tlive\tturns\tTV\tslots moved\tworst over 1.02 TV\tlive moved\tplanned moves\tforced misses\tof moves\tspills\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.3f %%\t%.3f %%\t%.3f %%\t%.3f %%\t%d\t%d\t%.2f %%\t%d\t\n", x.kind(), x.Tables, x.Live, x.Turns, 100*x.TV, 100*x.SlotMoves,
			100*x.WorstMoves, 100*x.PlannedShare, x.PlannedMoves, x.Misses, 100*x.MissesOfMoves, x.Spills)
	}
	_ = t.Flush()
}
