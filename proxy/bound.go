package proxy

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"penstock/engine"
	"penstock/selector"
)

// idKind is a kind of thing that one engine holds and that later requests
// name by an id.
type idKind uint8

const (
	idNone         idKind = iota
	idResponse            // of /v1/responses
	idConversation        // of /v1/conversations
	idChat                // a chat completion that is stored, or still running
	idSession             // of SGLang's /open_session
)

func (k idKind) String() string {
	return [...]string{"none", "response", "conversation", "chat completion", "session"}[k]
}

// collection is the path under which an engine shows what it holds of that
// kind; "" if it does not.
func (k idKind) collection() string {
	return [...]string{"", "/v1/responses/", "/v1/conversations/", "/v1/chat/completions/", ""}[k]
}

// holderKey is the id's key among selector.Bindings. It covers the tenant.
func (x *exchange) holderKey(k idKind, id string) uint64 {
	return x.tenant.keyer.Key(k.String(), "", selector.DomainBound, id)
}

// bind finds the engine that holds what the request names, if it names
// anything: by what was learned from answers, else by asking.
func (x *exchange) bind(need selector.Need) *apiError {
	kind, id := x.ep.binds, x.named
	if id == "" {
		id = x.env.BoundTo
		if x.env.BoundKind != idNone {
			kind = x.env.BoundKind
		}
	}
	switch {
	case id == "" && x.ep.api != APIBound:
		return nil
	case id == "":
		return errBadRequest(badRequest("id", "the id of the %s is missing", kind))
	case !plainID(id):
		return errNotHeld(kind, x.ep)
	}
	known, ok := x.h.selector.Bound.Get(x.holderKey(kind, id), x.arrived.Unix())
	var e *engine.Engine
	switch {
	case ok:
		if x.ep.api == APIBound {
			x.alias = x.h.names.name(known.Mark)
		}
		e = x.h.selector.Holder(known.Engine, x.class, need)
	case kind.collection() != "" && x.set.tenants.single(): // of several, nobody can say whose it is
		var fault *apiError
		if e, fault = x.search(kind, id, need); fault != nil {
			return fault
		}
	}
	if e == nil {
		return errNotHeld(kind, x.ep)
	}
	x.holder = selector.Holder{Engine: e, Counted: x.ep.api != APIBound}
	return nil
}

// learn remembers that e made the answer's id.
func (x *exchange) learn(e *engine.Engine) {
	id := x.answer.id
	if id == "" || x.learned {
		return
	}
	x.learned = true
	to := selector.Binding{Engine: e.ID, Mark: x.h.names.mark(x.alias)}
	x.h.selector.Bound.Put(x.holderKey(x.ep.makes, id), to, x.arrived.Unix())
	if c := x.answer.conversation; c != "" {
		x.h.selector.Bound.Put(x.holderKey(idConversation, c), to, x.arrived.Unix())
	}
}

// learns reports whether a later request may name the answer by its id.
func (x *exchange) learns() bool {
	return x.ep.makes != idNone && (x.env.KeepsID || x.ep.api == APITool)
}

const (
	// searchWidth is how many engines one search asks at a time, searchAtOnce
	// how many searches there may be: ids can be made up, and each costs a
	// request to every candidate.
	searchWidth  = 16
	searchAtOnce = 16
	searchWait   = 2 * time.Second // for one engine's answer
)

// search asks the candidates who holds the id: this gateway has started again
// since, or another one saw the answer that made it.
func (x *exchange) search(k idKind, id string, need selector.Need) (*engine.Engine, *apiError) {
	select {
	case x.h.searching <- struct{}{}:
		defer func() { <-x.h.searching }()
	default:
		x.h.metrics.search(searchRefused)
		return nil, &apiError{status: http.StatusServiceUnavailable, code: "overloaded", reason: "id_search",
			message: "too many unknown ids are being looked for", retryAfter: retrySoon()}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !x.halt.hold(cancel) {
		cancel()
	}
	defer x.halt.letGo()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards holder and unsure
	var holder *engine.Engine
	engines, out := x.h.selector.MayHold(x.class, need)
	unsure := len(engines) == 0 && out > 0
	width := make(chan struct{}, searchWidth)
	for _, e := range engines {
		width <- struct{}{}
		if ctx.Err() != nil {
			unsure = true // the client left, or it was found
			break
		}
		wg.Go(func() {
			defer func() { <-width }()
			has, sure := x.holds(ctx, e, k.collection()+id)
			mu.Lock()
			defer mu.Unlock()
			if has && holder == nil {
				holder = e
				cancel()
			}
			unsure = unsure || !sure
		})
	}
	wg.Wait()
	switch {
	case holder != nil:
		x.h.metrics.search(searchFound)
		x.h.selector.Bound.Put(x.holderKey(k, id), selector.Binding{Engine: holder.ID}, x.arrived.Unix())
	case unsure:
		x.h.metrics.search(searchUnsure)
		return nil, &apiError{status: http.StatusServiceUnavailable, code: "no_healthy_engine", retryAfter: retryNoEngine,
			message: "an engine that may hold the " + k.String() + " does not answer"}
	default:
		x.h.metrics.search(searchUnknown)
	}
	return holder, nil
}

// holds asks one engine for one thing. sure is false where the engine failed to
// say whether it has it.
func (x *exchange) holds(ctx context.Context, e *engine.Engine, path string) (has, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, searchWait)
	defer cancel()
	halt, end := haltOf(ctx, nil)
	defer end()
	header := engineHeader(nil, x.r.Header, x.id[:], e, nil)
	delete(header, "Content-Type")
	delete(header, "Idempotency-Key")
	in, failed := x.h.client.send(halt, &outgoing{engine: e, method: http.MethodGet, path: path, header: header})
	if failed != nil {
		return false, false
	}
	in.body.Close()
	switch s := in.status; {
	case s >= 200 && s < 300:
		return true, true
	case s == http.StatusTooManyRequests, s >= 500 && s != http.StatusNotImplemented:
		return false, false
	}
	return false, true
}

// errNotHeld is the answer for an id that nobody knows, or that is another
// tenant's: the two must not differ.
func errNotHeld(k idKind, ep *endpoint) *apiError {
	param := "id"
	if ep.api == APIResponses {
		if param = "previous_response_id"; k == idConversation {
			param = "conversation"
		}
	}
	return &apiError{status: http.StatusNotFound, code: "previous_response_not_found", param: param,
		message: "no engine here holds the " + k.String() + " that the request names"}
}

// aliasNames numbers the aliases under which answers were asked for, so that
// a later look at one shows the same name. Numbers outlive reloads.
type aliasNames struct {
	mu    sync.Mutex
	names []string // guarded by mu; the number less one
}

const maxAliasNames = 1<<16 - 1

// mark is the number of an alias; 0 for none.
func (a *aliasNames) mark(alias string) uint16 {
	if alias == "" {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, n := range a.names {
		if n == alias {
			return uint16(i + 1)
		}
	}
	if len(a.names) == maxAliasNames {
		return 0
	}
	a.names = append(a.names, alias)
	return uint16(len(a.names))
}

// name is the alias of a mark, "" for 0.
func (a *aliasNames) name(mark uint16) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if mark == 0 || int(mark) > len(a.names) {
		return ""
	}
	return a.names[mark-1]
}

// all is a copy of the names; the mark of one is its index and one more.
func (a *aliasNames) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}
