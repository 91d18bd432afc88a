package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/engine"
	"penstock/protect"
	"penstock/selector"
)

// settings are what a reload may change, swapped whole.
type settings struct {
	limits  Config
	tenants *tenants
	aliases map[string]string // what clients ask for -> what engines serve
	listed  []Alias           // the same, sorted by name
}

// Handler serves the client side: the inference API, the model list and the
// health pages. It starts nothing.
type Handler struct {
	selector *selector.Selector
	client   engineClient
	memory   *protect.Memory
	log      *slog.Logger
	access   io.Writer // one line per request, while log is at info
	metrics  *metrics
	version  string
	set      atomic.Pointer[settings]
	draining atomic.Bool

	gates     *gates
	guards    *guards
	names     aliasNames
	searching chan struct{} // a place for each search for an id
}

// Options are what a Handler is made of.
type Options struct {
	Selector *selector.Selector
	Fleet    *engine.Fleet // that Guard looks at; nil: nobody calls Guard
	Limits   Config
	HashKey  string         // routing.hash_key, "" = the fixed one
	Tenants  []TenantConfig // none: everybody may come in
	Aliases  []Alias
	Version  string          // of the program, for /version
	Memory   *protect.Memory // of all request bodies together
	Log      *slog.Logger

	MemoryLimit int64                 // bytes that the process may use; 0 = not known
	Access      io.Writer             // takes one JSON line per request in one Write; nil: none
	Registry    prometheus.Registerer // nil: no metrics page

	// Connecting, if not nil, is called with an engine's address before each
	// connection to it, which waits: the demo puts distance there.
	Connecting func(address string)
}

// New returns a handler.
func New(o Options) *Handler {
	h := &Handler{selector: o.Selector, client: newClients(o.Connecting), memory: o.Memory, log: o.Log, access: o.Access,
		version: o.Version, searching: make(chan struct{}, searchAtOnce)}
	h.gates = newGates(h)
	h.gates.memory = o.MemoryLimit
	h.metrics = newMetrics(o.Registry, o.Memory, h.gates)
	h.metrics.conns = newConnMetrics(o.Registry, o.Log)
	h.guards = newGuards(o.Fleet, h.client, o.Memory, o.Log, o.Registry)
	h.Apply(o.Limits, o.HashKey, o.Tenants, o.Aliases)
	return h
}

// Guard watches over the engines until ctx ends: which are frozen, silent or
// slow, which of those that are out have recovered.
func (h *Handler) Guard(ctx context.Context) error { return h.guards.Run(ctx) }

// Apply installs new limits, affinity secret, tenants and aliases for requests
// that come after it. A tenant that keeps its name keeps what it has used of
// its limits. One call at a time.
func (h *Handler) Apply(limits Config, hashKey string, list []TenantConfig, aliases []Alias) {
	var old *tenants
	if set := h.set.Load(); set != nil {
		old = set.tenants
	}
	next := &settings{limits: limits, tenants: newTenants(list, hashKey, h.metrics, old, time.Now())}
	next.setAliases(aliases)
	h.set.Store(next)
}

// Run looks after the requests that wait for engines, until ctx ends.
func (h *Handler) Run(ctx context.Context) error {
	h.gates.run(ctx.Done())
	return ctx.Err()
}

// Drain makes readiness fail while requests are still served.
func (h *Handler) Drain() { h.draining.Store(true) }

// Ready reports whether new requests should come here.
func (h *Handler) Ready() bool { return !h.draining.Load() && h.selector.AnyReady() }

// CloseIdle drops idle engine connections, after an engine's address changed.
func (h *Handler) CloseIdle() { h.client.closeIdle() }

// ForgetAddresses drops what is kept for engines' addresses (the host of their
// URL) that keep does not name.
func (h *Handler) ForgetAddresses(keep func(address string) bool) { h.client.forget(keep) }

// ServeHTTP routes by the path table and nothing else: not by Host, query or
// an absolute request URI.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := checkHead(r); fault != nil {
		h.answer(w, r, fault)
		return
	}
	switch path := r.URL.Path; path {
	case "/v1/models":
		h.get(w, r, h.models)
	case "/livez":
		h.get(w, r, h.live)
	case "/health", "/v1/health", "/readyz":
		h.get(w, r, h.ready)
	case "/version", "/load":
		h.get(w, r, h.about)
	default:
		h.infer(w, r, path)
	}
}

const maxHeaderLines = 100

// checkHead refuses requests that are hostile or meant for another kind of
// server before anything else looks at them.
func checkHead(r *http.Request) *apiError {
	bad := func(message string) *apiError {
		return &apiError{status: http.StatusBadRequest, code: "invalid_request", message: message}
	}
	switch {
	case headerLines(r.Header) > maxHeaderLines:
		return &apiError{status: http.StatusRequestHeaderFieldsTooLarge, code: "invalid_request", message: "more than 100 header lines", close: true}
	case len(r.Header["Upgrade"]) > 0 && strings.EqualFold(r.Header["Upgrade"][0], "websocket"):
		return bad("WebSocket is not served here")
	case r.URL.RawPath != "" && !strings.HasPrefix(r.URL.Path, "/v1/models/"):
		return bad("the path is escaped where it need not be")
	}
	return nil
}

// answer sends an error of the gateway's own outside an exchange.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, e *apiError) {
	w.Header()["X-Request-Id"] = []string{requestIDOf(r.Header)}
	h.metrics.refused(e.status)
	e.write(w, shapeOf(r.URL.Path))
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.answer(w, r, errMethod("GET, HEAD"))
		return
	}
	serve(w, r)
}

// infer is one request to an engine, if its path and method are in the table.
// Its frame lies under every stream for as long as that lasts: what is needed
// for a moment is in functions of its own.
func (h *Handler) infer(w http.ResponseWriter, r *http.Request, path string) {
	ep, id := h.endpoint(w, r, path)
	if ep == nil {
		return
	}
	x := h.begin(w, r, path, ep, id)
	defer h.contain(x)
	if x.run() {
		panic(http.ErrAbortHandler) // an unclean end, on HTTP/1.1 and h2 alike
	}
}

// endpoint finds the row of the table, and the id in the path. Without one the
// request has been answered.
func (h *Handler) endpoint(w http.ResponseWriter, r *http.Request, path string) (ep *endpoint, id string) {
	methods, id := endpointsOf(path)
	for _, m := range methods {
		if m.method == r.Method {
			return m, id
		}
	}
	switch {
	case methods != nil:
		h.answer(w, r, errMethod(allowed(methods)))
	case strings.HasPrefix(path, "/v1/models/") && path != "/v1/models/":
		h.get(w, r, h.models)
	default:
		h.answer(w, r, errNotFound(path))
	}
	return nil, ""
}

// begin takes an exchange from the pool.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, path string, ep *endpoint, id string) *exchange {
	x := exchanges.Get().(*exchange)
	x.h, x.set, x.w, x.r, x.ep, x.path, x.named, x.shape, x.arrived = h, h.set.Load(), w, r, ep, path, id, shapeOf(path), time.Now()
	x.tenant, x.priority = x.set.tenants.none, x.set.tenants.none.unasked
	x.rc = http.NewResponseController(w)
	x.id[0] = requestIDOf(r.Header)
	return x
}

// contain keeps a panic to its request: 500 before the commit, an unclean end
// after it. The exchange is not pooled again.
func (h *Handler) contain(x *exchange) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	h.metrics.panics.Inc()
	x.guardPanics()
	h.log.Error("panic", "request_id", x.id[0], "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.fail(&apiError{status: http.StatusInternalServerError, code: "engine_error", message: "the gateway failed on this request", close: true})
}

// scanners are apart from exchanges: they are large, and needed for a moment.
var scanners = sync.Pool{New: func() any { return new(Scanner) }}

// run carries the exchange from the body to the accounting and returns it to
// its pool. True means that the connection has to end uncleanly.
func (x *exchange) run() (abort bool) {
	x.h.metrics.running.Add(1)
	defer x.h.metrics.running.Add(-1)
	conn := connOf(x.r)
	var end func() bool
	if x.halt, end = haltOf(x.r.Context(), conn); end != nil {
		defer end()
	} else {
		conn.begin(x.r)
		defer conn.finish()
	}
	outcome := OutcomeClient
	x.scanner = scanners.Get().(*Scanner)
	fault := x.admit()
	scanners.Put(x.scanner)
	x.scanner = nil
	if fault != nil {
		if x.class.Model() != "" && fault.code != "rate_limit_exceeded" { // one tenant's flood is not to push out all others
			x.keepRecord()
		}
		outcome = x.refused(fault)
	} else {
		x.dog.start(&x.expect, x.expect.start(x.halt, x.set.limits.FirstContent, x.set.limits.Stall), &errContentTimeout)
		outcome = x.attemptAll()
		x.dog.stop()
	}
	x.account(outcome)
	x.freeBody()
	if abort = x.abort; x.status != 0 && !abort {
		x.arm(time.Now()) // for what net/http still has to write
	}
	// The watchdog's timer may be firing: it reads only its own fields.
	x.reset()
	exchanges.Put(x)
	return abort
}

// fail answers with an error of the gateway's own, if nothing was sent yet.
func (x *exchange) fail(e *apiError) {
	if e.answered {
		x.status, x.code = e.status, e.code
		return
	}
	clear(x.w.Header()) // an engine's headers may be there already
	x.ours()
	x.arm(time.Now())
	x.status, x.code = e.status, e.code
	e.write(x.w, x.shape)
}

// refused answers a request that went to no engine and says what that counts as.
func (x *exchange) refused(e *apiError) Outcome {
	x.fail(e)
	switch {
	case x.r.Context().Err() != nil:
		return OutcomeGone
	case e.status >= 500 || e.status == http.StatusTooManyRequests:
		if e.reason != "" {
			x.h.metrics.shed(e.reason)
		}
		return OutcomeNotProcessed
	default:
		return OutcomeClient
	}
}
