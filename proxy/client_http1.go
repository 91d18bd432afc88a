package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"penstock/engine"
)

// http1Client speaks HTTP/1.1 to plain-text engines. An attempt runs in the
// exchange's own goroutine: header and body leave in one write, the response
// is read where it is relayed, and nothing else runs for the connection but the
// writer of a large body. A request is written once; whether it may be repeated
// is not decided here.
type http1Client struct {
	dialer *net.Dialer
	pools  sync.Map // "host:port" -> *connPool
}

func newHTTP1Client(connecting func(string)) *http1Client {
	return &http1Client{dialer: newDialer(connecting)}
}

func (c *http1Client) closeIdle() {
	c.pools.Range(func(_, p any) bool {
		p.(*connPool).closeIdle()
		return true
	})
}

// forget drops pools. One that an attempt is using lives as long as that does,
// and closes its connection soon after.
func (c *http1Client) forget(keep func(address string) bool) {
	c.pools.Range(func(address, p any) bool {
		if !keep(address.(string)) {
			c.pools.Delete(address)
			p.(*connPool).closeIdle()
		}
		return true
	})
}

func (c *http1Client) poolOf(e *engine.Engine) *connPool {
	if p, ok := c.pools.Load(e.Base.Host); ok {
		return p.(*connPool)
	}
	p, _ := c.pools.LoadOrStore(e.Base.Host, newConnPool(e.Base))
	return p.(*connPool)
}

func (c *http1Client) send(h *halt, a *outgoing) (*incoming, *sendError) {
	pool := c.poolOf(a.engine)
	var conn *engineConn
	switch {
	case a.fresh:
	case a.once:
		conn = pool.take(time.Now(), onceIdle)
	default:
		conn = pool.take(time.Now(), engineIdle)
	}
	reused := conn != nil
	if !reused {
		dialed, err := pool.dial(h, c.dialer, a.engine.Live)
		if err != nil {
			return nil, &sendError{end: endDialFailed, err: err}
		}
		conn = dialed
	}
	if !h.hold(conn.interrupt) {
		conn.Close()
		return nil, &sendError{end: endNoResponse, err: h.reason()}
	}
	r := &response{conn: conn, pool: pool, halt: h, in: incoming{header: a.into}}
	began := time.Now()
	sent, err := r.write(a)
	if err == nil {
		err = r.readHead(&r.in)
	} else if r.readHead(&r.in) == nil && r.in.status >= 400 {
		err = nil // it refused before it had read everything
	}
	if err == nil {
		r.in.body = r
		r.in.cold = !reused
		r.keep = r.keep && !a.fresh
		return &r.in, nil
	}
	heard := conn.heard
	r.Close()
	failed := &sendError{end: endNoResponse, bodySent: sent, err: err}
	if errors.Is(err, errNotHTTP) {
		failed.end = endBadAnswer
	} else {
		failed.reused = reused && !heard && time.Since(began) < idleRaceEnds
	}
	return nil, failed
}

// response is an engine's response as its body is read: incoming.body.
type response struct {
	in      incoming
	conn    *engineConn
	pool    *connPool
	halt    *halt      // holds the connection
	writing chan error // nil: the request was written before the response was read

	framing
	keep bool // the connection may serve again once the body is read
}

// Close gives the connection back if the response was read to its end, and
// else ends it: an engine notices that nobody reads.
func (r *response) Close() error {
	conn := r.conn
	if conn == nil {
		return nil
	}
	r.conn = nil
	clean := r.halt.letGo() && r.keep && r.ended() && conn.buffered() == 0
	if r.writing != nil {
		clean = r.written(clean, conn)
	}
	if !clean || !r.pool.put(conn, time.Now()) {
		return conn.Close()
	}
	return nil
}

// written ends the writing of a large body and reports whether the connection
// is still good. After a whole answer the last bytes are nearly always written,
// if not yet told so; an engine that answered without reading all is not
// waited for.
func (r *response) written(clean bool, conn *engineConn) bool {
	if clean {
		wait := time.NewTimer(lastBytesWait)
		defer wait.Stop()
		select {
		case err := <-r.writing:
			return err == nil
		case <-wait.C:
		}
	}
	conn.Close()
	<-r.writing
	return false
}

// write sends header and body. sent says that a part of them may be with the
// engine.
func (r *response) write(a *outgoing) (sent bool, err error) {
	body := a.bytes()
	p := headBuffers.Get().(*[]byte)
	head := appendHead((*p)[:0], a, len(body))
	switch {
	case len(head)+len(body) <= oneWriteBytes:
		head = append(head, body...)
		var n int
		n, err = r.conn.Write(head)
		sent = n > 0
	case len(head)+len(body) <= inlineBytes:
		buffers := net.Buffers{head, body}
		var n int64
		n, err = buffers.WriteTo(r.conn.Conn)
		sent = n > 0
	default:
		// A body that socket buffers may not hold is written while the answer
		// is read: an engine may refuse it after the first part.
		r.writing = make(chan error, 1)
		a.body.hold()
		go func(conn net.Conn) {
			buffers := net.Buffers{head, body}
			_, err := buffers.WriteTo(conn)
			a.body.release()
			keepHead(p, head)
			r.writing <- err
		}(r.conn.Conn)
		return true, nil
	}
	keepHead(p, head)
	return sent, err
}

const (
	oneWriteBytes = 8 << 10  // header and body are copied together up to here
	inlineBytes   = 16 << 10 // the least send buffer that systems give a socket
)

const lastBytesWait = 10 * time.Millisecond

var headBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

func keepHead(p *[]byte, b []byte) {
	if cap(b) <= 2*oneWriteBytes {
		*p = b
		headBuffers.Put(p)
	}
}

// readHead reads the final response's header.
func (r *response) readHead(in *incoming) error {
	for infos := 0; ; infos++ {
		head, err := r.conn.readHead()
		if err != nil {
			return err
		}
		h, err := parseHead(head, in.header)
		if err != nil {
			return err
		}
		if h.status >= 200 {
			in.status, in.header, in.length = h.status, h.header, h.length
			r.framing, r.keep = h.framing(), h.keep
			return nil
		}
		if h.status == 101 || infos == maxInfos {
			return notHTTP("an interim answer that was not asked for")
		}
	}
}

// Read reads the body. It returns io.EOF only at the end that the framing
// gives, together with the last bytes where they are there already.
func (r *response) Read(p []byte) (int, error) {
	if r.conn == nil {
		return 0, net.ErrClosed
	}
	n, err := r.framing.read(r.conn, p)
	if err == io.EOF && !r.ended() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
