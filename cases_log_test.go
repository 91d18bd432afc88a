package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

// The access log says what is known and nothing else: no counts of tokens where
// the engine gave none, no time in a queue where nobody waited.
func TestAccessLogSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	sse := func(chunks ...string) func(x *enginetest.Exchange) {
		return func(x *enginetest.Exchange) {
			x.Respond(200, "text/event-stream", "data: "+strings.Join(chunks, "\n\ndata: ")+"\n\ndata: [DONE]\n\n")
		}
	}
	word := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}`
	stop := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	told := `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}}`
	e := startPlayed(t, sse(word, word, stop))
	g := startGateway(t, engineTOML("e1", e.URL()), "e1")
	c := http.DefaultClient
	line := func(id string) (fields map[string]any) {
		g.await("the request's line", func() bool { return strings.Contains(g.logs.String(), id) })
		for l := range strings.Lines(g.logs.String()) {
			if strings.Contains(l, id) && strings.Contains(l, `"msg":"request"`) {
				if err := json.Unmarshal([]byte(l), &fields); err != nil {
					t.Fatal(err)
				}
			}
		}
		return fields
	}
	quiet := line(g.post(c, "/v1/chat/completions", chatBody("m", "hi", true), "Traceparent", "00-"+trace+"-b7ad6b7169203331-01").header.Get("X-Request-Id"))
	if quiet["trace_id"] != trace || quiet["client_ip"] != "127.0.0.1" || quiet["content_events"] != 2.0 {
		t.Errorf("%v", quiet)
	}
	for _, name := range []string{"prompt_tokens", "cached_tokens", "completion_tokens", "queue_ms"} {
		if v, ok := quiet[name]; ok {
			t.Errorf("%s = %v, and nobody said so", name, v)
		}
	}
	e.SetPlay(sse(word, word, stop, told))
	full := line(g.post(c, "/v1/chat/completions", chatBody("m", "hi", true), "Traceparent", "00-secret words-of a client").header.Get("X-Request-Id"))
	if full["prompt_tokens"] != 7.0 || full["cached_tokens"] != 4.0 || full["completion_tokens"] != 3.0 || full["content_events"] != nil || full["trace_id"] != nil {
		t.Errorf("%v", full)
	}
}
