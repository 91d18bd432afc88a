package protect

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRho(t *testing.T) {
	for u, want := range map[float64]float64{0: .1, .6: .1, .75: .05, .9: 0, 1.5: 0, math.Inf(1): 0} {
		if got := Rho(u); math.Abs(got-want) > 1e-12 {
			t.Errorf("rho(%g) = %g, want %g", u, got, want)
		}
	}
	if got := Rho(math.NaN()); got != 0 {
		t.Errorf("rho(NaN) = %g", got)
	}
}

// Whenever a retry is granted, those of the last ten seconds are no more than a
// tenth of the first attempts, or ten; from utilisation 0.9 on there are none. The bound is
// counted here by itself, from the times of what was granted.
func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Budget
		start := time.Now()
		now := start
		var firsts, retries []time.Duration // since start
		within := func(list []time.Duration, at, span time.Duration) (n int) {
			for _, x := range list {
				if at-x < span {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			u := rapid.Float64Range(0, 1.2).Draw(t, "u")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				for range rapid.IntRange(1, 50).Draw(t, "firsts") {
					b.Deposit(u, now)
					firsts = append(firsts, now.Sub(start))
				}
			case 1:
				if b.Withdraw(u, 1000, now) {
					b.Done()
					if u >= rhoUntil {
						t.Fatalf("a retry at utilisation %g", u)
					}
					at := now.Sub(start)
					retries = append(retries, at)
					// Slots are whole seconds: ten of them are at least nine seconds.
					if n, most := within(retries, at, 9*time.Second), max(freeRetries, int(rhoMost*float64(within(firsts, at, 10*time.Second)))); n > most {
						t.Fatalf("%d retries in nine seconds, at most %d", n, most)
					}
				}
			case 2:
				now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			}
		}
	})
}

// Retries at once are bounded too, and the place is given back.
func TestBudgetAtOnce(t *testing.T) {
	var b Budget
	now := time.Now()
	for range 1000 {
		b.Deposit(0, now)
	}
	for i := range fewRetries {
		if !b.Withdraw(0.5, 5, now) {
			t.Fatalf("retry %d refused", i)
		}
	}
	if b.Withdraw(0.5, 5, now) {
		t.Error("a fourth retry at once with five in flight")
	}
	if !b.Withdraw(0.5, 100, now) {
		t.Error("a fourth retry at once refused with a hundred in flight")
	}
	b.Done()
	b.Done()
	if !b.Withdraw(0.5, 5, now) {
		t.Error("a place that was given back is still taken")
	}
	if left := b.Left(0.5, now); left != 95 {
		t.Errorf("%g left of 100 after five", left)
	}
	if left := b.Left(0.5, now.Add(time.Minute)); left != freeRetries {
		t.Errorf("%g left after a minute without requests", left)
	}
}

// Deposits of many goroutines over a change of second lose few.
func TestBudgetConcurrent(t *testing.T) {
	var b Budget
	start := time.Now()
	var wg sync.WaitGroup
	var granted atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				now := start.Add(time.Duration(i) * time.Millisecond)
				b.Deposit(0, now)
				if i%50 == g && b.Withdraw(0, 1<<20, now) {
					b.Done()
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if d := b.deposited(budgetSecond(start.Add(5 * time.Second))); d > 4000 || d < 3000 {
		t.Errorf("%g deposited by 40,000 first attempts", d)
	}
	if granted.Load() == 0 {
		t.Error("no retry was granted")
	}
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() { b.Deposit(0.7, now) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}
