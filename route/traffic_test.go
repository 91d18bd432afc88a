package route

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Counters of one priority are apart from those of the others, hold whatever a
// request claims, and lose nothing to concurrent writers.
func TestTraffic(t *testing.T) {
	var tr Traffic
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				tr.Offer(1, 10, 5*(i%2))
				tr.Retry(1)
				tr.Answer(1, 100, 40, 7)
			}
		})
	}
	wg.Wait()
	want := TrafficCounts{Offered: 8000, Retries: 8000, Asked: 80000, Limited: 4000, Limit: 20000,
		Answers: 8000, Prompt: 800000, Cached: 320000, Output: 56000}
	if got := tr.Counts(1); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if tr.Counts(0) != (TrafficCounts{}) || tr.Counts(2) != (TrafficCounts{}) {
		t.Error("another priority was counted too")
	}
	tr.Answer(2, -5, 100, 1<<40)
	tr.Offer(200, 1, -1) // no such priority: the least
	if got, want := tr.Counts(2), (TrafficCounts{Offered: 1, Asked: 1, Answers: 1, Output: maxTokens}); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { tr.Offer(0, 1, 2); tr.Retry(0); tr.Answer(0, 1, 2, 3) }); n != 0 {
		t.Errorf("counting allocates %g times", n)
	}
}

// A class keeps its counters while anybody asks for it, whatever tables come
// and go; there are never more of them than the bound.
func TestLedger(t *testing.T) {
	l, now := NewLedger(), time.Unix(1000, 0)
	plain, long := ClassKey{Model: "m"}, ClassKey{Model: "m", Tier: 1}
	m := l.Of(plain, now)
	if l.Of(long, now) == m {
		t.Error("two classes share counters")
	}
	later := now.Add(ledgerIdle + time.Second)
	if l.Of(plain, later) != m {
		t.Error("the class lost its counters")
	}
	var left []ClassKey
	l.All(later, func(k ClassKey, _ *Traffic) { left = append(left, k) })
	if len(left) != 1 || left[0] != plain {
		t.Errorf("kept %v", left)
	}
	for i := range 2 * maxTraffic {
		l.Of(ClassKey{Model: "m", Require: fmt.Sprint("user=", i)}, later)
	}
	if n := len(l.classes); n != maxTraffic {
		t.Errorf("%d classes are counted, want %d", n, maxTraffic)
	}
	if l.Of(ClassKey{Model: "m", Require: "one=more"}, later) != m {
		t.Error("a class beyond the bound is not counted with its model")
	}
	if l.Of(ClassKey{Model: "n"}, later) != nil || (*Ledger)(nil).Of(plain, now) != nil {
		t.Error("counters out of nowhere")
	}
}
