package protect

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Quota is what one tenant may use over time: requests per second and tokens
// per minute, each in a bucket that holds what one second brings.
//
// A request takes one from the first bucket or is refused. Tokens are charged
// as they become known, so their bucket may go below empty: a request is
// admitted while it is above, whatever the request will cost, and after one
// that took more than there was nobody is admitted until the debt has been
// paid at the tenant's rate. In the long run no tenant uses more than its
// rate; at any moment it is ahead by at most one second's worth and what the
// requests under way have not been charged for.
//
// The limits are shared by all requests of the tenant; each check holds a
// mutex of one limiter for a few instructions. A nil Quota refuses nothing.
type Quota struct {
	requests *rate.Limiter // nil: unlimited
	tokens   *rate.Limiter // nil: unlimited; holds foundation more than the bucket
}

// foundation lies below the bucket of tokens: a rate.Limiter keeps no debt and
// grants nothing beyond its burst, so the bucket stands on one that is larger
// than any debt. As a float64 it leaves 1/4,000,000 of a token as the least
// that is told apart.
const foundation = 1 << 30

// MaxRate bounds both limits, in units per second.
const MaxRate = 1 << 28

// NewQuota returns a quota of so many requests per second and tokens per
// minute, 0 = unlimited, that goes on where old (which may be nil) stands: a
// limit which both have is the same limit at its new rate. The rates are
// finite and at most MaxRate per second.
func NewQuota(requestsPerSecond, tokensPerMinute float64, old *Quota, now time.Time) *Quota {
	if requestsPerSecond == 0 && tokensPerMinute == 0 {
		return nil
	}
	if old == nil {
		old = &Quota{}
	}
	return &Quota{
		requests: limiter(old.requests, requestsPerSecond, 0, now),
		tokens:   limiter(old.tokens, tokensPerMinute/60, foundation, now),
	}
}

func limiter(old *rate.Limiter, perSecond float64, below int, now time.Time) *rate.Limiter {
	if perSecond == 0 {
		return nil
	}
	limit, burst := rate.Limit(perSecond), below+int(math.Ceil(perSecond))
	if old == nil {
		return rate.NewLimiter(limit, burst)
	}
	if old.Limit() != limit {
		old.SetLimitAt(now, limit)
		old.SetBurstAt(now, burst)
	}
	return old
}

// Spent says which limit of a quota refused a request.
type Spent uint8

const (
	SpentNothing Spent = iota // it was admitted
	SpentRequests
	SpentTokens
)

var spentNames = [...]string{"nothing", "requests", "tokens"}

func (s Spent) String() string { return spentNames[s] }

// Admit takes one request. Where a limit is spent nothing is taken, and wait
// is how long until a request could be admitted if no other came.
func (q *Quota) Admit(now time.Time) (spent Spent, wait time.Duration) {
	if q == nil {
		return SpentNothing, 0
	}
	if q.tokens != nil {
		if have := q.tokens.TokensAt(now) - foundation; have <= 0 {
			return SpentTokens, timeFor(-have, q.tokens)
		}
	}
	if q.requests != nil && !q.requests.AllowN(now, 1) {
		return SpentRequests, timeFor(1-q.requests.TokensAt(now), q.requests)
	}
	return SpentNothing, 0
}

// timeFor is how long the limiter takes for n, at most what a Duration holds.
func timeFor(n float64, l *rate.Limiter) time.Duration {
	return time.Duration(min(max(n, 0)/float64(l.Limit())*float64(time.Second), math.MaxInt64/2))
}

// Counts reports whether tokens are limited: if not, Charge does nothing.
func (q *Quota) Counts() bool { return q != nil && q.tokens != nil }

// Charge takes n tokens that have become known; a negative n gives back what
// was charged too much.
func (q *Quota) Charge(now time.Time, n int64) {
	if q.Counts() && n != 0 {
		// Never refused: n is below the burst, and a reservation may lie in the future.
		q.tokens.ReserveN(now, int(min(max(n, -foundation), foundation)))
	}
}

// Bucket is one limit as it stands, as the x-ratelimit headers tell it.
type Bucket struct {
	Size int64         // what may come at once; 0 = no limit
	Left int64         // of that, now; never below 0
	Full time.Duration // until all of it is left, if nothing more comes
}

// Buckets tells how both limits stand.
func (q *Quota) Buckets(now time.Time) (requests, tokens Bucket) {
	if q == nil {
		return
	}
	return bucket(q.requests, 0, now), bucket(q.tokens, foundation, now)
}

func bucket(l *rate.Limiter, below int, now time.Time) Bucket {
	if l == nil {
		return Bucket{}
	}
	size := l.Burst() - below
	have := l.TokensAt(now) - float64(below)
	return Bucket{Size: int64(size), Left: int64(max(math.Floor(have), 0)), Full: timeFor(float64(size)-have, l)}
}
