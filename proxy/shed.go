package proxy

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"

	"penstock/protect"
)

// shedReason says why a request was refused on purpose: the closed list of the
// reason label of penstock_shed_total and of x-penstock-reason.
type shedReason uint8

const (
	shedNot           shedReason = iota
	shedEnginesFull              // all engines are at their in-flight cap, and nobody waits here
	shedEngineFull               // an engine said so, and there was no other
	shedQueueFull                // too many wait already
	shedQueueWait                // the wait would be longer than it is worth
	shedQueueTimeout             // it has waited for as long as it is worth
	shedPlanned                  // the table's share of its priority
	shedGatewayMemory            // the gateway's own memory
	shedRate                     // the tenant's limit
	shedIDSearch                 // too many searches for ids at once
	shedReasons
)

var shedNames = [shedReasons]string{"", "engines_full", "engine_full", "queue_full", "queue_wait", "queue_timeout", "planned",
	"gateway_memory", "rate_limit_exceeded", "id_search"}

func (r shedReason) String() string { return shedNames[r] }

var shedMessages = [shedReasons]string{
	shedEnginesFull:   "all engines of the model %s are at their in-flight limit",
	shedQueueFull:     "too many requests wait for the engines of the model %s",
	shedQueueWait:     "the wait for the engines of the model %s would be too long",
	shedQueueTimeout:  "the engines of the model %s had no room in time",
	shedPlanned:       "more requests for the model %s than its engines can serve; this one's priority is refused in part",
	shedGatewayMemory: "the gateway is short of memory",
}

const (
	// waitsAtMost keeps Retry-After below the minute from which SDKs differ.
	waitsAtMost = 59
	// enoughRetries of one request, as its SDK counts them, are enough.
	enoughRetries = 2
	// tooMuch is how many times its capacity a model must be asked for before
	// sheddable requests are told not to come again.
	tooMuch = 2
)

// errShed refuses the request on purpose.
func (x *exchange) errShed(why shedReason) *apiError {
	message := shedMessages[why]
	if why != shedGatewayMemory {
		name := x.env.Model
		if x.alias != "" {
			name = x.alias
		}
		message = sprintfName(message, name)
	}
	e := &apiError{status: http.StatusTooManyRequests, code: "overloaded", reason: why.String(), message: message}
	n := sdkRetries(x.r.Header)
	e.retryAfter = retryAfter(n)
	over := 0.0
	if x.gate != nil {
		over = x.h.gates.over(x.gate)
	}
	if n >= enoughRetries || x.priority == protect.Sheddable && over > tooMuch {
		e.advised.retry = "false"
	}
	return e
}

// strained refuses, before the body is read, what the gateway's own memory
// does not allow.
func (x *exchange) strained() *apiError {
	level := x.h.gates.strain.Level()
	if level == protect.Relaxed {
		return nil
	}
	if p, err := x.tenant.priority(x.r.Header); err == nil {
		x.priority = p
	}
	if !level.Refuses(x.priority) {
		return nil
	}
	fault := x.errShed(shedGatewayMemory)
	if n := x.r.ContentLength; n < 0 || n > unreadBytes {
		return fault.beforeBody(x.w, x.r, strangerBytes)
	}
	return fault
}

// shedEarly refuses what is not to be served as things stand, before it takes
// anything of an engine: what the table's plan sheds.
func (x *exchange) shedEarly() *apiError {
	if x.class.Model() == "" {
		return nil
	}
	fraction := x.class.Shed(uint8(x.priority))
	if fraction <= 0 {
		return nil
	}
	x.gate = x.h.gates.of(x.class.Model())
	fraction = protect.Drained(fraction, x.gate.u.Value())
	seen := x.ask.Keyed && x.h.selector.Seen(x.ask.Key, x.ask.Now)
	if x.gate.planned[x.priority].Admits(fraction, x.ask.Keyed, x.ask.Key, seen, rand.Float64(), x.ask.Now) {
		return nil
	}
	return x.errShed(shedPlanned)
}

func sprintfName(format, name string) string {
	const mark = "%s"
	for i := 0; i+len(mark) <= len(format); i++ {
		if format[i:i+len(mark)] == mark {
			return format[:i] + quoteName(name) + format[i+len(mark):]
		}
	}
	return format
}

// over is how many times what the engines take is asked of them.
func (gs *gates) over(g *gate) float64 {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return g.pace.Over()
}

// retryAfter is ceil(U(2,6) (1+n)) seconds for the n-th retry: it spreads
// clients that were refused together, and more the longer it lasts.
func retryAfter(n int) int {
	return int(min(math.Ceil((2+4*rand.Float64())*float64(1+n)), waitsAtMost))
}

// sdkRetries is which retry of its own the client's SDK says this is.
func sdkRetries(h http.Header) int {
	v := h["X-Stainless-Retry-Count"]
	if len(v) != 1 || len(v[0]) > 4 {
		return 0
	}
	n, err := strconv.Atoi(v[0])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// inner reports whether a gateway before this one has sent the request
// before: it repeats, and this one does not.
func inner(h http.Header) bool {
	v := h["X-Gateway-Attempt"]
	if len(v) == 0 {
		return false
	}
	n, err := strconv.Atoi(v[0])
	return err == nil && n > 0
}
