package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Order is what an operator wants of an engine. Closed. It stands before
// whatever health says, and outlives reloads.
type Order uint8

const (
	Serve  Order = iota // no order: its health decides
	Cordon              // nothing new; its conversations come back when it does
	Drain               // nothing new; its conversations settle elsewhere
)

func (o Order) String() string { return [...]string{"serve", "cordon", "drain"}[o] }

// ParseOrder is the order of that name.
func ParseOrder(name string) (Order, error) {
	for _, o := range []Order{Serve, Cordon, Drain} {
		if o.String() == name {
			return o, nil
		}
	}
	return Serve, fmt.Errorf("no order is called %q", name)
}

// Breaker is what an engine's circuit breaker says. Closed.
type Breaker uint8

const (
	BreakerClosed   Breaker = iota // nothing
	BreakerOpen                    // it is to take nothing for a while
	BreakerHalfOpen                // a few requests are to show whether it has recovered
)

func (b Breaker) String() string { return [...]string{"closed", "open", "half_open"}[b] }

// standing is an engine's state, decided in this order: what an operator
// ordered, its breaker, its health. (What a penalty takes of its weight is in
// its Allowance.) mu makes them one decision; readers take no lock.
type standing struct {
	status atomic.Pointer[Status]

	mu      sync.Mutex // guards what is below
	health  Status
	breaker Breaker
	tripped Status // while the breaker is not closed
	order   Order
	ordered time.Time // when the order, or that it is carried out, began to hold
	idle    time.Time // Drain: the first of the looks since which nothing was in flight
	drained bool
}

// Ready reports whether the engine takes traffic.
func (l *Live) Ready() bool { return State(l.state.Load()) == Ready }

// OnTrial reports whether the engine takes a few requests to show that it has
// recovered.
func (l *Live) OnTrial() bool { return State(l.state.Load()) == HalfOpen }

// Planned reports whether tables count on the engine: it takes traffic, or its
// breaker keeps it from that for a while, which is no reason to move its
// conversations for good.
func (l *Live) Planned() bool {
	switch State(l.state.Load()) {
	case Ready, Open, HalfOpen:
		return true
	}
	return false
}

// Leaving reports whether the engine's conversations are to settle elsewhere.
func (l *Live) Leaving() bool {
	s := State(l.state.Load())
	return s == Draining || s == Drained
}

// Status is the engine's state with its reason and when it began.
func (l *Live) Status() Status { return *l.status.Load() }

// Health is what Status would be without an order.
func (l *Live) Health() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health
}

// Healthy reports whether the engine would take traffic without an order.
func (l *Live) Healthy() bool { return l.Ready() || l.Health().State == Ready }

// SetStatus records what health says. It returns false if state and reason
// were so already. Only the poller and tests call it.
func (l *Live) SetStatus(s State, why Reason, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.health.State == s && l.health.Reason == why {
		return false
	}
	if l.health.State != s {
		l.health.Since = now
	}
	l.health.State, l.health.Reason = s, why
	l.publishLocked()
	return true
}

// SetBreaker records what the engine's breaker says, and why. It returns false
// if that was so already.
func (l *Live) SetBreaker(b Breaker, why Reason, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker == b && l.tripped.Reason == why {
		return false
	}
	l.breaker, l.tripped = b, Status{Reason: why, Since: now}
	l.publishLocked()
	return true
}

// Order is the operator's order and since when it holds.
func (l *Live) Order() (Order, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order, l.ordered
}

// SetOrder gives an order. It returns false if it held already.
func (l *Live) SetOrder(o Order, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.order == o {
		return false
	}
	l.order, l.ordered, l.idle, l.drained = o, now, time.Time{}, false
	l.publishLocked()
	return true
}

// rejoin is called when an engine comes back to the fleet. Its health is taken
// for known only while nobody can have missed a probe.
func (l *Live) rejoin(now time.Time, away time.Duration) {
	if away > healthGoodFor {
		l.SetStatus(Starting, ReasonNoAnswerYet, now)
	}
}

// idleFor is how long a draining engine has nothing in flight before it counts
// as drained: a pick that found it ready just before the order may take its
// place just after.
const idleFor = 100 * time.Millisecond

// lookIdle is called now and then on an engine. changed reports that it is
// drained from now on, or no more.
func (l *Live) lookIdle(now time.Time) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.order != Drain:
		return false
	case l.InFlight() > 0:
		l.idle = time.Time{}
	case l.idle.IsZero():
		l.idle = now
	}
	drained := !l.idle.IsZero() && now.Sub(l.idle) >= idleFor
	if drained == l.drained {
		return false
	}
	l.drained, l.ordered = drained, now
	l.publishLocked()
	return true
}

func (l *Live) publishLocked() {
	s := l.health
	switch {
	case l.order == Serve && l.breaker == BreakerOpen:
		s = Status{State: Open, Reason: l.tripped.Reason, Since: l.tripped.Since}
	case l.order == Serve && l.breaker == BreakerHalfOpen && s.State == Ready: // nobody is tried on an engine that is down
		s = Status{State: HalfOpen, Reason: l.tripped.Reason, Since: l.tripped.Since}
	}
	if l.order != Serve {
		s = Status{State: Cordoned, Reason: ReasonOrdered, Since: l.ordered}
		switch {
		case l.drained:
			s.State = Drained
		case l.order == Drain:
			s.State = Draining
		}
	}
	l.status.Store(&s)
	l.state.Store(uint32(s.State))
}
