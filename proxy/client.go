package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"penstock/engine"
)

// engineClient sends one attempt to an engine and returns as soon as the
// response's header is there. It never sends a request twice by itself.
type engineClient interface {
	// Who ends h interrupts it.
	send(h *halt, a *outgoing) (*incoming, *sendError)
	// closeIdle drops idle connections, after an engine's address has changed.
	closeIdle()
	// forget drops what is kept for addresses (host:port) that keep does not
	// name; attempts on them go on.
	forget(keep func(address string) bool)
}

// outgoing is one attempt on the wire.
type outgoing struct {
	engine *engine.Engine
	method string // "" = POST
	path   string // "/v1/chat/completions", not escaped
	query  string // without "?", as it came
	header http.Header
	body   *body // nil: none. The client holds it for as long as it may read it
	fresh  bool  // on a connection of its own
	once   bool  // it may not arrive twice: on a connection that its engine cannot be closing

	into http.Header // where the response's header may lie; nil: in a new one
}

func (a *outgoing) bytes() []byte {
	if a.body == nil {
		return nil
	}
	return a.body.bytes
}

// incoming is an engine's response; the caller closes body, once.
type incoming struct {
	status int
	header http.Header
	body   io.ReadCloser
	length int64 // -1 = not told
	cold   bool  // the first on its connection
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
	// onceIdle is how long a connection may have been idle for what is sent
	// once: engines that close idle ones wait for longer.
	onceIdle = time.Second
	// idleRaceEnds is how soon after the request it shows that the engine had
	// closed a connection which was waiting for it. One that dies later had an
	// engine behind it that worked on the request.
	idleRaceEnds = 250 * time.Millisecond

	engineHeaderBytes = 64 << 10
	maxInfos          = 5 // 1xx answers before the final one
	idlePerEngine     = 4096
)

// clients chooses by the scheme of the engine's URL: HTTP/1.1 of our own to
// plain-text engines, net/http where TLS is spoken.
type clients struct {
	plain *http1Client
	tls   *transportClient
}

func newClients(connecting func(address string)) *clients {
	return &clients{plain: newHTTP1Client(connecting), tls: newTransportClient(connecting)}
}

func (c *clients) send(h *halt, a *outgoing) (*incoming, *sendError) {
	if !plainText(a.engine) {
		return c.tls.send(h, a)
	}
	return c.plain.send(h, a)
}

// plainText reports whether the engine is spoken to without TLS.
func plainText(e *engine.Engine) bool { return e.Base.Scheme != "https" }

func (c *clients) closeIdle() {
	c.plain.closeIdle()
	c.tls.closeIdle()
}

func (c *clients) forget(keep func(address string) bool) { c.plain.forget(keep) } // net/http keeps nothing without connections

func newDialer(connecting func(address string)) *net.Dialer {
	d := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second, Control: refuseLinkLocal}
	if connecting != nil {
		d.Control = func(network, address string, c syscall.RawConn) error {
			connecting(address)
			return refuseLinkLocal(network, address, c)
		}
	}
	return d
}

// refuseLinkLocal keeps an engine's name from leading to a metadata service.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err == nil && engine.DeniedAddress(ap.Addr()) {
		return fmt.Errorf("address %s is no engine", ap.Addr())
	}
	return nil
}
