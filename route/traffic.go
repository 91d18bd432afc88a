package route

import (
	"sync"
	"sync/atomic"
	"time"
)

// Traffic counts what this gateway's clients ask for in one class, by
// priority. It outlives tables: counters only grow, and who reads them works
// with differences. The zero value is ready; all methods are safe for
// concurrent use and take no lock.
type Traffic struct{ priorities [Priorities]trafficCell }

// trafficCell is on cache lines of its own: priorities do not slow each other.
type trafficCell struct {
	offered, retries, asked, limited, limit atomic.Uint64
	_                                       [24]byte
	answers, prompt, cached, output         atomic.Uint64
	_                                       [32]byte
}

// TrafficCounts are the counters of one class and priority at one moment.
type TrafficCounts struct {
	Offered uint64 // requests, before any shed
	Retries uint64 // requests that their client says it repeats; not in Offered
	Asked   uint64 // prompt tokens of Offered, as guessed from their bytes
	Limited uint64 // requests of Offered that bound the length of their answer
	Limit   uint64 // those bounds, in tokens

	Answers                uint64 // whole answers whose tokens are known
	Prompt, Cached, Output uint64 // of those, tokens; Cached is part of Prompt
}

// Offer counts a request before any shed: prompt is a guess of its prompt
// tokens, limit its bound on the answer's tokens, 0 for none.
func (t *Traffic) Offer(priority uint8, prompt, limit int) {
	c := t.cell(priority)
	c.offered.Add(1)
	c.asked.Add(natural(prompt))
	if limit > 0 {
		c.limited.Add(1)
		c.limit.Add(natural(limit))
	}
}

// Retry counts a request that its client repeats.
func (t *Traffic) Retry(priority uint8) { t.cell(priority).retries.Add(1) }

// Answer counts the tokens of a whole answer.
func (t *Traffic) Answer(priority uint8, prompt, cached, output int) {
	c := t.cell(priority)
	c.answers.Add(1)
	c.prompt.Add(natural(prompt))
	c.cached.Add(min(natural(cached), natural(prompt)))
	c.output.Add(natural(output))
}

// maxTokens bounds what one request adds to a sum: engines and clients can
// name any number, and one lie must not outweigh a day of traffic.
const maxTokens = 1 << 24

func natural(n int) uint64 { return uint64(min(max(n, 0), maxTokens)) }

func (t *Traffic) cell(priority uint8) *trafficCell {
	return &t.priorities[min(priority, Priorities-1)]
}

// Counts reads the counters of one priority. They are not of one instant: a
// request that is being counted may be in some and not yet in others.
func (t *Traffic) Counts(priority uint8) TrafficCounts {
	c := t.cell(priority)
	return TrafficCounts{
		Offered: c.offered.Load(), Retries: c.retries.Load(), Asked: c.asked.Load(), Limited: c.limited.Load(), Limit: c.limit.Load(),
		Answers: c.answers.Load(), Prompt: c.prompt.Load(), Cached: c.cached.Load(), Output: c.output.Load(),
	}
}

// Ledger holds the Traffic of every class that a table or a request has named.
// Only the miss path and the control cycle touch it.
type Ledger struct {
	mu      sync.Mutex // guards classes
	classes map[ClassKey]*ledgerRow
}

type ledgerRow struct {
	traffic *Traffic
	asked   time.Time // when somebody last asked for it
}

// maxTraffic bounds the classes counted apart: all that can have a table of
// their own, and as many that had one.
const maxTraffic = 2*MaxClasses + 1<<13

// ledgerIdle is how long the counters of a class that no table has are kept.
const ledgerIdle = 2 * wantIdle

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{classes: make(map[ClassKey]*ledgerRow)} }

// Of is the class's Traffic, made where there is none. Beyond the bound a
// class is counted with the plain class of its model, or not at all: nil, as
// of a nil ledger.
func (l *Ledger) Of(k ClassKey, now time.Time) *Traffic {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	row := l.classes[k]
	if row == nil && len(l.classes) >= maxTraffic {
		if row = l.classes[ClassKey{Model: k.Model}]; row == nil {
			return nil
		}
	}
	if row == nil {
		row = &ledgerRow{traffic: new(Traffic)}
		l.classes[k] = row
	}
	row.asked = now
	return row.traffic
}

// All calls visit with every class's Traffic, and forgets those that nobody
// has asked for lately. The order is not fixed.
func (l *Ledger) All(now time.Time, visit func(ClassKey, *Traffic)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, row := range l.classes {
		if now.Sub(row.asked) > ledgerIdle {
			delete(l.classes, k)
			continue
		}
		visit(k, row.traffic)
	}
}
