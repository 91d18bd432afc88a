package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
)

// candidatesOf are ready engines of the given names and capacities.
func candidatesOf(weights map[string]float64, order ...string) []Candidate {
	cands := make([]Candidate, 0, len(order))
	for _, name := range order {
		c := weights[name]
		id := idOf(name)
		live := engine.NewLive(id)
		live.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
		e := engine.New(engine.Config{Name: name, URL: "http://127.0.0.1:1", Capacity: &c}, live)
		cands = append(cands, Candidate{Engine: e, Live: live, Cap: e.K})
	}
	Weigh(cands)
	return cands
}

// idOf numbers names, the same name always alike.
func idOf(name string) uint16 {
	var n uint16
	fmt.Sscanf(name, "e%d", &n)
	return n
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("e%04d", i)
	}
	return all
}

func equalWeights(order []string) map[string]float64 {
	w := make(map[string]float64)
	for _, n := range order {
		w[n] = 1
	}
	return w
}

// owners lists the engine name of every slot, "" for none.
func owners(p *Pool) []string {
	list := make([]string, len(p.slots))
	for i, s := range p.slots {
		if s.Engine != None {
			list[i] = p.Candidates[s.Engine].Engine.Name
		}
	}
	return list
}

func poolOf(w map[string]float64, order []string, prev *Pool, now int64) *Pool {
	return NewPool(candidatesOf(w, order...), &Component{}, prev, now)
}

// Each engine has as many slots as its weight says, of any weights.
func TestSlotsFollowWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := names(rapid.IntRange(1, 8).Draw(t, "engines"))
		w := make(map[string]float64)
		sum := 0.0
		for _, n := range order {
			w[n] = rapid.Float64Range(0.1, 100).Draw(t, n)
			sum += w[n]
		}
		p := poolOf(w, order, nil, 0)
		for i, got := range p.SlotCounts() {
			want := w[order[i]] / sum * float64(p.Slots())
			if off := math.Abs(float64(got) - want); off > 1 {
				t.Fatalf("%s: %d slots for %.1f", order[i], got, want)
			}
		}
	})
}

// Without a table before, slots are a function of names and weights: neither
// the order of the engines nor the process matters.
func TestSlotsAreStateless(t *testing.T) {
	order := names(10)
	first := poolOf(equalWeights(order), order, nil, 0)
	again := poolOf(equalWeights(order), order, nil, 99)
	for s := range first.slots {
		if first.slots[s].Engine != again.slots[s].Engine || first.slots[s].Alternate != again.slots[s].Alternate {
			t.Fatalf("slot %d differs", s)
		}
	}
	h := uint64(14695981039346656037)
	for _, o := range owners(first) {
		for i := range len(o) {
			h = (h ^ uint64(o[i])) * 1099511628211
		}
	}
	const golden uint64 = 0x6b33c8dc8ecb7b81
	if h != golden {
		t.Errorf("the slots of ten engines hash to %#x, not %#x: conversations would move at an upgrade", h, golden)
	}
}

func moves(before, after []string) (n int) {
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

// An engine that leaves gives up its own slots and nobody else's; they spread;
// when it is back it has the very same ones (C15).
func TestEngineLeavesAndComesBack(t *testing.T) {
	order := names(10)
	w := equalWeights(order)
	all := poolOf(w, order, nil, 0)
	for _, way := range []string{"down", "removed"} {
		var less *Pool
		if way == "down" {
			down := equalWeights(order)
			down["e0003"] = 0
			less = poolOf(down, order, all, 10)
		} else {
			less = poolOf(w, append(append([]string{}, order[:3]...), order[4:]...), all, 10)
		}
		to := make(map[string]int)
		before, after := owners(all), owners(less)
		for s := range before {
			switch {
			case before[s] == "e0003":
				to[after[s]]++
			case before[s] != after[s]:
				t.Fatalf("%s: slot %d of %s moved to %s", way, s, before[s], after[s])
			}
		}
		if len(to) != 9 {
			t.Errorf("%s: the slots went to %v, not to all nine others", way, to)
		}
		back := poolOf(w, order, less, 20)
		if n := moves(before, owners(back)); n > 0 {
			t.Errorf("%s: %d slots are elsewhere after the engine came back", way, n)
		}
		fresh := poolOf(w, append(append([]string{}, order[:3]...), order[4:]...), nil, 0)
		if n := moves(after, owners(fresh)); float64(n) > 0.015*float64(len(after)) {
			t.Errorf("%s: a restart without the engine moves %d of %d slots", way, n, len(after))
		}
	}
}

// Reweighting moves hardly more than the total-variation distance, the least
// that any scheme can move (hashing.md 1).
func TestMovesAreMinimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 10, 100} {
		order := names(n)
		w := make(map[string]float64)
		for _, name := range order {
			w[name] = math.Exp(rng.NormFloat64())
		}
		p := poolOf(w, order, nil, 0)
		for round := range 5 {
			next := make(map[string]float64)
			for name, x := range w {
				next[name] = x * (0.7 + 0.6*rng.Float64())
			}
			q := poolOf(next, order, p, int64(10*round))
			a, b := p.SlotCounts(), q.SlotCounts()
			least := 0
			for i := range a {
				least += max(0, b[i]-a[i])
			}
			if n := moves(owners(p), owners(q)); float64(n) > 1.02*float64(least)+0.001*float64(len(q.slots)) {
				t.Errorf("%d engines, round %d: %d slots moved, %d were needed", len(order), round, n, least)
			}
			p, w = q, next
		}
	}
}

// A moved slot remembers who had it, for the KV lifetime and not longer.
func TestMovedSlotsDrain(t *testing.T) {
	order := names(4)
	p := poolOf(equalWeights(order), order, nil, 0)
	w := equalWeights(order)
	w["e0000"] = 3
	q := poolOf(w, order, p, 1000)
	before, n := owners(p), 0
	for s, slot := range q.slots {
		if before[s] == q.Candidates[slot.Engine].Engine.Name {
			if slot.Previous != None {
				t.Fatalf("slot %d did not move but has a previous engine", s)
			}
			continue
		}
		n++
		if slot.Previous == None || q.Candidates[slot.Previous].Engine.Name != before[s] {
			t.Fatalf("slot %d does not remember %s", s, before[s])
		}
		if !slot.Draining(1000) || !slot.Draining(1000+KVLifetime-2*tick) || slot.Draining(1000+KVLifetime+tick) {
			t.Fatalf("slot %d drains for another time than the KV lifetime", s)
		}
	}
	if n == 0 {
		t.Fatal("nothing moved")
	}
	if q.Drained(1000+KVLifetime-1) || !q.Drained(1000+KVLifetime+2*tick) {
		t.Error("the pool is drained at another time than its slots")
	}
	r := poolOf(w, order, q, 1000+KVLifetime+2*tick)
	for s := range r.slots {
		if r.slots[s].Previous != None {
			t.Fatalf("slot %d still has a previous engine after the lifetime", s)
		}
	}
	if r.Drained(1 << 40) {
		t.Error("a pool without moved slots asks to be built anew for ever")
	}
}

// Every slot's alternate is another engine with weight: who would get the
// slot next.
func TestAlternates(t *testing.T) {
	for _, n := range []int{1, 2, 5, 700} {
		order := names(n)
		w := equalWeights(order)
		if n > 2 {
			w["e0001"] = 0
		}
		p := poolOf(w, order, nil, 0)
		for s, slot := range p.slots {
			if n == 1 {
				if slot.Alternate != None {
					t.Fatalf("one engine, and slot %d has an alternate", s)
				}
				continue
			}
			if slot.Alternate == None || slot.Alternate == slot.Engine || p.Candidates[slot.Alternate].Weight == 0 {
				t.Fatalf("%d engines: slot %d has engine %d and alternate %d", n, s, slot.Engine, slot.Alternate)
			}
		}
	}
}

// An ad hoc pool answers like the table that follows it.
func TestAdHocAgreesWithTheTable(t *testing.T) {
	order := names(7)
	table := poolOf(equalWeights(order), order, nil, 0)
	adHoc := NewAdHoc(candidatesOf(equalWeights(order), order...), &Component{})
	differ := 0
	for range 20000 {
		key := rand.Uint64()
		if table.Slot(key).Engine != adHoc.Slot(key).Engine {
			differ++
		}
	}
	if differ > 20000/100 {
		t.Errorf("%d of 20,000 keys go elsewhere before the class has its table", differ)
	}
}

// A fleet that outgrows its slot table keeps its keys where they were.
func TestMoreSlots(t *testing.T) {
	small, large := names(1000), names(1100)
	p := poolOf(equalWeights(small), small, nil, 0)
	q := poolOf(equalWeights(large), large, p, 0)
	if q.Slots() <= p.Slots() {
		t.Fatalf("%d slots for 1,100 engines, %d for 1,000", q.Slots(), p.Slots())
	}
	moved := 0
	for range 10000 {
		key := rand.Uint64()
		if p.Candidates[p.Slot(key).Engine].Engine.Name != q.Candidates[q.Slot(key).Engine].Engine.Name {
			moved++
		}
	}
	if moved > 10000*100/1100+300 {
		t.Errorf("%d of 10,000 keys moved for a tenth more engines", moved)
	}
}

// The draw follows the weights, and never lands on weight 0.
func TestDrawFollowsWeights(t *testing.T) {
	w := map[string]float64{"e0000": 70, "e0001": 30, "e0002": 0, "e0003": 1}
	p := NewAdHoc(candidatesOf(w, names(4)...), &Component{})
	const n = 200000
	counts := make([]int, 4)
	for range n {
		counts[p.Draw(rand.Uint64())]++
	}
	for i, name := range names(4) {
		want := w[name] / 101 * n
		if math.Abs(float64(counts[i])-want) > 5*math.Sqrt(want)+1 {
			t.Errorf("%s: %d draws, %.0f expected", name, counts[i], want)
		}
	}
	none := NewAdHoc(candidatesOf(map[string]float64{"e0000": 0}, "e0000"), &Component{})
	if i := none.Draw(1); i != None {
		t.Errorf("drew %d of a pool without weight", i)
	}
	if s := poolOf(map[string]float64{"e0000": 0}, names(1), nil, 0).Slot(1); s.Engine != None {
		t.Errorf("a pool without weight has a slot of %d", s.Engine)
	}
}

func BenchmarkNewPool(b *testing.B) {
	for _, n := range []int{10, 200, 10000} {
		order := names(n)
		cands := candidatesOf(equalWeights(order), order...)
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			for b.Loop() {
				NewPool(cands, &Component{}, nil, 0)
			}
		})
	}
}

// Gateways that share a source have equal slots at equal weights, whatever
// each has seen before. A change of weights moves more than it must: nearly
// twice as much over many engines, which is the price.
func TestSharedSlotsForgetThePast(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{3, 10, 60} {
		order := names(n)
		w := make(map[string]float64)
		for _, name := range order {
			w[name] = math.Exp(rng.NormFloat64())
		}
		one := NewSharedPool(candidatesOf(w, order...), &Component{}, nil, 0)
		for round := range 4 {
			now := int64(10 * (round + 1))
			next, other := make(map[string]float64), make(map[string]float64)
			for name, x := range w {
				next[name], other[name] = x*(0.9+0.2*rng.Float64()), math.Exp(rng.NormFloat64())
			}
			past := poolOf(other, order, poolOf(w, order, nil, 0), now-5)
			a, b := NewSharedPool(candidatesOf(next, order...), &Component{}, one, now), NewSharedPool(candidatesOf(next, order...), &Component{}, past, now)
			if !slices.Equal(owners(a), owners(b)) || !a.Shared {
				t.Fatalf("%d engines: the past shows", n)
			}
			before, after, least := one.SlotCounts(), a.SlotCounts(), 0
			for i := range before {
				least += max(0, after[i]-before[i])
			}
			moved := moves(owners(one), owners(a))
			if float64(moved) > 2.1*float64(least)+0.01*float64(len(a.slots)) {
				t.Errorf("%d engines, round %d: %d slots moved, %d were needed", n, round, moved, least)
			}
			drains := 0
			for s := range a.slots {
				if a.slots[s].Draining(now) && a.slots[s].MovedAt == uint16(now/tick) {
					drains++
					if was := one.slots[s].Engine; a.slots[s].Previous != was || a.slots[s].Engine == was {
						t.Fatalf("slot %d came from %d and remembers %d", s, was, a.slots[s].Previous)
					}
				}
			}
			if drains != moved || a.movedAt != now {
				t.Errorf("%d slots moved and %d remember it", moved, drains)
			}
			one, w = a, next
		}
	}
}
