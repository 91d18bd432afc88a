package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/engine"
)

// engineClient sends one attempt to an engine and returns as soon as the
// response's header is there. It never sends a request twice by itself.
type engineClient interface {
	send(ctx context.Context, a *outgoing) (*incoming, *sendError)
}

// outgoing is one attempt on the wire.
type outgoing struct {
	engine *engine.Engine
	path   string // "/v1/chat/completions"
	header http.Header
	body   *body // the client holds it for as long as it may read it
	fresh  bool  // on a connection of its own
}

// incoming is an engine's response; the caller closes body.
type incoming struct {
	status int
	header http.Header
	body   io.ReadCloser
	length int64 // -1 = not told
}

// sendError is an attempt that brought no response.
type sendError struct {
	end      attemptEnd
	reused   bool // on a connection that had served and been idle, without a byte of response
	bodySent bool
	err      error
}

const (
	connectTimeout = time.Second
	// engineIdle is below the 5 s after which vLLM and llama.cpp close an
	// idle connection, so that hardly any request meets the closing.
	engineIdle = 4 * time.Second
	// idleRaceEnds is how soon after the request it shows that the engine had
	// closed a connection which was waiting for it. One that dies later had an
	// engine behind it that worked on the request.
	idleRaceEnds = 250 * time.Millisecond

	engineHeaderBytes = 64 << 10
	maxInfos          = 5 // 1xx answers before the final one
	idlePerEngine     = 4096
)

// transportClient is the engineClient over net/http.
type transportClient struct {
	pooled *http.Transport
	fresh  *http.Transport
}

func newTransportClient() *transportClient {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second, Control: refuseLinkLocal}
	pooled := &http.Transport{
		Proxy:                  nil, // engine addresses come from the configuration alone
		DialContext:            dialer.DialContext,
		MaxIdleConnsPerHost:    idlePerEngine,
		IdleConnTimeout:        engineIdle,
		DisableCompression:     true,
		MaxResponseHeaderBytes: engineHeaderBytes,
		WriteBufferSize:        8 << 10,
		ReadBufferSize:         4 << 10,
	}
	fresh := pooled.Clone()
	fresh.DisableKeepAlives = true
	return &transportClient{pooled: pooled, fresh: fresh}
}

// refuseLinkLocal keeps an engine's name from leading to a metadata service.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err == nil && ap.Addr().Unmap().IsLinkLocalUnicast() {
		return fmt.Errorf("link-local address %s is no engine", ap.Addr())
	}
	return nil
}

// CloseIdle drops idle connections, after an engine's address has changed.
func (c *transportClient) CloseIdle() {
	c.pooled.CloseIdleConnections()
}

func (c *transportClient) send(ctx context.Context, a *outgoing) (*incoming, *sendError) {
	t := &sending{body: a.body}
	t.trace = httptrace.ClientTrace{GotConn: t.gotConn, WroteHeaders: t.wroteHeaders, WroteRequest: t.wroteRequest,
		GotFirstResponseByte: t.gotByte, Got1xxResponse: t.got1xx}
	t.reader.Reset(a.body.bytes)
	a.body.hold()
	req := (&http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: a.engine.Base.Scheme, Host: a.engine.Base.Host, Path: a.engine.Base.Path + a.path},
		Host:   a.engine.Base.Host,
		Header: a.header,
		// A reader that net/http knows to be in memory: header and body then
		// leave in one write. No GetBody, or net/http would replay by itself.
		Body:          io.NopCloser(&t.reader),
		ContentLength: int64(len(a.body.bytes)),
		Proto:         "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(httptrace.WithClientTrace(ctx, &t.trace))
	transport := c.pooled
	if a.fresh {
		transport = c.fresh
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, t.failed(err)
	}
	return &incoming{status: resp.StatusCode, header: resp.Header, body: resp.Body, length: resp.ContentLength}, nil
}

// sending is the body of one attempt and what the transport tells of it.
type sending struct {
	reader bytes.Reader
	body   *body
	wrote  atomic.Bool // the transport reads the body no more
	sent   atomic.Bool // the header, and with it the body, is on its way
	got    time.Time   // when the connection was there
	stale  atomic.Bool // the connection had been idle
	heard  atomic.Bool // a response byte came
	infos  int         // 1xx answers; the transport reads them one after the other
	trace  httptrace.ClientTrace
}

func (t *sending) wroteHeaders() { t.sent.Store(true) }

// wroteRequest lets go of the body. Where the transport gives up on a request
// before it writes, this is never called, and the body goes to the collector
// with the exchange instead of back to its pool.
func (t *sending) wroteRequest(httptrace.WroteRequestInfo) {
	if !t.wrote.Swap(true) {
		t.body.release()
	}
}

func (t *sending) gotConn(i httptrace.GotConnInfo) {
	t.got = time.Now()
	t.stale.Store(i.Reused && i.WasIdle)
}

func (t *sending) gotByte() { t.heard.Store(true) }

func (t *sending) got1xx(int, textproto.MIMEHeader) error {
	if t.infos++; t.infos > maxInfos {
		return errors.New("too many 1xx answers")
	}
	return nil
}

func (t *sending) failed(err error) *sendError {
	e := &sendError{end: endNoResponse, bodySent: t.sent.Load(), err: err}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		e.end = endDialFailed
	case t.heard.Load() && !errors.As(err, &op) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		e.end = endBadAnswer // bytes that are not HTTP, or a header without end
	case strings.Contains(err.Error(), "malformed HTTP"):
		e.end = endBadAnswer
	default:
		e.reused = t.stale.Load() && !t.heard.Load() && time.Since(t.got) < idleRaceEnds
	}
	return e
}
