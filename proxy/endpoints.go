package proxy

import (
	"net/http"
	"slices"
	"strings"

	"penstock/engine"
)

// endpoint is one method on one path that goes to engines, as data. What is
// not in the table goes to no engine.
type endpoint struct {
	method string // "" = POST
	path   string // {id} stands for one segment, and for the id that binds the request to an engine
	api    API    // how the body is read
	answer answerKind
	as     string            // the path whose engines serve this one too; "" = path
	needs  engine.Capability // of the engine, beside what the body needs
	keyed  bool              // a conversation stays on its engine
	binds  idKind            // what kind of id {id}, or the body's, is
	makes  idKind            // what kind of id the answer has that later requests may name
	query  []string          // parameters that are handed on
	empty  bool              // an answer may have no body
}

// API is a kind of request body: what is read of it, and where.
type API uint8

const (
	APIChat        API = iota // /v1/chat/completions
	APICompletions            // /v1/completions
	APIEmbeddings             // /v1/embeddings
	APIResponses              // /v1/responses
	APIMessages               // /v1/messages of Anthropic
	APIGenerate               // /generate of SGLang and of TGI
	APICompletion             // /completion and /infill of llama.cpp
	APITokens                 // /inference/v1/generate of vLLM: token ids
	APIItems                  // a model and what it works on: rerank, score, classify, speech
	APITool                   // the same where a model is seldom named: tokenize
	APIForm                   // multipart/form-data: audio, images
	APIBound                  // about something that one engine holds: no model
)

var apiNames = [...]string{"chat/completions", "completions", "embeddings", "responses", "messages", "generate", "completion",
	"tokens", "items", "tool", "form", "bound"}

func (a API) String() string { return apiNames[a] }

// namesModel reports whether a body of that kind must say which model it is
// for. The others are the engines' own: where the name is missing, the only
// model that is served is meant.
func (a API) namesModel() bool {
	switch a {
	case APIGenerate, APICompletion, APITokens, APITool, APIBound:
		return false
	}
	return true
}

// conversation reports whether the body has the turns of a conversation.
func (a API) conversation() bool { return a == APIChat || a == APIResponses || a == APIMessages }

// endpoints is the table. Control and development routes of engines are not
// in it: they stay closed because nothing opens them.
var endpoints = []endpoint{
	{path: "/v1/chat/completions", api: APIChat, answer: answerChat, keyed: true, makes: idChat},
	{path: "/v1/completions", api: APICompletions, answer: answerChat, keyed: true},
	{path: "/v1/responses", api: APIResponses, answer: answerResponses, keyed: true, binds: idResponse, makes: idResponse},
	{path: "/v1/messages", api: APIMessages, answer: answerMessages, keyed: true},

	{path: "/generate", api: APIGenerate, answer: answerGenerate, keyed: true, binds: idSession},
	{path: "/generate_stream", api: APIGenerate, answer: answerGenerate, keyed: true},
	{path: "/completion", api: APICompletion, answer: answerNative, keyed: true},
	{path: "/completions", as: "/completion", api: APICompletion, answer: answerNative, keyed: true},
	{path: "/infill", api: APICompletion, answer: answerNative, keyed: true},
	{path: "/inference/v1/generate", api: APITokens, answer: answerTokens, keyed: true},

	{path: "/v1/chat/completions/batch", api: APIChat},
	{path: "/v1/chat/completions/input_tokens", api: APIChat},
	{path: "/v1/chat/completions/render", api: APIChat},
	{path: "/v1/chat/completions/derender", as: "/v1/chat/completions/render", api: APIItems},
	{path: "/v1/completions/render", as: "/v1/chat/completions/render", api: APICompletions},
	{path: "/v1/completions/derender", as: "/v1/chat/completions/render", api: APIItems},
	{path: "/v1/responses/input_tokens", api: APIResponses, binds: idResponse},
	{path: "/v1/responses/compact", api: APIResponses, binds: idResponse},
	{path: "/v1/messages/count_tokens", api: APIMessages},
	{path: "/tokenize", api: APITool},
	{path: "/detokenize", api: APITool},
	{path: "/apply-template", api: APITool},

	{path: "/v1/embeddings", api: APIEmbeddings, needs: engine.Embeddings},
	{path: "/v2/embed", api: APIItems, needs: engine.Embeddings},
	{path: "/embedding", api: APITool, needs: engine.Embeddings},
	{path: "/embeddings", as: "/embedding", api: APITool, needs: engine.Embeddings},
	{path: "/encode", api: APITool, needs: engine.Embeddings},
	{path: "/rerank", api: APIItems},
	{path: "/v1/rerank", api: APIItems},
	{path: "/v2/rerank", api: APIItems},
	{path: "/reranking", api: APIItems},
	{path: "/v1/reranking", as: "/reranking", api: APIItems},
	{path: "/score", api: APIItems},
	{path: "/v1/score", api: APIItems},
	{path: "/classify", api: APIItems},
	{path: "/v1/classify", api: APIItems},
	{path: "/pooling", api: APIItems},
	{path: "/generative_scoring", api: APIItems},
	{path: "/v1/decisions", api: APIItems},
	{path: "/v1/moderations", api: APITool},

	{path: "/v1/audio/transcriptions", api: APIForm, answer: answerTranscript, needs: engine.Audio},
	{path: "/v1/audio/translations", api: APIForm, answer: answerTranscript, needs: engine.Audio},
	{path: "/v1/audio/speech", api: APIItems, needs: engine.Audio},
	{path: "/v1/images/generations", api: APIItems},
	{path: "/v1/images/edits", api: APIForm, needs: engine.Vision},
	{path: "/v1/images/variations", as: "/v1/images/edits", api: APIForm, needs: engine.Vision},

	{method: http.MethodGet, path: "/v1/responses/{id}", as: "/v1/responses", api: APIBound, answer: answerResponses, binds: idResponse,
		query: []string{"stream", "starting_after", "include", "include[]", "include_obfuscation"}},
	{method: http.MethodDelete, path: "/v1/responses/{id}", as: "/v1/responses", api: APIBound, binds: idResponse, empty: true},
	{path: "/v1/responses/{id}/cancel", as: "/v1/responses", api: APIBound, answer: answerResponses, binds: idResponse},
	{method: http.MethodGet, path: "/v1/responses/{id}/input_items", as: "/v1/responses", api: APIBound, binds: idResponse, query: pageQuery},

	{path: "/v1/conversations", api: APITool, makes: idConversation},
	{method: http.MethodGet, path: "/v1/conversations/{id}", as: "/v1/conversations", api: APIBound, binds: idConversation},
	{path: "/v1/conversations/{id}", as: "/v1/conversations", api: APIBound, binds: idConversation},
	{method: http.MethodDelete, path: "/v1/conversations/{id}", as: "/v1/conversations", api: APIBound, binds: idConversation, empty: true},
	{method: http.MethodGet, path: "/v1/conversations/{id}/items", as: "/v1/conversations", api: APIBound, binds: idConversation, query: pageQuery},
	{path: "/v1/conversations/{id}/items", as: "/v1/conversations", api: APIBound, binds: idConversation, query: pageQuery},
	{method: http.MethodGet, path: "/v1/conversations/{id}/items/{item}", as: "/v1/conversations", api: APIBound, binds: idConversation, query: pageQuery},
	{method: http.MethodDelete, path: "/v1/conversations/{id}/items/{item}", as: "/v1/conversations", api: APIBound, binds: idConversation, empty: true},

	{path: "/v1/chat/completions/control", api: APIBound, binds: idChat},
	{method: http.MethodGet, path: "/v1/chat/completions/{id}", api: APIBound, binds: idChat},
	{path: "/v1/chat/completions/{id}", api: APIBound, binds: idChat},
	{method: http.MethodDelete, path: "/v1/chat/completions/{id}", api: APIBound, binds: idChat, empty: true},
	{method: http.MethodGet, path: "/v1/chat/completions/{id}/messages", as: "/v1/chat/completions/{id}", api: APIBound, binds: idChat, query: pageQuery},

	{path: "/open_session", api: APITool, makes: idSession},
	{path: "/close_session", as: "/open_session", api: APIBound, binds: idSession, empty: true},
}

var pageQuery = []string{"after", "before", "limit", "order", "include", "include[]"}

// paths are the endpoints by what a request says: whole paths, and those with
// an id in them by their segments.
var (
	paths     = make(map[string][]*endpoint)
	templates []template
)

// template is a path with ids in it.
type template struct {
	segments []string // after the first "/"
	methods  []*endpoint
}

func init() {
	for i := range endpoints {
		ep := &endpoints[i]
		if ep.method == "" {
			ep.method = http.MethodPost
		}
		if ep.as == "" {
			ep.as = ep.path
		}
		ep.needs |= engine.PathNeeds(ep.as)
		if !strings.Contains(ep.path, "{") {
			paths[ep.path] = append(paths[ep.path], ep)
			continue
		}
		segments := strings.Split(ep.path[1:], "/")
		at := slices.IndexFunc(templates, func(t template) bool { return slices.Equal(t.segments, segments) })
		if at < 0 {
			at = len(templates)
			templates = append(templates, template{segments: segments})
		}
		templates[at].methods = append(templates[at].methods, ep)
	}
}

// endpointsOf finds the methods of a path, and the id in it.
func endpointsOf(path string) (methods []*endpoint, id string) {
	if m := paths[path]; m != nil {
		return m, ""
	}
	for i := range templates {
		if id, ok := templates[i].match(path); ok {
			return templates[i].methods, id
		}
	}
	return nil, ""
}

// match reports whether path has the template's form; every segment that an
// id stands for is a plain word.
func (t *template) match(path string) (id string, ok bool) {
	rest := strings.TrimPrefix(path, "/")
	for i, want := range t.segments {
		segment, more, found := strings.Cut(rest, "/")
		switch {
		case found != (i < len(t.segments)-1):
			return "", false
		case want[0] != '{':
			if segment != want {
				return "", false
			}
		case !plainID(segment):
			return "", false
		case want == "{id}":
			id = segment
		}
		rest = more
	}
	return id, true
}

// plainID reports whether an id can stand in a path of ours as it is.
func plainID(id string) bool {
	if len(id) == 0 || len(id) > maxKeyBytes || id == "." || id == ".." {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._-:~@=", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// allowed lists the methods for the Allow header.
func allowed(methods []*endpoint) string {
	names := make([]string, len(methods))
	for i, ep := range methods {
		names[i] = ep.method
	}
	return strings.Join(names, ", ")
}
