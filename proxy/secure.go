package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// handshakeTime is what a client has for the TLS handshake.
const handshakeTime = 5 * time.Second

// handshakes does the TLS handshakes of a Listener before net/http sees the
// connection, because the kind of connection to hand over depends on what was
// negotiated: net/http speaks HTTP/2 only on a *tls.Conn itself, and HTTP/1 on
// anything, so that those connections can be ours from top to bottom.
type handshakes struct {
	config *tls.Config // one for all, so that sessions can be resumed
	ready  chan shaken
	done   chan struct{} // closed by close
	once   sync.Once
}

// shaken is what Accept returns.
type shaken struct {
	conn net.Conn
	err  error
}

func newHandshakes(certs *Certificates) *handshakes {
	return &handshakes{ready: make(chan shaken), done: make(chan struct{}), config: &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: certs.get,
	}}
}

func (s *handshakes) close() { s.once.Do(func() { close(s.done) }) }

func (s *handshakes) accept() (net.Conn, error) {
	select {
	case a := <-s.ready:
		return a.conn, a.err
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// hand gives a connection, or a failure to accept one, to accept.
func (s *handshakes) hand(a shaken) (taken bool) {
	select {
	case s.ready <- a:
		return true
	case <-s.done:
		return false
	}
}

// run accepts from l until ctx ends or l is closed. Each handshake has a
// goroutine, which net/http then needs no more than one of its own for.
func (s *handshakes) run(ctx context.Context, l *Listener) {
	ctx, stop := context.WithCancel(ctx)
	var shaking sync.WaitGroup
	unwatch := context.AfterFunc(ctx, func() { l.Close() })
	defer func() {
		unwatch()
		stop()
		l.Close()
		shaking.Wait()
	}()
	for {
		conn, err := l.acceptRaw()
		if err != nil {
			// Too few file descriptors, say: net/http waits a little and asks again.
			if errors.Is(err, net.ErrClosed) || !s.hand(shaken{err: err}) {
				return
			}
			continue
		}
		shaking.Go(func() {
			c, err := s.shake(ctx, conn)
			if err != nil {
				l.metrics.handshakes.WithLabelValues(handshakeFault(err)).Inc()
				conn.Close()
				return
			}
			if !s.hand(shaken{conn: c}) {
				conn.Close()
			}
		})
	}
}

// shake does one handshake.
func (s *handshakes) shake(ctx context.Context, conn *clientConn) (net.Conn, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	c := tls.Server(conn, s.config)
	if err := c.HandshakeContext(ctx); err != nil {
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && looksLikeHTTP(plain) {
			refusePlain(conn)
			return nil, errPlainHTTP
		}
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		conn.flood.watch()
		return c, nil
	}
	conn.flood.exempt()
	return &secureConn{Conn: c, raw: conn}, nil
}

var errPlainHTTP = errors.New("HTTP without TLS")

// looksLikeHTTP reports whether the first bytes were a method instead of a
// TLS record.
func looksLikeHTTP(e tls.RecordHeaderError) bool {
	if e.Conn == nil {
		return false
	}
	for _, method := range []string{"GET /", "POST ", "HEAD ", "PUT /", "OPTIO", "DELET", "PATCH", "PRI *"} {
		if bytes.Equal(e.RecordHeader[:], []byte(method)) {
			return true
		}
	}
	return false
}

// refusePlain answers a client that speaks HTTP without TLS, and takes in what
// it still sends, for a moment: a reset would overtake the answer.
func refusePlain(conn *clientConn) {
	conn.Conn.SetDeadline(time.Now().Add(time.Second)) // which is what the rest works on
	conn.Conn.Write(connAnswer(http.StatusBadRequest, "this port speaks TLS: the address begins with https://"))
	if tcp, ok := conn.Conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		io.CopyN(io.Discard, tcp, 8<<20)
	}
}

// handshakeFault is the label of a handshake that failed.
func handshakeFault(err error) string {
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errPlainHTTP):
		return "plain_http"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "draining"
	case isOp && op.Op == "remote error": // an alert: it does not trust us, mostly
		return "refused_by_client"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), isOp:
		return "client_gone"
	default:
		return "protocol"
	}
}

var handshakeFaults = [...]string{"plain_http", "timeout", "draining", "refused_by_client", "client_gone", "protocol"}

// secureConn is an HTTP/1 connection over TLS: net/http reads and writes it,
// raw is below.
type secureConn struct {
	*tls.Conn
	raw *clientConn
}

// Write sends p.
func (c *secureConn) Write(p []byte) (int, error) {
	if whole := c.raw.reshaped(p); whole != nil {
		if _, err := c.Conn.Write(whole); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close ends the connection. The farewell of TLS says that nothing is missing,
// which is not to be said of an answer that was cut.
func (c *secureConn) Close() error {
	if c.raw.rst.Load() {
		return c.raw.Close()
	}
	return c.Conn.Close()
}
