package proxy

import (
	"time"

	"penstock/protect"
	"penstock/selector"
)

// turn ends a wait: with a place, or with the reason why there will be none.
type turn struct {
	lease selector.Lease
	shed  shedReason
	left  bool // the exchange was ended from outside
}

// patience is how long the request may wait for a place, by its priority.
func (x *exchange) patience() time.Duration {
	wait := x.set.limits.QueueWait
	if x.priority != protect.Critical {
		wait = wait / 5 * 4
	}
	return wait
}

// place takes a place on an engine. Where all are full, or others wait
// already, it waits its turn. Without a place it has the refusal that says why;
// both are nil where the class has none to give.
func (x *exchange) place(back bool) (selector.Lease, *selector.Refusal, *apiError) {
	if x.ask.Tries > 0 && x.holder.Engine == nil {
		if refusal := x.class.Refuse(&x.ask); refusal.Why != selector.AllFull {
			return selector.Lease{}, refusal, nil // there is no engine that it could wait for
		}
	}
	if x.gate != nil && (back || x.gate.waiting.Load() > 0) && x.patience() > 0 {
		lease, fault := x.await(back)
		return lease, nil, fault
	}
	lease, refusal := x.choose()
	if lease.Engine != nil {
		return lease, nil, nil
	}
	if refusal == nil && x.holder.Engine == nil {
		refusal = x.class.Refuse(&x.ask)
	}
	if refusal == nil || refusal.Why != selector.AllFull || x.gate == nil || x.patience() <= 0 {
		return lease, refusal, nil
	}
	lease, fault := x.await(false)
	return lease, nil, fault
}

// await waits for a place until it is worth nothing any more. The client's
// leaving ends it at once. A request that comes back because its engine was
// full waits at the head: nobody who waits came before it.
func (x *exchange) await(back bool) (selector.Lease, *apiError) {
	gs, g, now := x.h.gates, x.gate, time.Now()
	switch {
	case !x.waited.IsZero():
	case back:
		x.waited = x.arrived
	default:
		x.waited = now
	}
	if x.turn == nil {
		x.turn = make(chan turn, 2) // a place or a refusal, and the end from outside
	}
	w := &protect.Waiting[*exchange]{Value: x, Priority: x.priority, Tenant: x.tenant.name, Class: x.class.Key(),
		Cost: g.cost(&x.env), Bytes: int64(len(x.bytes())), Since: x.waited}
	switch { // of those that have room where others have none, or the other way round
	case x.holder.Engine != nil:
		w.Class = x.holder.Engine
	case x.ask.Tries > 0:
		w.Class = x
	}
	gs.mu.Lock()
	if reason := gs.refuseLocked(g, w, back, now); reason != shedNot {
		gs.mu.Unlock()
		return selector.Lease{}, x.errShed(reason)
	}
	g.queue.Push(w)
	gs.bytes += w.Bytes
	g.waiting.Add(1)
	gs.waiting.Add(1)
	gs.dispatchLocked(now)
	gs.mu.Unlock()
	got := x.sit(w)
	took := time.Since(now)
	x.queued += took
	x.h.metrics.queued(x.priority, took)
	switch {
	case got.lease.Engine != nil:
		return got.lease, nil
	case got.left:
		return selector.Lease{}, nil
	default:
		return selector.Lease{}, x.errShed(got.shed)
	}
}

// sit blocks until the wait of w is over.
func (x *exchange) sit(w *protect.Waiting[*exchange]) (got turn) {
	select {
	case got = <-x.turn:
		return got
	default:
	}
	if !x.halt.hold(func() { x.turn <- turn{left: true} }) {
		return x.giveUp(w, turn{left: true})
	}
	timer := time.NewTimer(x.patience() - time.Since(x.waited))
	defer timer.Stop()
	select {
	case got = <-x.turn:
	case <-timer.C:
		got.shed = shedQueueTimeout
	}
	x.halt.letGo()
	if got.left || got.shed != shedNot {
		got = x.giveUp(w, got)
	}
	select { // the client left in the same moment
	case <-x.turn:
	default:
	}
	return got
}

// giveUp leaves the queue. Where a turn had come meanwhile, that counts; a
// place is given back if nobody is there to use it.
func (x *exchange) giveUp(w *protect.Waiting[*exchange], why turn) turn {
	gs := x.h.gates
	gs.mu.Lock()
	was := gs.leaveLocked(x.gate, w)
	gs.mu.Unlock()
	if was || why.shed != shedNot && why.shed != shedQueueTimeout {
		return why
	}
	for {
		select {
		case got := <-x.turn:
			if got.left {
				why.left = true
				continue
			}
			if why.left && got.lease.Engine != nil {
				x.release(&got.lease)
				return turn{left: true}
			}
			return got
		default:
			return why
		}
	}
}

// refuseLocked says why a request is not to wait at all. One that comes back
// had its place already: what waits beyond the bounds is what engines refused.
func (gs *gates) refuseLocked(g *gate, w *protect.Waiting[*exchange], back bool, now time.Time) shedReason {
	x := w.Value
	worth := g.pace.Worth(x.patience(), now)
	switch {
	case now.Sub(w.Since) >= worth:
		return shedQueueTimeout
	case back:
		return shedNot
	}
	if ahead := g.queue.AheadOf(w); ahead > 0 && g.pace.Wait(ahead+w.Cost) > worth {
		return shedQueueWait
	}
	entries := int64(x.set.limits.QueueEntries)
	if entries == 0 {
		entries = max(2*g.room.Load(), 1)
	}
	if gs.strain.Level() != protect.Relaxed {
		entries = max(entries/2, 1)
	}
	for int64(g.queue.Len()) >= entries || gs.bytes+w.Bytes > queueBytes {
		least := g.queue.Least(w.Priority)
		if least == nil {
			least = g.queue.Crowd(w)
		}
		if least == nil {
			return shedQueueFull
		}
		gs.leaveLocked(g, least)
		least.Value.turn <- turn{shed: shedQueueFull}
	}
	return shedNot
}

// release gives a place back, to those who wait if there are any: two loads
// where there are none. A place on an engine that frees it later than we do is
// given back when it is free there.
func (x *exchange) release(l *selector.Lease) {
	if l.Engine == nil {
		return
	}
	gs := x.h.gates
	if lag := l.Engine.Lag(); lag > 0 {
		late := *l
		*l = selector.Lease{}
		time.AfterFunc(lag, func() { gs.release(&late) })
		return
	}
	gs.release(l)
}

func (gs *gates) release(l *selector.Lease) {
	l.Release()
	if gs.waiting.Load() > 0 {
		gs.dispatch(time.Now())
	}
}

// pause waits before a further attempt; false if the exchange was ended.
func (x *exchange) pause(d time.Duration) bool {
	if d <= 0 {
		return !x.halt.ended()
	}
	over := make(chan struct{})
	if !x.halt.hold(func() { close(over) }) {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	}
	return x.halt.letGo()
}

// bytes is the request's body.
func (x *exchange) bytes() []byte {
	if x.body == nil {
		return nil
	}
	return x.body.bytes
}
