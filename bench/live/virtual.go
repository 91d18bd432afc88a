package main

import (
	"container/heap"
	"time"

	"penstock/engine/enginetest"
)

// virtually plays the conversations on virtual time: the engines' own
// scheduler, a placement, no network but its round trips and no gateway.
func virtually(s *scenario, convs []conversation, p placement, stretch float64, warm, measure time.Duration) []seen {
	v := &virtual{s: s, p: p, warm: warm, end: warm + measure}
	for i := range s.speeds {
		v.engines = append(v.engines, &virtualEngine{batch: enginetest.NewBatch(s.model(i, stretch))})
	}
	if s.kill > 0 {
		v.at(warm+time.Duration(changeAt*float64(measure)), func() { v.kill(s.kill - 1) })
	}
	for i := range convs {
		v.at(convs[i].turns[0].due, func() { v.ask(&convs[i], 0) })
	}
	for v.queue.Len() > 0 {
		e := heap.Pop(&v.queue).(event)
		v.now = e.at
		e.do()
	}
	return v.all
}

type virtual struct {
	s         *scenario
	p         placement
	warm, end time.Duration
	now       time.Duration
	queue     events
	order     int
	engines   []*virtualEngine
	all       []seen
}

type virtualEngine struct {
	batch *enginetest.Batch
	busy  bool
	gone  bool
	open  map[*ask]bool
}

// ask is one request on its way.
type ask struct {
	flight
	enginetest.Seq
	first time.Duration
}

func (v *virtual) at(t time.Duration, do func()) {
	v.order++
	heap.Push(&v.queue, event{t, v.order, do})
}

// ask sends a conversation's n-th turn.
func (v *virtual) ask(c *conversation, n int) {
	if c.turns[n].due > v.end+tail {
		return
	}
	a := &ask{}
	a.conv, a.turn, a.sent, a.prompt, a.out = c, n, v.now, c.promptTokens(n), c.turns[n].out
	i := v.p.place(&a.flight)
	if i == refused {
		v.over(a, false)
		return
	}
	e := v.engines[i]
	a.Seq = enginetest.Seq{Chain: c.chain(n), Prompt: a.prompt, Out: a.out, Owner: a}
	v.at(v.now+v.s.rtt(i), func() { // there and, for the answer, back
		if e.gone {
			v.over(a, false)
			return
		}
		if q := v.s.queue; q > 0 && e.batch.Excess() >= q {
			v.over(a, false)
			return
		}
		if err := e.batch.Add(&a.Seq); err != nil {
			panic(err)
		}
		if e.open == nil {
			e.open = make(map[*ask]bool)
		}
		e.open[a] = true
		if !e.busy {
			v.step(e)
		}
	})
}

func (v *virtual) step(e *virtualEngine) {
	e.busy = !e.gone && e.batch.Busy()
	if !e.busy {
		return
	}
	st := e.batch.Step()
	v.at(v.now+st.Elapsed, func() {
		for _, ev := range st.Events {
			a := ev.Seq.Owner.(*ask)
			if e.gone {
				break
			}
			if ev.Seq.Generated == 1 && a.first == 0 {
				a.first = v.now
				if p, ok := v.p.(*planned); ok {
					p.began(&a.flight)
				}
			}
			a.produced.Store(int64(ev.Seq.Generated))
			if ev.Finished {
				delete(e.open, a)
				v.over(a, true)
			}
		}
		v.step(e)
	})
}

func (v *virtual) kill(i int) {
	e := v.engines[i]
	e.gone = true
	v.p.lose(i)
	for a := range e.open {
		v.over(a, false)
	}
	e.open = nil
}

// over notes how a turn ended and plans the next one of its conversation.
func (v *virtual) over(a *ask, ok bool) {
	v.p.done(&a.flight)
	t := a.conv.turns[a.turn]
	if t.due >= v.warm && t.due < v.end {
		r := seen{due: t.due, engine: v.s.engineName(a.engine), total: v.now - t.due, first: a.first - t.due, out: a.out, prompt: a.prompt, cached: a.Cached}
		if !ok {
			r.fault = "refused"
		}
		v.all = append(v.all, r)
	}
	if n := a.turn + 1; n < len(a.conv.turns) {
		v.at(max(v.now, a.conv.turns[n].due), func() { v.ask(a.conv, n) })
	}
}

// chain names the blocks of a conversation's n-th prompt and its answer.
func (c *conversation) chain(n int) []uint64 {
	blocks := (c.promptTokens(n) + c.turns[n].out) / enginetest.BlockTokens
	chain := make([]uint64, blocks)
	for b := range chain {
		if c.hot && (b+1)*enginetest.BlockTokens <= hotTokens {
			chain[b] = uint64(b) + 1
		} else {
			chain[b] = uint64(c.id+1)<<24 + uint64(b)
		}
	}
	return chain
}

// event is something that happens at a time; of those at the same time the
// one planned first.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}
