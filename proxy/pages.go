package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"penstock/engine"
)

func (h *Handler) page(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	head := w.Header()
	head["X-Request-Id"] = []string{requestIDOf(r.Header)}
	head["Content-Type"] = jsonType
	head["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	h.page(w, r, http.StatusOK, []byte(`{"status":"ok"}`+"\n"))
}

// ready is 200 while a new request could be served. /health is the same for
// clients that know engines only.
func (h *Handler) ready(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.draining.Load():
		h.answer(w, r, &apiError{status: http.StatusServiceUnavailable, code: "gateway_draining",
			message: "the gateway is shutting down", retryAfter: 1})
	case !h.selector.AnyReady():
		h.answer(w, r, &apiError{status: http.StatusServiceUnavailable, code: "no_healthy_engine",
			message: "no engine is in service", retryAfter: retryNoEngine})
	default:
		h.page(w, r, http.StatusOK, []byte(`{"status":"ok"}`+"\n"))
	}
}

// about answers what engines answer on /version and /load, for the gateway:
// its own version, and the requests that it is serving.
func (h *Handler) about(w http.ResponseWriter, r *http.Request) {
	if _, fault := h.set.Load().tenants.of(r.Header, new(keyHasher)); fault != nil {
		h.answer(w, r, fault)
		return
	}
	var body []byte
	if r.URL.Path == "/version" {
		body = appendJSONString([]byte(`{"version":`), h.version)
	} else {
		body = strconv.AppendInt([]byte(`{"server_load":`), h.metrics.running.Load(), 10)
	}
	h.page(w, r, http.StatusOK, append(body, "}\n"...))
}

// models is the union of what the engines in service that the tenant may use
// serve, with the fields that the engines give, or one of it.
func (h *Handler) models(w http.ResponseWriter, r *http.Request) {
	set := h.set.Load()
	tenant, fault := set.tenants.of(r.Header, new(keyHasher))
	switch {
	case fault != nil:
		h.answer(w, r, fault)
	case r.URL.Path == "/v1/models":
		h.listModels(w, r, set.withAliases(h.selector.Models(tenant.require)))
	default:
		h.oneModel(w, r, set.withAliases(h.selector.Models(tenant.require)))
	}
}

func (h *Handler) listModels(w http.ResponseWriter, r *http.Request, models []engine.Model) {
	body := []byte(`{"object":"list","data":[`)
	for i, m := range models {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendModel(body, m)
	}
	h.page(w, r, http.StatusOK, append(body, "]}\n"...))
}

// oneModel is GET /v1/models/{id}; ids hold slashes.
func (h *Handler) oneModel(w http.ResponseWriter, r *http.Request, models []engine.Model) {
	id := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	for _, m := range models {
		if m.ID == id {
			h.page(w, r, http.StatusOK, append(appendModel(nil, m), '\n'))
			return
		}
	}
	h.answer(w, r, &apiError{status: http.StatusNotFound, code: "model_not_found", param: "model",
		message: "the model " + quoteName(id) + " is not served here; GET /v1/models lists those that are"})
}

// appendModel appends the engine's own object, or a plain one for a model
// that is only configured. Its time is fixed, so that lists compare equal.
func appendModel(dst []byte, m engine.Model) []byte {
	if m.Raw != nil {
		return append(dst, m.Raw...)
	}
	dst = append(dst, `{"id":`...)
	dst = appendJSONString(dst, m.ID)
	return append(dst, `,"object":"model","created":0,"owned_by":"penstock"}`...)
}
