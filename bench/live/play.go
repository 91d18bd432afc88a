package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// play is one run of the conversations in real time.
type play struct {
	s       *scenario
	column  *column
	fleet   *fleet
	client  *client
	seed    uint64
	stretch float64
	warm    time.Duration
	end     time.Duration // of the measured time
	begun   time.Time

	mu  sync.Mutex // guards all
	all []seen
}

// answerLimit is how long an answer may take once no more load comes.
const answerLimit = 60 * time.Second

// run lets every conversation take its course and waits for the measured turns.
func (p *play) run(ctx context.Context, convs []conversation) []seen {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var talking sync.WaitGroup
	p.begun = time.Now()
	for i := range convs {
		if !p.until(ctx, convs[i].turns[0].due) {
			break
		}
		talking.Go(func() { p.converse(ctx, &convs[i]) })
	}
	late := time.AfterFunc(answerLimit, cancel)
	talking.Wait()
	late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// until waits for an instant of the run; false if ctx ended.
func (p *play) until(ctx context.Context, at time.Duration) bool {
	t := time.NewTimer(time.Until(p.begun.Add(at)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// converse says a conversation's turns, each when it is due or, if that is
// later, when the answer before it is there. A turn that failed is not said
// again; the next one goes on without its answer.
func (p *play) converse(ctx context.Context, c *conversation) {
	var said []message
	if c.hot {
		said = append(said, message{"system", words(7, hotTokens)})
	}
	free := time.Duration(0) // when it could be sent, had it been due
	for n, t := range c.turns {
		if t.due > p.end+tail || !p.until(ctx, t.due) {
			return
		}
		said = append(said, message{"user", words(p.seed<<32+uint64(c.id)<<8+uint64(n), t.user)})
		r, text := p.ask(ctx, c, n, said, max(free, t.due))
		if ctx.Err() != nil && r.fault == "" {
			return
		}
		if r.fault == "" {
			said = append(said, message{"assistant", text})
		}
		free = time.Since(p.begun)
		if t.due >= p.warm && t.due < p.end {
			p.mu.Lock()
			p.all = append(p.all, r)
			p.mu.Unlock()
		}
	}
}

// ask says one turn, through the gateway or to the engine that a placement chooses.
func (p *play) ask(ctx context.Context, c *conversation, n int, said []message, possible time.Duration) (r seen, text string) {
	t := c.turns[n]
	f := &flight{conv: c, turn: n, sent: time.Since(p.begun), prompt: c.promptTokens(n), out: t.out}
	address, session := "", ""
	if p.column.gateway {
		address = p.fleet.gateway.Address
	} else {
		address = p.fleet.address(p.column.placement.place(f))
		defer p.column.placement.done(f)
	}
	if p.column.session {
		session = fmt.Sprintf("live-%d-%d", p.seed, c.id)
	}
	r = seen{due: t.due, late: time.Since(p.begun) - possible, out: t.out, prompt: f.prompt}
	a, err := p.client.ask(ctx, address, session, body(said, t.out), func(tokens int) { f.produced.Store(int64(tokens)) })
	r.engine, r.cached = a.engine, a.cached
	if !p.column.gateway {
		r.engine = p.s.engineName(f.engine)
	}
	due := p.begun.Add(t.due)
	r.first, r.total = a.first.Sub(due), a.last.Sub(due)
	if err != nil {
		r.fault = faultName(err)
	}
	return r, string(a.text)
}

// faultName groups errors: their texts hold addresses.
func faultName(err error) string {
	switch e := err.(type) {
	case errRefused:
		return e.Error()
	}
	if err == errNotWhole {
		return "not whole"
	}
	return "broken"
}
