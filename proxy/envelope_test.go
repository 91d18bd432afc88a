package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"penstock/engine"
)

// scanBody scans with a scanner that has seen other bodies, as a pooled one has.
func scanBody(t testing.TB, path API, body string) (Envelope, error) {
	t.Helper()
	var s Scanner
	var env Envelope
	for _, before := range []string{`{"model":"other","x":[{"a":"\u0041"}],"messages":[{"role":"user","content":"x"}]}`, `{"a":[[[`} {
		if err := s.Scan(APIChat, []byte(before), &env); (err == nil) != (before[2] == 'm') {
			t.Fatalf("scan of %s: %v", before, err)
		}
	}
	err := s.Scan(path, []byte(body), &env)
	return env, err
}

func mustScan(t testing.TB, path API, body string) Envelope {
	t.Helper()
	env, err := scanBody(t, path, body)
	if err != nil {
		t.Fatalf("%v\nin %.300s", err, body)
	}
	return env
}

func refusal(t testing.TB, body string) *BadRequest {
	t.Helper()
	_, err := scanBody(t, APIChat, body)
	var bad *BadRequest
	if !errors.As(err, &bad) {
		t.Fatalf("error %v, want a *BadRequest\nin %.300s", err, body)
	}
	if bad.Code != "invalid_request" || len(bad.Message) > 300 {
		t.Errorf("refusal %+v", bad)
	}
	return bad
}

func TestC34_MalformedBodies(t *testing.T) {
	const rest = `,"messages":[{"role":"user","content":"hi"}]}`
	for _, c := range []struct{ name, body, message, param string }{
		{"empty", ``, "the body is empty, a JSON object is expected", ""},
		{"only white space", " \n", "invalid JSON: the text ends at byte 2", ""},
		{"open brace", `{`, "invalid JSON: the text ends inside a value, at byte 1", ""},
		{"array", `[]`, "the body is not a JSON object", ""},
		{"null", `null`, "the body is not a JSON object", ""},
		{"string", `"x"`, "the body is not a JSON object", ""},
		{"number", `1`, "the body is not a JSON object", ""},
		{"no JSON", `hello`, "invalid JSON: unexpected text at start of value, at byte 0", ""},
		{"no model", `{"a":1` + rest, "model is missing", "model"},
		{"model number", `{"model":5` + rest, "model is not a string", "model"},
		{"model null", `{"model":null` + rest, "model is not a string", "model"},
		{"model empty", `{"model":""` + rest, "model is empty", "model"},
		{"model array", `{"model":["m"]` + rest, "model is not a string", "model"},
		{"model long", `{"model":"` + strings.Repeat("m", 1001) + `"` + rest, "model is longer than 1000 bytes", "model"},
		{"model long by escapes", `{"model":"` + strings.Repeat(`\u006d`, 5000) + `"` + rest, "model is longer than 1000 bytes", "model"},
		{"invalid UTF-8", `{"model":"m","x":"` + "\xff" + `"}`, "invalid UTF-8 at byte 18", ""},
		{"overlong UTF-8", `{"model":"m` + "\xc0\xaf" + `"}`, "invalid UTF-8 at byte 11", ""},
		{"raw surrogate", `{"model":"m` + "\xed\xa0\xbd" + `"}`, "invalid UTF-8 at byte 11", ""},
		{"byte order mark", "\ufeff" + `{"model":"m"}`, "the body begins with a byte order mark, which JSON does not allow", ""},
		{"trailing comma", `{"model":"m",}`, "invalid JSON: unexpected text at start of value, at byte 12", ""},
		{"second object", `{"model":"m"} {}`, "text after the JSON object, at byte 14", ""},
		{"trailing text", `{"model":"m"}x`, "text after the JSON object, at byte 13", ""},
		{"mismatch", `{"model":"m"]`, "invalid JSON: unexpected text after object value (expecting ',' or '}'), at byte 12", ""},
		{"name is an array", `{[[1]]:1}`, "invalid JSON: a member name is not a string, at byte 1", ""},
		{"name is a number", `{"model":"m",1:2}`, "invalid JSON: a member name is not a string, at byte 13", ""},
		{"control character", "{\"model\":\"a\nb\"}", "invalid JSON: unexpected text in string (expecting non-control character), at byte 11", ""},
		{"bad escape", `{"model":"\q"}`, "invalid JSON: invalid escape sequence, at byte 10", ""},
		{"leading zero", `{"model":"m","n":01}`, "invalid JSON: unexpected text after object value (expecting ',' or '}'), at byte 18", ""},
		{"bad literal", `{"model":"m","stream":trUe}`, "invalid JSON: unexpected text in literal, at byte 24", ""},
		{"single quotes", `{'model':'m'}`, "invalid JSON: unexpected text at start of value, at byte 1", ""},
		{"duplicate", `{"model":"a","model":"b"}`, `duplicate member name "model", at byte 13`, ""},
		{"duplicate by escape", `{"model":"a","\u006dodel":"b"}`, `duplicate member name "model", at byte 13`, ""},
		{"duplicate in a skipped part", `{"model":"a","x":[{"k":1,"k":2}]}`, `duplicate member name "k", at byte 25`, ""},
		{"duplicate long name", `{"model":"a","` + strings.Repeat("k", 99) + `":1,"` + strings.Repeat("k", 99) + `":1}`, `duplicate member name of 99 bytes, at byte 117`, ""},
		{"duplicate hostile name", `{"model":"a","\r\n\u2028<x>":1,"\r\n\u2028<x>":1}`, `duplicate member name "\r\n\u2028<x>", at byte 31`, ""},
		{"too wide", `{"model":"a","logit_bias":{` + wide(1<<16) + `}}`, "objects with more than 65536 members, at byte 840866", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := refusal(t, c.body)
			if bad.Message != c.message || bad.Param != c.param {
				t.Errorf("%q (param %q)\nwant %q (param %q)", bad.Message, bad.Param, c.message, c.param)
			}
		})
	}
}

func wide(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%d":-100`, i)
	}
	return b.String()
}

func TestC34_LeftForTheEngine(t *testing.T) {
	for _, body := range []string{
		`{"model":"m"}`,
		`{"model":"m","messages":"hi"}`,
		`{"model":"m","messages":null,"stream":"true"}`,
		`{"model":"m","messages":[1,null,"x",[{"role":"user"}]]}`,
		`{"model":"m","messages":[{"role":7,"content":{"a":[]}}]}`,
		`{"model":"m","stream":1,"tools":{},"max_tokens":"7","n":[1],"response_format":1,"modalities":"audio","metadata":[]}`,
		`{"model":"m","stream":null,"tools":null,"max_tokens":16.0,"n":1e3,"response_format":{"type":1},"modalities":[1]}`,
		`{"model":"m","max_tokens":-1,"conversation":[],"stream_options":true}`,
		`{"model":"m","logit_bias":{` + wide(1<<15) + `}}`,
		"  \n\t" + `{"model":"m"}` + "  \r\n",
	} {
		env := mustScan(t, APIChat, body)
		if env.Model != "m" || env.Stream || env.MaxTokens != 0 || env.N != 0 || env.Needs != 0 || env.HasOpening || env.EarlierTurns {
			t.Errorf("%+v\nof %.200s", env, body)
		}
	}
}

// A second name that some engines would take for one of ours is refused, for
// every name the gateway reads.
func TestCaseVariantNamesAreRefused(t *testing.T) {
	for _, name := range memberNames {
		var variants []string
		for i := range name {
			if up := strings.ToUpper(name[i : i+1]); up != name[i:i+1] {
				variants = append(variants, name[:i]+up+name[i+1:])
			}
		}
		variants = append(variants, strings.ToUpper(name))
		if strings.Contains(name, "s") {
			variants = append(variants, strings.Replace(name, "s", "\u017f", 1)) // folds to s
		}
		if strings.Contains(name, "k") {
			variants = append(variants, strings.Replace(name, "k", "\u212a", 1)) // folds to k
		}
		for _, v := range variants {
			for _, spelt := range []string{v, strings.Replace(v, v[:1], fmt.Sprintf(`\u%04x`, []rune(v)[0]), 1)} {
				if []rune(v)[0] > 0x7f {
					spelt = v
				}
				bad := refusal(t, `{"model":"m","`+spelt+`":null}`)
				if bad.Param != name || !strings.Contains(bad.Message, "only in case") {
					t.Errorf("%s: %+v", v, bad)
				}
			}
		}
	}
	mustScan(t, APIChat, `{"model":"m","Modell":1,"MODE":2,"Temperature":1,"chat":{"Model":"x"},"é":1}`)
}

func TestDepthLimit(t *testing.T) {
	nest := func(prefix, opening, inner, closing, suffix string, n int) string {
		return prefix + strings.Repeat(opening, n) + inner + strings.Repeat(closing, n) + suffix
	}
	for _, c := range []struct{ name, prefix, opening, inner, closing, suffix string }{
		{"skipped arrays", `{"model":"m","x":`, `[`, ``, `]`, `}`},
		{"skipped objects", `{"model":"m","x":`, `{"a":`, `1`, `}`, `}`},
		{"messages", `{"model":"m","messages":`, `[`, ``, `]`, `}`},
		{"prompt", `{"model":"m","prompt":`, `[`, ``, `]`, `}`},
		{"tools", `{"model":"m","tools":`, `[`, ``, `]`, `}`},
		{"tool objects", `{"model":"m","tools":[`, `{"a":`, `1`, `}`, `]}`},
		{"response_format", `{"model":"m","response_format":`, `{"a":`, `1`, `}`, `}`},
		{"metadata", `{"model":"m","metadata":`, `{"session_id":`, `1`, `}`, `}`},
	} {
		room := 64 - (strings.Count(c.prefix, "{") + strings.Count(c.prefix, "["))
		mustScan(t, APIChat, nest(c.prefix, c.opening, c.inner, c.closing, c.suffix, room))
		for _, path := range []API{APIChat, APICompletions, APIEmbeddings} {
			if _, err := scanBody(t, path, nest(c.prefix, c.opening, c.inner, c.closing, c.suffix, room+1)); err == nil || !strings.Contains(err.Error(), "deeper than 64") {
				t.Errorf("%s, %v, one level more: %v", c.name, path, err)
			}
		}
	}
	for _, body := range []string{strings.Repeat("[", 1<<20), `{"x":` + strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<18), `{"model":"m","x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`} {
		if bad := refusal(t, body); !strings.Contains(bad.Message, "deeper than 64") && !strings.Contains(bad.Message, "not a JSON object") {
			t.Errorf("%q", bad.Message)
		}
	}
}

// A body cut short anywhere is no JSON, whatever was being read.
func TestEveryTruncationIsRefused(t *testing.T) {
	for path, body := range map[API]string{
		APIChat: `{"model":"m","tools":[{"f":{"a\u0062":[1,null,"x"]}}],"messages":[{"role":"system","content":"s","x":[{}]},{"content":[{"text":"t","type":"text"},"u",` +
			`{"image_url":{"url":"v"}},7],"role":"user"},null,{"role":"tool","content":[{"x":{}},{"text":"y"}]}],"response_format":{"a":1,"type":"json_object"},"stream":true,` +
			`"stream_options":{"a":[],"include_usage":true},"modalities":["text",1],"metadata":{"a":2,"session_id":"i","conversation_id":"c"},"conversation":{"b":3,"id":"j"},"max_tokens":12,"n":3,"z":[[],{"q":-1.5e-7}]}`,
		APICompletions: `{"model":"m","prompt":["a",[1,22],{"x":1},[[3]],4],"functions":[{}],"cache_salt":"s"}`,
		APIEmbeddings:  `{"model":"m","input":"text","messages":[{"content":[{"type":"input_audio","input_audio":{"data":"AA"}}]}]}`,
	} {
		mustScan(t, path, body)
		for n := range len(body) {
			if _, err := scanBody(t, path, body[:n]); err == nil {
				t.Errorf("accepted: %s", body[:n])
			} else if n > 0 && !strings.HasPrefix(err.Error(), "invalid JSON: ") {
				t.Errorf("%v, of %s", err, body[:n])
			}
		}
	}
}

func TestLoneSurrogateIsAccepted(t *testing.T) {
	a := mustScan(t, APIChat, `{"model":"m","messages":[{"role":"user","content":"\ud83d"}]}`)
	b := mustScan(t, APIChat, `{"model":"m","messages":[{"role":"user","content":"\ud83d\u0041"}]}`)
	if a.PromptBytes != 3 || b.PromptBytes != 4 || a.Opening == b.Opening {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestModelIsExact(t *testing.T) {
	long := strings.Repeat("The quick brown fox. ", 10000)
	for body, want := range map[string]string{
		`{"model":"M-1"}`:                 "M-1",
		`{"\u006dodel":"a\u002fb"}`:       "a/b",
		`{"x":{"model":"y"},"model":"m"}`: "m",
		`{"messages":[{"role":"user","content":"{\"model\":\"decoy\",\"stream\":true}"}],"model":" m "}`: " m ",
		`{"messages":[{"role":"user","content":"` + long + `"}],"model":"last"}`:                         "last",
		`{"model":"` + strings.Repeat("m", 1000) + `"}`:                                                  strings.Repeat("m", 1000),
	} {
		if env := mustScan(t, APIChat, body); env.Model != want || env.Stream {
			t.Errorf("model %q stream %v, want %q", env.Model, env.Stream, want)
		}
	}
}

func TestC29_Needs(t *testing.T) {
	chat := func(content string) string {
		return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
	}
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	for _, c := range []struct {
		name, body string
		want       engine.Capability
	}{
		{"text", chat(`"image_url"`), 0},
		{"text parts", chat(`[{"type":"text","text":"image_url"}]`), 0},
		{"image", chat(`[` + image + `]`), engine.Vision},
		{"image in an earlier message", `{"model":"m","messages":[{"role":"user","content":[` + image + `]},{"role":"user","content":"x"}]}`, engine.Vision},
		{"image after the first user turn", `{"model":"m","messages":[{"role":"user","content":"x"},{"role":"tool","content":[` + image + `]}]}`, engine.Vision},
		{"image type escaped", chat(`[{"\u0074ype":"im\u0061ge_url"}]`), engine.Vision},
		{"image without type", chat(`[{"image_url":"http://images.example.invalid/a.jpg"}]`), engine.Vision},
		{"input_image", chat(`[{"type":"input_image"}]`), engine.Vision},
		{"video", chat(`[{"type":"video_url"}]`), engine.Vision},
		{"audio", chat(`[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]`), engine.Audio},
		{"audio_url", chat(`[{"type":"audio_url"}]`), engine.Audio},
		{"image and audio", chat(`[{"type":"audio_url"},` + image + `]`), engine.Audio | engine.Vision},
		{"unknown part", chat(`[{"type":"file","file":{"file_id":"f"}}]`), 0},
		{"audio out", `{"model":"m","modalities":["text","audio"]}`, engine.Audio},
		{"text out", `{"model":"m","modalities":["text"]}`, 0},
		{"tools", `{"model":"m","tools":[{"type":"function"}]}`, engine.Tools},
		{"empty tools", `{"model":"m","tools":[]}`, 0},
		{"functions", `{"model":"m","functions":[{"name":"f"}]}`, engine.Tools},
		{"empty functions", `{"model":"m","functions":[]}`, 0},
		{"json_object", `{"model":"m","response_format":{"type":"json_object"}}`, engine.StructuredOutput},
		{"json_schema", `{"model":"m","response_format":{"json_schema":{"schema":{"type":"object"}},"type":"json_schema"}}`, engine.StructuredOutput},
		{"response_format text", `{"model":"m","response_format":{"type":"text","x":{"type":"json_object"}}}`, 0},
	} {
		if env := mustScan(t, APIChat, c.body); env.Needs != c.want {
			t.Errorf("%s: needs %q, want %q", c.name, env.Needs, c.want)
		}
	}
	if env := mustScan(t, APIEmbeddings, `{"model":"m","input":"x"}`); env.Needs != engine.Embeddings {
		t.Errorf("embeddings need %q", env.Needs)
	}
}

func TestScalars(t *testing.T) {
	env := mustScan(t, APIChat, `{"model":"m","stream":true,"stream_options":{"x":1,"include_usage":true},"max_tokens":7,"max_completion_tokens":9,"n":2}`)
	if !env.Stream || !env.IncludeUsage || env.MaxTokens != 9 || env.N != 2 {
		t.Errorf("%+v", env)
	}
	for text, want := range map[string]int{"0": 0, "7": 7, "1000000000": 1e9, "7.0": 0, "1e3": 0, "-7": 0, `"7"`: 0, "99999999999999999999999": math.MaxInt, "null": 0} {
		if env := mustScan(t, APIChat, `{"max_tokens":`+text+`,"model":"m"}`); env.MaxTokens != want {
			t.Errorf("max_tokens %s read as %d, want %d", text, env.MaxTokens, want)
		}
	}
}

func TestEarlierTurns(t *testing.T) {
	for roles, want := range map[string]bool{
		"user": false, "system,user": false, "developer,user": false, "": false,
		"user,assistant": true, "user,user": true, "system,user,tool": true, "function,user": true, "assistant": true,
	} {
		var turns []string
		for _, r := range strings.FieldsFunc(roles, func(r rune) bool { return r == ',' }) {
			turns = append(turns, `{"content":null,"role":"`+r+`"}`)
		}
		if env := mustScan(t, APIChat, `{"model":"m","messages":[`+strings.Join(turns, ",")+`]}`); env.EarlierTurns != want {
			t.Errorf("%s: earlier turns %v", roles, env.EarlierTurns)
		}
	}
}

// PromptBytes is text only, unescaped, of the longest prompt.
func TestPromptBytes(t *testing.T) {
	media := strings.Repeat("A", 50000)
	for _, c := range []struct {
		path API
		body string
		want int
	}{
		{APIChat, `{"model":"m","messages":[{"role":"system","content":"abc"},{"role":"user","content":[{"type":"text","text":"d\n"},{"type":"image_url","image_url":{"url":"` + media + `"}}]},{"role":"user","content":"\u4f60\ud83d\ude42\"x"},{"role":"user","content":[{"type":"text","text":"\\\/"}]}]}`, 3 + 2 + 9 + 2},
		{APICompletions, `{"model":"m","prompt":"abc\t"}`, 4},
		{APICompletions, `{"model":"m","prompt":["abc","defgh"],"messages":[{"content":"ignored"}],"input":"ignored"}`, 5},
		{APICompletions, `{"model":"m","prompt":[1,2,3]}`, 30},
		{APICompletions, `{"model":"m","prompt":[[1],[1,2],[]]}`, 20},
		{APIEmbeddings, `{"model":"m","input":["abc","d"],"prompt":"ignored"}`, 3},
		{APIEmbeddings, `{"model":"m","input":[[1,2],[3]]}`, 20},
		{APIChat, `{"model":"m","prompt":"ignored"}`, 0},
	} {
		if env := mustScan(t, c.path, c.body); env.PromptBytes != c.want || env.MinTokens() != c.want/10 {
			t.Errorf("%v: %d bytes, want %d\nof %.200s", c.path, env.PromptBytes, c.want, c.body)
		}
	}
}

// C53, C54: the scanner never writes to the body, whose bytes are forwarded,
// and neither big images nor odd numbers matter to it.
func TestC54_BodyIsNotTouched(t *testing.T) {
	image := strings.Repeat("iVBORw0KGgoA", 750000) // 9 MB
	body := `{"model":"m","seed":9007199254740993,"a":1.0,"b":1e400,"c":-0,"d":"<&  \u003c","chat_template_kwargs":{"x":[null]},` +
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}],"stream" : true}`
	sent := []byte(body)
	var s Scanner
	var env Envelope
	if err := s.Scan(APIChat, sent, &env); err != nil {
		t.Fatal(err)
	}
	if string(sent) != body {
		t.Error("the body was changed")
	}
	if !env.Stream || env.PromptBytes != 0 || env.Needs != engine.Vision || !env.HasOpening {
		t.Errorf("%+v", env)
	}
	for i := range sent {
		sent[i] = '#'
	}
	if env.Model != "m" {
		t.Error("the envelope refers to the body")
	}
}

func TestScannerPinsNoBody(t *testing.T) {
	var s Scanner
	var env Envelope
	for _, body := range []string{`{"model":"m","prompt":"` + strings.Repeat("x", 1000) + `"}`, `{"model":`, `{"model":"m","x":{` + wide(20000) + `}}`} {
		_ = s.Scan(APICompletions, []byte(body), &env)
		if s.env != nil || s.model != nil || s.rd.Len() != 0 || len(s.dec.UnreadBuffer()) != 0 {
			t.Errorf("after %.30s the scanner holds on to it", body)
		}
	}
}

func TestScanAllocations(t *testing.T) {
	for _, c := range []struct {
		name, extra string
		most        float64
	}{
		{"opening", ``, 0},
		{"body key and salt", `,"session_id":"abc","cache_salt":"s"`, 2},
		{"tools and schema", `,"tools":[{"type":"function","function":{"name":"f","parameters":{"a\n":[1,2,{}]}}}],"response_format":{"type":"json_schema"},"metadata":{"a":"b"},"stream_options":{"include_usage":true}`, 0},
	} {
		body := []byte(`{"model":"m","stream":true` + c.extra + `,"messages":[{"role":"system","content":"Be \"brief\"."},{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("word ", 180) + `"}]}]}`)
		var s Scanner
		var env Envelope
		if n := testing.AllocsPerRun(200, func() {
			if err := s.Scan(APIChat, body, &env); err != nil {
				t.Fatal(err)
			}
		}); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
	}
}

// FuzzEnvelope compares with encoding/json: what is accepted is JSON, with
// the same model and flags, and means the same after it has been written anew
// with other escapes, other white space and another order of members.
func FuzzEnvelope(f *testing.F) {
	for _, c := range conversations(f) {
		if len(c.body) < 1<<16 {
			f.Add(uint8(c.path), []byte(c.body))
		}
	}
	f.Add(uint8(0), []byte(`{"model":"m","messages":[{"role":"user","content":["a",{"text":"b\ud83d\ude42"},{"image_url":{"url":"\/\/"}}]}],"tools":[{"b":1,"a":[]}]}`))
	var s Scanner
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		api := API(path % uint8(APIForm)) // all that are JSON, but the last
		kept := string(body)
		var env Envelope
		err := s.Scan(api, body, &env)
		if string(body) != kept {
			t.Fatal("the body was changed")
		}
		if err != nil {
			var bad *BadRequest
			if !errors.As(err, &bad) || bad.Message == "" || len(bad.Message) > 400 {
				t.Fatalf("error %v", err)
			}
			if strings.HasPrefix(bad.Message, "invalid JSON") && json.Valid(body) {
				t.Fatalf("valid JSON refused: %s", bad.Message)
			}
			return
		}
		checkAgainstStandardLibrary(t, &s, api, body, env)
	})
}

func checkAgainstStandardLibrary(t *testing.T, s *Scanner, api API, body []byte, env Envelope) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	var whole map[string]any
	if err := d.Decode(&whole); err != nil || d.More() {
		t.Fatalf("accepted, but encoding/json says %v", err)
	}
	stream, _ := whole["stream"].(bool)
	if model, _ := whole["model"].(string); model != env.Model || stream != env.Stream {
		t.Fatalf("model %q stream %v, encoding/json says %v and %v", env.Model, env.Stream, whole["model"], whole["stream"])
	}
	if env.Model != "" {
		var model string
		if at := body[env.ModelFrom:env.ModelTo]; json.Unmarshal(at, &model) != nil || model != env.Model {
			t.Fatalf("the model stands at %d to %d, where %q is", env.ModelFrom, env.ModelTo, at)
		}
	}
	again, err := json.MarshalIndent(whole, " ", "\t")
	if err != nil {
		t.Fatal(err)
	}
	var env2 Envelope
	if err := s.Scan(api, again, &env2); err != nil {
		t.Fatalf("written anew: %v", err)
	}
	env.ModelFrom, env.ModelTo, env2.ModelFrom, env2.ModelTo = 0, 0, 0, 0
	if env != env2 {
		t.Fatalf("%+v\nwritten anew: %+v", env, env2)
	}
}
