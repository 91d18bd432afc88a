package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// What is content, and so the commit point, in each API's events.
func TestC52_FirstContentOfEachAPI(t *testing.T) {
	for _, c := range []struct {
		kind answerKind
		data string
		want verdict
	}{
		{answerResponses, `{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"usage":null}}`, verdictNoContent},
		{answerResponses, `{"type":"response.queued","response":{}}`, verdictNoContent},
		{answerResponses, `{"type":"response.in_progress","response":{}}`, verdictNoContent},
		{answerResponses, `{"type":"response.output_item.added","item":{"type":"message","content":[]}}`, verdictNoContent},
		{answerResponses, `{"type":"response.output_item.added","item":{"type":"reasoning","summary":[]}}`, verdictNoContent},
		{answerResponses, `{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}`, verdictFirstContent},
		{answerResponses, `{"type":"response.output_item.added","item":{"type":"web_search_call"}}`, verdictFirstContent},
		{answerResponses, `{"type":"response.content_part.added","part":{"type":"output_text","text":""}}`, verdictNoContent},
		{answerResponses, `{"type":"response.output_text.delta","delta":""}`, verdictNoContent},
		{answerResponses, `{"delta":"a","type":"response.output_text.delta"}`, verdictFirstContent},
		{answerResponses, `{"type":"response.reasoning_text.delta","delta":"a"}`, verdictFirstContent},
		{answerResponses, `{"type":"response.reasoning_summary_text.delta","delta":"a"}`, verdictFirstContent},
		{answerResponses, `{"type":"response.function_call_arguments.delta","delta":"{"}`, verdictFirstContent},
		{answerResponses, `{"type":"response.refusal.delta","delta":"no"}`, verdictFirstContent},
		{answerResponses, `{"type":"response.completed","response":{"status":"completed"}}`, verdictFirstContent},
		{answerResponses, `{"type":"response.incomplete","response":{"status":"incomplete"}}`, verdictFirstContent},
		{answerResponses, `{"type":"keepalive","sequence_number":3}`, verdictIdle},
		{answerResponses, `{"type":"response.failed","response":{"object":"response","status":"failed","error":{"code":"server_error","message":"x"}}}`, verdictError},
		{answerResponses, `{"type":"error","code":"server_error","message":"x"}`, verdictError},
		{answerResponses, `{"error":{"message":"x","code":500}}`, verdictError},
		{answerResponses, `[DONE]`, verdictNoContent},

		{answerMessages, `{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":3}}}`, verdictNoContent},
		{answerMessages, `{"type":"ping"}`, verdictIdle},
		{answerMessages, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, verdictNoContent},
		{answerMessages, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`, verdictNoContent},
		{answerMessages, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}`, verdictFirstContent},
		{answerMessages, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`, verdictNoContent},
		{answerMessages, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, verdictFirstContent},
		{answerMessages, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`, verdictFirstContent},
		{answerMessages, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`, verdictFirstContent},
		{answerMessages, `{"type":"content_block_stop","index":0}`, verdictNoContent},
		{answerMessages, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`, verdictFirstContent},
		{answerMessages, `{"type":"message_stop"}`, verdictFirstContent},
		{answerMessages, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, verdictError},
		{answerMessages, `{"error":{"message":"x","code":500}}`, verdictError},

		{answerNative, `{"index":0,"content":"","tokens":[],"stop":false}`, verdictNoContent},
		{answerNative, `{"index":0,"content":"a","tokens":[5],"stop":false}`, verdictFirstContent},
		{answerNative, `{"index":0,"content":"","tokens":[5],"stop":false}`, verdictFirstContent},
		{answerNative, `{"content":"","stop":true}`, verdictFirstContent},
		{answerNative, `{"error":{"code":500,"message":"x","type":"server_error"}}`, verdictError},

		{answerGenerate, `{"text":"","output_ids":[],"meta_info":{"id":"1","finish_reason":null,"prompt_tokens":3}}`, verdictNoContent},
		{answerGenerate, `{"text":"a","output_ids":[5],"meta_info":{"id":"1","finish_reason":null}}`, verdictFirstContent},
		{answerGenerate, `{"text":"a","meta_info":{"finish_reason":{"type":"length","length":1}}}`, verdictFirstContent},
		{answerGenerate, `{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"x","status_code":503}}}`, verdictError},
		{answerGenerate, `{"error":{"message":"The request queue is full."}}`, verdictError},
		{answerGenerate, `{"index":1,"token":{"id":5,"text":"a","logprob":-1,"special":false},"generated_text":null,"details":null}`, verdictFirstContent},
		{answerGenerate, `{"error":"Model is overloaded","error_type":"overloaded"}`, verdictError},

		{answerTokens, `{"request_id":"1","choices":[{"index":0,"token_ids":[1,2],"finish_reason":null}]}`, verdictFirstContent},
		{answerTokens, `{"request_id":"1","choices":[{"index":0,"token_ids":[],"finish_reason":null}]}`, verdictNoContent},
		{answerTranscript, `{"type":"transcript.text.delta","delta":"a"}`, verdictFirstContent},
		{answerTranscript, `{"object":"transcription.chunk","choices":[{"delta":{"content":"a"}}]}`, verdictFirstContent},
		{answerAny, `{"b64_json":"AAAA","type":"image_generation.partial_image"}`, verdictFirstContent},
		{answerAny, `plain`, verdictFirstContent},
		{answerAny, `{"error":{"message":"x"}}`, verdictError},
		{answerMessages, `{"type":"message_st`, verdictMalformed},
	} {
		a := new(answer)
		a.Begin(c.kind, false, false)
		if got := a.observe(sseEvent{Data: []byte(c.data)}); got != c.want {
			t.Errorf("%d %s: %v, want %v", c.kind, c.data, got, c.want)
		}
	}
}

// What ends each API's streams properly, and what does not.
func TestEndingsOfEachAPI(t *testing.T) {
	created := `{"type":"response.created","response":{"id":"resp_1","object":"response"}}`
	delta := `{"type":"response.output_text.delta","delta":"a"}`
	start := `{"type":"message_start","message":{"usage":{"input_tokens":3}}}`
	block := `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`
	stopReason := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`
	for _, c := range []struct {
		kind    answerKind
		several bool
		events  []string
		clean   ending
		unclean ending
	}{
		{answerResponses, false, []string{created, delta, `{"type":"response.completed","response":{}}`}, endingComplete, endingComplete},
		{answerResponses, false, []string{created, delta, `{"type":"response.incomplete","response":{}}`}, endingComplete, endingComplete},
		{answerResponses, false, []string{created, delta, `{"type":"response.failed","response":{"error":{"message":"x"}}}`}, endingFailed, endingFailed},
		{answerResponses, false, []string{created, delta, `{"type":"response.output_text.done","text":"a"}`}, endingInterrupted, endingInterrupted},
		{answerResponses, false, []string{created, delta, `[DONE]`}, endingInterrupted, endingInterrupted},
		{answerResponses, false, []string{created, delta, `{"type":"error","message":"x"}`, `{"type":"response.completed","response":{}}`}, endingInterrupted, endingInterrupted},
		{answerResponses, false, []string{created}, endingEmpty, endingInterrupted},
		{answerMessages, false, []string{start, block, stopReason, `{"type":"message_stop"}`}, endingComplete, endingComplete},
		{answerMessages, false, []string{start, block, stopReason}, endingInterrupted, endingInterrupted},
		{answerMessages, false, []string{start, block}, endingInterrupted, endingInterrupted},
		{answerMessages, false, []string{start, block, `[DONE]`}, endingInterrupted, endingInterrupted},
		{answerMessages, false, []string{start, block, `{"type":"error","error":{"type":"api_error","message":"x"}}`, `{"type":"message_stop"}`}, endingInterrupted, endingInterrupted},
		{answerMessages, false, []string{start}, endingEmpty, endingInterrupted},
		{answerNative, false, []string{`{"content":"a","stop":false}`, `{"content":"","stop":true}`}, endingComplete, endingComplete},
		{answerNative, false, []string{`{"content":"a","stop":false}`}, endingInterrupted, endingInterrupted},
		{answerNative, true, []string{`{"index":0,"content":"a","stop":false}`, `{"index":0,"content":"","stop":true}`}, endingComplete, endingInterrupted},
		{answerNative, true, []string{`{"index":0,"content":"","stop":true}`, `{"index":1,"content":"a","stop":false}`}, endingInterrupted, endingInterrupted},
		{answerNative, true, []string{`{"index":0,"content":"","stop":true}`, `{"index":1,"content":"a","stop":true}`}, endingComplete, endingInterrupted},
		{answerGenerate, false, []string{`{"text":"a","meta_info":{"finish_reason":{"type":"stop"}}}`, `[DONE]`}, endingComplete, endingComplete},
		{answerGenerate, false, []string{`{"text":"a","meta_info":{"finish_reason":{"type":"stop"}}}`}, endingInterrupted, endingInterrupted},
		{answerGenerate, false, []string{`{"token":{"text":"a"},"generated_text":null}`, `{"token":{"text":"b"},"generated_text":"ab"}`}, endingComplete, endingComplete},
		{answerGenerate, false, []string{`{"token":{"text":"a"},"generated_text":null}`}, endingInterrupted, endingInterrupted},
		{answerGenerate, false, []string{`{"token":{"text":""},"generated_text":""}`}, endingComplete, endingComplete},
		{answerTokens, false, []string{`{"choices":[{"index":0,"token_ids":[1],"finish_reason":"stop"}]}`}, endingComplete, endingInterrupted},
		{answerTranscript, false, []string{`{"type":"transcript.text.delta","delta":"a"}`, `{"type":"transcript.text.done","text":"a"}`}, endingComplete, endingComplete},
		{answerTranscript, false, []string{`{"type":"transcript.text.delta","delta":"a"}`}, endingInterrupted, endingInterrupted},
		{answerAny, false, []string{`{"x":1}`}, endingComplete, endingInterrupted},
		{answerAny, false, nil, endingEmpty, endingInterrupted},
	} {
		for _, clean := range []bool{true, false} {
			a := new(answer)
			a.Begin(c.kind, c.several, false)
			for _, e := range c.events {
				a.observe(sseEvent{Data: []byte(e)})
			}
			want := c.unclean
			if clean {
				want = c.clean
			}
			if got := a.finish(clean); got != want {
				t.Errorf("%d %q, clean %v: %v, want %v", c.kind, c.events, clean, got, want)
			}
		}
	}
}

// No recorded stream that is cut anywhere before its last event passes for a
// complete one, whatever kind of end it has.
func TestNoTruncatedStreamOfAnyAPILooksComplete(t *testing.T) {
	streams := 0
	for _, name := range engineFiles(t) {
		f := readEngineFile(t, name)
		kind := answerOf(name)
		if !f.stream() || kind == answerChat || judgeStreamOf(t, kind, [][]byte{f.body}, f.clean).ending != endingComplete {
			continue
		}
		streams++
		whole := bytes.TrimRight(f.body, "\n")
		last := bytes.LastIndex(whole, []byte("data: "))
		for n := 0; n < last; n++ {
			for _, clean := range []bool{true, false} {
				if j := judgeStreamOf(t, kind, [][]byte{whole[:n]}, clean); j.ending == endingComplete {
					t.Fatalf("%s cut after %d of %d bytes, clean %v, looks complete", name, n, len(whole), clean)
				}
			}
			if n > 200 { // every byte of the beginning, then some
				n += 16
			}
		}
	}
	if streams < 5 {
		t.Errorf("%d streams were looked at", streams)
	}
}

// Counts, in each API's words.
func TestUsageOfEachAPI(t *testing.T) {
	known := func(prompt, completion, cached int64) usage {
		return usage{Prompt: prompt, Completion: completion, Total: prompt + completion, Cached: cached, Known: true}
	}
	for _, c := range []struct {
		kind answerKind
		body string
		want usage
	}{
		{answerResponses, `{"object":"response","usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10,"input_tokens_details":{"cached_tokens":4}}}`, known(7, 3, 4)},
		{answerMessages, `{"type":"message","usage":{"input_tokens":1,"cache_read_input_tokens":39,"cache_creation_input_tokens":2,"output_tokens":6}}`, known(42, 6, 39)},
		{answerMessages, `{"type":"message","usage":{"output_tokens":6,"input_tokens":5}}`, known(5, 6, 0)},
		{answerNative, `{"content":"a","stop":true,"timings":{"cache_n":4,"prompt_n":3,"predicted_n":2}}`, known(7, 2, 4)},
		{answerNative, `[{"content":"a","stop":true,"timings":{"cache_n":4,"prompt_n":3,"predicted_n":2}},{"content":"a","timings":{"prompt_n":1,"predicted_n":1}}]`, known(8, 3, 4)},
		{answerGenerate, `{"text":"a","meta_info":{"prompt_tokens":5,"completion_tokens":2,"cached_tokens":1,"finish_reason":{"type":"stop"}}}`, known(5, 2, 1)},
		{answerGenerate, `[{"text":"a","meta_info":{"prompt_tokens":5,"completion_tokens":2}},{"text":"b","meta_info":{"prompt_tokens":4,"completion_tokens":1}}]`, known(9, 3, 0)},
		{answerGenerate, `{"generated_text":"a","details":{"generated_tokens":4,"finish_reason":"length"}}`, known(0, 4, 0)},
		{answerAny, `{"input_tokens":40}`, usage{}},
		{answerAny, `{"results":[],"usage":{"total_tokens":12,"prompt_tokens":12}}`, known(12, 0, 0)},
		{answerAny, `{"id":"1","embeddings":{},"meta":{"billed_units":{"input_tokens":9}}}`, known(9, 0, 0)},
	} {
		a := new(answer)
		a.Begin(c.kind, false, false)
		if v := a.judgeBody([]byte(c.body)); v != bodyOK || a.usage != c.want {
			t.Errorf("%s: %v %+v, want %+v", c.body, v, a.usage, c.want)
		}
	}
}

func TestWholeAnswersOfEachAPI(t *testing.T) {
	for _, c := range []struct {
		kind answerKind
		body string
		want bodyVerdict
	}{
		{answerResponses, `{"object":"response","status":"failed","error":{"code":"server_error","message":"x"}}`, bodyOK},
		{answerResponses, `{"error":{"message":"x"}}`, bodyFault},
		{answerMessages, `{"type":"error","error":{"type":"api_error","message":"x"}}`, bodyFault},
		{answerGenerate, `{"error":"x","error_type":"generation"}`, bodyFault},
		{answerGenerate, `[{"text":"a"},{"error":{"message":"x"}}]`, bodyFault},
		{answerGenerate, `[{"text":"a"},{"text":`, bodyInvalid},
		{answerAny, `"session-1"`, bodyOK},
		{answerChat, `"session-1"`, bodyInvalid},
		{answerAny, `7`, bodyInvalid},
		{answerAny, `null`, bodyInvalid},
		{answerAny, `[[0.5]]`, bodyOK},
		{answerAny, ` `, bodyEmpty},
	} {
		a := new(answer)
		a.Begin(c.kind, false, true)
		if v := a.judgeBody([]byte(c.body)); v != c.want {
			t.Errorf("%s: %v, want %v", c.body, v, c.want)
		}
	}
}

// Ids are learned from what the answer says first, and only such as a path can
// name.
func TestIDsOfAnswers(t *testing.T) {
	for _, c := range []struct {
		kind             answerKind
		data             string
		id, conversation string
	}{
		{answerResponses, `{"type":"response.created","response":{"id":"resp_1","conversation":{"id":"conv_2"}}}`, "resp_1", "conv_2"},
		{answerResponses, `{"type":"response.output_item.done","item":{"id":"msg_1"},"item_id":"x"}`, "", ""},
		{answerChat, `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"a"}}]}`, "chatcmpl-1", ""},
		{answerAny, `{"id":"conv_1","object":"conversation"}`, "conv_1", ""},
		{answerAny, `{"id":"../x"}`, "", ""},
		{answerAny, `{"id":".."}`, "", ""},
		{answerAny, `{"id":"a\u002fb"}`, "", ""},
		{answerAny, `{"id":7}`, "", ""},
		{answerAny, `{"id":"` + strings.Repeat("x", 257) + `"}`, "", ""},
	} {
		a := new(answer)
		a.Begin(c.kind, false, true)
		a.observe(sseEvent{Data: []byte(c.data)})
		if a.id != c.id || a.conversation != c.conversation {
			t.Errorf("%s: %q %q", c.data, a.id, a.conversation)
		}
		a.Begin(c.kind, false, false)
		a.observe(sseEvent{Data: []byte(c.data)})
		if a.id != "" {
			t.Errorf("%s: an id that nobody wanted", c.data)
		}
	}
}

// The error of each shape is what that API's clients raise, and one event.
func TestErrorsInTheShapeOfTheAPI(t *testing.T) {
	e := &apiError{status: 503, code: "no_healthy_engine", message: "a \"b\"\n\ndata: [DONE]"}
	for path, want := range map[string]string{
		"/v1/chat/completions":      `{"error":{"message":"a \"b\"\n\ndata: [DONE]","type":"server_error","param":null,"code":"no_healthy_engine"}}`,
		"/v1/responses/resp_1":      `{"error":{"message":"a \"b\"\n\ndata: [DONE]","type":"server_error","param":null,"code":"no_healthy_engine"}}`,
		"/v1/messages":              `{"type":"error","error":{"type":"overloaded_error","message":"a \"b\"\n\ndata: [DONE]","code":"no_healthy_engine"},"request_id":"r1"}`,
		"/v1/messages/count_tokens": `{"type":"error","error":{"type":"overloaded_error","message":"a \"b\"\n\ndata: [DONE]","code":"no_healthy_engine"},"request_id":"r1"}`,
		"/v1/messagesx":             `{"error":{"message":"a \"b\"\n\ndata: [DONE]","type":"server_error","param":null,"code":"no_healthy_engine"}}`,
	} {
		if got := string(shapeOf(path).appendError(nil, e, "r1")); got != want {
			t.Errorf("%s\n got %s\nwant %s", path, got, want)
		}
	}
	const message = "x\n\ndata: [DONE]\n\nevent: message_stop"
	for s, want := range map[shape]string{
		shapeOpenAI:    "data: {\"error\":{\"message\":%s,\"type\":\"server_error\",\"param\":null,\"code\":\"stream_stalled\"}}\n\n",
		shapeResponses: "event: error\ndata: {\"type\":\"error\",\"code\":\"stream_stalled\",\"message\":%[1]s,\"param\":null,\"sequence_number\":8,\"error\":{\"message\":%[1]s,\"type\":\"server_error\",\"param\":null,\"code\":\"stream_stalled\"}}\n\n",
		shapeAnthropic: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"timeout_error\",\"message\":%s,\"code\":\"stream_stalled\"},\"request_id\":\"r1\"}\n\n",
	} {
		got := string(s.appendErrorEvent(nil, "stream_stalled", message, "r1", 7))
		if quoted := string(appendJSONString(nil, message)); got != fmt.Sprintf(want, quoted) {
			t.Errorf("%d\n got %s\nwant %s", s, got, fmt.Sprintf(want, quoted))
		}
		if strings.Count(got, "\n\n") != 1 {
			t.Errorf("more than one event: %q", got)
		}
	}
}
