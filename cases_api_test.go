package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// apiCall is one way to call an endpoint: a body for a model, and what a good
// engine answers.
type apiCall struct {
	path   string
	body   string // %q is the model
	answer string // whole
	stream []string
	kind   string // content type of a request that is no JSON
}

// streaming is the body as that of a request for a stream.
func (c apiCall) streaming(model string) string {
	return strings.Replace(fmt.Sprintf(c.body, model), "{", `{"stream":true,`, 1)
}

const anyDialect = "\ndialect = \"openai\""

// startAny is startCase with engines of a kind that may serve every path.
func startAny(t testing.TB, limits string, engines ...*enginetest.Script) *running {
	t.Helper()
	text, names := "[limits]\n"+limits+"\n", []string{}
	for i, e := range engines {
		names = append(names, fmt.Sprintf("e%d", i+1))
		text += engineTOML(names[i], e.URL(), `dialect = "openai"`)
	}
	return startGateway(t, text, names...)
}

// begun is the stream up to its first content.
func (c apiCall) begun() []string {
	first := slices.IndexFunc(c.stream, func(p string) bool { return strings.Contains(p, "hello") || strings.Contains(p, "token_ids") })
	return c.stream[:first+1]
}

func events(lines ...string) (pieces []string) {
	for _, l := range lines {
		if name, data, ok := strings.Cut(l, " "); ok && !strings.HasPrefix(l, "{") && !strings.HasPrefix(l, "[") {
			pieces = append(pieces, "event: "+name+"\ndata: "+data+"\n\n")
		} else {
			pieces = append(pieces, "data: "+l+"\n\n")
		}
	}
	return pieces
}

var (
	responsesEvents = events(
		`response.created {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[],"usage":null,"error":null}}`,
		`response.output_item.added {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"hello"}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" world"}`,
		`response.completed {"type":"response.completed","sequence_number":4,"response":{"id":"resp_1","object":"response","status":"completed","model":"m","output":[],"error":null,"usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10,"input_tokens_details":{"cached_tokens":4}}}}`)
	messagesEvents = events(
		`message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":0}}}`,
		`content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" world"}}`,
		`content_block_stop {"type":"content_block_stop","index":0}`,
		`message_delta {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}`,
		`message_stop {"type":"message_stop"}`)
	nativeEvents = events(
		`{"index":0,"content":"hello","tokens":[1],"stop":false,"tokens_predicted":1,"tokens_evaluated":7}`,
		`{"index":0,"content":" world","tokens":[2],"stop":false,"tokens_predicted":2,"tokens_evaluated":7}`,
		`{"index":0,"content":"","tokens":[],"stop":true,"model":"m","tokens_predicted":3,"tokens_evaluated":7,"timings":{"cache_n":4,"prompt_n":3,"predicted_n":3}}`)
	sglangEvents = events(
		`{"text":"hello","output_ids":[1],"meta_info":{"id":"1","finish_reason":null,"prompt_tokens":7,"completion_tokens":1,"cached_tokens":4}}`,
		`{"text":"hello world","output_ids":[2],"meta_info":{"id":"1","finish_reason":{"type":"stop"},"prompt_tokens":7,"completion_tokens":3,"cached_tokens":4}}`, `[DONE]`)
	tgiEvents = events(
		`{"index":1,"token":{"id":1,"text":"hello","logprob":-1.0,"special":false},"generated_text":null,"details":null}`,
		`{"index":2,"token":{"id":2,"text":" world","logprob":-1.0,"special":false},"generated_text":"hello world","details":{"finish_reason":"length","generated_tokens":3,"input_length":7}}`)
	tokensEvents = events(
		`{"request_id":"1","choices":[{"index":0,"token_ids":[1],"finish_reason":null}]}`,
		`{"request_id":"1","choices":[{"index":0,"token_ids":[2],"finish_reason":"stop"}]}`, `[DONE]`)
)

const (
	wholeResponse = `{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":"message","content":[{"type":"output_text","text":"m says hello"}]}],"error":null,"usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10,"input_tokens_details":{"cached_tokens":4}}}`
	wholeMessage  = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"model":"m","stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":3}}`
)

// generating are the calls whose answers are made token by token.
var generating = []apiCall{
	{path: "/v1/chat/completions", body: `{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, answer: wholeAnswer, stream: []string{token("hello"), token(" world"), finishEvent, usageEvent(7, 3), doneEvent}},
	{path: "/v1/completions", body: `{"model":%q,"prompt":"hi"}`, answer: wholeText, stream: events(`{"model":"m","choices":[{"index":0,"text":"hello","finish_reason":null}]}`, `{"model":"m","choices":[{"index":0,"text":" world","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, `[DONE]`)},
	{path: "/v1/responses", body: `{"model":%q,"input":"hi"}`, answer: wholeResponse, stream: responsesEvents},
	{path: "/v1/messages", body: `{"model":%q,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, answer: wholeMessage, stream: messagesEvents},
	{path: "/generate", body: `{"model":%q,"text":"hi","sampling_params":{"max_new_tokens":9}}`, answer: `{"text":"hello","meta_info":{"prompt_tokens":7,"completion_tokens":3,"cached_tokens":4,"finish_reason":{"type":"stop"}}}`, stream: sglangEvents},
	{path: "/generate_stream", body: `{"model":%q,"inputs":"hi","parameters":{"max_new_tokens":9}}`, answer: `{"generated_text":"hello","details":{"generated_tokens":3,"input_length":7}}`, stream: tgiEvents},
	{path: "/completion", body: `{"model":%q,"prompt":"hi"}`, answer: `{"content":"hello","stop":true,"model":"m","timings":{"cache_n":4,"prompt_n":3,"predicted_n":3}}`, stream: nativeEvents},
	{path: "/infill", body: `{"model":%q,"input_prefix":"hi","input_suffix":"x"}`, answer: `{"content":"hello","stop":true,"timings":{"cache_n":4,"prompt_n":3,"predicted_n":3}}`, stream: nativeEvents},
	{path: "/inference/v1/generate", body: `{"model":%q,"token_ids":[1,2]}`, answer: `{"request_id":"1","choices":[{"index":0,"token_ids":[1],"finish_reason":"stop"}]}`, stream: tokensEvents},
}

// working are the calls whose answers are whole.
var working = func() (calls []apiCall) {
	for path, body := range map[string]string{
		"/v1/embeddings": `"input":"hi"`, "/v2/embed": `"texts":["hi"]`, "/embedding": `"content":"hi"`, "/embeddings": `"content":"hi"`, "/encode": `"text":"hi"`,
		"/rerank": `"query":"q","documents":["a"]`, "/v1/rerank": `"query":"q","documents":["a"]`, "/v2/rerank": `"query":"q","documents":["a"]`, "/reranking": `"query":"q"`, "/v1/reranking": `"query":"q"`,
		"/score": `"text_1":"a","text_2":"b"`, "/v1/score": `"text_1":"a","text_2":"b"`, "/classify": `"input":"a"`, "/v1/classify": `"input":"a"`, "/pooling": `"input":"a"`,
		"/generative_scoring": `"query":"a","items":["b"]`, "/v1/decisions": `"input":"a"`, "/v1/moderations": `"input":"a"`,
		"/tokenize": `"prompt":"hi"`, "/detokenize": `"tokens":[1]`, "/apply-template": `"messages":[]`,
		"/v1/chat/completions/render": `"messages":[]`, "/v1/chat/completions/derender": `"x":1`, "/v1/completions/render": `"prompt":"a"`, "/v1/completions/derender": `"x":1`,
		"/v1/chat/completions/batch": `"messages":[[{"role":"user","content":"a"}]]`, "/v1/chat/completions/input_tokens": `"messages":[]`,
		"/v1/responses/input_tokens": `"input":"a"`, "/v1/responses/compact": `"input":"a"`, "/v1/messages/count_tokens": `"messages":[]`,
		"/v1/audio/speech": `"input":"a","voice":"v"`, "/v1/images/generations": `"prompt":"a"`,
	} {
		calls = append(calls, apiCall{path: path, body: `{"model":%q,` + body + `}`, answer: `{"model":"m","result":[1],"usage":{"prompt_tokens":7,"total_tokens":7}}`})
	}
	for _, path := range []string{"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations"} {
		form := strings.ReplaceAll("--b\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\nContent-Type: audio/wav\n\nRIFF\x00%%\n--b\nContent-Disposition: form-data; name=\"model\"\n\n%s\n--b--\n", "\n", "\r\n")
		calls = append(calls, apiCall{path: path, body: form, answer: `{"text":"hello"}`, kind: "multipart/form-data; boundary=b"})
	}
	slices.SortFunc(calls, func(a, b apiCall) int { return strings.Compare(a.path, b.path) })
	return calls
}()

// send posts the call as its clients do.
func (c apiCall) send(g *running, client *http.Client, body string, headers ...string) answered {
	if c.kind != "" {
		req, _ := http.NewRequest(http.MethodPost, g.url+c.path, strings.NewReader(body))
		req.Header.Set("Content-Type", c.kind)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return do(client, req)
	}
	return g.post(client, c.path, body, headers...)
}

// playCalls answers every call of the API well.
func playCalls(x *enginetest.Exchange) {
	for _, c := range append(slices.Clone(generating), working...) {
		if c.path != x.Request.URL.Path {
			continue
		}
		if c.stream != nil && strings.Contains(string(x.Body), `"stream":true`) {
			streams(c.stream...)(x)
		} else {
			x.Respond(200, "application/json", c.answer)
		}
		return
	}
	x.Respond(404, "application/json", `{"detail":"Not Found"}`)
}

// Every endpoint is routed by its model and handed on byte for byte, answers too.
func TestC36_EveryEndpointIsRoutedByItsModel(t *testing.T) {
	t.Parallel()
	e1, e2 := startPlayed(t, playCalls), startPlayed(t, playCalls)
	e1.SetModels("m")
	e2.SetModels("org/n:1 x")
	g := startAny(t, "", e1, e2)
	c := over1(t)
	for _, call := range append(slices.Clone(generating), working...) {
		for _, to := range []struct {
			model string
			e     *enginetest.Script
			name  string
		}{{"m", e1, "e1"}, {"org/n:1 x", e2, "e2"}} {
			bodies := []string{fmt.Sprintf(call.body, to.model)}
			if call.stream != nil {
				bodies = append(bodies, call.streaming(to.model))
			}
			for i, body := range bodies {
				before := len(posts(to.e))
				a := call.send(g, c, body)
				want := call.answer
				if i == 1 {
					want = strings.Join(call.stream, "")
				}
				if a.status != 200 || a.err != nil || a.body != want || a.header.Get("X-Penstock-Engine") != to.name {
					t.Errorf("%s for %s: %d %v by %s\n%s\nwant\n%s", call.path, to.model, a.status, a.err, a.header.Get("X-Penstock-Engine"), a.body, want)
				}
				p := posts(to.e)
				if len(p) != before+1 {
					t.Fatalf("%s: %d requests at the engine", call.path, len(p)-before)
				}
				if x := p[before]; string(x.Body) != body || x.Request.URL.Path != call.path || call.kind != "" && x.Request.Header.Get("Content-Type") != call.kind {
					t.Errorf("%s: the engine saw %s %q", call.path, x.Request.URL, x.Body)
				}
				if strings.HasPrefix(call.path, "/v1/messages") != (a.header.Get("Request-Id") == a.header.Get("X-Request-Id")) {
					t.Errorf("%s: request ids %v", call.path, a.header)
				}
			}
		}
		if a := call.send(g, c, fmt.Sprintf(call.body, "nobody")); a.status != 404 || a.errorCode() != "model_not_found" {
			t.Errorf("%s for a model of nobody's: %d %s", call.path, a.status, a.body)
		}
	}
	idle(g, "e1", "e2")
}

// What an engine counts is counted, in each API's words, streamed or not.
func TestC51_UsageOfEachAPI(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, playCalls)
	g := startAny(t, "", e1)
	for _, call := range generating {
		switch call.path {
		case "/v1/completions", "/inference/v1/generate":
			continue // no counts in that answer, or others
		}
		for i, body := range []string{fmt.Sprintf(call.body, "m"), call.streaming("m")} {
			prompt, completion := g.metric(`penstock_tokens_total{kind="prompt",model="m",tenant="default"}`), g.metric(`penstock_tokens_total{kind="completion",model="m",tenant="default"}`)
			if a := call.send(g, over1(t), body); a.status != 200 {
				t.Fatalf("%s: %d", call.path, a.status)
			}
			g.await(fmt.Sprintf("the counts of %s %d", call.path, i), func() bool {
				return g.metric(`penstock_tokens_total{kind="prompt",model="m",tenant="default"}`) == prompt+7 &&
					g.metric(`penstock_tokens_total{kind="completion",model="m",tenant="default"}`) == completion+3
			})
		}
	}
}

// Cut anywhere, ended by an error of the engine, or silent: in every API the
// client sees what came, then an error that its SDK raises, then an unclean end.
func TestC02_BrokenStreamsOfEachAPI(t *testing.T) {
	t.Parallel()
	ends := map[string]func(x *enginetest.Exchange){
		"reset":     func(x *enginetest.Exchange) { x.Reset() },
		"closed":    func(x *enginetest.Exchange) { x.Close() },
		"clean end": func(x *enginetest.Exchange) { x.EndChunks() },
		"error, [DONE], clean end": func(x *enginetest.Exchange) {
			x.Chunk("data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n")
			x.EndChunks()
		},
		"error event, clean end": func(x *enginetest.Exchange) {
			x.Chunk("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"secret 10.0.0.1\"}}\n\n")
			x.EndChunks()
		},
		"silent":  func(x *enginetest.Exchange) { x.Hang() },
		"garbage": func(x *enginetest.Exchange) { x.Chunk("data: {\"a\n\n"); x.EndChunks() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				for _, c := range generating {
					if c.path == x.Request.URL.Path {
						x.StartStream()
						for _, p := range c.begun() {
							x.Chunk(p)
						}
						end(x)
					}
				}
			})
			e2 := startPlayed(t, playCalls)
			e2.SetModels("other")
			g := startAny(t, `stall = "300ms"`, e1, e2)
			bothProtocols(t, func(t *testing.T, c *http.Client) {
				for _, call := range generating {
					a := call.send(g, c, call.streaming("m"))
					rest, ok := strings.CutPrefix(a.body, strings.Join(call.begun(), ""))
					if a.status != 200 || a.err == nil || !ok {
						t.Errorf("%s: %d, error %v\n%s", call.path, a.status, a.err, a.body)
						continue
					}
					wantStreamError(t, call.path, rest)
				}
			})
			wantRequests(g, outcomes{"committed": 2 * len(generating)})
			idle(g, "e1")
		})
	}
}

// wantStreamError checks the one event with which a broken stream ends.
func wantStreamError(t *testing.T, path, event string) {
	t.Helper()
	named := ""
	if strings.HasPrefix(path, "/v1/messages") || strings.HasPrefix(path, "/v1/responses") {
		named = "event: error\n"
	}
	data, ok := strings.CutPrefix(event, named+"data: ")
	if !ok || strings.Count(event, "\n\n") != 1 || leak.MatchString(event) || strings.Contains(event, "secret") {
		t.Errorf("%s ends with %q", path, event)
		return
	}
	var doc struct {
		Type      string
		Code      string
		Message   string
		Sequence  *int   `json:"sequence_number"`
		RequestID string `json:"request_id"`
		Error     struct{ Type, Message, Code string }
	}
	if err := json.Unmarshal([]byte(data), &doc); err != nil {
		t.Errorf("%s: %v in %q", path, err, event)
		return
	}
	if !slices.Contains([]string{"stream_interrupted", "stream_stalled", "bad_engine_event"}, doc.Error.Code) || doc.Error.Message == "" || doc.Error.Type == "" {
		t.Errorf("%s: %+v", path, doc)
	}
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		if doc.Type != "error" || doc.RequestID == "" {
			t.Errorf("%s: %s", path, data)
		}
	case strings.HasPrefix(path, "/v1/responses"):
		if doc.Type != "error" || doc.Code != doc.Error.Code || doc.Message == "" || doc.Sequence == nil || *doc.Sequence != 3 {
			t.Errorf("%s: %s", path, data)
		}
	}
}

// An error before any content is an HTTP error, in the shape of the API.
func TestC05_ErrorAsFirstEventOfEachAPI(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startAny(t, "", e1)
	for _, status := range []int{400, 500} {
		fault := fmt.Sprintf("data: {\"error\":{\"message\":\"no\",\"type\":\"x\",\"param\":\"x\",\"code\":%d}}\n\ndata: [DONE]\n\n", status)
		for _, call := range generating {
			e1.SetPlay(onPosts(func(x *enginetest.Exchange) {
				x.StartStream()
				if call.path == "/v1/messages" || call.path == "/v1/responses" {
					x.Chunk(call.stream[0]) // these begin with an event that is no content
				}
				x.Chunk(fault)
				x.EndChunks()
			}))
			a := call.send(g, over1(t), call.streaming("m"))
			if a.status != status || a.err != nil || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %v %s", call.path, a.status, a.err, a.body)
			}
			if strings.HasPrefix(call.path, "/v1/messages") {
				wantAnthropicError(t, a)
			} else {
				checkError(t, a, status, map[int]string{400: "400", 500: "engine_error"}[status])
			}
		}
	}
	wantAttempts(g, "e1", outcomes{"client": len(generating), "ambiguous": len(generating)})
}

// wantAnthropicError checks a body in the shape of Anthropic's errors.
func wantAnthropicError(t *testing.T, a answered) {
	t.Helper()
	var doc struct {
		Type      string
		Error     struct{ Type, Message, Code string }
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || doc.Type != "error" || doc.Error.Type == "" || doc.Error.Message == "" ||
		doc.RequestID != a.header.Get("Request-Id") || doc.RequestID == "" || doc.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("%v: %d %s, headers %v", err, a.status, a.body, a.header)
	}
}

func TestErrorsUnderMessagesAreAnthropics(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startAny(t, `body = "1KiB"`, e1)
	c := over1(t)
	ask := func(method, path, body string, headers ...string) answered {
		req, _ := http.NewRequest(method, g.url+path, strings.NewReader(body))
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return do(c, req)
	}
	for _, k := range []struct {
		status int
		kind   string
		a      answered
	}{
		{400, "invalid_request_error", ask("POST", "/v1/messages", "{")},
		{400, "invalid_request_error", ask("POST", "/v1/messages/count_tokens", `{"messages":[]}`)},
		{404, "not_found_error", ask("POST", "/v1/messages", `{"model":"x"}`)},
		{404, "not_found_error", ask("POST", "/v1/messages/batches", `{"model":"x"}`)},
		{405, "invalid_request_error", ask("GET", "/v1/messages", "")},
		{413, "request_too_large", ask("POST", "/v1/messages", `{"x":"`+strings.Repeat("x", 2000)+`"}`)},
		{415, "invalid_request_error", ask("POST", "/v1/messages", `{}`, "Content-Encoding", "gzip")},
		{503, "api_error", ask("POST", "/v1/messages", `{"model":"m"}`, "x-penstock-require", "residency=eu")},
	} {
		if k.a.status != k.status || !strings.Contains(k.a.body, `"type":"`+k.kind+`"`) {
			t.Errorf("%d %s, want %d %s", k.a.status, k.a.body, k.status, k.kind)
		}
		wantAnthropicError(t, k.a)
	}
	wantPosts(t, e1, 0)
}

// llama.cpp answers a missing member under /v1/messages with a 500: the
// client's mistake, and told so as the engine put it.
func TestMissingMembersUnderMessagesAreTheClients(t *testing.T) {
	t.Parallel()
	body := `{"error":{"code":500,"message":"'messages' is required","type":"server_error"}}`
	e1 := startPlayed(t, func(x *enginetest.Exchange) { x.Respond(500, "application/json", body) })
	g := startAny(t, "", e1)
	a := g.post(over1(t), "/v1/messages", `{"model":"m"}`)
	if a.status != 500 || a.body != body || a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if a := g.post(over1(t), "/v1/chat/completions", `{"model":"m"}`); a.status != 500 || a.body == body {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantAttempts(g, "e1", outcomes{"client": 1, "ambiguous": 1})
}

// A whole answer that says that it failed is the API's own: the client gets it,
// and the engine is charged with it. So is a stream that ends so.
func TestResponsesThatFailed(t *testing.T) {
	t.Parallel()
	failed := `{"id":"resp_1","object":"response","status":"failed","model":"m","output":[],"error":{"code":"server_error","message":"The model broke."}}`
	stream := append(slices.Clone(responsesEvents[:4]), events(`response.failed {"type":"response.failed","sequence_number":4,"response":`+failed+`}`)...)
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		switch {
		case strings.Contains(string(x.Body), "at once"):
			streams(responsesEvents[0], stream[4])(x)
		case strings.Contains(string(x.Body), `"stream":true`):
			streams(stream...)(x)
		default:
			x.Respond(200, "application/json", failed)
		}
	})
	g := startAny(t, "", e1)
	c := over1(t)
	if a := g.post(c, "/v1/responses", `{"model":"m","input":"hi"}`); a.status != 200 || a.body != failed || a.err != nil {
		t.Errorf("%d %v %s", a.status, a.err, a.body)
	}
	if a := g.post(c, "/v1/responses", `{"model":"m","input":"hi","stream":true}`); a.status != 200 || a.err != nil || a.body != strings.Join(stream, "") {
		t.Errorf("%d %v %s", a.status, a.err, a.body)
	}
	a := g.post(c, "/v1/responses", `{"model":"m","input":"at once","stream":true}`)
	checkError(t, a, 500, "engine_error")
	wantAttempts(g, "e1", outcomes{"committed": 2, "ambiguous": 1})
}

// A ping keeps a connection, not a stalled stream: neither Anthropic's nor
// OpenAI's buys an engine time.
func TestPingsAreNoProgress(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		pieces, ping := messagesEvents[:3], events(`ping {"type":"ping"}`)[0]
		if strings.HasSuffix(x.Request.URL.Path, "responses") {
			pieces, ping = responsesEvents[:3], events(`keepalive {"type":"keepalive","sequence_number":3}`)[0]
		}
		for _, p := range pieces {
			x.Chunk(p)
		}
		for x.Pause(20 * time.Millisecond) {
			x.Chunk(ping)
		}
	})
	g := startAny(t, `stall = "300ms"`, e1)
	for path, body := range map[string]string{"/v1/messages": `{"model":"m","stream":true,"messages":[]}`, "/v1/responses": `{"model":"m","stream":true,"input":"x"}`} {
		a := g.post(over1(t), path, body)
		if a.err == nil || !strings.Contains(a.body, "stream_stalled") || !strings.Contains(a.body, "ping") && !strings.Contains(a.body, "keepalive") {
			t.Errorf("%s: %v\n%s", path, a.err, a.body)
		}
	}
}
