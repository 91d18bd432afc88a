package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// judged is all that the relay learns from a stream.
type judged struct {
	verdicts []verdict
	usage    usage
	fault    engineFault
	tokens   int
	ending   ending
	id       string
}

func judgeStream(t testing.TB, reads [][]byte, clean bool) judged {
	t.Helper()
	return judgeStreamOf(t, answerChat, reads, clean)
}

func judgeStreamOf(t testing.TB, kind answerKind, reads [][]byte, clean bool) judged {
	t.Helper()
	var r eventReader
	a := new(answer)
	r.Reset(maxEventBytes)
	a.Begin(kind, false, true)
	var j judged
	drain := func() {
		for ev, ok := r.Next(); ok; ev, ok = r.Next() {
			j.verdicts = append(j.verdicts, a.observe(ev))
		}
	}
	for _, b := range reads {
		r.Fill(copy(r.Space(len(b)), b))
		drain()
	}
	r.End()
	drain()
	j.usage, j.fault, j.tokens, j.ending, j.id = a.usage, a.fault, a.tokens, a.finish(clean), a.id
	return j
}

func observed(data string) verdict {
	a := new(answer)
	a.Reset()
	return a.observe(sseEvent{Data: []byte(data)})
}

func TestC52_FirstContent(t *testing.T) {
	delta := func(s string) string { return `{"choices":[{"index":0,"delta":` + s + `,"finish_reason":null}]}` }
	for _, c := range []struct {
		data string
		want verdict
	}{
		{delta(`{"role":"assistant","content":""}`), verdictNoContent},
		{delta(`{"role":"assistant","content":null}`), verdictNoContent},
		{delta(`{"role":"assistant"}`), verdictNoContent},
		{delta(`{}`), verdictNoContent},
		{delta(`null`), verdictNoContent},
		{delta(`{"content":"","tool_calls":[],"function_call":null,"audio":{},"reasoning":"","refusal":null}`), verdictNoContent},
		{delta(`{"tool_calls":[ ],"audio":{ }}`), verdictNoContent},
		{delta(`{"content":"a"}`), verdictFirstContent},
		{delta(`{"content":" "}`), verdictFirstContent},
		{delta(`{"content":[{"type":"text","text":"a"}]}`), verdictFirstContent},
		{delta(`{"role":"assistant","reasoning_content":"a"}`), verdictFirstContent},
		{delta(`{"reasoning":"a"}`), verdictFirstContent},
		{delta(`{"refusal":"no"}`), verdictFirstContent},
		{delta(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}`), verdictFirstContent},
		{delta(`{"function_call":{"name":"f"}}`), verdictFirstContent},
		{delta(`{"audio":{"id":"1"}}`), verdictFirstContent},
		{`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, verdictFirstContent},
		{`{"choices":[{"index":0,"delta":{},"finish_reason":""}]}`, verdictNoContent},
		{`{"choices":[{"index":0,"text":"a"}]}`, verdictFirstContent},
		{`{"choices":[{"index":0,"text":""}]}`, verdictNoContent},
		{`{"choices":[{"\u0074ext":"a"}]}`, verdictFirstContent},
		{`{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"a"}}]}`, verdictFirstContent},
		{`{"choices":[],"usage":{"prompt_tokens":1}}`, verdictNoContent},
		{`{"choices":null}`, verdictNoContent},
		{`{"choices":[7,null]}`, verdictNoContent},
		{`{}`, verdictNoContent},
		{``, verdictNoContent},
		{`[DONE]`, verdictDone},
		{` [DONE] `, verdictDone},
		{`{"error":null,"choices":[{"index":0,"delta":{"content":"a"}}]}`, verdictFirstContent},
		{`{"error":{"message":"m","code":500}}`, verdictError},
		{`{"error":"m"}`, verdictError},
		{`{"error":{}}`, verdictError},
		{`{"\u0065rror":"m"}`, verdictError},
		{`{"object":"error","message":"m","code":400}`, verdictError},
		{`{"choices":[{"index":0,"delta":{"content":"error"}}],"object":"chat.completion.chunk"}`, verdictFirstContent},
		{`{"choices":[{"index":0,"delta":{"content":"a"}}]`, verdictMalformed},
		{`{"choices":[{"index":0,"delta":{"content":"a"}}]} x`, verdictMalformed},
		{`{"a":1}{"b":2}`, verdictMalformed},
		{`[{"a":1}]`, verdictMalformed},
		{`"a"`, verdictMalformed},
		{`null`, verdictNoContent}, // llama.cpp, before the first of several answers
		{`nul`, verdictMalformed},
		{`Internal Server Error`, verdictMalformed},
		{`<html>`, verdictMalformed},
		{`[DON`, verdictMalformed},
	} {
		if got := observed(c.data); got != c.want {
			t.Errorf("%s: %v, want %v", c.data, got, c.want)
		}
	}
	a := new(answer)
	a.Reset()
	if got := a.observe(sseEvent{Raw: []byte(": ping\n"), Comment: true}); got != verdictNoContent {
		t.Errorf("comment: %v", got)
	}
	if got := a.observe(sseEvent{Name: []byte("error"), Data: []byte(`{"message":"flat"}`)}); got != verdictError || a.fault.Message != "flat" {
		t.Errorf("event: error with flat JSON: %v %+v", got, a.fault)
	}
	if a.committed || a.finish(true) != endingInterrupted {
		t.Error("an error alone was taken for content or for an end")
	}
}

func TestEndings(t *testing.T) {
	role := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	text := `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	text1 := `data: {"choices":[{"index":1,"delta":{"content":"a"}}]}` + "\n\n"
	stop := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	stop1 := `data: {"choices":[{"finish_reason":"stop","delta":{},"index":1}]}` + "\n\n"
	far := `data: {"choices":[{"index":1024,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	last := `data: {"choices":[{"index":1023,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	minus := `data: {"choices":[{"index":-1,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	use := `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\n"
	fail := `data: {"error":{"message":"m","code":500}}` + "\n\n"
	done := "data: [DONE]\n\n"
	for _, c := range []struct {
		name, stream string
		clean        ending
		unclean      ending
	}{
		{"nothing", "", endingEmpty, endingInterrupted},
		{"comments", ": a\n\n: b\n\n", endingEmpty, endingInterrupted},
		{"only [DONE]", done, endingEmpty, endingEmpty},
		{"usage and [DONE], no choice", use + done, endingEmpty, endingEmpty},
		{"whole", role + text + stop + use + done, endingComplete, endingComplete},
		{"[DONE] without blank line", text + stop + "data: [DONE]", endingComplete, endingComplete},
		{"[DONE], no finish_reason", role + text + done, endingComplete, endingComplete},
		{"finish_reason, no [DONE]", role + text + stop, endingAddDone, endingInterrupted},
		{"finish_reason, usage, no [DONE]", text + stop + use, endingAddDone, endingInterrupted},
		{"clean end in the middle", role + text, endingInterrupted, endingInterrupted},
		{"role only", role, endingInterrupted, endingInterrupted},
		{"two choices, one finished", text + text1 + stop, endingInterrupted, endingInterrupted},
		{"two choices, both finished", text + text1 + stop1 + stop, endingAddDone, endingInterrupted},
		{"index at the bound", text + stop + last, endingAddDone, endingInterrupted},
		{"index beyond the bound", text + stop + far, endingInterrupted, endingInterrupted},
		{"index below the bound", minus, endingInterrupted, endingInterrupted},
		{"index beyond the bound, [DONE]", far + done, endingComplete, endingComplete},
		{"error then [DONE]", text + fail + done, endingInterrupted, endingInterrupted},
		{"error after finish_reason", text + stop + fail, endingInterrupted, endingInterrupted},
		{"error after [DONE]", text + stop + done + fail, endingInterrupted, endingInterrupted},
		{"event: error without data", text + stop + "event: error\n\n" + done, endingInterrupted, endingInterrupted},
		{"garbage then [DONE]", text + "data: oops\n\n" + stop + done, endingInterrupted, endingInterrupted},
		{"cut JSON", text + stop[:len(stop)-8], endingInterrupted, endingInterrupted},
	} {
		if got := judgeStream(t, [][]byte{[]byte(c.stream)}, true).ending; got != c.clean {
			t.Errorf("%s, clean: %v, want %v", c.name, got, c.clean)
		}
		if got := judgeStream(t, [][]byte{[]byte(c.stream)}, false).ending; got != c.unclean {
			t.Errorf("%s, unclean: %v, want %v", c.name, got, c.unclean)
		}
	}
}

// No prefix of a stream, however it ends, is complete before its last finish_reason or [DONE].
func TestNoTruncatedStreamLooksComplete(t *testing.T) {
	stream := readEngineFile(t, "llamacpp_b11434_stream_usage.txt").body
	finish := bytes.Index(stream, []byte(`"finish_reason":"length"`))
	end := finish + bytes.Index(stream[finish:], []byte("}]}")) // the choice is whole no earlier
	done := bytes.Index(stream, []byte("data: [DONE]")) + len("data: [DONE]")
	for n := range len(stream) {
		for _, clean := range []bool{true, false} {
			got := judgeStream(t, [][]byte{stream[:n]}, clean).ending
			complete := got == endingComplete || got == endingAddDone
			if complete && n < end || complete && !clean && n < done {
				t.Fatalf("cut at %d of %d, clean %v: %v", n, len(stream), clean, got)
			}
		}
	}
}

func TestC51_UsageCutAtEveryOffset(t *testing.T) {
	head := `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	use := `data: {"choices":[],"usage":{"prompt_tokens":23,"total_tokens":29,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":16}}}` + "\n\n"
	want := usage{Prompt: 23, Completion: 6, Total: 29, Cached: 16, Known: true}
	for _, tail := range []string{"data: [DONE]\n\n", ""} {
		for n := range len(use) {
			for _, reads := range [][]string{{head, use[:n], use[n:] + tail}, {head + use[:n], use[n:], tail}} {
				var in [][]byte
				for _, r := range reads {
					in = append(in, []byte(r))
				}
				j := judgeStream(t, in, true)
				if j.usage != want || j.tokens != 1 || j.ending == endingInterrupted {
					t.Fatalf("cut at %d: %+v", n, j)
				}
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   usage
	}{
		{"none", []string{`{"choices":[]}`, `{"usage":null}`, `{"usage":7}`}, usage{}},
		{"continuous, details last", []string{
			`{"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}`,
			`{"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`},
			usage{5, 2, 7, 4, true}},
		{"details, then without", []string{
			`{"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`,
			`{"usage":{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":null}}`, `{"usage":null}`},
			usage{5, 3, 8, 4, true}},
		{"timings alone", []string{`{"timings":{"cache_n":39,"prompt_n":1,"prompt_ms":9.66,"predicted_n":4}}`}, usage{40, 4, 44, 39, true}},
		{"timings beside usage", []string{`{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"timings":{"prompt_n":9}}`}, usage{1, 1, 2, 0, true}},
		{"timings before usage", []string{`{"timings":{"cache_n":9,"prompt_n":9}}`, `{"usage":{"prompt_tokens":1}}`}, usage{1, 0, 1, 0, true}},
		{"odd numbers", []string{`{"usage":{"prompt_tokens":-3,"completion_tokens":1e30,"total_tokens":"7","prompt_tokens_details":{"cached_tokens":2.0}}}`},
			usage{0, maxCount, 0, 2, true}},
	} {
		a := new(answer)
		a.Reset()
		for _, e := range c.events {
			a.observe(sseEvent{Data: []byte(e)})
		}
		if a.usage != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, a.usage, c.want)
		}
	}
}

func TestC65_JudgeBody(t *testing.T) {
	whole := string(readEngineFile(t, "vllm_v0.32.0_nonstream.txt").body)
	for _, c := range []struct {
		body string
		want bodyVerdict
	}{
		{whole, bodyOK}, {" " + whole + "\r\n", bodyOK}, {"[]", bodyOK}, {`[{"index":0}]`, bodyOK}, {"{}", bodyOK},
		{"", bodyEmpty}, {" \n", bodyEmpty},
		{"null", bodyInvalid}, {"<html>", bodyInvalid}, {"OK", bodyInvalid}, {whole + whole, bodyInvalid}, {`{"a":1}]`, bodyInvalid}, {"[1", bodyInvalid},
		{`{"error":{"message":"m","code":400}}`, bodyFault}, {`{"object":"error","message":"m"}`, bodyFault}, {`{"error":null}`, bodyOK},
	} {
		a := new(answer)
		a.Reset()
		if got := a.judgeBody([]byte(c.body)); got != c.want {
			t.Errorf("%.60q: %v, want %v", c.body, got, c.want)
		}
	}
	whole = strings.TrimSpace(whole)
	for n := 1; n < len(whole); n++ {
		a := new(answer)
		a.Reset()
		if got := a.judgeBody([]byte(whole[:n])); got != bodyInvalid {
			t.Fatalf("cut at %d: %v", n, got)
		}
	}
}

func TestAnswerResetForgets(t *testing.T) {
	a := new(answer)
	a.Reset()
	for _, d := range []string{`{"choices":[{"index":3,"delta":{"content":"a"}},{"index":4000}],"usage":{"prompt_tokens":1}}`, "[DONE]", `{"error":"m"}`} {
		a.observe(sseEvent{Data: []byte(d)})
	}
	a.Reset()
	if a.usage != (usage{}) || a.fault != (engineFault{}) || a.tokens != 0 || a.finish(true) != endingEmpty {
		t.Errorf("kept %+v", a)
	}
	if got := a.observe(sseEvent{Data: []byte(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`)}); got != verdictFirstContent {
		t.Error(got)
	}
	if got := a.finish(true); got != endingAddDone {
		t.Error(got)
	}
}

func TestEngineError(t *testing.T) {
	for _, c := range []struct {
		body string
		want engineFault
	}{
		{`{"error":{"message":"m","type":"BadRequestError","param":"body.n","code":400}}`, engineFault{400, "m", "BadRequestError", "400", "body.n"}},
		{`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`, engineFault{400, "m", "invalid_request_error", "context_length_exceeded", ""}},
		{`{"error":{"message":"m","code":"503"}}`, engineFault{503, "m", "", "503", ""}},
		{`{"object":"error","message":"m","type":"BadRequest","param":null,"code":400}`, engineFault{400, "m", "BadRequest", "400", ""}},
		{`{"error":"Model is overloaded","error_type":"overloaded"}`, engineFault{429, "Model is overloaded", "overloaded", "", ""}},
		{`{"error":{"message":"m","http_status_code":422}}`, engineFault{422, "m", "", "", ""}},
		{`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, engineFault{503, "m", "overloaded_error", "", ""}},
		{`{"error":{"type":"x","message":"m"},"code":500,"message":"outer"}`, engineFault{500, "m", "x", "500", ""}},
		{`{"detail":"Not Found"}`, engineFault{0, "Not Found", "", "", ""}},
		{`{"detail":[{"loc":["body"]}]}`, engineFault{0, `[{"loc":["body"]}]`, "", "", ""}},
		{`{"error":{"message":"m","code":7}}`, engineFault{0, "m", "", "7", ""}},
		{`{"error":{"message":"m","code":400.5}}`, engineFault{0, "m", "", "400.5", ""}},
		{`{"error":{"error":{"error":1}}}`, engineFault{0, `{"error":1}`, "", "", ""}},
		{`Bad Gateway`, engineFault{0, "Bad Gateway", "", "", ""}},
		{`{"error":{"message":"cut`, engineFault{0, `{"error":{"message":"cut`, "", "", ""}},
		{``, engineFault{}},
	} {
		if got := engineError([]byte(c.body)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.body, got, c.want)
		}
	}
	long := engineError([]byte(`{"error":{"message":"` + strings.Repeat("ä", maxErrorText) + `"}}`))
	if len(long.Message) > maxErrorText || !utf8.ValidString(long.Message) {
		t.Errorf("message of %d bytes", len(long.Message))
	}
}

func TestC19_NamesModel(t *testing.T) {
	for _, c := range []struct {
		body, model string
		want        bool
	}{
		{"{\"error\":{\"message\":\"The model `a` does not exist. Valid aliases: tiny.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}", "a", true},
		{"{\"object\":\"error\",\"message\":\"The model `org/a-7b` does not exist.\",\"type\":\"NotFoundError\",\"code\":404}", "org/a-7b", true},
		{`{"error":{"message":"model \"a\" not found, try pulling it first","type":"api_error"}}`, "a", true},
		{`{"error":{"message":"no","code":"model_not_found"}}`, "a", true},
		{`{"error":"Model a not found."}`, "a", true},
		{"{\"object\":\"error\",\"message\":\"The model `a-7b` does not exist.\"}", "a", false},
		{"{\"object\":\"error\",\"message\":\"The model `a-7b` does not exist.\"}", "", false},
		{`{"detail":"Not Found"}`, "a", false},
		{`{"detail":"Not Found"}`, "Found", false},
		{`{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`, "File", false},
		{`404 page not found`, "page", false},
		{``, "a", false},
	} {
		if got := namesModel([]byte(c.body), c.model); got != c.want {
			t.Errorf("%s for %q: %v", c.body, c.model, got)
		}
	}
}

// Whatever the text, an error event of ours is exactly one event with that text in it.
func TestErrorEventIsOneEvent(t *testing.T) {
	check := func(t fataler, code, message string) {
		wire := string(shapeOpenAI.appendErrorEvent([]byte("data: 1\n\n"), code, message, "id", -1))
		events := whatwgDecode(wire)
		if len(events) != 2 {
			t.Fatalf("%q became %d events: %q", message, len(events), wire)
		}
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		if err := json.Unmarshal([]byte(events[1].Data), &got); err != nil {
			t.Fatalf("%q: %v", wire, err)
		}
		if got.Error.Code != strings.ToValidUTF8(code, "\uFFFD") && utf8.ValidString(code) || utf8.ValidString(message) && got.Error.Message != message || got.Error.Type == "" {
			t.Fatalf("%q: %+v", wire, got)
		}
		if observed(events[1].Data) != verdictError {
			t.Fatalf("%q is no error event", wire)
		}
	}
	for _, m := range []string{"", "x\n\ndata: [DONE]", "x\r\rdata: [DONE]\r\r", "\"},{\"", "\x00\x1b[2J", "\u2028", "\xff\n\n"} {
		check(t, "stream_interrupted", m)
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, rapid.String().Draw(rt, "code"), rapid.String().Draw(rt, "message")) })
}

// reads of a real stream, split anywhere, give the same verdicts and usage.
func TestC03_AnySplitGivesTheSameJudgement(t *testing.T) {
	for _, name := range engineFiles(t) {
		f := readEngineFile(t, name)
		if !f.stream() {
			continue
		}
		want := fmt.Sprintf("%+v", judgeStream(t, [][]byte{f.body}, f.clean))
		rapid.Check(t, func(rt *rapid.T) {
			var reads [][]byte
			for rest := f.body; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(rt, "read")
				reads = append(reads, rest[:n])
				rest = rest[n:]
			}
			if got := fmt.Sprintf("%+v", judgeStream(t, reads, f.clean)); got != want {
				rt.Fatalf("%s: %s\nwant %s", name, got, want)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`, `{"error":{"code":"429"}}`, `[DONE]`,
		`{"usage":{"prompt_tokens":1e99}}`, `{"timings":{"cache_n":-1}}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(s), []byte("error"))
	}
	f.Fuzz(func(t *testing.T, data, name []byte) {
		a := new(answer)
		a.Reset()
		before := bytes.Clone(data)
		v := a.observe(sseEvent{Data: data, Name: name})
		e := a.finish(true)
		if !bytes.Equal(before, data) {
			t.Fatal("the engine's bytes were changed")
		}
		if (v == verdictError || v == verdictMalformed) && e != endingInterrupted {
			t.Fatalf("%v ended as %v", v, e)
		}
		for _, n := range []int64{a.usage.Prompt, a.usage.Completion, a.usage.Cached} {
			if n < 0 || n > 2*maxCount {
				t.Fatalf("count %d", n)
			}
		}
		if v == verdictMalformed && json.Valid(data) && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			t.Fatalf("valid JSON is malformed: %q", data)
		}
		f := engineError(data)
		for _, s := range []string{f.Message, f.Type, f.Code, f.Param} {
			if len(s) > maxErrorText || !utf8.ValidString(s) {
				t.Fatalf("%d bytes kept", len(s))
			}
		}
		a.Reset()
		if got := a.judgeBody(data); got == bodyOK && !slices.Contains([]byte("{["), bytes.TrimSpace(data)[0]) {
			t.Fatalf("%q is %v", data, got)
		}
		namesModel(data, string(name))
	})
}
