package sim

import "time"

// kind is what an event is about. Closed.
type kind uint8

const (
	arrive    kind = iota // the next request of the feed enters
	reach                 // a request gets to its engine
	step                  // an engine's step, or run of steps, is over
	back                  // an answer's end, or a failure, is at the gateway
	cycle                 // gateways poll and plan
	look                  // gateways look at their queues
	fault                 // something of the fleet's faults begins
	impatient             // a client gives up
	again                 // a client tries again
	resend                // a router tries again
	sample                // where the engines stand is noted
)

// event is something that happens at a time; of those at the same time the one
// planned first. It is void when gen is not its object's any more.
type event struct {
	at    time.Duration
	order uint64
	kind  kind
	who   int32
	gen   uint32
}

// events is a heap of values: no allocation for an event, no interface.
type events struct {
	heap  []event
	order uint64
}

func (q *events) add(at time.Duration, k kind, who int32, gen uint32) {
	q.order++
	h := append(q.heap, event{at, q.order, k, who, gen})
	i := len(h) - 1
	e := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !e.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
	q.heap = h
}

func (q *events) take() event {
	h := q.heap
	top := h[0]
	n := len(h) - 1
	e := h[n]
	h = h[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&e) {
			break
		}
		h[i] = h[c]
		i = c
	}
	if n > 0 {
		h[i] = e
	}
	q.heap = h
	return top
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.order < f.order }
