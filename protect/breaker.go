package protect

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	tripInterval    = 10 * time.Second
	tripBucket      = time.Second
	tripConsecutive = 5
	tripLeast       = 20 // requests in the interval, for the share to count
	tripShare       = 0.5
	streamsLeast    = 3 // broken in ten seconds, for the share to count; and as many in a row open it
	streamsShare    = 0.3
	trialsAtOnce    = 3 // and as many in a row close the breaker
	levelForget     = 60 * time.Second
	gateJitter      = 0.2
)

// gates is how long a breaker stays open, by how often it has opened again
// before it was closed for levelForget.
var gates = [...]time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 60 * time.Second}

// BreakerState is a breaker's state. Closed.
type BreakerState uint32

const (
	BreakerClosed   BreakerState = iota
	BreakerOpen                  // nothing passes
	BreakerHalfOpen              // a few trials pass
)

// Trip says why a breaker opened.
type Trip uint8

const (
	TripFailures Trip = iota // requests failed before their first content
	TripStreams              // streams broke off after it
	TripFrozen               // it holds requests and does nothing
	TripSilent               // it answers nothing that its peers answer
)

func (t Trip) String() string { return [...]string{"failures", "streams", "frozen", "silent"}[t] }

var (
	errFailed = errors.New("failed")
	// ErrNoVerdict ends a trial that says nothing of the engine: the client
	// left, or was at fault, or the engine was full.
	ErrNoVerdict = errors.New("no verdict")
)

// Breaker is the circuit breaker of one engine (protection.md 2.3): gobreaker
// decides when it trips and when trials close it; around it stands a gate that
// lengthens each time. A result counts when it is known, at the first content
// or the failure, not when a stream ends. Safe for concurrent use; of a closed
// breaker the request path reads one word of the engine, which its owner keeps.
type Breaker struct {
	state atomic.Uint32

	mu     sync.Mutex // guards what is below
	two    *gobreaker.TwoStepCircuitBreaker[struct{}]
	why    Trip
	at     time.Time // of the latest change
	gate   time.Time // open until then
	level  int
	closed time.Time // when it closed last; zero: it has not been open
	jitter func() float64
	ring   streamRing
	broken atomic.Int32 // streams that broke off since one came to its end
}

// NewBreaker returns a closed breaker.
func NewBreaker() *Breaker {
	b := &Breaker{jitter: rand.Float64}
	b.renewLocked()
	return b
}

// renewLocked takes a gobreaker without a past.
func (b *Breaker) renewLocked() {
	b.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: trialsAtOnce, Interval: tripInterval, BucketPeriod: tripBucket,
		// It never holds longer than the gate does.
		Timeout: time.Duration(float64(gates[0]) * (1 - gateJitter)),
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= tripConsecutive ||
				c.Requests >= tripLeast && float64(c.TotalFailures) >= tripShare*float64(c.Requests)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, ErrNoVerdict) },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.changedLocked(from, to) },
	})
}

// changedLocked follows gobreaker, which calls it within the calls made here.
func (b *Breaker) changedLocked(from, to gobreaker.State) {
	now := time.Now()
	switch to {
	case gobreaker.StateOpen:
		switch {
		case from == gobreaker.StateHalfOpen:
			b.level++
		case b.closed.IsZero() || now.Sub(b.closed) >= levelForget:
			b.level = 0
		default:
			b.level++
		}
		d := gates[min(b.level, len(gates)-1)]
		b.gate = now.Add(time.Duration(float64(d) * (1 - gateJitter + 2*gateJitter*b.jitter())))
		b.setLocked(BreakerOpen, now)
	case gobreaker.StateHalfOpen:
		b.setLocked(BreakerHalfOpen, now)
	case gobreaker.StateClosed:
		b.closed, b.ring = now, streamRing{}
		b.broken.Store(0)
		b.setLocked(BreakerClosed, now)
	}
}

func (b *Breaker) setLocked(s BreakerState, now time.Time) {
	b.at = now
	b.state.Store(uint32(s))
}

// State is the breaker's state; it costs one load.
func (b *Breaker) State() BreakerState { return BreakerState(b.state.Load()) }

// Why is what opened it, since when it is in its state, and until when it
// stays open.
func (b *Breaker) Why() (why Trip, since, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why, b.at, b.gate
}

// Answered counts a first content while the breaker is closed. What was sent
// before it opened, and answers later, closes nothing.
func (b *Breaker) Answered() {
	if b.State() == BreakerClosed {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.countLocked(nil)
		b.ring.began(time.Now())
	}
}

// Failed counts a failure before the first content. It reports whether that
// opened the breaker.
func (b *Breaker) Failed() (opened bool) {
	if b.State() != BreakerClosed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failLocked(TripFailures, 1)
}

// BrokeOff counts a stream that broke after its first content: failures of
// another kind, which first contents do not undo. Too many of ten seconds open
// it, and a few in a row: an engine that breaks all of them off from now on has
// seconds of good ones behind it.
func (b *Breaker) BrokeOff() (opened bool) {
	if b.State() != BreakerClosed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if many := b.ring.broke(time.Now()); b.broken.Add(1) < streamsLeast && !many {
		return false
	}
	return b.failLocked(TripStreams, tripConsecutive)
}

// Ended counts a stream that came to its end. It costs one load where none broke.
func (b *Breaker) Ended() {
	if b.broken.Load() != 0 {
		b.broken.Store(0)
	}
}

// Trip opens it for what was seen of the engine beside its answers.
func (b *Breaker) Trip(why Trip) (opened bool) {
	if b.State() != BreakerClosed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failLocked(why, tripConsecutive)
}

// failLocked counts failures: as many in a row as open it, where it is to open.
func (b *Breaker) failLocked(why Trip, n int) (opened bool) {
	if b.State() != BreakerClosed {
		return false
	}
	for range n {
		b.countLocked(errFailed)
	}
	if opened = b.State() == BreakerOpen; opened {
		b.why = why
	}
	return opened
}

func (b *Breaker) countLocked(err error) {
	if done, refused := b.two.Allow(); refused == nil {
		done(err)
	}
}

// Due reports an open breaker whose gate has passed: it is time for a trial.
func (b *Breaker) Due(now time.Time) bool {
	if b.State() != BreakerOpen {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.gate)
}

// Hasten ends the wait of an open breaker: there is a sign that the engine is
// another one now.
func (b *Breaker) Hasten(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() == BreakerOpen {
		b.gate = now
	}
}

// Try asks for one of the places for trials. The caller says once, through
// end, how it went: nil, ErrNoVerdict or any other error.
func (b *Breaker) Try() (end func(error), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.State(); s == BreakerClosed || s == BreakerOpen && time.Now().Before(b.gate) {
		return nil, false
	}
	done, err := b.two.Allow()
	if err != nil {
		return nil, false
	}
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		done(err)
	}, true
}

// Reset closes it without a trial: the engine's health has taken over.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() == BreakerClosed {
		return
	}
	b.renewLocked()
	b.closed, b.ring = time.Now(), streamRing{}
	b.broken.Store(0)
	b.setLocked(BreakerClosed, b.closed)
}

// streamRing counts the streams of the last ten seconds, and those that broke.
type streamRing [10]struct {
	second       int64
	began, broke int
}

func (r *streamRing) slot(now time.Time) *struct {
	second       int64
	began, broke int
} {
	second := int64(now.Sub(epoch) / time.Second)
	s := &r[uint64(second)%uint64(len(r))]
	if s.second != second {
		s.second, s.began, s.broke = second, 0, 0
	}
	return s
}

func (r *streamRing) began(now time.Time) { r.slot(now).began++ }

// broken counts one and reports whether too many have.
func (r *streamRing) broke(now time.Time) bool {
	s := r.slot(now)
	s.broke++
	began, broke := 0, 0
	for i := range r {
		if s.second-r[i].second < int64(len(r)) {
			began += r[i].began
			broke += r[i].broke
		}
	}
	// Streams that began before the ten seconds may break within them.
	return broke >= streamsLeast && float64(broke) >= streamsShare*float64(max(began, broke))
}
