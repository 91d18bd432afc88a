package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// transportClient is the engineClient over net/http, for https.
type transportClient struct {
	transports secureTransports
}

func newTransportClient(connecting func(string)) *transportClient {
	return &transportClient{transports: secureTransports{connecting: connecting}}
}

func (c *transportClient) closeIdle() { c.transports.closeIdle() }

func (c *transportClient) send(h *halt, a *outgoing) (*incoming, *sendError) {
	ctx, cancel := context.WithCancel(context.Background())
	if !h.hold(cancel) {
		cancel()
		return nil, &sendError{end: endNoResponse, err: h.reason()}
	}
	t := &sending{body: a.body}
	t.trace = httptrace.ClientTrace{GotConn: t.gotConn, WroteHeaders: t.wroteHeaders, WroteRequest: t.wroteRequest,
		GotFirstResponseByte: t.gotByte, Got1xxResponse: t.got1xx}
	req := &http.Request{
		Method: cmp.Or(a.method, http.MethodPost),
		URL:    &url.URL{Scheme: a.engine.Base.Scheme, Host: a.engine.Base.Host, Path: a.engine.Base.Path + a.path, RawQuery: a.query},
		Host:   a.engine.Base.Host,
		Header: a.header,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if a.body != nil {
		// A reader that net/http knows to be in memory: header and body then
		// leave in one write. No GetBody, or net/http would replay by itself.
		a.body.hold()
		t.reader.Reset(a.body.bytes)
		req.Body, req.ContentLength = io.NopCloser(&t.reader), int64(len(a.body.bytes))
	}
	req = req.WithContext(httptrace.WithClientTrace(a.engine.Timed(ctx), &t.trace))
	resp, err := c.transports.of(a.engine.Trust(), a.fresh).RoundTrip(req)
	if err != nil {
		h.letGo()
		cancel()
		return nil, t.failed(err)
	}
	body := &heldBody{ReadCloser: resp.Body, halt: h, cancel: cancel}
	return &incoming{status: resp.StatusCode, header: resp.Header, body: body, length: resp.ContentLength, cold: t.cold}, nil
}

// heldBody is a response's body that is interrupted with its exchange.
type heldBody struct {
	io.ReadCloser
	halt   *halt
	cancel context.CancelFunc
}

func (b *heldBody) Close() error {
	b.halt.letGo()
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// sending is the body of one attempt and what the transport tells of it.
type sending struct {
	reader bytes.Reader
	body   *body
	wrote  atomic.Bool // the transport reads the body no more
	sent   atomic.Bool // the header, and with it the body, is on its way
	got    time.Time   // when the connection was there
	cold   bool        // it was made for a request, and this is the first on it
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
	if !t.wrote.Swap(true) && t.body != nil {
		t.body.release()
	}
}

func (t *sending) gotConn(i httptrace.GotConnInfo) {
	t.got = time.Now()
	t.cold = !i.Reused
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
	case refusedStream(err):
		e.end = endRefusedStream
	case h2Failure(err):
	default:
		e.reused = t.stale.Load() && !t.heard.Load() && time.Since(t.got) < idleRaceEnds
	}
	return e
}
