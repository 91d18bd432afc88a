package proxy

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// An answer that compares an event with the one before comes to the same
// verdicts, usage and end as one that reads every event anew.
func TestFramesChangeNothing(t *testing.T) {
	shapes := []string{
		`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
		`{"choices":[{"index":1,"delta":{"content":"%s"},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"%s"}}]}`,
		`{"choices":[{"index":0,"text":"%s","finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s","refusal":"no"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
		`{"choices":[{"index":0,"delta":{"content":"x","tool_calls":[{"a":"%s"}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}}],"error":{"message":"m","code":500}}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}}]`,
	}
	texts := []string{"", " word", `a\"b`, `\\`, `","finish_reason":"stop","x":"`, `"}}],"error":{"message":"`, "Grüße", `\u0041`, "a\\"}
	rapid.Check(t, func(t *rapid.T) {
		var with, without answer
		with.Reset()
		without.Reset()
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			data := fmt.Appendf(nil, rapid.SampledFrom(shapes).Draw(t, "shape"), rapid.SampledFrom(texts).Draw(t, "text"))
			without.before = nil
			if a, b := with.observe(sseEvent{Data: data}), without.observe(sseEvent{Data: data}); a != b {
				t.Fatalf("%s: %v, read anew %v", data, a, b)
			}
			if with.tokens != without.tokens || with.usage != without.usage || with.finish(true) != without.finish(true) {
				t.Fatalf("%s: %d tokens, %+v, %v; read anew %d, %+v, %v", data, with.tokens, with.usage, with.finish(true),
					without.tokens, without.usage, without.finish(true))
			}
		}
	})
}
