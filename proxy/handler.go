package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/protect"
	"penstock/selector"
)

// settings are what a reload may change, swapped whole.
type settings struct {
	limits Config
	keyer  selector.Keyer
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
	set      atomic.Pointer[settings]
	draining atomic.Bool
}

// Options are what a Handler is made of.
type Options struct {
	Selector *selector.Selector
	Limits   Config
	HashKey  string          // routing.hash_key, "" = the fixed one
	Memory   *protect.Memory // of all request bodies together
	Log      *slog.Logger
	Access   io.Writer             // takes one JSON line per request in one Write; nil: none
	Registry prometheus.Registerer // nil: no metrics page
}

// New returns a handler.
func New(o Options) *Handler {
	h := &Handler{selector: o.Selector, client: newTransportClient(), memory: o.Memory, log: o.Log, access: o.Access}
	h.metrics = newMetrics(o.Registry, o.Memory)
	h.Apply(o.Limits, o.HashKey)
	return h
}

// Apply installs new limits and affinity secret for requests that come after it.
func (h *Handler) Apply(limits Config, hashKey string) {
	h.set.Store(&settings{limits: limits, keyer: selector.NewKeyer(hashKey, "")})
}

// Drain makes readiness fail while requests are still served.
func (h *Handler) Drain() { h.draining.Store(true) }

// Ready reports whether new requests should come here.
func (h *Handler) Ready() bool { return !h.draining.Load() && h.selector.AnyReady() }

// CloseIdle drops idle engine connections, after an engine's address changed.
func (h *Handler) CloseIdle() {
	if c, ok := h.client.(interface{ CloseIdle() }); ok {
		c.CloseIdle()
	}
}

var apiPaths = [...]string{APIChat: "/v1/chat/completions", APICompletions: "/v1/completions", APIEmbeddings: "/v1/embeddings"}

// ServeHTTP routes by the path table and nothing else: not by Host, query or
// an absolute request URI.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := checkHead(r); fault != nil {
		h.answer(w, r, fault)
		return
	}
	switch path := r.URL.Path; path {
	case "/v1/chat/completions":
		h.infer(w, r, APIChat)
	case "/v1/completions":
		h.infer(w, r, APICompletions)
	case "/v1/embeddings":
		h.infer(w, r, APIEmbeddings)
	case "/v1/models":
		h.get(w, r, h.listModels)
	case "/livez":
		h.get(w, r, h.live)
	case "/health", "/readyz":
		h.get(w, r, h.ready)
	default:
		if id, ok := strings.CutPrefix(path, "/v1/models/"); ok && id != "" {
			h.get(w, r, h.oneModel)
			return
		}
		h.answer(w, r, errNotFound(path))
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
	e.write(w)
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.answer(w, r, errMethod("GET, HEAD"))
		return
	}
	serve(w, r)
}

// infer is one request to an engine.
func (h *Handler) infer(w http.ResponseWriter, r *http.Request, api API) {
	if r.Method != http.MethodPost {
		h.answer(w, r, errMethod("POST"))
		return
	}
	x := exchanges.Get().(*exchange)
	x.h, x.set, x.w, x.r, x.api, x.arrived = h, h.set.Load(), w, r, api, time.Now()
	x.rc = http.NewResponseController(w)
	x.id[0] = requestIDOf(r.Header)
	defer h.contain(x)
	if x.run() {
		panic(http.ErrAbortHandler) // an unclean end, on HTTP/1.1 and h2 alike
	}
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
	h.log.Error("panic", "request_id", x.id[0], "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.fail(&apiError{status: http.StatusInternalServerError, code: "engine_error", message: "the gateway failed on this request", close: true})
}

// run carries the exchange from the body to the accounting and returns it to
// its pool. True means that the connection has to end uncleanly.
func (x *exchange) run() (abort bool) {
	x.h.metrics.running.Inc()
	defer x.h.metrics.running.Dec()
	var cancel context.CancelCauseFunc
	if conn := connOf(x.r); conn != nil {
		x.ctx, cancel = x.r.Context(), conn.endFunc
		conn.busy.Store(true)
		defer conn.busy.Store(false)
	} else {
		x.ctx, cancel = context.WithCancelCause(x.r.Context())
		defer cancel(nil)
	}
	outcome := OutcomeClient
	if fault := x.admit(); fault != nil {
		outcome = x.refused(fault)
	} else {
		x.dog.start(cancel, x.set.limits.FirstContent, &errContentTimeout)
		outcome = x.attemptAll()
		x.dog.stop()
	}
	x.account(outcome)
	if x.body != nil {
		x.body.free()
	}
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
	if e == errAnswered {
		x.status, x.code = http.StatusRequestEntityTooLarge, "invalid_request"
		return
	}
	clear(x.w.Header()) // an engine's headers may be there already
	x.ours()
	x.arm(time.Now())
	x.status, x.code = e.status, e.code
	e.write(x.w)
}

// refused answers a request that went to no engine and says what that counts as.
func (x *exchange) refused(e *apiError) Outcome {
	x.fail(e)
	switch {
	case x.ctx.Err() != nil && x.r.Context().Err() != nil:
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

// admit reads the request and resolves its class: steps 3 to 5 of DESIGN.md 4.
func (x *exchange) admit() *apiError {
	reader := bodyReader{limit: x.set.limits.Body, wait: x.set.limits.BodyRead, memory: x.h.memory, rc: x.rc, dog: &x.dog}
	x.ours() // reader answers a body that is too large by itself
	var fault *apiError
	if x.body, fault = reader.read(x.w, x.r); fault != nil {
		return fault
	}
	if err := x.scanner.Scan(x.api, x.body.bytes, &x.env); err != nil {
		return errBadRequest(err)
	}
	require, err := parseRequire(x.r.Header)
	if err == nil {
		err = checkPriority(x.r.Header)
	}
	if err != nil {
		return errBadRequest(err)
	}
	need := selector.Need{Caps: x.env.Needs, Context: x.env.MinTokens(), Require: require}
	class, refusal := x.h.selector.Resolve(x.env.Model, need, x.arrived)
	if refusal != nil {
		return errRefused(refusal)
	}
	x.class = class
	x.keyed()
	return nil
}

// keyed finds the affinity key.
func (x *exchange) keyed() {
	id, source, unfit := affinityKey(x.r.Header, &x.env)
	x.source = source
	x.ask = selector.Ask{Now: x.arrived.Unix(), EarlierTurns: x.env.EarlierTurns, Keyed: source != KeyNone}
	switch keyer := &x.set.keyer; source {
	case KeyNone:
	case KeyOpening:
		x.ask.Key = keyer.KeyOfDigest(x.env.Model, x.env.CacheSalt, x.env.Opening)
	case KeyPromptCacheKey:
		x.ask.Key = keyer.Key(x.env.Model, x.env.CacheSalt, selector.DomainGroup, id)
	default:
		x.ask.Key = keyer.Key(x.env.Model, x.env.CacheSalt, selector.DomainID, id)
	}
	if unfit > 0 {
		x.h.metrics.unfitKeys.Add(float64(unfit))
	}
}

// checkPriority refuses a priority that cannot be read.
func checkPriority(h http.Header) error {
	v := h["X-Penstock-Priority"]
	if len(v) == 0 {
		return nil
	}
	if len(v) == 1 {
		switch v[0] {
		case "critical", "standard", "sheddable":
			return nil
		}
	}
	return badRequest("x-penstock-priority", "x-penstock-priority is critical, standard or sheddable")
}
