package sim

import (
	"math"
	"time"

	"penstock/engine"
	"penstock/protect"
	"penstock/selector"
)

// patience is that of the gateway's queue, by priority.
func patience(p protect.Priority) time.Duration {
	if p == protect.Critical {
		return queueWait
	}
	return queueWait / 5 * 4
}

// admit lets a request in as proxy does: what the plan sheds, then a place, or
// a wait for one.
func (g *gateway) admit(w *world, r *request) {
	now := w.clock()
	g.firsts++
	need := selector.Need{}
	if r.Require != "" {
		need.Require = "region=" + r.Require
	}
	class, refusal := g.selector.Resolve(model, need, now)
	if refusal != nil {
		w.over(r, refusedFilter, -1)
		return
	}
	r.class = class
	r.ask = selector.Ask{Keyed: r.Conversation != 0, EarlierTurns: r.Turn > 0, Prompt: r.Prompt, Now: now.Unix()}
	if r.ask.Keyed {
		r.ask.Key = g.key(r.Conversation)
	}
	class.Offered(uint8(r.Priority), r.repeat, r.Prompt, 0)
	if fraction := class.Shed(uint8(r.Priority)); fraction > 0 {
		fraction = protect.Drained(fraction, g.u.Value())
		seen := r.ask.Keyed && g.selector.Seen(r.ask.Key, r.ask.Now)
		if !g.planned[r.Priority].Admits(fraction, r.ask.Keyed, r.ask.Key, seen, w.dice.Float64(), r.ask.Now) {
			g.refuse(w, r, shedPlan)
			return
		}
	}
	g.budget.Deposit(g.u.Value(), now)
	r.since = w.now
	g.place(w, r, false)
}

// key is the slot key of a conversation. Its id is a number here; in the
// gateway it is a string.
func (g *gateway) key(conversation uint64) uint64 {
	return g.keyer.KeyOfDigest(model, "", conversation)
}

// place takes a place on an engine, or a place in the queue where others wait
// already, or all are full.
func (g *gateway) place(w *world, r *request, back bool) {
	if r.ask.Tries > 0 && r.class.Refuse(&r.ask).Why != selector.AllFull {
		w.over(r, r.how, 0) // there is no engine that it could wait for
		return
	}
	if !back && g.queue.Len() == 0 && g.pick(w, r) {
		return
	}
	g.await(w, r)
}

// pick asks the selector, and sends.
func (g *gateway) pick(w *world, r *request) bool {
	var d selector.Decision
	r.ask.Now = w.clock().Unix()
	r.ask.Chance = w.dice.Uint64() | 1
	lease := g.selector.Pick(r.class, &r.ask, &d)
	if lease.Engine == nil {
		return false
	}
	r.lease, r.why = lease, d.Why
	w.send(r, w.servers[lease.Engine.ID])
	return true
}

// costOfOutput is how many prompt tokens a token of an answer counts for, as
// in proxy.
const costOfOutput = 4

const outputGuess = 256

func (g *gateway) await(w *world, r *request) {
	now := w.clock()
	out := g.output
	if out == 0 {
		out = outputGuess
	}
	q := &protect.Waiting[*request]{Value: r, Priority: r.Priority, Class: r.class.Key(), Cost: float64(r.Prompt) + costOfOutput*out,
		Since: start.Add(r.since)}
	if r.ask.Tries > 0 {
		q.Class = r
	}
	worth := g.pace.Worth(patience(r.Priority), now)
	if now.Sub(q.Since) >= worth {
		g.refuse(w, r, shedTimeout)
		return
	}
	if ahead := g.queue.Ahead(r.Priority); ahead > 0 && g.pace.Wait(ahead+q.Cost) > worth {
		g.refuse(w, r, shedWait)
		return
	}
	_, room := g.selector.Load(model)
	for int64(g.queue.Len()) >= max(2*room, 1) {
		least := g.queue.Least(r.Priority)
		if least == nil {
			g.refuse(w, r, shedFull)
			return
		}
		g.queue.Remove(least)
		least.Value.waits = nil
		g.refuse(w, least.Value, shedFull)
	}
	r.waits = q
	g.queue.Push(q)
	g.dispatch(w)
}

// dispatch gives places to those who wait, as far as there is room.
func (g *gateway) dispatch(w *world) {
	for g.queue.Len() > 0 {
		now := w.clock()
		q := g.queue.Next(func(p protect.Priority) bool {
			return now.Sub(g.queue.Oldest(p).Since) > g.pace.Worth(patience(p), now)/2
		}, func(q *protect.Waiting[*request]) bool {
			q.Value.class = g.selector.Current(q.Value.class)
			return g.pick(w, q.Value)
		})
		if q == nil {
			return
		}
		q.Value.waits = nil
		g.pace.Began(q.Cost)
	}
}

// refuse sheds a request: its client is told how long to wait, or not to come
// again.
func (g *gateway) refuse(w *world, r *request, how ending) {
	n := r.calls - 1
	if n >= 2 || r.Priority == protect.Sheddable && g.pace.Over() > 2 {
		w.over(r, how, -1)
		return
	}
	w.over(r, how, time.Duration(math.Ceil((2+4*w.dice.Float64())*float64(1+n)))*time.Second)
}

// account is the end of an attempt: to engine, class and penalty, then to the
// client, or to another engine.
func (g *gateway) account(w *world, r *request) {
	now := w.clock()
	i := r.server.index
	e := g.engines[i]
	a := engine.Answer{At: now, Total: w.now - r.sent, InFlightFrom: r.from, InFlightTo: int32(e.InFlight()), Counted: true, Repeat: r.paid}
	switch r.how {
	case whole:
		if r.stream {
			a.TTFT = r.first - r.sent
			if r.Output > 1 {
				a.TBOT = (w.now - r.first) / time.Duration(r.Output-1)
			}
		}
		a.Prompt, a.Cached, a.Output = int32(r.Prompt), int32(r.cached), int32(r.Output)
		r.class.Answered(uint8(r.Priority), r.Prompt, r.cached, r.Output)
		e.Progress(now)
		g.learnOutput(r.Output)
		if e.Allowance() != 0 {
			g.penalties[i].Answered(now)
			g.allow(i, now)
		}
	case failedTooLong:
		a.How = engine.EndedElse
	case failedBusy:
		a.How = engine.EndedBusy
		g.fail(i, protect.Busy, now)
	default:
		a.How = engine.EndedFault
		g.fail(i, protect.Broken, now)
	}
	e.Answered(a)
	g.release(w, r)
	if r.how == whole || r.how == failedTooLong || r.first != 0 && r.first <= w.now {
		w.over(r, r.how, 0)
		return
	}
	r.ask.AddTried(e)
	room := int64(0)
	for _, e := range g.engines {
		room += e.InFlight()
	}
	if r.tries > 2 || !g.budget.Withdraw(g.u.Value(), room, now) {
		w.over(r, r.how, 0)
		return
	}
	g.budget.Done() // nothing else runs under it: a repeated attempt is one like any other here
	r.paid, r.server = true, nil
	g.place(w, r, true)
}

// release gives the place back, to those who wait if there are any.
func (g *gateway) release(w *world, r *request) {
	r.lease.Release()
	if g.queue.Len() > 0 {
		g.dispatch(w)
	}
}

func (g *gateway) fail(i int32, s protect.Severity, now time.Time) {
	g.penalties[i].Failed(s, now)
	g.allow(i, now)
}

func (g *gateway) allow(i int32, now time.Time) {
	g.engines[i].SetAllowance(engine.NewAllowance(g.penalties[i].Factor(now), 1))
}

// learnOutput learns the length of answers, a new one as a sixteenth.
func (g *gateway) learnOutput(tokens int) {
	if g.output == 0 {
		g.output = float64(tokens)
	}
	g.output += (float64(tokens) - g.output) / 16
}
