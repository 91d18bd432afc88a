package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	connectTimeout   = time.Second
	maxHeaderBytes   = 64 << 10
	maxHealthBytes   = 64 << 10
	idleConnTimeout  = 4 * time.Second // engines close an idle connection after 5 s: be first
	maxIdlePerEngine = 2
	pooledPageBytes  = 1 << 20 // larger buffers are left to the collector of garbage
)

var (
	errTooLarge = errors.New("answer larger than its bound")
	errDenied   = errors.New("link-local address, not for engines")
)

// asker asks engines about themselves. It follows no redirect, uses no proxy
// of the environment and refuses link-local addresses, whatever a name
// resolves to.
type asker struct {
	fresh *http.Client // a connection of its own per question: it shows whether somebody listens
	kept  *http.Client // connections kept between questions
	pages sync.Pool    // *bytes.Buffer

	dial   dialer
	mu     sync.Mutex // guards secure
	secure map[secureClient]*http.Client
}

// secureClient is what tells the clients for https engines apart.
type secureClient struct {
	trust Trust
	keep  bool
}

// dialer opens a connection, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func newAsker(dial dialer, resolver *net.Resolver, connecting func(address string)) *asker {
	if dial == nil {
		d := &net.Dialer{Timeout: connectTimeout, Resolver: resolver, Control: denyLinkLocal}
		if connecting != nil {
			d.Control = func(network, address string, c syscall.RawConn) error {
				connecting(address)
				return denyLinkLocal(network, address, c)
			}
		}
		dial = d.DialContext
	}
	return &asker{fresh: newClient(dial, false), kept: newClient(dial, true), dial: dial, secure: make(map[secureClient]*http.Client)}
}

func newClient(dial dialer, keep bool) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            dial,
			DisableCompression:     true,
			DisableKeepAlives:      !keep,
			IdleConnTimeout:        idleConnTimeout,
			MaxIdleConnsPerHost:    maxIdlePerEngine,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
}

// through is the client to ask an engine with: client itself, or over TLS one
// like it for the engine's trust.
func (a *asker) through(client *http.Client, e *Engine) *http.Client {
	if e.Base.Scheme != "https" {
		return client
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := secureClient{trust: e.Trust(), keep: client == a.kept}
	if a.secure[key] == nil {
		c := newClient(a.dial, key.keep)
		t := c.Transport.(*http.Transport)
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
		t.DialTLSContext = NewSecureDialer(key.trust, a.dial, "h2", "http/1.1").Dial
		a.secure[key] = c
	}
	return a.secure[key]
}

// close ends the connections that are idle; those in use end with their context.
func (a *asker) close() {
	a.fresh.CloseIdleConnections()
	a.closeIdle()
}

// closeIdle ends the connections kept between questions.
func (a *asker) closeIdle() {
	a.kept.CloseIdleConnections()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.secure {
		c.CloseIdleConnections()
	}
}

// denyLinkLocal is the dialer's last look at the address it is about to connect to.
func denyLinkLocal(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if DeniedAddress(ap.Addr()) {
		return errDenied
	}
	return nil
}

// awsMetadataV6 is the one well-known metadata service outside the link-local ranges.
var awsMetadataV6 = netip.MustParseAddr("fd00:ec2::254")

// DeniedAddress reports whether no engine may have the address, whatever name
// leads to it: link-local addresses belong to the machine and its metadata
// service.
func DeniedAddress(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsLinkLocalUnicast() || ip == awsMetadataV6
}

// answer is what came back; body is valid until the asker's put.
type answer struct {
	status int
	server string // Server header
	body   []byte
	buf    *bytes.Buffer
}

// get asks for a page, as dialects write it, and reads at most limit bytes of
// the answer; more is errTooLarge. A status is an answer, never an error.
func (a *asker) get(ctx context.Context, client *http.Client, e *Engine, page string, limit int64) (answer, error) {
	method, target := targetOf(e.Base, page)
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", called(page), err)
	}
	req.Header.Set("User-Agent", "penstock")
	// Another port of the host may be another engine, or not encrypted.
	if key := e.Authorization(); key != nil && req.URL.Host == e.Base.Host {
		req.Header["Authorization"] = key
	}
	resp, err := a.through(client, e).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	buf, _ := a.pages.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	buf.Reset()
	ans := answer{status: resp.StatusCode, server: resp.Header.Get("Server"), buf: buf}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%s: %w of %d bytes", called(page), errTooLarge, limit)
	}
	if err != nil {
		a.put(ans)
		return answer{}, err
	}
	ans.body = buf.Bytes()
	return ans, nil
}

// targetOf is how a page of a dialect is asked for: "/path", "POST /path", or
// ":port/path" for another port of the same host, which is plain HTTP and
// knows nothing of the base's path.
func targetOf(base *url.URL, page string) (method, target string) {
	method = http.MethodGet
	if m, path, ok := strings.Cut(page, " "); ok {
		method, page = m, path
	}
	port, path, ok := strings.Cut(strings.TrimPrefix(page, ":"), "/")
	if ok && page[0] == ':' {
		other := url.URL{Scheme: "http", Host: net.JoinHostPort(base.Hostname(), port), Path: "/" + path}
		return method, other.String()
	}
	return method, base.JoinPath(page).String()
}

// called names a page in errors.
func called(page string) string {
	if strings.Contains(page, " ") {
		return page
	}
	return "GET " + page
}

// onOtherPort reports whether the page is not on the engine's own port.
func onOtherPort(page string) bool { return page[0] == ':' }

// put gives the answer's buffer back.
func (a *asker) put(ans answer) {
	if ans.buf != nil && ans.buf.Cap() <= pooledPageBytes {
		a.pages.Put(ans.buf)
	}
}

// missing reports whether the status says that the engine has no such page.
func (a answer) missing() bool {
	return a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed || a.status == http.StatusNotImplemented
}

// definite reports whether what came back answers the question, if only by
// saying no; a failure of the moment does not.
func (a answer) definite(err error) bool {
	return err == nil && (a.status < 500 || a.missing()) || errors.Is(err, errTooLarge)
}

// problem is what was wrong with the answer to a page, nil if nothing was.
func (a answer) problem(page string, err error) error {
	if err == nil && !a.ok() {
		return fmt.Errorf("%s: status %d", called(page), a.status)
	}
	return err
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// verdictOf says what the answer to a health probe means.
func verdictOf(ans answer, err error) verdict {
	var dns *net.DNSError
	var timeout net.Error
	var handshake *HandshakeError
	switch {
	case err == nil && ans.ok():
		return healthy
	case err == nil && ans.status == http.StatusServiceUnavailable && bytes.Contains(ans.body, []byte("Loading model")):
		return loading
	case err == nil:
		return unhealthy
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.As(err, &dns), errors.Is(err, errDenied), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return unreachable
	case errors.As(err, &handshake) && handshake.Certificate():
		return untrusted
	case errors.As(err, &handshake) && !handshake.Timeout() && !errors.Is(err, context.Canceled):
		return insecure
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	default:
		return broken
	}
}
