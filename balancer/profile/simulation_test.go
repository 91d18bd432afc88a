package profile

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"penstock/engine/enginetest"
	"penstock/route"
)

// batchOf is an engine of measured.md 9: a step takes (10 + 0.35 n + 0.06 p) ms
// over speed, at most 512 prompt tokens a step, 48 sequences.
func batchOf(speed float64) *enginetest.Batch {
	return batchWith(route.Speed{Step: 10 / speed, PerSeq: 0.35 / speed, PerToken: 0.06 / speed, Slots: 48},
		map[float64]int{1: 8192, 0.5: 6144, 0.25: 4096}[speed])
}

func batchWith(s route.Speed, blocks int) *enginetest.Batch {
	b := enginetest.NewBatch(enginetest.Model{Slots: int(s.Slots), Blocks: blocks, ChunkTokens: 512})
	setSpeed(b, s)
	return b
}

func setSpeed(b *enginetest.Batch, s route.Speed) {
	b.Base, b.PrefillBase, b.PerSeq, b.PerPrefill = duration(s.Step), duration(s.Step), duration(s.PerSeq), duration(s.PerToken)
}

func duration(ms float64) time.Duration { return time.Duration(ms * 1e6) }

// answer is a request and what came of it, in ms of virtual time.
type answer struct {
	engine                 int
	seq                    *enginetest.Seq
	arrived, first, last   float64
	startFlight, endFlight int
	turn                   func(now float64) // what its client does next
}

// conversations is a load in virtual time: conversations of 4 turns on average, 6 s from
// turn to turn, begin Poisson on each engine and stay there.
type conversations struct {
	dice    *rand.Rand
	engines []*enginetest.Batch
	rate    []float64 // requests/s of each engine
	until   float64   // ms

	events queue
	busy   []bool
	flight []int
	done   func(a *answer, now float64)
	arrive func(a *answer, now float64)
	poll   func(now float64) // every second
	hash   uint64
}

type event struct {
	at float64
	do func(now float64)
}
type queue []event

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

const (
	meanTurns  = 4
	firstText  = 500 // tokens, mean
	nextText   = 100
	answerText = 100
	turnGap    = 6000 // ms
)

func (c *conversations) at(t float64, do func(now float64)) { heap.Push(&c.events, event{t, do}) }

func (c *conversations) run() {
	c.busy, c.flight = make([]bool, len(c.engines)), make([]int, len(c.engines))
	for e, rate := range c.rate {
		var begin func(now float64)
		begin = func(now float64) {
			c.at(now+c.dice.ExpFloat64()*1000*meanTurns/rate, begin)
			c.turn(e, nil, 0, c.tokens(firstText), now)
		}
		if rate > 0 {
			c.at(c.dice.ExpFloat64()*1000*meanTurns/rate, begin)
		}
	}
	if c.poll != nil {
		var tick func(now float64)
		tick = func(now float64) { c.poll(now); c.at(now+1000, tick) }
		c.at(1000, tick)
	}
	for len(c.events) > 0 && c.events[0].at < c.until {
		e := heap.Pop(&c.events).(event)
		e.do(e.at)
	}
}

// tokens draws a length: half of the mean for certain, the rest exponential.
func (c *conversations) tokens(mean float64) int {
	return max(1, int(mean/2+c.dice.ExpFloat64()*mean/2))
}

// turn sends history tokens of chain and fresh ones behind them.
func (c *conversations) turn(engine int, chain []uint64, history, fresh int, now float64) {
	prompt, out := history+fresh, c.tokens(answerText)
	chain = chain[:len(chain):len(chain)]
	for len(chain) < (prompt+out)/enginetest.BlockTokens {
		c.hash++
		chain = append(chain, c.hash)
	}
	a := &answer{engine: engine, arrived: now, startFlight: c.flight[engine]}
	a.seq = &enginetest.Seq{Chain: chain, Prompt: prompt, Out: out, Owner: a}
	a.turn = func(done float64) {
		if c.dice.Float64() < 1.0/meanTurns {
			return
		}
		// The last block of the history is not full: it is not in the cache.
		kept := (prompt + out) / enginetest.BlockTokens
		c.at(max(done, now+turnGap), func(now float64) { c.turn(engine, chain[:kept], prompt+out, c.tokens(nextText), now) })
	}
	if err := c.engines[engine].Add(a.seq); err != nil {
		panic(err)
	}
	c.flight[engine]++
	if c.arrive != nil {
		c.arrive(a, now)
	}
	if !c.busy[engine] {
		c.step(engine, now)
	}
}

func (c *conversations) step(engine int, now float64) {
	b := c.engines[engine]
	if c.busy[engine] = b.Busy(); !c.busy[engine] {
		return
	}
	s := b.Step()
	events := append([]enginetest.Event(nil), s.Events...)
	c.at(now+float64(s.Elapsed)/1e6, func(now float64) {
		for _, e := range events {
			a := e.Seq.Owner.(*answer)
			if e.Seq.Generated == 1 && a.first == 0 {
				a.first = now
			}
			if e.Finished {
				a.last, a.endFlight = now, c.flight[engine]
				c.flight[engine]--
				c.done(a, now)
				a.turn(now)
			}
		}
		c.step(engine, now)
	})
}

type mean struct{ sum, n float64 }

func (m *mean) add(x float64)  { m.sum += x; m.n++ }
func (m *mean) value() float64 { return m.sum / m.n }

// measured is what a simulated engine did, in ms of virtual time after a warm-up.
type measured struct {
	prompt, cached, output, total, ttft mean
	span                                float64
}

func (m *measured) rate() float64 { return m.total.n / m.span * 1000 }

// simulate loads one engine of that speed with conversations.
func simulate(speed, rate float64, seed uint64, span float64) *measured {
	const warm = 60_000
	m := &measured{span: span}
	c := &conversations{dice: rand.New(rand.NewPCG(seed, 1)), engines: []*enginetest.Batch{batchOf(speed)}, rate: []float64{rate}, until: warm + span}
	c.done = func(a *answer, now float64) {
		if now < warm {
			return
		}
		m.prompt.add(float64(a.seq.Prompt))
		m.cached.add(float64(a.seq.Cached))
		m.output.add(float64(a.seq.Out))
		m.total.add(a.last - a.arrived)
		m.ttft.add(a.first - a.arrived)
	}
	c.run()
	return m
}
