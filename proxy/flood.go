package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// What an HTTP/2 client may send beyond its requests. net/http bounds streams,
// header bytes and what it queues itself, but not frames that cost it nothing
// to receive: PING, SETTINGS, WINDOW_UPDATE, PRIORITY and empty DATA go on for
// as long as the peer reads. So a connection has an allowance of bytes, to
// which its requests add what they account for.
const (
	// windowBytes is what clients may send ahead on one connection.
	windowBytes = 1 << 20
	floodBytes  = windowBytes + 1<<20
	floodRate   = 64 << 10 // bytes/s

	requestCredit = 16 << 10 // a request's header and its small change
	// A client may answer every DATA frame with two WINDOW_UPDATEs of 13
	// bytes, each in a TLS record of its own with 22 more. Where the window is
	// used up, each of these lets a small part of a chunk go, in a frame of
	// its own: a busy client of a hundred streams was seen to answer six a chunk.
	chunkCredit = 1 << 10
	chunkBytes  = 4 << 10
	// Bodies come in frames and records: half as much again is room for frames
	// of 60 bytes.
	bodyCreditShare = 2 // of 1/2

	// A body that was refused has been sent in part. Few refusals are credited,
	// or they would pay for floods.
	refusedCredits = 16
	// A client that is slow to see the refusal goes on sending meanwhile.
	refusedBytes = 8 << 20

	// The rule against rapid resets: a connection that took back more than half
	// of its requests, of some number, within a second and before any answer.
	prematureWithin = time.Second
	prematureAtMost = 512
)

var errFlood = errors.New("more frames than requests account for")

// preface begins every HTTP/2 connection and no HTTP/1 one that net/http serves.
const preface = "PRI * HTTP/2.0"

// flood is the allowance of one connection.
type flood struct {
	began  time.Time
	read   int64 // bytes; the connection's reader alone touches it, and seen and kind
	seen   int8  // bytes of preface that matched
	kind   floodKind
	credit atomic.Int64

	refused   atomic.Int64
	requests  atomic.Int64
	premature atomic.Int64
}

type floodKind uint8

const (
	kindOpen  floodKind = iota // by its first bytes: no preface, no HTTP/2
	kindHTTP1                  // bounded by net/http, request by request
	kindHTTP2
)

func (f *flood) watch()  { f.kind = kindHTTP2 }
func (f *flood) exempt() { f.kind = kindHTTP1 }

// over counts what was read and reports whether it is too much.
func (f *flood) over(p []byte) bool {
	if f.kind == kindHTTP1 {
		return false
	}
	f.read += int64(len(p))
	if f.kind == kindOpen {
		f.sniff(p)
		return false
	}
	beyond := f.read - floodBytes - f.credit.Load()
	return beyond > 0 && float64(beyond) > floodRate*time.Since(f.began).Seconds()
}

func (f *flood) sniff(p []byte) {
	for _, b := range p {
		switch {
		case b != preface[f.seen]:
			f.kind = kindHTTP1
			return
		case int(f.seen) == len(preface)-1:
			f.kind = kindHTTP2
			return
		}
		f.seen++
	}
}

// metered accounts for the requests of HTTP/2 connections.
type metered struct{ next http.Handler }

func (m *metered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		m.next.ServeHTTP(w, r)
		return
	}
	m.serveStream(w, r)
}

// serveStream serves one request of an HTTP/2 connection.
func (m *metered) serveStream(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*clientConn)
	if conn == nil {
		m.next.ServeHTTP(w, r)
		return
	}
	conn.flood.credit.Add(requestCredit)
	conn.flood.requests.Add(1)
	s := &meteredStream{ResponseWriter: w, body: r.Body, conn: conn, began: time.Now(), length: r.ContentLength, read: r.ContentLength == 0}
	r.Body = s
	defer s.end(r.Context())
	m.next.ServeHTTP(s, r)
}

// meteredStream is one request of an HTTP/2 connection. The handler's goroutine
// owns it, but for reads of the body.
type meteredStream struct {
	http.ResponseWriter
	body   io.ReadCloser
	conn   *clientConn
	began  time.Time
	length int64 // of the body, -1 = not told
	read   bool  // the body, to its end
	wrote  bool
}

func (s *meteredStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *meteredStream) WriteHeader(status int) {
	s.wrote = true
	s.ResponseWriter.WriteHeader(status)
}

func (s *meteredStream) Write(p []byte) (int, error) {
	s.wrote = true
	s.conn.flood.credit.Add(int64(chunkCredit * (1 + len(p)/chunkBytes)))
	return s.ResponseWriter.Write(p)
}

func (s *meteredStream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.conn.flood.credit.Add(int64(n + n/bodyCreditShare))
	s.read = s.read || err == io.EOF
	return n, err
}

func (s *meteredStream) Close() error { return s.body.Close() }

// end settles the account of a request.
func (s *meteredStream) end(ctx context.Context) {
	f := &s.conn.flood
	if !s.read && f.refused.Add(1) <= refusedCredits {
		f.credit.Add(int64(min(uint64(s.length), refusedBytes))) // -1 is the largest
	}
	if s.wrote || ctx.Err() == nil || time.Since(s.began) > prematureWithin {
		return
	}
	if n := f.premature.Add(1); n > prematureAtMost && n > f.requests.Load()/2 {
		s.conn.giveUp(endedByResets)
	}
}

// giveUp ends a connection that costs more than it asks for.
func (c *clientConn) giveUp(why string) {
	if !c.gaveUp.Swap(true) {
		c.metrics.gaveUp(why, c.RemoteAddr())
	}
	c.Close()
}
