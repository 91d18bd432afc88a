package proxy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"penstock/engine"
)

func TestC29_NeedsOfEachAPI(t *testing.T) {
	for _, c := range []struct {
		api  API
		body string
		want engine.Capability
	}{
		{APIResponses, `"input":"hi"`, 0},
		{APIResponses, `"input":"hi","tools":[]`, 0},
		{APIResponses, `"input":"hi","tools":[{"type":"function","name":"f"}]`, engine.Tools},
		{APIResponses, `"input":"hi","text":{"format":{"type":"text"}}`, 0},
		{APIResponses, `"input":"hi","text":{"verbosity":"low","format":{"name":"x","type":"json_schema","schema":{}}}`, engine.StructuredOutput},
		{APIResponses, `"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:"}]}]`, engine.Vision},
		{APIResponses, `"input":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]`, engine.Vision},
		{APIResponses, `"input":[{"type":"message","role":"user","content":[{"type":"input_audio","input_audio":{}}]}]`, engine.Audio},
		{APIResponses, `"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"x"}]}]`, engine.Vision},
		{APIResponses, `"input":[{"type":"function_call_output","call_id":"c","output":"input_image"}]`, 0},
		{APIMessages, `"messages":[{"role":"user","content":"hi"}]`, 0},
		{APIMessages, `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64"}}]}]`, engine.Vision},
		{APIMessages, `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"},{"type":"image","source":{}}]}]}]`, engine.Vision},
		{APIMessages, `"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"tool_use_id":"t","content":[{"source":{},"type":"image"}],"type":"tool_result"}]}]`, engine.Vision},
		{APIMessages, `"messages":[{"role":"user","content":[{"type":"tool_result","content":"image"}]}]`, 0},
		{APIMessages, `"messages":[],"tools":[{"name":"f","input_schema":{}}]`, engine.Tools},
		{APIMessages, `"messages":[],"output_format":{"type":"json_schema","schema":{}}`, engine.StructuredOutput},
		{APIMessages, `"messages":[],"output_config":{"format":{"type":"json_schema"}}`, engine.StructuredOutput},
		{APIGenerate, `"text":"a"`, 0},
		{APIGenerate, `"text":"a","image_data":null,"audio_data":[],"video_data":[null]`, 0},
		{APIGenerate, `"text":"a","image_data":"http://x"`, engine.Vision},
		{APIGenerate, `"input_ids":[[1],[2]],"image_data":[ null , ["x"] ]`, engine.Vision},
		{APIGenerate, `"text":"a","audio_data":["x"],"sampling_params":[{"json_schema":"{}"}]`, engine.Audio | engine.StructuredOutput},
		{APIGenerate, `"inputs":"a","parameters":{"grammar":{"type":"json","value":{}}}`, engine.StructuredOutput},
		{APICompletion, `"prompt":"a","json_schema":{}`, 0},
		{APICompletion, `"prompt":"a","json_schema":{"type":"object"}`, engine.StructuredOutput},
		{APICompletion, `"prompt":{"prompt_string":"a","multimodal_data":["x"]}`, engine.Vision},
		{APIItems, `"images":["data:"]`, engine.Vision},
		{APIItems, `"images":[],"texts":["a"]`, 0},
		{APITool, `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`, engine.Vision},
	} {
		if env := mustScan(t, c.api, `{"model":"m",`+c.body+`}`); env.Needs.Words() != c.want {
			t.Errorf("%s %s: needs %q, want %q", c.api, c.body, env.Needs, c.want)
		}
	}
}

// One conversation has one opening, however it is written, and grows without
// changing it.
func TestC16_OpeningsOfEachAPI(t *testing.T) {
	for name, c := range map[string]struct {
		api  API
		same []string
		not  []string
	}{
		"responses": {APIResponses, []string{
			`"instructions":"be brief","input":"hello"`,
			`"input":"hello","instructions":"be brief","temperature":1,"stream":true`,
			`"instructions":"be brief","input":[{"role":"user","content":"hello"}]`,
			`"instructions":"be brief","input":[{"type":"message","content":[{"type":"input_text","text":"he"},{"type":"input_text","text":"llo"}],"role":"user"}]`,
			`"input":[{"role":"user","content":"h\u0065llo"},{"type":"reasoning","summary":[]},{"role":"assistant","content":"hi"},{"role":"user","content":"more"}],"instructions":"be brief"`,
			`"input":[{"role":"user","content":"hello"},{"type":"function_call","name":"f"},{"type":"function_call_output","output":"x"}],"instructions":"be brief"`,
		}, []string{
			`"input":"hello"`, `"instructions":"be brie","input":"fhello"`, `"instructions":"hello","input":"be brief"`, `"instructions":"be brief","input":"other"`,
			`"instructions":"be brief","input":"hello","tools":[{"type":"function","name":"f"}]`,
		}},
		"messages": {APIMessages, []string{
			`"system":"be brief","messages":[{"role":"user","content":"hello"}]`,
			`"max_tokens":7,"messages":[{"content":[{"type":"text","text":"hello"}],"role":"user"}],"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}]`,
			`"system":[{"type":"text","text":"x-anthropic-billing-header: v=1; h=abc"},{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"hello"}]`,
			`"system":[{"type":"text","text":"x-anthropic-billing-header: v=2; h=def"},{"type":"text","text":"be "},{"type":"text","text":"brief"}],"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"more"}]`,
			`"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[{"type":"tool_use"}]}]`,
		}, []string{
			`"messages":[{"role":"user","content":"hello"}]`, `"system":"be brief","messages":[{"role":"user","content":"other"}]`,
			`"system":"be brief","messages":[{"role":"user","content":"hello"}],"tools":[{"name":"f"}]`,
		}},
		"generate": {APIGenerate, []string{`"text":"hello"`, `"sampling_params":{"temperature":0},"text":"h\u0065llo","stream":true`}, []string{`"text":"other"`, `"input_ids":[1,2]`}},
		"tgi":      {APIGenerate, []string{`"inputs":"hello"`, `"inputs":"hello","parameters":{"max_new_tokens":3}`}, []string{`"inputs":"other"`}},
		"llama":    {APICompletion, []string{`"prompt":"hello"`, `"n_predict":4,"prompt":"hello"`, `"prompt":{"prompt_string":"hello"}`}, []string{`"prompt":"other"`, `"prompt":[1,2]`}},
		"infill":   {APICompletion, []string{`"input_prefix":"a","prompt":"b","input_suffix":"c"`, `"prompt":"b","input_prefix":"a"`}, []string{`"input_prefix":"x","prompt":"b"`, `"input_prefix":"a"`}},
		"tokens":   {APITokens, []string{`"token_ids":[1,2,3]`, `"sampling_params":{},"token_ids":[ 1, 2, 3 ]`}, []string{`"token_ids":[1,23]`}},
	} {
		t.Run(name, func(t *testing.T) {
			want := mustScan(t, c.api, `{"model":"m",`+c.same[0]+`}`)
			if !want.HasOpening {
				t.Fatal("no opening")
			}
			for _, body := range c.same[1:] {
				if env := mustScan(t, c.api, `{"model":"m",`+body+`}`); env.Opening != want.Opening || !env.HasOpening {
					t.Errorf("%s opens otherwise than %s", body, c.same[0])
				}
			}
			for _, body := range c.not {
				if env := mustScan(t, c.api, `{"model":"m",`+body+`}`); env.Opening == want.Opening {
					t.Errorf("%s opens as %s", body, c.same[0])
				}
			}
		})
	}
	chat := mustScan(t, APIChat, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
	if r := mustScan(t, APIResponses, `{"model":"m","input":"hello"}`); r.Opening == chat.Opening {
		t.Error("the same text in two APIs is templated in two ways, and is one opening")
	}
}

func TestScalarsOfEachAPI(t *testing.T) {
	for _, c := range []struct {
		api  API
		body string
		want Envelope
	}{
		{APIResponses, `{"model":"m","input":"abc","max_output_tokens":5,"stream":true}`, Envelope{MaxTokens: 5, Stream: true, KeepsID: true, PromptBytes: 3}},
		{APIResponses, `{"model":"m","store":false}`, Envelope{}},
		{APIResponses, `{"model":"m","store":null}`, Envelope{KeepsID: true}},
		{APIResponses, `{"model":"m","previous_response_id":"resp_1"}`, Envelope{KeepsID: true, BoundTo: "resp_1", BoundKind: idResponse, EarlierTurns: true}},
		{APIResponses, `{"model":"m","previous_response_id":null}`, Envelope{KeepsID: true}},
		{APIResponses, `{"model":"m","conversation":"conv_1"}`, Envelope{KeepsID: true, BoundTo: "conv_1", BoundKind: idConversation, EarlierTurns: true}},
		{APIResponses, `{"model":"m","conversation":{"id":"conv_1"},"previous_response_id":"resp_1"}`, Envelope{KeepsID: true, BoundTo: "resp_1", BoundKind: idResponse, EarlierTurns: true}},
		{APIResponses, `{"model":"m","instructions":"ab","input":[{"role":"user","content":"cd"},{"type":"function_call_output","output":"ef"}]}`, Envelope{KeepsID: true, PromptBytes: 6, EarlierTurns: true}},
		{APIChat, `{"model":"m","store":true}`, Envelope{KeepsID: true}},
		{APIChat, `{"model":"m","store":false,"reasoning_control":true}`, Envelope{KeepsID: true}},
		{APIChat, `{"model":"m","store":false}`, Envelope{}},
		{APIChat, `{"model":"m","messages":[[{"role":"user","content":"ab"}],[{"role":"user","content":"c"}]]}`, Envelope{Several: true, PromptBytes: 3, EarlierTurns: true}},
		{APIMessages, `{"model":"m","max_tokens":9,"system":"ab","messages":[{"role":"user","content":"c"}]}`, Envelope{MaxTokens: 9, PromptBytes: 3}},
		{APIMessages, `{"model":"m","metadata":{"user_id":"user_a_account_b_session_c1"}}`, Envelope{Key: "c1", KeySource: KeyMetadataUser}},
		{APIMessages, `{"model":"m","metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"c1\"}"}}`, Envelope{Key: "c1", KeySource: KeyMetadataUser}},
		{APIMessages, `{"model":"m","metadata":{"user_id":"somebody"}}`, Envelope{}},
		{APIMessages, `{"model":"m","metadata":{"user_id":"{broken"}}`, Envelope{}},
		{APIGenerate, `{"text":"abc","sampling_params":{"max_new_tokens":4,"n":2},"rid":"c_t2_r1"}`, Envelope{MaxTokens: 4, N: 2, PromptBytes: 3, Key: "c", KeySource: KeyRID}},
		{APIGenerate, `{"text":["abc","d"],"sampling_params":[{"max_new_tokens":4},{"max_new_tokens":7}]}`, Envelope{MaxTokens: 7, Several: true, PromptBytes: 3}},
		{APIGenerate, `{"text":"a","session_params":{"id":"s1","rid":"x"}}`, Envelope{BoundTo: "s1", BoundKind: idSession, PromptBytes: 1}},
		{APIGenerate, `{"inputs":"a","parameters":{"max_new_tokens":6}}`, Envelope{MaxTokens: 6, PromptBytes: 1}},
		{APICompletion, `{"prompt":"ab","n_predict":3}`, Envelope{MaxTokens: 3, PromptBytes: 2}},
		{APICompletion, `{"prompt":"a","n_cmpl":2}`, Envelope{N: 2, PromptBytes: 1}},
		{APICompletion, `{"prompt":["a","b"]}`, Envelope{Several: true, PromptBytes: 1}},
		{APICompletion, `{"prompt":[1,"b",2]}`, Envelope{PromptBytes: 20}},
		{APICompletion, `{"prompt":[[1,2],[3]]}`, Envelope{Several: true, PromptBytes: 20}},
		{APITokens, `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":4}}`, Envelope{MaxTokens: 4, PromptBytes: 30}},
		{APIBound, `{"id":"chatcmpl-1","action":"reasoning_end"}`, Envelope{BoundTo: "chatcmpl-1"}},
		{APIBound, `{"session_id":"s1"}`, Envelope{BoundTo: "s1"}},
	} {
		env := mustScan(t, c.api, c.body)
		if strings.Contains(c.body, `"model"`) && env.Model != "m" {
			t.Errorf("%s: model %q", c.body, env.Model)
		}
		env.API, env.Model, env.ModelFrom, env.ModelTo, env.Opening, env.HasOpening, env.Needs = 0, "", 0, 0, 0, false, 0
		if env != c.want {
			t.Errorf("%s\n got %+v\nwant %+v", c.body, env, c.want)
		}
	}
}

// Where a body names no model, the only one that is served is meant, but for
// the APIs that demand one.
func TestModelMayBeLeftOut(t *testing.T) {
	for api := APIChat; api < APIForm; api++ {
		_, err := scanBody(t, api, `{"x":1}`)
		if (err == nil) == api.namesModel() {
			t.Errorf("%s without a model: %v", api, err)
		}
	}
	for _, body := range []string{`{"model":7}`, `{"model":null}`, `{"model":""}`, `{"Model":"m"}`} {
		if _, err := scanBody(t, APITool, body); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
}

// Bodies that mislead one reader mislead none of them, whatever the API.
func TestC34_StrictEverywhere(t *testing.T) {
	for api := APIChat; api < APIForm; api++ {
		for _, body := range []string{``, `{`, `[]`, `null`, `"x"`, `{} {}`, "\xef\xbb\xbf{\"model\":\"m\"}", `{"model":"m","model":"n"}`, `{"model":"m","\u006dodel":"n"}`,
			`{"model":"m","MODEL":"n"}`, `{"model":"m","x":"` + "\xff" + `"}`, `{"model":"m","x":{"a":1,"a":2}}`, `{"model":"m","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
			`{"model":"m","input":[{"a":1,"a":2}]}`, `{"model":"m","system":[{"text":"a","text":"b"}]}`, `{"model":"m","text":{"format":{"type":1,"type":2}}}`,
			`{"model":"m","sampling_params":[{"n":1,"n":2}]}`, `{"model":"m","prompt":{"x":1,"x":2}}`, `{"model":"m","input":[}`, `{"model":"m","Stream":true}`,
		} {
			var bad *BadRequest
			if _, err := scanBody(t, api, body); !errors.As(err, &bad) || bad.Code != "invalid_request" {
				t.Errorf("%s %.60q: %v", api, body, err)
			}
		}
	}
	for api, body := range map[API]string{APIResponses: `"Previous_Response_Id":"x"`, APIMessages: `"System":"x"`, APIGenerate: `"Session_Params":{}`, APIChat: `"Store":true`} {
		if _, err := scanBody(t, api, `{"model":"m",`+body+`}`); err == nil {
			t.Errorf("%s %s was taken", api, body)
		}
	}
	// What another API reads is none of this one's concern.
	if _, err := scanBody(t, APIChat, `{"model":"m","System":"x"}`); err != nil {
		t.Error(err)
	}
}

func TestMessagesOfStrangeTypesAreTheEngines(t *testing.T) {
	for api, bodies := range map[API][]string{
		APIResponses:  {`"input":7`, `"input":null`, `"input":[7,"x",null,[]]`, `"input":[{"content":7,"role":[]}]`, `"instructions":[1]`, `"instructions":{}`, `"text":"x"`, `"conversation":7`, `"conversation":{"id":7}`, `"previous_response_id":7`, `"store":"no"`},
		APIMessages:   {`"system":7`, `"system":["a",7,null]`, `"system":[{"text":7}]`, `"messages":"x"`, `"output_config":[]`, `"metadata":7`, `"metadata":{"user_id":7}`},
		APIGenerate:   {`"text":7`, `"text":[7,"a",null]`, `"sampling_params":7`, `"parameters":[]`, `"session_params":[]`, `"session_params":{"id":null}`, `"rid":["a","b"]`, `"input_ids":"x"`},
		APICompletion: {`"prompt":null`, `"prompt":{"prompt_string":7}`, `"n_predict":-1`, `"json_schema":"x"`},
		APITokens:     {`"token_ids":"x"`, `"token_ids":[["x"]]`},
		APIItems:      {`"images":7`},
		APIBound:      {`"id":7`},
	} {
		for _, body := range bodies {
			if _, err := scanBody(t, api, `{"model":"m",`+body+`}`); err != nil {
				t.Errorf("%s %s: %v", api, body, err)
			}
		}
	}
}

// formOf writes a form; each part is header lines, an empty line and content.
func formOf(boundary string, parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "--%s\r\n%s\r\n", boundary, p)
	}
	return b.String() + "--" + boundary + "--\r\n"
}

func field(name, value string) string {
	return "Content-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value
}

func TestForms(t *testing.T) {
	file := "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--X\r\n\x00\xff\r\n"
	for _, c := range []struct {
		name, kind, body string
		want             string // the model; "" = refused
	}{
		{"plain", "multipart/form-data; boundary=b", formOf("b", field("model", "m"), file), "m"},
		{"model last", `multipart/form-data; boundary="b c"`, formOf("b c", file, field("language", ""), field("model", "org/m:1 x")), "org/m:1 x"},
		{"no CRLF at the end", "multipart/form-data; boundary=b", strings.TrimSuffix(formOf("b", field("model", "m")), "\r\n"), "m"},
		{"header names in other case", "Multipart/Form-Data; Boundary=b", formOf("b", "content-disposition: form-data; name=model\r\n\r\nm"), "m"},
		{"filename in the extended form", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name=\"file\"; filename*=utf-8''a.wav\r\n\r\nx", field("model", "m")), "m"},
		{"JSON", "application/json", `{"model":"m"}`, ""},
		{"no boundary", "multipart/form-data", formOf("b", field("model", "m")), ""},
		{"another boundary", "multipart/form-data; boundary=c", formOf("b", field("model", "m")), ""},
		{"a preamble", "multipart/form-data; boundary=b", "x\r\n" + formOf("b", field("model", "m")), ""},
		{"an epilogue", "multipart/form-data; boundary=b", formOf("b", field("model", "m")) + formOf("b", field("model", "n")), ""},
		{"cut", "multipart/form-data; boundary=b", "--b\r\n" + field("model", "m"), ""},
		{"cut in a header", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form", ""},
		{"empty", "multipart/form-data; boundary=b", "", ""},
		{"no part", "multipart/form-data; boundary=b", "--b--\r\n", ""},
		{"no model", "multipart/form-data; boundary=b", formOf("b", file), ""},
		{"empty model", "multipart/form-data; boundary=b", formOf("b", field("model", "")), ""},
		{"two models", "multipart/form-data; boundary=b", formOf("b", field("model", "m"), field("model", "n")), ""},
		{"model in other case", "multipart/form-data; boundary=b", formOf("b", field("model", "m"), field("Model", "n")), ""},
		{"a model that is a file", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name=\"model\"; filename=\"x\"\r\n\r\nm"), ""},
		{"a model in another encoding", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ=="), ""},
		{"a model that is long", "multipart/form-data; boundary=b", formOf("b", field("model", strings.Repeat("m", 2000))), ""},
		{"a model of other bytes", "multipart/form-data; boundary=b", formOf("b", field("model", "\xff")), ""},
		{"two streams", "multipart/form-data; boundary=b", formOf("b", field("model", "m"), field("stream", "true"), field("stream", "false")), ""},
		{"two dispositions", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name=\"x\"\r\n"+field("model", "m")), ""},
		{"two names", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name=\"x\"; name=\"model\"\r\n\r\nm"), ""},
		{"a name in the extended form", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data; name*=utf-8''model\r\n\r\nm"), ""},
		{"no disposition", "multipart/form-data; boundary=b", formOf("b", "Content-Type: text/plain\r\n\r\nm", field("model", "m")), ""},
		{"a folded header", "multipart/form-data; boundary=b", formOf("b", "Content-Disposition: form-data;\r\n name=\"model\"\r\n\r\nm"), ""},
		{"bare line feeds", "multipart/form-data; boundary=b", strings.ReplaceAll(formOf("b", field("model", "m")), "\r\n", "\n"), ""},
		{"an empty part without its CRLF", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n--b\r\n" + field("model", "m") + "\r\n--b--\r\n", ""},
		{"something behind a boundary", "multipart/form-data; boundary=b", "--b \r\n" + field("model", "m") + "\r\n--b--\r\n", ""},
		{"many parts", "multipart/form-data; boundary=b", formOf("b", append(strings.Split(strings.Repeat(field("x", "1")+"|", 200), "|")[:200], field("model", "m"))...), ""},
		{"a large part header", "multipart/form-data; boundary=b", formOf("b", "X: "+strings.Repeat("x", 5000)+"\r\n"+field("model", "m")), ""},
	} {
		var s Scanner
		var env Envelope
		err := s.ScanForm(c.kind, []byte(c.body), &env)
		var bad *BadRequest
		switch {
		case c.want == "" && !errors.As(err, &bad):
			t.Errorf("%s: was taken, model %q, %v", c.name, env.Model, err)
		case c.want != "" && (err != nil || env.Model != c.want || c.body[env.ModelFrom:env.ModelTo] != c.want):
			t.Errorf("%s: %v, model %q at %d to %d", c.name, err, env.Model, env.ModelFrom, env.ModelTo)
		}
	}
}
