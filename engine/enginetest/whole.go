package enginetest

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
)

// usage is the token count of one request. A prompt counts once, however many
// answers to it were asked for.
type usage struct {
	prompt, cached, completion int
}

// usageOf may be called once the call is finished.
func usageOf(c *call) usage {
	var u usage
	for i, ch := range c.choices {
		u.completion += ch.Generated
		if i%c.perPrompt == 0 {
			u.prompt += ch.Prompt
			u.cached += ch.Cached
		}
	}
	return u
}

// append writes the object with the members that vLLM has there.
func (u usage) append(b []byte, e endpoint, streamed bool) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), int64(u.prompt), 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(u.prompt+u.completion), 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(u.completion), 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), int64(u.cached), 10)
	if e == chat {
		b = append(b, `,"created_cache_tokens":0`...)
		if !streamed {
			b = append(b, `,"multimodal_tokens":null`...)
		}
	}
	b = append(b, '}')
	if !streamed {
		b = append(b, `,"completion_tokens_details":null`...)
	}
	return append(b, '}')
}

// answerWhole waits for everything and answers in one piece.
func (s *Sim) answerWhole(w http.ResponseWriter, r *http.Request, in *input, c *call) ending {
	for !c.finished() {
		switch s.await(r, c) {
		case clientLeft:
			return disconnected
		case engineGone:
			writeError(w, http.StatusInternalServerError, errorFor(http.StatusInternalServerError, engineDied))
			return refused
		}
	}
	var body []byte
	switch in.endpoint {
	case embeddings:
		body = s.embeddingsBody(in, c)
	case responses:
		body = s.responseBody(in, c)
	default:
		body = s.completionBody(in, c)
	}
	w.Header().Set("Content-Type", "application/json")
	if end, hit := s.failWhole(w, r, in, body); hit {
		return end
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return disconnected
	}
	return completed
}

func (s *Sim) head(in *input, c *call, object string) []byte {
	b := appendQuoted([]byte(`{"id":`), s.completionID(in))
	b = append(b, `,"object":"`+object+`","created":`...)
	b = strconv.AppendInt(b, c.arrived.Unix(), 10)
	return appendQuoted(append(b, `,"model":`...), in.Model)
}

func (s *Sim) completionBody(in *input, c *call) []byte {
	object := "chat.completion"
	if in.endpoint == completions {
		object = "text_completion"
	}
	b := append(s.head(in, c, object), `,"choices":[`...)
	for i, ch := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
		if in.endpoint == chat {
			b = append(b, `,"message":{"role":"assistant","content":"`+ch.answer+`","refusal":null,"annotations":null,"audio":null,`+
				`"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"`+ch.finishReason()+
				`","stop_reason":null,"token_ids":null,"routed_experts":null}`...)
		} else {
			b = append(b, `,"text":"`+ch.answer+`","logprobs":null,"finish_reason":"`+ch.finishReason()+
				`","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}`...)
		}
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":"`+fingerprint+`","usage":`...)
	b = usageOf(c).append(b, in.endpoint, false)
	if in.endpoint == chat {
		return append(b, `,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
	}
	return append(b, `,"kv_transfer_params":null}`...)
}

// responseBody is a response of one message.
func (s *Sim) responseBody(in *input, c *call) []byte {
	ch, id := c.choices[0], s.completionID(in)
	b := appendQuoted([]byte(`{"id":`), id)
	b = strconv.AppendInt(append(b, `,"object":"response","created_at":`...), c.arrived.Unix(), 10)
	b = appendQuoted(append(b, `,"status":"completed","model":`...), in.Model)
	b = appendQuoted(append(b, `,"output":[{"type":"message","id":`...), "msg_"+id)
	b = append(b, `,"role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"text":"`+ch.answer+`"}]}],"usage":{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(ch.Prompt), 10)
	b = strconv.AppendInt(append(b, `,"input_tokens_details":{"cached_tokens":`...), int64(ch.Cached), 10)
	b = strconv.AppendInt(append(b, `},"output_tokens":`...), int64(ch.Generated), 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(ch.Prompt+ch.Generated), 10)
	return append(b, `}}`...)
}

// Embedding vectors have eight dimensions unless the request says otherwise.
const (
	defaultDimensions = 8
	maxDimensions     = 4096
)

func (s *Sim) embeddingsBody(in *input, c *call) []byte {
	dims := in.Dimensions
	if dims <= 0 || dims > maxDimensions {
		dims = defaultDimensions
	}
	b := append(s.head(in, c, "list"), `,"data":[`...)
	for i, ch := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
		b = appendVector(append(b, `,"object":"embedding","embedding":`...), vector(ch.hash, dims), in.EncodingFormat == "base64")
		b = append(b, '}')
	}
	u := usageOf(c)
	b = strconv.AppendInt(append(b, `],"usage":{"prompt_tokens":`...), int64(u.prompt), 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(u.prompt), 10)
	return append(b, `,"completion_tokens":0,"prompt_tokens_details":null}}`...)
}

// vector is a unit vector that depends on the text alone.
func vector(hash uint64, dims int) []float32 {
	v := make([]float32, dims)
	norm := 0.0
	for i := range v {
		hash = mix(hash + 1)
		x := float64(hash>>11)/(1<<52) - 1
		v[i] = float32(x)
		norm += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(norm))
	}
	return v
}

func appendVector(b []byte, v []float32, packed bool) []byte {
	if packed {
		raw := make([]byte, 0, 4*len(v))
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
	}
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}
