package enginetest

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"
)

// version is the vLLM release whose answers are imitated.
const (
	version     = "0.32.0"
	fingerprint = "vllm-0.32.0-6a00f73f"
)

// maxBody bounds a request body.
const maxBody = 256 << 20

type endpoint uint8

const (
	chat endpoint = iota
	completions
	embeddings
	responses // whole ones: no events, and none is kept
)

type route struct {
	method string
	serve  http.HandlerFunc
}

// Handler is the engine's HTTP API.
func (s *Sim) Handler() http.Handler {
	generate := func(e endpoint) route {
		return route{http.MethodPost, func(w http.ResponseWriter, r *http.Request) { s.generate(e, w, r) }}
	}
	routes := map[string]route{
		"/v1/chat/completions": generate(chat),
		"/v1/completions":      generate(completions),
		"/v1/embeddings":       generate(embeddings),
		"/v1/responses":        generate(responses),
		"/v1/models":           {http.MethodGet, s.serveModels},
		"/health":              {http.MethodGet, s.serveHealth},
		"/metrics":             {http.MethodGet, s.serveMetrics},
		"/version": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, struct {
				Version string `json:"version"`
			}{version})
		}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "uvicorn")
		if r.URL.Path == "/sim/faults" {
			s.serveFaults(w, r)
			return
		}
		rt, ok := routes[r.URL.Path]
		switch {
		case !ok:
			writeDetail(w, http.StatusNotFound)
		case rt.method != r.Method:
			w.Header().Set("Allow", rt.method)
			writeDetail(w, http.StatusMethodNotAllowed)
		default:
			rt.serve(w, r)
		}
	})
}

func (s *Sim) serveHealth(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	switch f := s.draw(onHealth); f.Kind {
	case Health:
		status = f.N
	case HealthHang:
		s.hang(r)
		return
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

func (s *Sim) serveModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, listModels(s.cfg.Models, s.started.Unix(), s.cfg.MaxModelLen))
}

// listModels is the /v1/models page of vLLM.
func listModels(names []string, created int64, maxModelLen int) modelList {
	list := modelList{Object: "list", Data: []modelCard{}}
	for _, name := range names {
		list.Data = append(list.Data, modelCard{
			ID: name, Object: "model", Created: created, OwnedBy: "vllm", Root: "/models/" + name, MaxModelLen: maxModelLen,
			Permission: []modelPermission{{
				ID: fmt.Sprintf("modelperm-%016x", mix(xxhash.Sum64String(name))), Object: "model_permission", Created: created,
				AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
			}},
		})
	}
	return list
}

type faultList struct {
	Faults []string `json:"faults"`
}

// serveFaults lists (GET) or replaces (POST) the faults.
func (s *Sim) serveFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		var in faultList
		if err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, 1<<20), &in, json.RejectUnknownMembers(true)); err != nil {
			writeError(w, http.StatusBadRequest, errorFor(http.StatusBadRequest, `the body must be {"faults": ["kind=value", ...]}: `+err.Error()))
			return
		}
		faults, err := ParseFaults(in.Faults)
		if err != nil {
			writeError(w, http.StatusBadRequest, errorFor(http.StatusBadRequest, err.Error()))
			return
		}
		s.SetFaults(faults...)
	default:
		w.Header().Set("Allow", "GET, POST")
		writeDetail(w, http.StatusMethodNotAllowed)
		return
	}
	out := faultList{Faults: []string{}}
	for _, f := range s.Faults() {
		out.Faults = append(out.Faults, f.String())
	}
	writeJSON(w, http.StatusOK, out)
}

// generate serves the endpoints that compute something.
func (s *Sim) generate(e endpoint, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			writeError(w, http.StatusRequestEntityTooLarge, errorFor(http.StatusRequestEntityTooLarge, "Request body too large"))
			return
		}
		s.noteEnd(r.Header.Get("X-Request-Id"), disconnected)
		panic(http.ErrAbortHandler)
	}
	in, invalid := decodeInput(e, r, body)
	in.number = s.noteDelivery(r, in.deliveryID(), body)
	in.fault = s.draw(onGeneration)
	if in.fault.Kind != noFault {
		s.noteFault(in.fault.Kind)
	}
	s.noteEnd(in.deliveryID(), s.answer(w, r, in, invalid))
}

// answer gives one request its answer, its error or its fault.
func (s *Sim) answer(w http.ResponseWriter, r *http.Request, in *input, invalid *apiError) ending {
	if end, hit := s.failBefore(w, r, in); hit {
		return end
	}
	c := (*call)(nil)
	if invalid == nil {
		c, invalid = s.prepare(in)
	}
	if invalid != nil {
		writeError(w, invalid.Code, invalid)
		return refused
	}
	switch s.submit(c) {
	case queueFull:
		s.mu.Lock()
		s.met.rejected++
		s.mu.Unlock()
		busy := errorFor(http.StatusServiceUnavailable, engineBusy)
		writeError(w, busy.Code, busy)
		return refused
	case engineStopped:
		writeError(w, http.StatusInternalServerError, errorFor(http.StatusInternalServerError, engineDied))
		return refused
	}
	defer s.abort(c)
	if in.Stream {
		return s.stream(w, r, in, c)
	}
	return s.answerWhole(w, r, in, c)
}
