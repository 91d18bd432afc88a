package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headerTime  = 5 * time.Second // for a client to send a request's header
	headerBytes = 64 << 10

	// An HTTP/2 client that has sent nothing for pingAfter is asked whether it
	// is there; without an answer for pingWait its streams end and free their
	// engines. Of HTTP/1 clients that vanish without a word only a write tells.
	pingAfter = 30 * time.Second
	pingWait  = 15 * time.Second
	// frameBytes bounds the buffer that each HTTP/2 connection keeps.
	frameBytes = 64 << 10
)

// NewServer is the HTTP server of the data port: HTTP/1.1 and HTTP/2, the
// latter as h2c on a plain port and by ALPN on one with TLS. Its base
// context carries the drain: cancelling it with ErrDraining ends every
// exchange. Write timeouts are per write; there is none for an answer.
func NewServer(base context.Context, h *Handler, idle time.Duration, maxStreams int) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:   &metered{h},
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: windowBytes,
			MaxReadFrameSize:              frameBytes,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingWait,
			CountError:                    h.metrics.conns.h2Error,
		},
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idle,
		MaxHeaderBytes:    headerBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		ErrorLog:          log.New(io.Discard, "", 0), // a client's broken handshake is no event of ours
	}
}

// Listener wraps the data port's listener: its connections tell when their
// peer goes away although bytes are unread, speak JSON where net/http would
// answer a malformed request in plain text, and end when they flood.
type Listener struct {
	net.Listener
	watcher *hangups
	metrics *connMetrics
	secure  *handshakes // nil: a plain port
}

// Listen wraps l, which speaks TLS where certs is not nil; Run watches the
// connections.
func (h *Handler) Listen(l net.Listener, certs *Certificates) (*Listener, error) {
	w, err := newHangups()
	if err != nil {
		return nil, err
	}
	ln := &Listener{Listener: l, watcher: w, metrics: h.metrics.conns}
	if certs != nil {
		ln.secure = newHandshakes(certs)
	}
	return ln, nil
}

// Run watches for clients that leave, and shakes hands with those that come
// over TLS, until ctx ends.
func (l *Listener) Run(ctx context.Context) error {
	if l.secure == nil {
		return l.watcher.run(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	var shaking sync.WaitGroup
	shaking.Go(func() { l.secure.run(ctx, l) })
	err := l.watcher.run(ctx)
	stop()
	shaking.Wait()
	return err
}

// Accept returns the next connection, watched; over TLS, one whose handshake
// is done.
func (l *Listener) Accept() (net.Conn, error) {
	if l.secure != nil {
		return l.secure.accept()
	}
	return l.acceptRaw()
}

// Close ends Accept. Handshakes that are under way end too.
func (l *Listener) Close() error {
	if l.secure != nil {
		l.secure.close()
	}
	return l.Listener.Close()
}

func (l *Listener) acceptRaw() (*clientConn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &clientConn{Conn: c, watcher: l.watcher, metrics: l.metrics}
	conn.flood.began = time.Now()
	l.metrics.open.Inc()
	l.watcher.add(conn)
	return conn, nil
}

type connKey struct{}

// withConn gives a connection's requests a context that ends with it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = s.NetConn()
	}
	conn, ok := c.(*clientConn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, connKey{}, conn))
	conn.cancel.Store(&cancel)
	context.AfterFunc(ctx, func() { conn.halt.endAll(context.Cause(ctx)) })
	if conn.gone.Load() {
		cancel(context.Canceled)
	}
	return ctx
}

// connOf is the HTTP/1 connection of a request; nil for h2, whose reader
// notices by itself when a stream or the connection ends.
func connOf(r *http.Request) *clientConn {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(connKey{}).(*clientConn)
	return c
}

// clientConn is one accepted connection; with TLS, what lies below it.
type clientConn struct {
	net.Conn
	reads   deadline
	writes  deadline
	watcher *hangups
	metrics *connMetrics
	flood   flood
	closed  atomic.Bool // counted as such
	gaveUp  atomic.Bool
	id      uint64
	gone    atomic.Bool // the peer has closed its side
	busy    atomic.Bool // an HTTP/1 request is in progress
	watched bool        // the watcher tells when the peer closes; fixed before the first read
	alone   atomic.Bool // net/http need not wait for that as well
	rst     atomic.Bool // it is to end with a RST, without a farewell of TLS
	cancel  atomic.Pointer[context.CancelCauseFunc]
	halt    halt // of the HTTP/1 request in progress
}

// hangUp is called by the watcher when the peer has closed. net/http notices
// only while nothing is unread: one byte too many after the request and it is
// blind (golang/go#37145).
func (c *clientConn) hangUp() {
	c.gone.Store(true)
	c.halt.endAll(context.Canceled)
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(context.Canceled)
	}
}

// begin is called with an HTTP/1 request that goes to an engine, finish at its
// end.
//
// Once a request is read, net/http reads one byte more, in a goroutine, to
// notice that the client leaves: the stack of one under each stream, a system
// call and two switches for each request, for what the watcher tells anyway. A
// body of known length is read through net/http's buffer of 4 KiB or into one of
// ours that is no smaller, so that until finish such a read can be told from
// others. Where TLS is spoken, a client may take its leave in words and wait for
// ours, and only a read hears them.
func (c *clientConn) begin(r *http.Request) {
	c.busy.Store(true)
	c.alone.Store(c.watched && r.TLS == nil && r.ContentLength > 0)
}

func (c *clientConn) finish() {
	c.alone.Store(false)
	c.busy.Store(false)
}

// Read reads from the client, who may not send without end.
func (c *clientConn) Read(p []byte) (int, error) {
	if len(p) == 1 && c.alone.Load() {
		return 0, nil // ends the wait without a word
	}
	n, err := c.read(p)
	if c.flood.over(p[:n]) {
		c.giveUp(endedByFrames)
		return 0, errFlood
	}
	return n, err
}

func (c *clientConn) read(p []byte) (n int, err error) {
	if err = c.reads.begin(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	defer c.reads.end()
	for {
		if n, err = c.Conn.Read(p); !c.reads.tooEarly(err, c.Conn.SetReadDeadline) {
			return n, err
		}
	}
}

func (c *clientConn) SetReadDeadline(t time.Time) error {
	return c.reads.move(t, c.Conn.SetReadDeadline)
}

func (c *clientConn) SetWriteDeadline(t time.Time) error {
	return c.writes.move(t, c.Conn.SetWriteDeadline)
}

func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// resetOnClose makes the connection end with a RST instead of a FIN.
func (c *clientConn) resetOnClose() {
	c.rst.Store(true)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

func (c *clientConn) Close() error {
	c.watcher.remove(c)
	if !c.closed.Swap(true) {
		c.metrics.open.Dec()
	}
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(context.Canceled)
	}
	return c.Conn.Close()
}

// plainError is how net/http ends a connection whose request it could not
// read: a status line and this.
var plainError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write sends p.
func (c *clientConn) Write(p []byte) (int, error) {
	if whole := c.reshaped(p); whole != nil {
		if _, err := c.send(whole); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return c.send(p)
}

func (c *clientConn) send(p []byte) (n int, err error) {
	if err = c.writes.begin(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	defer c.writes.end()
	for {
		var sent int
		sent, err = c.Conn.Write(p[n:])
		if n += sent; !c.writes.tooEarly(err, c.Conn.SetWriteDeadline) {
			return n, err
		}
	}
}

// reshaped is what to send in the place of p, where that is net/http's own
// answer to a request that it could not read; else nil.
func (c *clientConn) reshaped(p []byte) []byte {
	if len(p) < 512 && !c.busy.Load() && bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && bytes.Contains(p, plainError) {
		if status, err := strconv.Atoi(string(p[9:12])); err == nil {
			return malformedAnswer(status)
		}
	}
	return nil
}

// malformedAnswer is the whole HTTP/1.1 answer to a request that could not be read.
func malformedAnswer(status int) []byte {
	if status == http.StatusRequestHeaderFieldsTooLarge {
		return connAnswer(status, "the request header is larger than 64 KiB")
	}
	return connAnswer(status, "the request could not be read as HTTP")
}

// connAnswer is a whole HTTP/1.1 answer that ends its connection.
func connAnswer(status int, message string) []byte {
	body := appendJSONString([]byte(`{"error":{"message":`), message)
	body = append(body, `,"type":"invalid_request_error","param":null,"code":"invalid_request"}}`+"\n"...)
	head := "HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) +
		"\r\nContent-Type: application/json\r\nX-Request-Id: " + newRequestID() +
		"\r\nX-Penstock-Reason: invalid_request\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}
