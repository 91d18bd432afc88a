package proxy

import (
	"context"
	"sync"
	"sync/atomic"
)

// halt ends an exchange from outside: a limit passed, the client left, the
// gateway drains. It interrupts the attempt at hand and nothing else; above
// all it leaves the client's connection alone, which may have its answer
// already and serve further requests.
//
// On HTTP/1 it belongs to the connection, which carries one request at a time:
// a context of each request's own would cost as much as the relay of a short
// answer. On HTTP/2 each request has one. The zero value is ready.
type halt struct {
	over atomic.Bool // why is set

	mu        sync.Mutex // guards what is below
	why       error
	dead      bool        // the connection has ended: why stays for all requests to come
	off       atomic.Bool // the attempt at hand was cut, and not the exchange
	interrupt func()      // of the attempt at hand, nil between attempts
}

// begin readies it for the next request of its connection.
func (h *halt) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
	h.off.Store(false)
	if !h.dead {
		h.why = nil
		h.over.Store(false)
	}
}

// end ends the exchange at hand; the first reason counts.
func (h *halt) end(why error) { h.set(why, false) }

// endAll ends it, and whatever comes on the connection after it.
func (h *halt) endAll(why error) { h.set(why, true) }

func (h *halt) set(why error, dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = h.dead || dead
	if h.why != nil {
		return
	}
	h.why = why
	h.over.Store(true)
	if h.interrupt != nil {
		h.interrupt()
	}
}

// cut ends the attempt at hand: what it holds is interrupted, and nothing more
// is held before mend.
func (h *halt) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != nil {
		return
	}
	h.off.Store(true)
	if h.interrupt != nil {
		h.interrupt()
	}
}

// mend readies it for another attempt.
func (h *halt) mend() { h.off.Store(false) }

// wasCut reports whether the attempt at hand was cut.
func (h *halt) wasCut() bool { return h.off.Load() }

// ended reports whether the exchange is over; it costs one load.
func (h *halt) ended() bool { return h.over.Load() }

// reason is why it ended, nil while it goes on.
func (h *halt) reason() error {
	if !h.over.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// hold has interrupt called when the exchange ends, or its attempt is cut,
// before letGo. interrupt must not block and may be called from any goroutine.
// False, and nothing is held, if that has happened.
func (h *halt) hold(interrupt func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != nil || h.off.Load() {
		return false
	}
	h.interrupt = interrupt
	return true
}

// letGo ends a hold; false if interrupt was called.
func (h *halt) letGo() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
	return h.why == nil && !h.off.Load()
}

// haltOf is the halt of a request that begins, and what undoes it at its end.
func haltOf(ctx context.Context, conn *clientConn) (h *halt, end func() bool) {
	if conn == nil {
		return haltWith(ctx)
	}
	conn.halt.begin()
	return &conn.halt, nil
}

// haltWith is apart so that only what needs one allocates.
func haltWith(ctx context.Context) (*halt, func() bool) {
	h := &halt{}
	return h, context.AfterFunc(ctx, func() { h.end(context.Cause(ctx)) })
}
