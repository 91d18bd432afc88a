package protect

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func oldestFirst(Priority) bool    { return false }
func newestFirst(Priority) bool    { return true }
func goes[T any](*Waiting[T]) bool { return true }
func waiting(p Priority, tenant string, cost float64, at int) *Waiting[int] {
	return &Waiting[int]{Value: at, Priority: p, Tenant: tenant, Cost: cost, Bytes: int64(at), Since: t0.Add(time.Duration(at) * time.Millisecond)}
}

// Whatever is pushed, removed and served in whatever order, the queue holds
// what a plain list holds, and serves by its rules: the model here is that list.
func TestQueueIsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var list []*Waiting[int]
		remove := func(w *Waiting[int]) {
			list = slices.DeleteFunc(list, func(x *Waiting[int]) bool { return x == w })
		}
		at := 1000
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case what <= 1:
				at += rapid.IntRange(1, 3).Draw(t, "later")
				since := at
				if rapid.IntRange(0, 5).Draw(t, "back") == 0 {
					since -= rapid.IntRange(0, 900).Draw(t, "older")
				}
				w := waiting(Priority(rapid.IntRange(0, 2).Draw(t, "p")), string(rune('a'+rapid.IntRange(0, 2).Draw(t, "tenant"))), float64(rapid.IntRange(1, 9000).Draw(t, "cost")), since)
				w.Class = rapid.IntRange(0, 2).Draw(t, "class")
				q.Push(w)
				list = append(list, w)
			case what == 2 && len(list) > 0:
				w := list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
				if !q.Remove(w) || q.Remove(w) {
					t.Fatal("a request leaves once")
				}
				remove(w)
			case what == 3:
				open := rapid.SliceOfDistinct(rapid.IntRange(0, 2), rapid.ID).Draw(t, "open")
				newest := rapid.Bool().Draw(t, "newest")
				tried := map[any]int{}
				got := q.Next(func(Priority) bool { return newest }, func(w *Waiting[int]) bool {
					if tried[w.Class]++; tried[w.Class] > 1 {
						t.Fatal("a class without room was tried again")
					}
					return slices.Contains(open, w.Class.(int))
				})
				can := slices.ContainsFunc(list, func(w *Waiting[int]) bool { return slices.Contains(open, w.Class.(int)) })
				if (got != nil) != can {
					t.Fatalf("served %v, and could serve: %v", got, can)
				}
				if got == nil {
					break
				}
				for _, w := range list { // of its tenant, priority and class none was before it
					if w != got && w.Priority == got.Priority && w.Tenant == got.Tenant && w.Class == got.Class &&
						(w.Since.Before(got.Since) && !newest || w.Since.After(got.Since) && newest) {
						t.Fatalf("%d was before %d", w.Value, got.Value)
					}
				}
				remove(got)
			}
			sum, bytes := [priorities]float64{}, int64(0)
			var oldest [priorities]*Waiting[int]
			for _, w := range list {
				sum[w.Priority] += w.Cost
				bytes += w.Bytes
				if o := oldest[w.Priority]; o == nil || w.Since.Before(o.Since) {
					oldest[w.Priority] = w
				}
			}
			if q.Len() != len(list) || q.Bytes() != bytes {
				t.Fatalf("%d with %d bytes, want %d with %d", q.Len(), q.Bytes(), len(list), bytes)
			}
			ahead := 0.0
			for p := range priorities {
				if ahead += sum[p]; math.Abs(q.Ahead(Priority(p))-ahead) > 1e-6 {
					t.Fatalf("%g ahead of %d, want %g", q.Ahead(Priority(p)), p, ahead)
				}
				if o := q.Oldest(Priority(p)); (o == nil) != (oldest[p] == nil) || o != nil && !o.Since.Equal(oldest[p].Since) {
					t.Fatalf("oldest %v, want %v", o, oldest[p])
				}
			}
		}
	})
}

// A higher priority goes first, but a lower one that waits has a twentieth of
// the turns: it is slow and does not starve.
func TestQueuePriorities(t *testing.T) {
	var q Queue[int]
	for i := range 3000 {
		q.Push(waiting(Priority(i%3), "a", 10, i))
	}
	var served [priorities]int
	for range 900 {
		served[q.Next(oldestFirst, goes).Priority]++
	}
	if served[Standard] < 30 || served[Standard] > 60 || served[Sheddable] < 30 || served[Sheddable] > 60 || served[Critical] < 800 {
		t.Errorf("served %v of 900", served)
	}
	var only Queue[int]
	for i := range 10 {
		only.Push(waiting(Sheddable, "a", 1, i))
	}
	for i := range 10 {
		if w := only.Next(oldestFirst, goes); w == nil || w.Value != i {
			t.Fatalf("%v, want %d", w, i)
		}
	}
}

// Tenants with something waiting get equal cost in the long run, however large
// their requests are; who comes late has no debt and no savings.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		costs := map[string]float64{}
		most := 0.0
		for i := range rapid.IntRange(2, 5).Draw(t, "tenants") {
			name := fmt.Sprint("t", i)
			costs[name] = float64(rapid.IntRange(1, 50000).Draw(t, "cost"))
			most = max(most, costs[name])
		}
		at := 0
		push := func(name string) { at++; q.Push(waiting(Standard, name, costs[name], at)) }
		for name := range costs {
			push(name)
			push(name)
		}
		got := map[string]float64{}
		for range 2000 {
			w := q.Next(oldestFirst, goes)
			got[w.Tenant] += w.Cost
			push(w.Tenant)
		}
		least, highest := math.Inf(1), 0.0
		for _, cost := range got {
			least, highest = min(least, cost), max(highest, cost)
		}
		if len(got) < len(costs) {
			least = 0
		}
		if highest-least > 2*(most+quantum) {
			t.Errorf("served %v at costs %v", got, costs)
		}
	})
}

// While the head has waited too long, the newest goes first; a request that
// comes back keeps its place at the head.
func TestQueueOrder(t *testing.T) {
	var q Queue[int]
	for i := 1; i <= 4; i++ {
		q.Push(waiting(Standard, "a", 1, i*10))
	}
	back := waiting(Standard, "a", 1, 5)
	q.Push(back)
	if w := q.Next(newestFirst, goes); w.Value != 40 {
		t.Errorf("%d, want the newest", w.Value)
	}
	if w := q.Next(oldestFirst, goes); w != back {
		t.Errorf("%d, want the one that came back", w.Value)
	}
	if w := q.Least(Critical); w == nil || w.Value != 30 {
		t.Errorf("to give way: %v", w)
	}
	if w := q.Least(Standard); w != nil {
		t.Errorf("%v gives way to its equal", w)
	}
	if n := testing.AllocsPerRun(100, func() { var e Queue[int]; e.Len(); e.Ahead(Sheddable) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// What a request finds ahead, and who gives way to it, is by tenant: one that
// has much waiting is in its own way.
func TestQueueByTenant(t *testing.T) {
	var q Queue[int]
	now := time.Unix(1_700_000_000, 0)
	push := func(tenant string, p Priority, cost float64) *Waiting[int] {
		now = now.Add(time.Millisecond)
		w := &Waiting[int]{Tenant: tenant, Priority: p, Cost: cost, Since: now}
		q.Push(w)
		return w
	}
	var last *Waiting[int]
	for range 20 {
		last = push("noisy", Standard, 10)
	}
	push("critical", Critical, 7)
	quiet := &Waiting[int]{Tenant: "quiet", Priority: Standard, Cost: 10}
	if got := q.AheadOf(quiet); got != 7+10 {
		t.Errorf("%g ahead of the quiet tenant, want what is critical and one of the others", got)
	}
	if got := q.AheadOf(&Waiting[int]{Tenant: "noisy", Priority: Standard, Cost: 10}); got != 7+200 {
		t.Errorf("%g ahead of the noisy tenant, want all", got)
	}
	if got := q.Crowd(quiet); got != last {
		t.Errorf("%+v gives way, want the newest of the noisy tenant", got)
	}
	if got := q.Crowd(&Waiting[int]{Tenant: "noisy", Priority: Standard}); got != nil {
		t.Error("somebody gives way to who has the most")
	}
	for range 19 {
		push("quiet", Standard, 10)
	}
	if got := q.Crowd(quiet); got != nil {
		t.Error("somebody gives way to one with as much")
	}
	if got := q.AheadOf(quiet); got != 7+190+200 {
		t.Errorf("%g ahead, want all", got)
	}
	for w := q.Oldest(Standard); w != nil; w = q.Oldest(Standard) {
		q.Remove(w)
	}
	if got := q.AheadOf(quiet); got != 7 || q.Crowd(quiet) != nil {
		t.Errorf("%g ahead of an empty rank", got)
	}
}
