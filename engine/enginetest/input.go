package enginetest

import (
	"cmp"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// input is what the engine reads of a request; everything else is ignored.
type input struct {
	Model               string         `json:"model"`
	Messages            jsontext.Value `json:"messages"`
	Prompt              jsontext.Value `json:"prompt"`
	Input               jsontext.Value `json:"input"`
	Stream              bool           `json:"stream"`
	StreamOptions       streamOptions  `json:"stream_options"`
	MaxTokens           *int           `json:"max_tokens"`
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	MaxOutputTokens     *int           `json:"max_output_tokens"`
	N                   *int           `json:"n"`
	CacheSalt           string         `json:"cache_salt"`
	Dimensions          int            `json:"dimensions"`
	EncodingFormat      string         `json:"encoding_format"`
	Nonce               string         `json:"nonce"` // of tests: comes back in the answer

	endpoint  endpoint
	requestID string // X-Request-Id
	number    uint64 // of the request at this engine
	fault     Fault
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// deliveryID is the name under which a request is counted.
func (in *input) deliveryID() string {
	if in.Nonce != "" {
		return in.Nonce
	}
	return in.requestID
}

// decodeInput reads a body. It returns an input in any case, so that a bad
// request can be counted too.
func decodeInput(e endpoint, r *http.Request, body []byte) (*input, *apiError) {
	in := &input{}
	// As Python's decoder: the last of several equal names counts.
	err := json.Unmarshal(body, in, jsontext.AllowDuplicateNames(true))
	in.endpoint = e
	in.requestID = r.Header.Get("X-Request-Id")
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media != "application/json" && !strings.HasSuffix(media, "+json") {
		return in, &apiError{Code: http.StatusBadRequest, Type: "Bad Request",
			Message: "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"}
	}
	if err != nil {
		return in, decodeError(err)
	}
	return in, nil
}

// maxChoices bounds prompts x n of one request.
const maxChoices = 1024

// prepare turns a request into the sequences that answer it.
func (s *Sim) prepare(in *input) (*call, *apiError) {
	if in.Model == "" {
		in.Model = s.cfg.Models[0]
	}
	texts, bad := in.prompts()
	if bad != nil {
		return nil, bad
	}
	if in.endpoint == responses && (in.Stream || len(texts) != 1) {
		return nil, errorFor(http.StatusBadRequest, "This engine's responses have one text as input and are not streamed. (parameter=stream)").about("stream")
	}
	if !slices.Contains(s.cfg.Models, in.Model) {
		return nil, errorFor(http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.",
			in.Model, strings.Join(s.cfg.Models, ", "))).about("model")
	}
	n := 1
	if in.N != nil && in.endpoint != embeddings && in.endpoint != responses {
		n = *in.N
	}
	if n < 1 || n*len(texts) > maxChoices {
		return nil, errorFor(http.StatusBadRequest, fmt.Sprintf("n must be at least 1 and n x prompts at most %d, got %d. (parameter=n, value=%d)",
			maxChoices, n*len(texts), n)).about("n")
	}
	c := &call{arrived: time.Now(), perPrompt: n, wake: make(chan struct{}, 1)}
	for _, text := range texts {
		for range n {
			ch, bad := s.newChoice(in, text, len(c.choices))
			if bad != nil {
				return nil, bad
			}
			c.choices = append(c.choices, ch)
		}
	}
	return c, nil
}

// newChoice plans the index-th answer of a request: its length and its text.
func (s *Sim) newChoice(in *input, prompt []byte, index int) (*choice, *apiError) {
	ch := &choice{}
	ch.Prompt = len(prompt) / tokenBytes
	ch.hash = xxhash.Sum64(prompt)
	limit := cmp.Or(in.MaxCompletionTokens, in.MaxTokens)
	if in.endpoint == responses {
		limit = in.MaxOutputTokens
	}
	longest := s.cfg.MaxModelLen
	switch {
	case in.endpoint == embeddings:
	case limit == nil:
		ch.Out = min(16+int(mix(ch.hash)%49), max(1, longest-ch.Prompt))
	case *limit < 1:
		return nil, errorFor(http.StatusBadRequest, fmt.Sprintf("max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%d)",
			*limit, *limit)).about("max_tokens")
	case *limit > longest:
		return nil, errorFor(http.StatusBadRequest, fmt.Sprintf("max_tokens=%d cannot be greater than max_model_len=%d. "+
			"Please request fewer output tokens. (parameter=max_tokens, value=%d)", *limit, longest, *limit)).about("max_tokens")
	default:
		ch.Out, ch.limited = *limit, true
	}
	if ch.Prompt+ch.Out > longest {
		return nil, errorFor(http.StatusBadRequest, fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens "+
			"and your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt "+
			"or the number of requested output tokens. (parameter=input_tokens, value=%d)",
			longest, ch.Out, ch.Prompt, ch.Prompt+ch.Out, ch.Prompt)).about("input_tokens")
	}
	nonce := in.deliveryID()
	if nonce == "" {
		nonce = fmt.Sprint(s.cfg.Name, "/", in.number)
	}
	ch.answer = Answer(mix(s.cfg.Seed+ch.hash)+uint64(index)*0x5851f42d4c957f2d, nonce, ch.Out)
	start := xxhash.Sum64String(in.Model + "\x00" + in.CacheSalt)
	ch.Chain = Chain(start, pad(slices.Concat(prompt, []byte(ch.answer))))
	return ch, nil
}

// prompts renders what is to be computed, each a whole number of tokens.
func (in *input) prompts() ([][]byte, *apiError) {
	name, value := "messages", in.Messages
	switch in.endpoint {
	case completions:
		name, value = "prompt", in.Prompt
	case embeddings, responses:
		name, value = "input", in.Input
	}
	if value == nil || value.Kind() == 'n' {
		return nil, invalid("missing", "body."+name, "Field required", "'input': '<dict>'")
	}
	if in.endpoint == chat {
		text, err := renderChat(value)
		if err != nil {
			return nil, invalid("list_type", "body.messages", "Input should be a valid list", "'input': '<value>'")
		}
		return [][]byte{text}, nil
	}
	texts := renderPrompts(value)
	for i := range texts {
		if len(texts[i]) == 0 {
			texts[i] = make([]byte, tokenBytes) // the token that opens every text
		}
	}
	if len(texts) == 0 {
		return nil, invalid("string_type", "body."+name, "Input should be a valid string, list of strings or list of token ids", "'input': '<value>'")
	}
	return texts, nil
}

// renderPrompts reads a string, a list of strings, a list of token ids or a
// list of such lists; nil if it is none of them.
func renderPrompts(value jsontext.Value) [][]byte {
	var text string
	var texts []string
	var ids []uint32
	var lists [][]uint32
	out := [][]byte(nil)
	switch {
	case json.Unmarshal(value, &text) == nil:
		out = append(out, pad([]byte(text)))
	case json.Unmarshal(value, &texts) == nil:
		for _, t := range texts {
			out = append(out, pad([]byte(t)))
		}
	case json.Unmarshal(value, &ids) == nil:
		out = append(out, appendTokenIDs(nil, ids))
	case json.Unmarshal(value, &lists) == nil:
		for _, l := range lists {
			out = append(out, appendTokenIDs(nil, l))
		}
	}
	return out
}

type message struct {
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	ToolCalls jsontext.Value `json:"tool_calls"`
}

// renderChat writes a conversation as its prompt: for each message one token
// that names the role and the text, and at the end the token that opens the
// answer. So a conversation with the answer in it begins with the prompt
// that the answer was given to, and the answer.
func renderChat(value jsontext.Value) ([]byte, error) {
	var messages []message
	if err := json.Unmarshal(value, &messages, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(value)+len(value)/8)
	for _, m := range messages {
		text = roleToken(text, m.Role)
		var err error
		if text, err = appendContent(text, m.Content); err != nil {
			return nil, err
		}
		if m.ToolCalls != nil && m.ToolCalls.Kind() == '[' {
			text = append(text, m.ToolCalls...)
		}
		text = pad(text)
	}
	return roleToken(text, "assistant"), nil
}

func roleToken(text []byte, role string) []byte {
	mark := byte('?')
	if role != "" {
		mark = role[0]
	}
	return append(text, '<', mark, '>', '\n')
}

// imageBytes is the text that stands for a part that is not text: 256 tokens
// that depend on all of it.
const imageBytes = 256 * tokenBytes

// appendContent writes a message's content, which is a string or a list of parts.
func appendContent(text []byte, content jsontext.Value) ([]byte, error) {
	switch content.Kind() {
	case '"':
		var s string
		err := json.Unmarshal(content, &s)
		return append(text, s...), err
	case '[':
	default:
		return text, nil
	}
	var parts []jsontext.Value
	if err := json.Unmarshal(content, &parts); err != nil {
		return text, err
	}
	for _, raw := range parts {
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return text, err
		}
		if part.Type == "text" {
			text = append(text, part.Text...)
			continue
		}
		h := xxhash.Sum64(raw)
		for range imageBytes / 8 {
			h = mix(h + 1)
			text = appendTokenIDs(text, []uint32{uint32(h & math.MaxUint32), uint32(h >> 32)})
		}
	}
	return text, nil
}
