package proxy

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	headerTime  = 5 * time.Second // for a client to send a request's header
	headerBytes = 64 << 10
)

// NewServer is the HTTP server of the data port: HTTP/1.1 and h2c. Its base
// context carries the drain: cancelling it with ErrDraining ends every
// exchange. Write timeouts are per write; there is none for an answer.
func NewServer(base context.Context, h *Handler, idle time.Duration, maxStreams int) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idle,
		MaxHeaderBytes:    headerBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		ErrorLog:          log.New(io.Discard, "", 0), // a client's broken handshake is no event of ours
	}
}

// Listener wraps the data port's listener: its connections tell when their
// peer goes away although bytes are unread, and speak JSON where net/http
// would answer a malformed request in plain text.
type Listener struct {
	net.Listener
	watcher *hangups
}

// Listen wraps l; Run watches the connections.
func Listen(l net.Listener) (*Listener, error) {
	w, err := newHangups()
	if err != nil {
		return nil, err
	}
	return &Listener{Listener: l, watcher: w}, nil
}

// Run watches for clients that leave until ctx ends.
func (l *Listener) Run(ctx context.Context) error { return l.watcher.run(ctx) }

// Accept returns the next connection, watched.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &clientConn{Conn: c, watcher: l.watcher}
	conn.endFunc = conn.end
	l.watcher.add(conn)
	return conn, nil
}

type connKey struct{}

// withConn gives a connection's requests a context that ends with it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*clientConn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, connKey{}, conn))
	conn.cancel.Store(&cancel)
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

// clientConn is one accepted connection.
//
// Its context is also the way to cancel an HTTP/1 request: there is one at a
// time, and a context of each request's own would cost as much as the pick and
// the relay of a short answer. A connection whose context has ended serves no
// further request.
type clientConn struct {
	net.Conn
	watcher *hangups
	id      uint64
	gone    atomic.Bool // the peer has closed its side
	ended   atomic.Bool // by end: nothing more is read
	busy    atomic.Bool // an HTTP/1 request is in progress
	cancel  atomic.Pointer[context.CancelCauseFunc]
	endFunc context.CancelCauseFunc // end, as a value made once
}

// end cancels the request in progress; the connection closes after its answer.
func (c *clientConn) end(cause error) {
	c.ended.Store(true)
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// hangUp is called by the watcher when the peer has closed. net/http notices
// only while nothing is unread: one byte too many after the request and it is
// blind (golang/go#37145).
func (c *clientConn) hangUp() {
	c.gone.Store(true)
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(context.Canceled)
	}
}

// Read reads from the client, or tells net/http that there is nothing more.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.ended.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// resetOnClose makes the connection end with a RST instead of a FIN.
func (c *clientConn) resetOnClose() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

func (c *clientConn) Close() error {
	c.watcher.remove(c)
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(context.Canceled)
	}
	return c.Conn.Close()
}

// plainError is how net/http ends a connection whose request it could not
// read: a status line and this.
var plainError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write sends p, in the shape of our errors where it is one of net/http's own.
func (c *clientConn) Write(p []byte) (int, error) {
	if len(p) < 512 && !c.busy.Load() && bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && bytes.Contains(p, plainError) {
		if status, err := strconv.Atoi(string(p[9:12])); err == nil {
			if _, err := c.Conn.Write(malformedAnswer(status)); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return c.Conn.Write(p)
}

// malformedAnswer is the whole HTTP/1.1 answer to a request that could not be read.
func malformedAnswer(status int) []byte {
	message := "the request could not be read as HTTP"
	if status == http.StatusRequestHeaderFieldsTooLarge {
		message = "the request header is larger than 64 KiB"
	}
	body := appendJSONString([]byte(`{"error":{"message":`), message)
	body = append(body, `,"type":"invalid_request_error","param":null,"code":"invalid_request"}}`+"\n"...)
	head := "HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) +
		"\r\nContent-Type: application/json\r\nX-Request-Id: " + newRequestID() +
		"\r\nX-Penstock-Reason: invalid_request\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}
