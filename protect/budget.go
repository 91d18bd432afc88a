package protect

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	budgetSlots = 10 // of one second each
	freeRetries = 10 // in any ten seconds, whatever was deposited
	// rho is 0.10 up to where retries are cheap, 0 from where they would take
	// the place of first attempts.
	rhoMost  = 0.10
	rhoFrom  = 0.60
	rhoUntil = 0.90
	// at once, beside the sum over ten seconds
	fewRetries   = 3
	retriesShare = 0.10
)

// Rho is what one first attempt adds to the retry budget at utilisation u of
// the pool:
//
//	rho(u) = 0.10                   u <= 0.60
//	         0.10 (0.90 - u)/0.30   0.60 < u < 0.90
//	         0                      u >= 0.90
func Rho(u float64) float64 {
	switch {
	case u <= rhoFrom:
		return rhoMost
	case u < rhoUntil:
		return rhoMost * (rhoUntil - u) / (rhoUntil - rhoFrom)
	default: // NaN too: who knows nothing of the load does not add to it
		return 0
	}
}

// Budget bounds the retries of a pool over the last ten seconds by what its
// first attempts have deposited, ten in any case while utilisation is below
// 0.9. The zero value is a budget without a past. Safe for concurrent use;
// deposits, which every request makes, take no lock.
type Budget struct {
	slots [budgetSlots]budgetSlot

	mu      sync.Mutex // guards what is below: retries are rare
	retries [budgetSlots]struct {
		second int64
		n      int
	}
	running int // retries at the moment
}

// budgetSlot is what one second brought. Resetting it for its next second may
// lose deposits of those who are in it meanwhile: the budget errs to the low side.
type budgetSlot struct {
	second atomic.Int64
	micros atomic.Int64 // deposits, in millionths of a retry
	_      [48]byte
}

func budgetSecond(now time.Time) int64 { return int64(now.Sub(epoch)/time.Second) + budgetSlots }

// Deposit counts a first attempt at utilisation u.
func (b *Budget) Deposit(u float64, now time.Time) {
	second := budgetSecond(now)
	s := &b.slots[second%budgetSlots]
	if old := s.second.Load(); old != second {
		if old > second || !s.second.CompareAndSwap(old, second) {
			return
		}
		s.micros.Store(0)
	}
	s.micros.Add(int64(Rho(u) * 1e6))
}

// Withdraw asks for a retry at utilisation u while inFlight requests are with
// the pool. Where it is granted, Done follows when that attempt has ended.
func (b *Budget) Withdraw(u float64, inFlight int64, now time.Time) bool {
	if !(u < rhoUntil) {
		return false
	}
	second := budgetSecond(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running >= max(fewRetries, int(retriesShare*float64(inFlight))) {
		return false
	}
	if float64(b.spent(second))+1 > max(freeRetries, b.deposited(second)) {
		return false
	}
	r := &b.retries[second%budgetSlots]
	if r.second != second {
		r.second, r.n = second, 0
	}
	r.n++
	b.running++
	return true
}

// Done ends a retry that Withdraw granted.
func (b *Budget) Done() {
	b.mu.Lock()
	b.running--
	b.mu.Unlock()
}

// Left is how many retries the last ten seconds would still allow at
// utilisation u.
func (b *Budget) Left(u float64, now time.Time) float64 {
	if !(u < rhoUntil) {
		return 0
	}
	second := budgetSecond(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, max(freeRetries, b.deposited(second))-float64(b.spent(second)))
}

// spent counts the retries of the last ten seconds. The caller holds mu.
func (b *Budget) spent(second int64) (n int) {
	for i := range b.retries {
		if r := &b.retries[i]; second-r.second < budgetSlots && r.second <= second {
			n += r.n
		}
	}
	return n
}

func (b *Budget) deposited(second int64) float64 {
	sum := int64(0)
	for i := range b.slots {
		if s := &b.slots[i]; second-s.second.Load() < budgetSlots {
			sum += s.micros.Load()
		}
	}
	return float64(sum) / 1e6
}
