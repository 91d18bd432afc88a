package protect

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

// admitted sends requests evenly for a while and counts those that got in.
func admitted(q *Quota, from time.Time, length, every time.Duration, cost int64) (n int) {
	for at := time.Duration(0); at < length; at += every {
		if spent, _ := q.Admit(from.Add(at)); spent == SpentNothing {
			q.Charge(from.Add(at), cost)
			n++
		}
	}
	return n
}

func TestRateHoldsOverAMinute(t *testing.T) {
	for _, rate := range []float64{0.1, 0.5, 1, 3.7, 50, 5000} {
		q := NewQuota(rate, 0, nil, t0)
		every := time.Duration(float64(time.Second) / rate / 20) // twenty times too many
		most := rate*60 + math.Ceil(rate)
		if n := float64(admitted(q, t0, time.Minute, every, 0)); n > most+1 || n < rate*60-1 {
			t.Errorf("%g/s: %g requests in a minute, want %g to %g", rate, n, rate*60, most)
		}
	}
}

func TestOneSecondsWorthComesAtOnce(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want int
	}{{0.2, 1}, {1, 1}, {1.5, 2}, {50, 50}} {
		q := NewQuota(c.rate, 0, nil, t0)
		n := 0
		for range 1000 {
			if spent, _ := q.Admit(t0); spent == SpentNothing {
				n++
			}
		}
		spent, wait := q.Admit(t0)
		if n != c.want || spent != SpentRequests || wait <= 0 || wait > time.Duration(float64(time.Second)/c.rate)+time.Millisecond {
			t.Errorf("%g/s: %d at once, then %v and %v to wait", c.rate, n, spent, wait)
		}
		if spent, _ := q.Admit(t0.Add(wait + time.Microsecond)); spent != SpentNothing {
			t.Errorf("%g/s: after the wait of %v: %v", c.rate, wait, spent)
		}
	}
}

// A request larger than the bucket gets in, and is paid for before the next.
func TestTokensAreOwed(t *testing.T) {
	q := NewQuota(0, 60_000, nil, t0) // 1000/s
	if spent, _ := q.Admit(t0); spent != SpentNothing {
		t.Fatalf("a full bucket refuses: %v", spent)
	}
	q.Charge(t0, 21_000)
	spent, wait := q.Admit(t0)
	if spent != SpentTokens || wait.Round(time.Millisecond) != 20*time.Second {
		t.Errorf("20,000 tokens in debt: %v, %v to wait", spent, wait)
	}
	if _, tokens := q.Buckets(t0); tokens != (Bucket{Size: 1000, Left: 0, Full: 21 * time.Second}) {
		t.Errorf("bucket %+v", tokens)
	}
	if spent, _ := q.Admit(t0.Add(20*time.Second - time.Millisecond)); spent != SpentTokens {
		t.Error("the debt was forgotten")
	}
	if spent, _ := q.Admit(t0.Add(20*time.Second + time.Millisecond)); spent != SpentNothing {
		t.Error("the debt is paid and nobody gets in")
	}
	q.Charge(t0.Add(20*time.Second), -500) // the engine counted less
	if _, tokens := q.Buckets(t0.Add(20 * time.Second)); tokens.Left != 500 {
		t.Errorf("500 were given back, %d are left", tokens.Left)
	}
	q.Charge(t0.Add(time.Hour), -1<<40)
	if _, tokens := q.Buckets(t0.Add(2 * time.Hour)); tokens.Left != 1000 || tokens.Full != 0 {
		t.Errorf("more than the bucket holds: %+v", tokens)
	}
}

// Tokens refuse before a request is taken, so that the refused ones do not
// use up the rate.
func TestRefusedByTokensTakesNoRequest(t *testing.T) {
	q := NewQuota(2, 60, nil, t0)
	q.Charge(t0, 3)
	for range 10 {
		if spent, _ := q.Admit(t0); spent != SpentTokens {
			t.Fatalf("%v", spent)
		}
	}
	if requests, _ := q.Buckets(t0); requests.Left != 2 {
		t.Errorf("%d requests left", requests.Left)
	}
}

func TestNoQuotaRefusesNothing(t *testing.T) {
	q := NewQuota(0, 0, nil, t0)
	for range 1000 {
		if spent, _ := q.Admit(t0); spent != SpentNothing {
			t.Fatal("refused")
		}
		q.Charge(t0, 1<<40)
	}
	if requests, tokens := q.Buckets(t0); q.Counts() || requests != (Bucket{}) || tokens != (Bucket{}) {
		t.Error("no quota has a limit")
	}
}

// A reload keeps what has been used of a limit, whatever becomes of the other.
func TestQuotaGoesOnAfterAReload(t *testing.T) {
	q := NewQuota(10, 60_000, nil, t0)
	for range 10 {
		q.Admit(t0)
	}
	q.Charge(t0, 5000)
	same := NewQuota(10, 60_000, q, t0)
	if spent, _ := same.Admit(t0); spent != SpentTokens {
		t.Errorf("the same limits after a reload: %v", spent)
	}
	rate := NewQuota(20, 0, same, t0) // the tokens are free now, the rate doubles
	if spent, _ := rate.Admit(t0); spent != SpentRequests {
		t.Errorf("a higher rate made good what was used: %v", spent)
	}
	if n := admitted(rate, t0, time.Second, time.Millisecond, 0); n != 19 && n != 20 {
		t.Errorf("%d in the next second at 20/s", n)
	}
	lower := NewQuota(1, 0, rate, t0.Add(time.Hour))
	if requests, _ := lower.Buckets(t0.Add(time.Hour)); requests.Left != 1 || requests.Size != 1 {
		t.Errorf("a lower rate keeps the old bucket: %+v", requests)
	}
	if fresh := NewQuota(0, 60_000, lower, t0); fresh.requests != nil || fresh.tokens == nil {
		t.Error("a limit that was taken out is still there")
	}
	// What is charged under the old configuration is known under the new one.
	old := NewQuota(0, 600, nil, t0)
	next := NewQuota(0, 1200, old, t0)
	old.Charge(t0, 100)
	if spent, _ := next.Admit(t0); spent != SpentTokens {
		t.Error("a stream of before the reload is not charged after it")
	}
}

// Against a bucket as one would write it down: fill, cap, admit while above
// zero, charge whatever comes. Over any run no more is used than the rate and
// one second bring, but for what the last admitted request was charged.
func TestQuotaIsThePlainBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0, 200).Draw(t, "rate")
		tpm := rapid.Float64Range(0, 1e6).Draw(t, "tokens per minute")
		q := NewQuota(rate, tpm, nil, t0)
		requests, tokens := math.Ceil(rate), math.Ceil(tpm/60)
		now, lastR, lastT := t0, t0, t0
		fill := func(have, perSecond float64, last time.Time) float64 {
			return min(have+now.Sub(last).Seconds()*perSecond, math.Ceil(perSecond))
		}
		const near = 1e-3
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")))
			if rate > 0 {
				requests, lastR = fill(requests, rate, lastR), now
			}
			if tpm > 0 {
				tokens, lastT = fill(tokens, tpm/60, lastT), now
			}
			want := SpentNothing
			switch {
			case tpm > 0 && tokens <= 0:
				want = SpentTokens
			case rate > 0 && requests < 1:
				want = SpentRequests
			}
			got, wait := q.Admit(now)
			edge := tpm > 0 && math.Abs(tokens) < near || rate > 0 && math.Abs(requests-1) < near
			if got != want && !edge {
				t.Fatalf("step %d: %v, want %v (%g requests, %g tokens)", i, got, want, requests, tokens)
			}
			if got != SpentNothing {
				if wait < 0 {
					t.Fatalf("step %d: wait %v", i, wait)
				}
				continue
			}
			requests--
			n := rapid.Int64Range(-50, 20_000).Draw(t, "charge")
			q.Charge(now, n)
			tokens -= float64(n)
		}
	})
}

func TestQuotaOfManyGoroutines(t *testing.T) {
	q := NewQuota(1000, 6_000_000, nil, t0)
	var in atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if spent, _ := q.Admit(t0); spent == SpentNothing {
					in.Add(1)
					q.Charge(t0, 100)
				}
			}
		})
	}
	all.Wait()
	_, tokens := q.Buckets(t0)
	if in.Load() != 1000 || tokens.Left != 0 {
		t.Errorf("%d of 8000 got in at once, %d tokens left", in.Load(), tokens.Left)
	}
}

func TestQuotaAllocatesNothing(t *testing.T) {
	q := NewQuota(1e6, 1e9, nil, t0)
	now := t0
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Microsecond)
		q.Admit(now)
		q.Charge(now, 30)
		q.Charge(now, -3)
		q.Buckets(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSpentAndPriorityNames(t *testing.T) {
	for p := Critical; p <= Sheddable; p++ {
		if got, err := ParsePriority(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, bad := range []string{"", "Critical", "critical ", "high", "0"} {
		if p, err := ParsePriority(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
	if Critical.Under(Standard) != Standard || Sheddable.Under(Standard) != Sheddable || Standard.Under(Critical) != Standard {
		t.Error("a ceiling is a floor")
	}
	if fmt.Sprint(SpentNothing, SpentRequests, SpentTokens) != "nothing requests tokens" {
		t.Error("names of Spent")
	}
}

// How much all of one tenant's requests cost each other: they share two
// limiters and nothing else.
func BenchmarkQuota(b *testing.B) {
	run := func(name string, quota func(i int) *Quota) {
		b.Run(name, func(b *testing.B) {
			var next atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				q, now := quota(int(next.Add(1))), t0
				for pb.Next() {
					now = now.Add(time.Microsecond)
					q.Admit(now)
					q.Charge(now, 30)
				}
			})
		})
	}
	shared := NewQuota(1e6, 1e9, nil, t0)
	run("OneTenant", func(int) *Quota { return shared })
	run("OneTenantEach", func(int) *Quota { return NewQuota(1e6, 1e9, nil, t0) })
	run("NoLimit", func(int) *Quota { return nil })
}
