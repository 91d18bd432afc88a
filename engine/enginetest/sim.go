package enginetest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Config says what engine to be. The zero value is a usable one that takes no
// time.
type Config struct {
	Name        string        // for people and logs
	Models      []string      // names it answers to; default "m"
	Slots       int           // requests computed at once; default 8
	TTFT        time.Duration // of a prompt of 1,000 tokens, alone; 0 = at once
	TBOT        time.Duration // from token to token, alone; 0 = at once
	KVTokens    int           // KV memory in tokens; default 65,536
	MaxModelLen int           // longest prompt + answer; default and limit: KVTokens
	QueueLimit  int           // waiting requests beyond which it answers 503; 0 = no limit
	Seed        uint64        // of answers, ids and faults with a probability
	Faults      []Fault       // to begin with

	// Keep is how many of the last requests are kept with headers and body
	// for Requests; 0 keeps none.
	Keep int
	// MaxLag is how far the computing may fall behind its schedule and still
	// catch up; default 50 ms. On a machine that has much else to do, more of it
	// keeps the engine's speed, as work that comes in lumps.
	MaxLag time.Duration
	// IdleTimeout closes idle connections, as vLLM does; default 5 s.
	IdleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if len(c.Models) == 0 {
		c.Models = []string{"m"}
	}
	if c.Slots <= 0 {
		c.Slots = 8
	}
	if c.KVTokens <= 0 {
		c.KVTokens = 1 << 16
	}
	c.KVTokens = max(c.KVTokens/BlockTokens, 1) * BlockTokens
	if c.MaxModelLen <= 0 || c.MaxModelLen > c.KVTokens {
		c.MaxModelLen = c.KVTokens
	}
	if c.MaxLag <= 0 {
		c.MaxLag = defaultMaxLag
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 5 * time.Second
	}
	return c
}

// Sim is a simulated engine: Handler is its API, Run its computing. Requests
// that arrive while Run is not running wait.
type Sim struct {
	cfg     Config
	started time.Time
	work    chan struct{} // capacity 1: the queue is not empty any more
	changed chan struct{} // capacity 1: faults were set
	stopped chan struct{} // closed when Run has returned

	mu      sync.Mutex // guards what is below
	batch   *Batch
	met     meters
	faults  []Fault
	dice    *rand.Rand
	ids     uint64 // requests numbered so far
	rec     record
	hasQuit bool
}

// New returns an engine that does nothing yet.
func New(c Config) *Sim {
	c = c.withDefaults()
	m := Model{Slots: c.Slots, Blocks: c.KVTokens / BlockTokens, ChunkTokens: DefaultChunkTokens}
	m.Speed(c.TTFT, c.TBOT)
	return &Sim{
		cfg:     c,
		started: time.Now(),
		work:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		stopped: make(chan struct{}),
		batch:   NewBatch(m),
		met:     newMeters(),
		faults:  slices.Clone(c.Faults),
		dice:    rand.New(rand.NewPCG(c.Seed, xxhash.Sum64String(c.Name))),
		rec:     record{deliveries: make(map[string]int)},
	}
}

// call is one request that the batch works on. The loop writes progress and
// signals; the handler reads.
type call struct {
	arrived   time.Time
	choices   []*choice
	perPrompt int           // choices for each prompt, next to each other
	wake      chan struct{} // capacity 1
}

// choice is one answer of a call.
type choice struct {
	Seq
	call     *call
	hash     uint64 // of its prompt
	answer   string
	limited  bool         // the answer's length was asked for
	produced atomic.Int64 // tokens that are due
	done     atomic.Bool  // set after produced
	gone     bool         // aborted; guarded by Sim.mu
	last     time.Time    // when its last token was due; guarded by Sim.mu
}

// finished reports whether all answers of the call are computed.
func (c *call) finished() bool {
	for _, ch := range c.choices {
		if !ch.done.Load() {
			return false
		}
	}
	return true
}

// submission is what became of a call that was handed in.
type submission uint8

const (
	accepted submission = iota
	queueFull
	engineStopped
)

// submit queues all choices of a call, or none.
func (s *Sim) submit(c *call) submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasQuit {
		return engineStopped
	}
	if s.cfg.QueueLimit > 0 && s.batch.Excess() >= s.cfg.QueueLimit {
		return queueFull
	}
	for _, ch := range c.choices {
		ch.Owner, ch.call = ch, c
		// The request was checked against MaxModelLen, which is within the KV memory.
		if err := s.batch.Add(&ch.Seq); err != nil {
			panic(err)
		}
	}
	signal(s.work)
	return accepted
}

// abort frees what a call holds. It may be finished already.
func (s *Sim) abort(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range c.choices {
		if !ch.gone && !ch.done.Load() {
			ch.gone = true
			s.batch.Abort(&ch.Seq)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// defaultMaxLag: below it late timers do not add up, above it the process was
// stalled and an engine that then hurried would be no engine.
const defaultMaxLag = 50 * time.Millisecond

// Run computes until ctx ends. Requests that are open then end as they do
// when vLLM is terminated. It runs once.
func (s *Sim) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer s.quit()
	due := time.Now()
	for ctx.Err() == nil {
		step, busy := s.step()
		if !busy {
			select {
			case <-ctx.Done():
			case <-s.work:
				due = time.Now()
			}
			continue
		}
		due = due.Add(step.Elapsed)
		wait := time.Until(due)
		switch {
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		case wait < -s.cfg.MaxLag:
			due = time.Now()
		default:
			runtime.Gosched()
		}
		s.deliver(step, time.Now())
	}
	return nil
}

func (s *Sim) quit() {
	s.mu.Lock()
	s.hasQuit = true
	s.mu.Unlock()
	close(s.stopped)
}

func (s *Sim) step() (step Step, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.batch.Busy() {
		return step, false
	}
	step = s.batch.Step()
	for _, f := range s.faults {
		if f.Kind == Slow {
			step.Elapsed = time.Duration(float64(step.Elapsed) * f.Factor)
		}
	}
	return step, true
}

// deliver hands the tokens of a step to their requests. It never waits for a
// reader: an answer's text is known beforehand, so progress is a number.
func (s *Sim) deliver(step Step, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met.step(step)
	for _, ev := range step.Events {
		ch := ev.Seq.Owner.(*choice)
		if ch.gone {
			continue
		}
		if ev.Seq.Generated == 1 {
			s.met.ttft.observe(now.Sub(ch.call.arrived).Seconds())
		} else if ev.Seq.Generated > 1 {
			s.met.itl.observe(now.Sub(ch.last).Seconds())
		}
		ch.last = now
		ch.produced.Store(int64(ev.Seq.Generated))
		if ev.Finished {
			ch.done.Store(true)
			s.met.finished(ch.limited)
		}
		signal(ch.call.wake)
	}
}

// SetFaults replaces all faults.
func (s *Sim) SetFaults(faults ...Fault) {
	s.mu.Lock()
	s.faults = slices.Clone(faults)
	s.mu.Unlock()
	signal(s.changed)
}

// Faults lists the faults that are set.
func (s *Sim) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// draw decides whether a fault befalls this request.
func (s *Sim) draw(on target) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return draw(s.faults, on, s.dice)
}
