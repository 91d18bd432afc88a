package proxy

import (
	"context"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"penstock/engine"
)

// connPool holds the idle connections to one address, the latest used on top.
// The lock is held for a push or a pop alone.
type connPool struct {
	address string

	mu    sync.Mutex // guards what is below
	idle  []*engineConn
	epoch int         // of closeIdle: connections from before it are not kept
	reap  *time.Timer // nil: nothing is idle
}

func newConnPool(base *url.URL) *connPool {
	address := base.Host
	if base.Port() == "" {
		address = net.JoinHostPort(base.Hostname(), "80")
	}
	return &connPool{address: address}
}

func (p *connPool) dial(h *halt, d *net.Dialer, to *engine.Live) (*engineConn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !h.hold(cancel) {
		return nil, h.reason()
	}
	defer h.letGo()
	p.mu.Lock()
	epoch := p.epoch
	p.mu.Unlock()
	conn, err := d.DialContext(to.Timed(ctx), "tcp", p.address)
	if err != nil {
		return nil, err
	}
	return newEngineConn(conn, epoch), nil
}

// take returns a connection that has been idle for less than that, which its
// engine has not closed, and on which nothing has come that nobody asked for;
// nil if there is none.
func (p *connPool) take(now time.Time, idle time.Duration) *engineConn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 || idle < engineIdle && now.Sub(p.idle[n-1].idleSince) >= idle {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if now.Sub(c.idleSince) < engineIdle && c.quiet() {
			return c
		}
		c.Close()
	}
}

// put keeps a connection for the next request; false if it is not wanted.
func (p *connPool) put(c *engineConn, now time.Time) bool {
	c.rest(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.epoch != p.epoch || len(p.idle) >= idlePerEngine {
		return false
	}
	p.idle = append(p.idle, c)
	if p.reap == nil {
		p.reap = time.AfterFunc(engineIdle, p.closeOld)
	}
	return true
}

// closeOld closes connections that were idle too long and looks again while
// there are others.
func (p *connPool) closeOld() {
	p.mu.Lock()
	now, old := time.Now(), 0
	for old < len(p.idle) && now.Sub(p.idle[old].idleSince) >= engineIdle {
		old++
	}
	closing := append([]*engineConn(nil), p.idle[:old]...)
	kept := copy(p.idle, p.idle[old:])
	clear(p.idle[kept:])
	p.idle = p.idle[:kept]
	switch {
	case p.reap == nil:
	case kept == 0:
		p.reap = nil
	default:
		p.reap.Reset(max(time.Millisecond, engineIdle-now.Sub(p.idle[0].idleSince)))
	}
	p.mu.Unlock()
	for _, c := range closing {
		c.Close()
	}
}

func (p *connPool) closeIdle() {
	p.mu.Lock()
	closing := p.idle
	p.idle = nil
	p.epoch++
	if p.reap != nil {
		p.reap.Stop()
		p.reap = nil
	}
	p.mu.Unlock()
	for _, c := range closing {
		c.Close()
	}
}

// engineConn is a connection to an engine; one attempt at a time owns it.
type engineConn struct {
	net.Conn
	raw       syscall.RawConn // nil: cannot be looked at
	epoch     int             // of its pool when it was dialed
	idleSince time.Time
	interrupt func() // ends reads and writes, from any goroutine
	heard     bool   // a byte of the response at hand came

	buf  []byte
	r, w int // buf[r:w] is unread
	seen int // of the header, searched for its end

	probe    func(fd uintptr) bool // reads one byte if there is one
	probed   [1]byte
	probeErr error
	probeN   int
}

const engineReadBytes = 3 << 10

func newEngineConn(conn net.Conn, epoch int) *engineConn {
	c := &engineConn{Conn: conn, epoch: epoch, buf: make([]byte, engineReadBytes)}
	c.interrupt = func() { conn.SetDeadline(time.Unix(1, 0)) }
	c.probe = func(fd uintptr) bool {
		c.probeN, c.probeErr = readNow(fd, c.probed[:])
		return true
	}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	return c
}

// quiet reports whether the connection is open and nothing has come on it: a
// byte after the last answer would be taken for the start of the next.
func (c *engineConn) quiet() bool {
	if c.raw == nil {
		return true
	}
	if c.raw.Read(c.probe) != nil {
		return false
	}
	return c.probeN <= 0 && wouldBlock(c.probeErr)
}

// rest readies the connection for its pool.
func (c *engineConn) rest(now time.Time) {
	c.r, c.w, c.seen, c.heard, c.idleSince = 0, 0, 0, false, now
	if len(c.buf) > engineReadBytes {
		c.buf = make([]byte, engineReadBytes)
	}
}

func (c *engineConn) buffered() int { return c.w - c.r }

// fill reads once more into the buffer. It makes room only by moving what is
// unread to the front; a full buffer is the caller's fault.
func (c *engineConn) fill() error {
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	n, err := c.Conn.Read(c.buf[c.w:])
	c.w += n
	c.heard = c.heard || n > 0
	if n > 0 {
		return nil // an error comes again
	}
	return err
}
