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
}

// dialer opens a connection, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func newAsker(dial dialer, resolver *net.Resolver) *asker {
	if dial == nil {
		d := &net.Dialer{Timeout: connectTimeout, Resolver: resolver, Control: denyLinkLocal}
		dial = d.DialContext
	}
	client := func(keep bool) *http.Client {
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
	return &asker{fresh: client(false), kept: client(true)}
}

// close ends the connections that are idle; those in use end with their context.
func (a *asker) close() {
	a.fresh.CloseIdleConnections()
	a.kept.CloseIdleConnections()
}

// denyLinkLocal is the dialer's last look at the address it is about to connect to.
func denyLinkLocal(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if deniedAddress(ap.Addr()) {
		return errDenied
	}
	return nil
}

// awsMetadataV6 is the one well-known metadata service outside the link-local ranges.
var awsMetadataV6 = netip.MustParseAddr("fd00:ec2::254")

func deniedAddress(ip netip.Addr) bool {
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

// get asks for base+path and reads at most limit bytes of the answer; more is
// errTooLarge. A status is an answer, never an error.
func (a *asker) get(ctx context.Context, client *http.Client, e *Engine, path string, limit int64) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Base.JoinPath(path).String(), nil)
	if err != nil {
		return answer{}, fmt.Errorf("GET %s: %w", path, err)
	}
	req.Header.Set("User-Agent", "penstock")
	resp, err := client.Do(req)
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
		err = fmt.Errorf("GET %s: %w of %d bytes", path, errTooLarge, limit)
	}
	if err != nil {
		a.put(ans)
		return answer{}, err
	}
	ans.body = buf.Bytes()
	return ans, nil
}

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

// problem is what was wrong with the answer to GET path, nil if nothing was.
func (a answer) problem(path string, err error) error {
	if err == nil && !a.ok() {
		return fmt.Errorf("GET %s: status %d", path, a.status)
	}
	return err
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// verdictOf says what the answer to a health probe means.
func verdictOf(ans answer, err error) verdict {
	var dns *net.DNSError
	var timeout net.Error
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
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	default:
		return broken
	}
}
