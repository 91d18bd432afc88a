package proxy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"penstock/protect"
	"penstock/selector"
)

// apiError is an answer of the gateway's own: one place turns refusals and
// failures into a status and an OpenAI-shaped body. Messages are ours; what an
// engine or a Go error said never reaches a client through here.
type apiError struct {
	status     int
	code       string // of the list in DESIGN.md 8
	message    string
	param      string
	retryAfter int    // seconds, 0 = none
	advised    advice // the engine's own, beside retryAfter
	reason     string // x-penstock-reason of a shed; "" = the code
	allow      string // of a 405
	close      bool   // the connection cannot be used further
	answered   bool   // it has been sent
}

func (e *apiError) Error() string { return e.message }

// errorType is the `type` member that OpenAI's API has for a status.
func errorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

// retrySoon spreads the retries of clients that were refused together:
// protection.md 2.5 item 6, ceil(U(2,6)) seconds.
func retrySoon() int { return 2 + rand.IntN(4) + 1 }

// retryNoEngine is Retry-After where nothing can serve at all.
const retryNoEngine = 5

// write sends the error in the form of the API that was called. Headers that
// name the request are set by the caller.
func (e *apiError) write(w http.ResponseWriter, s shape) {
	id := ""
	if v := w.Header()["X-Request-Id"]; len(v) > 0 {
		id = v[0]
	}
	if s == shapeAnthropic {
		w.Header()["Request-Id"] = w.Header()["X-Request-Id"]
	}
	body := append(s.appendError(make([]byte, 0, 256), e, id), '\n')
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	reason := e.reason
	if reason == "" {
		reason = e.code
	}
	h["X-Penstock-Reason"] = []string{reason}
	if e.retryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(e.retryAfter)}
	}
	e.advised.write(h)
	if e.allow != "" {
		h["Allow"] = []string{e.allow}
	}
	if e.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = wantBearer
	}
	if e.close {
		h["Connection"] = []string{"close"}
	}
	w.WriteHeader(e.status)
	w.Write(body)
}

var (
	jsonType   = []string{"application/json"}
	wantBearer = []string{"Bearer"}
)

func errNotFound(path string) *apiError {
	return &apiError{status: http.StatusNotFound, code: "invalid_request",
		message: "unknown path " + quoteName(path) + "; this gateway serves the inference paths of the OpenAI and Anthropic APIs and the engines' own, and no others of theirs"}
}

// errNoTenant is for a request without a key, or (given) with one that nobody
// has. It says nothing of the key.
func errNoTenant(given bool) *apiError {
	message := "this gateway wants an API key, as Authorization: Bearer KEY or x-api-key: KEY"
	if given {
		message = "the API key is not known here"
	}
	return &apiError{status: http.StatusUnauthorized, code: "invalid_api_key", message: message}
}

// errLimited is for a request beyond its tenant's rate. SDKs obey a wait of 1
// to 60 s; one that takes longer is asked to come by in between.
func errLimited(by protect.Spent, wait time.Duration) *apiError {
	message := "more requests per second than this API key may send"
	if by == protect.SpentTokens {
		message = "more tokens per minute than this API key may use"
	}
	return &apiError{status: http.StatusTooManyRequests, code: "rate_limit_exceeded", reason: "rate_limit_exceeded", message: message,
		retryAfter: int(min(max(math.Ceil(wait.Seconds()), 1), 60))}
}

// errDeadly is for a request that has made two engines reset their
// connections: SDKs do not repeat a 422.
func errDeadly() *apiError {
	return &apiError{status: http.StatusUnprocessableEntity, code: "request_crashes_engine",
		message: "engines broke off without an answer when they were given this request; it is not sent to another one for a minute"}
}

func errMethod(allow string) *apiError {
	return &apiError{status: http.StatusMethodNotAllowed, code: "invalid_request", allow: allow,
		message: "this path takes " + allow}
}

func errBadRequest(err error) *apiError {
	if b, ok := err.(*BadRequest); ok {
		return &apiError{status: http.StatusBadRequest, code: b.Code, message: b.Message, param: b.Param}
	}
	return &apiError{status: http.StatusBadRequest, code: "invalid_request", message: err.Error()}
}

// errRefused turns a pick that could not be made into what the client is told.
func errRefused(r *selector.Refusal) *apiError {
	unavailable := func(code, message string) *apiError {
		return &apiError{status: http.StatusServiceUnavailable, code: code, message: message, retryAfter: retryNoEngine}
	}
	switch r.Why {
	case selector.UnknownModel:
		return &apiError{status: http.StatusNotFound, code: "model_not_found", param: "model",
			message: "the model " + quoteName(r.Model) + " is not served here; GET /v1/models lists those that are"}
	case selector.ModelNotTold:
		return unavailable("no_healthy_engine", "no engine that serves the model "+quoteName(r.Model)+" is known yet")
	case selector.CapabilityNowhere:
		return &apiError{status: http.StatusBadRequest, code: "capability_not_available",
			message: fmt.Sprintf("no engine of the model %s%s can do %s, which the request needs", quoteName(r.Model), satisfying(r), r.Missing)}
	case selector.CapabilityOut:
		return unavailable("capability_not_available",
			fmt.Sprintf("the engines of the model %s%s that can do %s are out", quoteName(r.Model), satisfying(r), r.Missing))
	case selector.RequirementUnmet:
		code := "no_healthy_engine"
		if r.Residency {
			code = "residency_not_available"
		}
		state := "no engine of the model " + quoteName(r.Model) + " satisfies"
		if r.LabelKnown {
			state = "the engines of the model " + quoteName(r.Model) + " that satisfy"
		}
		return unavailable(code, state+" the requirement "+r.Require+map[bool]string{true: " are out", false: ""}[r.LabelKnown])
	case selector.AllFull:
		return &apiError{status: http.StatusTooManyRequests, code: "overloaded", reason: selector.AllFull.String(),
			message: "all engines of the model " + quoteName(r.Model) + " are at their in-flight limit", retryAfter: retrySoon()}
	case selector.HolderOut:
		return unavailable("no_healthy_engine", "the engine that holds what the request names is out of service")
	default:
		return unavailable("no_healthy_engine", "no engine of the model "+quoteName(r.Model)+" is in service")
	}
}

// errNoModel is for a request that names no model where none is known that it
// could mean; told says that none will be, as things are configured.
func errNoModel(need selector.Need, told bool) *apiError {
	if told && need.Caps != 0 && need.Require == "" {
		return &apiError{status: http.StatusBadRequest, code: "capability_not_available",
			message: "no engine here can do " + need.Caps.String() + ", which the request needs"}
	}
	return &apiError{status: http.StatusServiceUnavailable, code: "no_healthy_engine", retryAfter: retryNoEngine,
		message: "the request names no model, and no engine that could be meant is known yet"}
}

// satisfying narrows "engine" to those that the request's labels allow.
func satisfying(r *selector.Refusal) string {
	if r.Require == "" {
		return ""
	}
	return " with " + r.Require
}

// errFailed is what the client is told of a last attempt that failed before
// any content. status is the engine's, where it gave one, and so is what it
// said about trying again.
func errFailed(c Cause, status int, advised advice) *apiError {
	e := failed(c, status, advised.seconds)
	e.advised = advised
	return e
}

func failed(c Cause, status, retryAfter int) *apiError {
	bad := func(message string) *apiError {
		return &apiError{status: http.StatusBadGateway, code: "engine_error", message: message}
	}
	switch c {
	case CauseDial, CauseRefusedStream:
		return &apiError{status: http.StatusServiceUnavailable, code: "no_healthy_engine",
			message: "no engine could be reached", retryAfter: retryNoEngine}
	case CauseHeaderTimeout, CauseContentTimeout, CauseDeadline:
		return &apiError{status: http.StatusGatewayTimeout, code: "engine_timeout", message: "the engine did not begin its answer in time"}
	case CauseStalled:
		return &apiError{status: http.StatusGatewayTimeout, code: "engine_timeout", message: "the engine stopped in the middle of its answer"}
	case CauseBusy:
		if retryAfter == 0 {
			retryAfter = retrySoon()
		}
		return &apiError{status: status, code: "overloaded", message: "the engine is full", reason: "engine_full", retryAfter: retryAfter}
	case CauseEngineStatus, CauseErrorEvent:
		if status == http.StatusGatewayTimeout {
			return &apiError{status: status, code: "engine_timeout", message: "the engine timed out"}
		}
		if status < 500 || status > 599 {
			status = http.StatusBadGateway
		}
		return &apiError{status: status, code: "engine_error", message: "the engine failed to answer"}
	case CauseMalformed, CauseTooLarge:
		return &apiError{status: http.StatusBadGateway, code: "bad_engine_event", message: "the engine sent an event that cannot be read"}
	case CauseEmpty:
		return bad("the engine sent an empty answer")
	case CauseBadAnswer:
		return bad("the engine sent something that is not an answer")
	case CauseDraining:
		return &apiError{status: http.StatusServiceUnavailable, code: "gateway_draining", message: "the gateway is shutting down", retryAfter: 1}
	default:
		return bad("the engine closed the connection without an answer")
	}
}

// streamCode is the code of the error event that ends a stream which broke
// after the client had its headers.
func streamCode(c Cause) (code, message string) {
	switch c {
	case CauseStalled:
		return "stream_stalled", "the engine stopped sending; the answer is incomplete"
	case CauseMalformed, CauseTooLarge:
		return "bad_engine_event", "the engine sent an event that cannot be read; the answer is incomplete"
	case CauseDraining:
		return "gateway_draining", "the gateway is shutting down; the answer is incomplete"
	case CauseHeaderTimeout, CauseContentTimeout, CauseDeadline:
		return "engine_timeout", "the engine did not begin its answer in time"
	default:
		return "stream_interrupted", "the engine broke off; the answer is incomplete"
	}
}
