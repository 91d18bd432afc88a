package engine

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// noCap is the learned cap of an engine of which nothing was learned.
const noCap = math.MaxInt64

const (
	// holdLeast to holdMost is how long an engine is left alone that says "full"
	// while nothing of ours is there, twice as long each time; where it says how
	// long, that, up to heldAtMost.
	holdLeast  = 10 * time.Millisecond
	holdMost   = time.Second
	heldAtMost = 5 * time.Second
	// An engine that has answered within tookLately is full of what we do not
	// see for a moment only, whatever it says.
	tookLately = 2 * time.Second
	// A place may be free there a little later than the answer is here: how much
	// later is learned from refusals of what the engine is known to take.
	lagLeast = time.Millisecond
	lagMost  = 5 * time.Millisecond
	lagKeeps = 2 * time.Second // without such a refusal, until less is tried
	// provenFor is how long it counts that the engine took so many, at least.
	provenFor = 5 * time.Second
	// A raise that is refused within raiseFails was one too many.
	raiseFails = 500 * time.Millisecond
	// Back to what it held before: soon, and less soon while it fails.
	regrowLeast = 50 * time.Millisecond
	regrowMost  = 500 * time.Millisecond
	regrowTries = 8 // failures in a row after which what it held before is forgotten
	// Beyond what it ever held: seldom.
	probeLeast = time.Second
	probeMost  = time.Minute
	forgetAt   = 4096 // a cap beyond is none
	// gaugePolls in a row have to show requests that wait before the running
	// gauge is taken for the engine's slots: of a burst that has just come, most wait.
	gaugePolls = 3
	// gaugeFall is the share of a lower reading that is believed at each poll.
	gaugeFall = 0.2
)

// learnedCap is what an engine's answers and gauges say of how much it takes
// at once, beside what is configured. Two sources, the lower counts:
//
// Full: the engine refused with 429 or 503. It holds what it held then, without
// headroom, since it has no queue beyond that. A place that is free here may
// not be free there for another moment: what was answered lately with as many
// in flight is no cap, but a reason to give places on a little later (lag). The
// cap grows back to the most that the engine held at a refusal within moments,
// and beyond that by slow probes.
//
// Gauges: while requests wait in the engine, what is running are its slots S,
// and the cap is ceil(1.15 S). A cap that binds while nothing waits is too low
// and grows by the headroom with each poll.
//
// Refusals tell what is left for this gateway beside all others, gauges what the
// engine takes of all together: of that a fleet allows each gateway a part.
type learnedCap struct {
	mu sync.Mutex // guards what is below; taken where an engine is full, and by polls

	full    int64 // cap by its refusals; 0 = never refused
	ceiling int64 // the most of ours it held at a refusal, as far as that still counts
	before  int64 // full, before it was last raised
	raised  time.Time
	refused time.Time
	regrow  time.Duration
	probe   time.Duration
	failed  int       // raises below the ceiling that were refused, in a row
	idle    int       // refusals in a row with nothing of ours there
	held    time.Time // takes nothing until then
	took    time.Time // it last answered

	proven   int64 // in flight when an attempt was sent that it answered
	provenTo time.Time
	lag      atomic.Int64 // how much longer than here a place is taken there, ns
	lagAt    time.Time    // when that was last changed

	slots float64 // by its gauges; 0 = not seen
	polls int     // in a row that showed waiting requests
	peak  float64 // the most that ran at those

	any     atomic.Bool // full or slots is known
	allowed int64       // what the fleet leaves this gateway of the engine's places; 0 = all
}

// Full notes that the engine refused an attempt, sent at a time, as full while
// others of ours were in flight on it, and said to come again after a time,
// 0 = not told.
func (l *Live) Full(others int64, sent time.Time, after time.Duration, now time.Time) {
	c := &l.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusedLocked(max(others, 0), sent, after, now)
	l.publishCapLocked(now)
}

func (c *learnedCap) refusedLocked(others int64, sent time.Time, after time.Duration, now time.Time) {
	if lag := time.Duration(c.lag.Load()); others < c.proven && now.Before(c.provenTo) && lag < lagMost {
		c.lag.Store(int64(min(max(2*lag, lagLeast), lagMost)))
		c.lagAt = now
		return
	}
	c.proven = min(c.proven, others)
	if c.regrow == 0 {
		c.regrow, c.probe = regrowLeast, probeLeast
	}
	hasty := !c.raised.IsZero() && now.Sub(c.raised) < raiseFails && others <= c.before
	if others == 0 {
		hold := min(holdLeast<<min(c.idle, 10), holdMost)
		if after > 0 && (c.idle > 0 || now.Sub(c.took) > tookLately) {
			hold = min(max(after, holdLeast), heldAtMost)
		}
		if !c.held.After(now) { // else one of several that were under way together
			c.idle++
			c.held = now.Add(hold)
		}
		c.full, c.refused, c.raised = 1, now, time.Time{}
		return
	}
	c.idle = 0
	switch {
	case !hasty:
		c.regrow, c.failed = regrowLeast, 0
	case c.before >= c.ceiling:
		c.probe = min(2*c.probe, probeMost)
	default:
		c.regrow = min(2*c.regrow, regrowMost)
		if c.failed++; c.failed >= regrowTries {
			c.ceiling, c.failed = others, 0
		}
	}
	together := sent.Before(c.refused) // with those refused before: they tell one thing
	if c.full == 0 || others < c.full {
		c.full = others
	}
	if c.ceiling == 0 || together && others < c.ceiling {
		c.ceiling = others
	}
	c.refused, c.raised = now, time.Time{}
}

// Regrow lets a cap grow that was learned from refusals. It is called every
// few tens of milliseconds while there is one; false where there is none.
func (l *Live) Regrow(now time.Time) bool {
	c := &l.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == 0 {
		return false
	}
	c.growLocked(l.inflight.Load(), now)
	l.publishCapLocked(now)
	return true
}

func (c *learnedCap) growLocked(inFlight int64, now time.Time) {
	since := now.Sub(c.refused)
	if c.raised.After(c.refused) {
		since = now.Sub(c.raised)
	}
	if now.Before(c.held.Add(c.regrow)) {
		return // held, or just let go: with one attempt at first
	}
	if c.ceiling == 0 { // it refused with nothing of ours there, and takes some now: anybody's guess
		if since >= c.regrow {
			if c.raiseLocked(2*c.full, now); c.full > forgetAt {
				c.full = 0
			}
		}
		return
	}
	if c.full < c.ceiling {
		if since >= c.regrow {
			c.raiseLocked(c.full+max(1, (c.ceiling-c.full)/2), now)
		}
		return
	}
	if c.full > c.ceiling && since >= raiseFails && inFlight >= c.full { // it held more than ever
		c.ceiling, c.probe = c.full, max(c.probe/2, probeLeast)
	}
	if since >= c.probe && inFlight >= c.full {
		c.raiseLocked(c.full+max(1, c.full/16), now)
	}
}

func (c *learnedCap) raiseLocked(to int64, now time.Time) {
	c.before, c.full, c.raised = c.full, to, now
}

// Took notes that the engine answered an attempt, sent at a time, with which
// so many of ours were in flight. It costs one load where nothing was learned.
func (l *Live) Took(level int64, sent, now time.Time) {
	c := &l.learned
	if l.most.Load() == noCap || !c.any.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.idle = now, 0
	if level >= c.proven || !now.Before(c.provenTo) {
		c.proven, c.provenTo = level, now.Add(max(provenFor, 2*now.Sub(sent)))
	}
	if lag := c.lag.Load(); lag > 0 && now.Sub(c.lagAt) >= lagKeeps {
		if lag = lag * 3 / 4; lag < int64(lagLeast)/2 {
			lag = 0
		}
		c.lag.Store(lag)
		c.lagAt = now
	}
}

// Lag is how much longer than here a place on the engine is taken there.
func (l *Live) Lag() time.Duration { return time.Duration(l.learned.lag.Load()) }

// Held reports until when the engine is left alone because it says that it is
// full, and since when it has said so.
func (l *Live) Held() (until, since time.Time) {
	l.learned.mu.Lock()
	defer l.learned.mu.Unlock()
	return l.learned.held, l.learned.refused
}

// LetGo ends a hold early, with one attempt: there is nobody else to ask.
func (l *Live) LetGo(now time.Time) {
	c := &l.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.After(now) {
		c.held = now
	}
	l.publishCapLocked(now)
}

// Most is how many attempts at once the engine has shown to take; a very large
// number where it has shown no limit, 0 while it is held.
func (l *Live) Most() int64 { return l.most.Load() }

// Allow bounds this gateway's attempts at once to what its fleet leaves it of
// the engine's places, whatever each attempt's own limit; 0: no bound.
func (l *Live) Allow(places int64, now time.Time) {
	c := &l.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.allowed != places {
		c.allowed = places
		l.publishCapLocked(now)
	}
}

// HeldOfOurs is the most attempts of this gateway that the engine held when it
// refused one, as far as that still counts; 0 = it has refused none, or none
// beside which it held one.
func (l *Live) HeldOfOurs() int64 {
	l.learned.mu.Lock()
	defer l.learned.mu.Unlock()
	if l.learned.full == 0 {
		return 0
	}
	return l.learned.ceiling
}

// Places are the attempts at once that the engine takes of all gateways: its
// cap, or what its gauges show where that is less.
func (e *Engine) Places() int64 {
	c := &e.Live.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots > 0 {
		return min(e.Cap(), c.byGauges())
	}
	return e.Cap()
}

// byGauges is the cap that follows from the slots seen.
func (c *learnedCap) byGauges() int64 { return int64(math.Ceil(c.slots * (1 + headroom))) }

func (l *Live) publishCapLocked(now time.Time) {
	c := &l.learned
	c.any.Store(c.full > 0 || c.slots > 0)
	most := int64(noCap)
	if c.full > 0 {
		most = c.full
	}
	if c.slots > 0 {
		most = min(most, c.byGauges())
	}
	if c.allowed > 0 {
		most = min(most, c.allowed)
	}
	if c.held.After(now) {
		most = 0
	}
	l.most.Store(most)
}

// learnFromGauges takes a poll into account where nobody has said how much the
// engine takes.
func (e *Engine) learnFromGauges(s *Sample) {
	if d := e.Detected(); e.MaxInFlight > 0 || d != nil && d.Cap > 0 || s.Has&FieldRunning == 0 || s.Has&FieldWaiting == 0 {
		return
	}
	c := &e.Live.learned
	c.mu.Lock()
	defer c.mu.Unlock()
	binds := e.InFlight() >= e.most.Load()
	if c.allowed > 0 { // that binds for others' sake: the engine has to have as many as are known of
		binds = binds && s.Running >= c.slots
	}
	c.polledLocked(s.Running, s.Waiting, binds)
	e.publishCapLocked(s.At)
}

// polledLocked is one reading of the gauges; binds says that we would send
// more if the cap let us.
func (c *learnedCap) polledLocked(running, waiting float64, binds bool) {
	if waiting <= 0 || running < 1 {
		c.polls, c.peak = 0, 0
		if binds && c.slots > 0 {
			c.slots *= 1 + headroom
		}
		return
	}
	c.polls++
	c.peak = max(c.peak, running)
	switch {
	case c.slots > 0 && running >= c.slots:
		c.slots = running
	case c.polls < gaugePolls:
	case c.slots == 0:
		c.slots = c.peak
	default:
		c.slots += gaugeFall * (running - c.slots)
	}
}
