package engine

import "strings"

// paths is the table of the API paths that only some kinds of engine serve,
// each kind by its letter (dialect.servesBy): v vLLM, s SGLang, g TGI,
// l llama.cpp, r trtllm-serve, t Triton's OpenAI frontend, d LMDeploy, n NIM.
// A kind is in a row from the first of its versions that has the path; an
// older one answers 404 itself. A row without letters is of servers that are
// told from nothing but the OpenAI API. Chat and plain completions are served
// by all, embeddings are a capability with a word of its own.
var paths = [...]struct{ path, by string }{
	{"/v1/responses", "vslrdn"},
	{"/v1/messages", "vslrdn"},
	{"/v1/messages/count_tokens", "vsldn"},
	{"/v1/rerank", "vslrn"},
	{"/rerank", "vln"},
	{"/v2/rerank", "vn"},
	{"/v2/embed", "vn"},
	{"/v1/score", "vsn"},
	{"/score", "vn"},
	{"/classify", "vsn"},
	{"/v1/classify", "s"},
	{"/pooling", "vdn"},
	{"/tokenize", "vsgln"},
	{"/detokenize", "vsln"},
	{"/v1/audio/transcriptions", "vsn"},
	{"/v1/audio/translations", "vn"},
	{"/generate", "sgd"},
	{"/generate_stream", "g"},
	{"/completion", "l"},
	{"/infill", "l"},
	// The path is the same, the bodies are not.
	{PathGenerateText, "s"},
	{PathGenerateInputs, "g"},
	{"/inference/v1/generate", "vn"},
	{"/open_session", "s"},
	{"/v1/chat/completions/batch", "vn"},
	{"/v1/chat/completions/render", "vn"},
	{"/v1/chat/completions/input_tokens", "l"},
	{"/v1/chat/completions/control", "l"},
	{"/v1/chat/completions/{id}", ""},
	{"/v1/responses/input_tokens", ""},
	{"/v1/responses/compact", ""},
	{"/v1/conversations", ""},
	{"/apply-template", "l"},
	{"/embedding", "l"},
	{"/encode", "s"},
	{"/reranking", "l"},
	{"/generative_scoring", "vn"},
	{"/v1/decisions", "v"},
	{"/v1/moderations", ""},
	// Of vLLM's and SGLang's offspring for speech and images, which show as
	// what they came from.
	{"/v1/audio/speech", "v"},
	{"/v1/images/generations", "vs"},
	{"/v1/images/edits", "vs"},
}

// Bodies of /generate, as paths.
const (
	PathGenerateText   = "/generate (text)"   // SGLang's
	PathGenerateInputs = "/generate (inputs)" // TGI's
)

// PathNeeds is what a request for an API path needs of an engine beyond its
// model: 0 for paths that every kind serves or that are not in the table.
func PathNeeds(path string) Capability {
	if path == "/v1/embeddings" {
		return Embeddings
	}
	for i := range paths {
		if paths[i].path == path {
			return firstPath << i
		}
	}
	return 0
}

// can is what engines of the dialect can do.
func (d *dialect) can() Capability {
	if d.servesBy == "" {
		return AllCapabilities
	}
	set := words
	for i := range paths {
		if strings.Contains(paths[i].by, d.servesBy) {
			set |= firstPath << i
		}
	}
	return set &^ d.lacks
}
