package proxy

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"penstock/engine"
)

const (
	// An HTTP/2 connection to an engine on which nothing came for h2PingAfter
	// is asked for a sign of life; without one for h2PingWait it is closed, and
	// what was on it fails. Streams of an engine that reads a long prompt are
	// silent for minutes: its answer to the ping tells it from a dead one.
	h2PingAfter = 10 * time.Second
	h2PingWait  = 5 * time.Second
	// h2WindowBytes is what is buffered of one answer whose client is slow.
	h2WindowBytes = 256 << 10
)

// secureTransports are the transports to https engines, by trust: HTTP/2 where
// the engine has it, else HTTP/1.1. The zero value is ready.
type secureTransports struct {
	m         sync.Map      // secureKey -> *http.Transport
	pingAfter time.Duration // 0 = h2PingAfter
	pingWait  time.Duration

	connecting func(address string) // before each connection; nil: nothing
}

type secureKey struct {
	trust engine.Trust
	fresh bool
}

// of is the transport for engines of one trust; with fresh, one whose
// connections serve one request.
func (s *secureTransports) of(trust engine.Trust, fresh bool) *http.Transport {
	key := secureKey{trust: trust, fresh: fresh}
	if t, ok := s.m.Load(key); ok {
		return t.(*http.Transport)
	}
	made, _ := s.m.LoadOrStore(key, s.newTransport(trust, fresh))
	return made.(*http.Transport)
}

func (s *secureTransports) newTransport(trust engine.Trust, fresh bool) *http.Transport {
	dial := newDialer(s.connecting).DialContext
	t := &http.Transport{
		Proxy:                  nil, // engine addresses come from the configuration alone
		DialContext:            dial,
		DialTLSContext:         engine.NewSecureDialer(trust, dial, "h2", "http/1.1").Dial,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: h2PingAfter, PingTimeout: h2PingWait, MaxReceiveBufferPerStream: h2WindowBytes},
		MaxIdleConnsPerHost:    idlePerEngine,
		IdleConnTimeout:        engineIdle,
		DisableKeepAlives:      fresh,
		DisableCompression:     true,
		MaxResponseHeaderBytes: engineHeaderBytes,
		WriteBufferSize:        8 << 10,
		ReadBufferSize:         4 << 10,
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	if s.pingAfter > 0 {
		t.HTTP2.SendPingTimeout, t.HTTP2.PingTimeout = s.pingAfter, s.pingWait
	}
	return t
}

func (s *secureTransports) closeIdle() {
	s.m.Range(func(_, t any) bool {
		t.(*http.Transport).CloseIdleConnections()
		return true
	})
}

// refusedStream reports whether the engine has said, in HTTP/2's own words,
// that it did nothing about the request: REFUSED_STREAM, or a GOAWAY that
// leaves its stream out. net/http would repeat such a request by itself; it
// has no GetBody, and then the refusal comes in these words.
func refusedStream(err error) bool {
	text := err.Error()
	return strings.Contains(text, "http2: Transport: cannot retry err [") &&
		(strings.Contains(text, "REFUSED_STREAM") || strings.Contains(text, "graceful shutdown GOAWAY"))
}

// h2Failure reports whether an HTTP/2 engine has ended the stream, or the
// connection, by a frame that says so: a request that it had seen, unlike one
// that met the end of an idle connection.
func h2Failure(err error) bool {
	text := err.Error()
	return strings.Contains(text, "stream error: stream ID") || strings.Contains(text, "http2: ")
}
