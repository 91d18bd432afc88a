package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func renamedWhole(body, alias string) string {
	var r renamer
	r.begin(alias)
	return string(r.append(nil, []byte(body)))
}

func TestC28_OnlyTheModelIsRenamed(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"1","model":"internal-7b","choices":[{"message":{"content":"model internal-7b"}}]}`: `{"id":"1","model":"public","choices":[{"message":{"content":"model internal-7b"}}]}`,
		`{ "model" : "internal-7b" }`:                                                                                `{ "model" : "public" }`,
		`{"choices":[{"model":"internal-7b"}],"x":{"model":"internal-7b"}}`:                                          `{"choices":[{"model":"internal-7b"}],"x":{"model":"internal-7b"}}`,
		`{"type":"response.created","response":{"id":"1","model":"internal-7b","metadata":{"model":"internal-7b"}}}`: `{"type":"response.created","response":{"id":"1","model":"public","metadata":{"model":"internal-7b"}}}`,
		`{"type":"message_start","message":{"model":"internal-7b","content":[{"model":"x"}]}}`:                       `{"type":"message_start","message":{"model":"public","content":[{"model":"x"}]}}`,
		`[{"model":"a","content":"b"},{"content":["model","c"],"model":"d"}]`:                                        `[{"model":"public","content":"b"},{"content":["model","c"],"model":"public"}]`,
		`{"model":null,"models":"a","Model":"b","mod":"c"}`:                                                          `{"model":null,"models":"a","Model":"b","mod":"c"}`,
		`{"model":["a"],"message":["model","b"]}`:                                                                    `{"model":["a"],"message":["model","b"]}`,
		`{"x":"model","y":"a","text":"\"model\":\"b\"","model":"c"}`:                                                 `{"x":"model","y":"a","text":"\"model\":\"b\"","model":"public"}`,
		`{"model":"with \"quotes\" and \\","z":1}`:                                                                   `{"model":"public","z":1}`,
		`{"model":"","response":{"response":{"model":"a"}}}`:                                                         `{"model":"public","response":{"response":{"model":"a"}}}`,
		`[DONE]`: `[DONE]`,
		``:       ``,
	} {
		if got := renamedWhole(body, "public"); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	if got := renamedWhole(`{"model":"m"}`, "a \"b\"\n"); got != `{"model":"a \"b\"\n"}` {
		t.Errorf("%s", got)
	}
}

// However the answer is cut, the result is the same, and only the values that
// name the model differ in what it means.
func TestC28_RenamingAnyJSONInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyJSON(3).Draw(t, "doc")
		body, err := json.MarshalIndent(doc, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		whole := renamedWhole(string(body), "alias")
		var r renamer
		r.begin("alias")
		var out []byte
		for rest := body; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			out = r.append(out, rest[:n])
			rest = rest[n:]
		}
		if string(out) != whole {
			t.Fatalf("%s\nin pieces %s\nwhole     %s", body, out, whole)
		}
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want, _ := json.Marshal(renamedDoc(doc))
		if again, _ := json.Marshal(got); !bytes.Equal(again, want) {
			t.Fatalf("%s\n got %s\nwant %s", body, again, want)
		}
	})
}

// renamedDoc is what renaming means.
func renamedDoc(doc any) any {
	top := func(v any) any {
		o, ok := v.(map[string]any)
		if !ok {
			return v
		}
		out := map[string]any{}
		for k, v := range o {
			if _, text := v.(string); text && k == "model" {
				v = "alias"
			}
			out[k] = v
		}
		return out
	}
	switch d := doc.(type) {
	case []any:
		out := make([]any, len(d))
		for i := range d {
			out[i] = top(d[i])
		}
		return out
	case map[string]any:
		out := top(d).(map[string]any)
		for _, k := range []string{"response", "message"} {
			if v, ok := out[k]; ok {
				out[k] = top(v)
			}
		}
		return out
	}
	return doc
}

func anyJSON(depth int) *rapid.Generator[any] {
	names := rapid.SampledFrom([]string{"model", "response", "message", "x", "models", "", "mod\"el"})
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Just[any](true), rapid.Map(rapid.IntRange(0, 9), func(n int) any { return float64(n) }),
		rapid.Map(rapid.SampledFrom([]string{"", "m", "model", `a"b`, `\`, "{}[],:", "Grüße"}), func(s string) any { return s }))
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(anyJSON(depth-1), 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(names, anyJSON(depth-1), 0, 4), func(m map[string]any) any { return m }))
}

// Events keep their framing, whatever it is.
func TestC28_EventsAreRenamed(t *testing.T) {
	for stream, want := range map[string]string{
		"data: {\"model\":\"m\",\"x\":1}\n\n":                                                       "data: {\"model\":\"pub\",\"x\":1}\n\n",
		"data:{\"model\":\"m\"}\r\n\r\n":                                                            "data:{\"model\":\"pub\"}\r\n\r\n",
		"event: x\nid: {\"model\":\"m\"}\ndata: {\"model\":\ndata: \"m\"}\n\n":                      "event: x\nid: {\"model\":\"m\"}\ndata: {\"model\":\ndata: \"pub\"}\n\n",
		": {\"model\":\"m\"}\n\n":                                                                   ": {\"model\":\"m\"}\n\n",
		"\xef\xbb\xbfdata: {\"model\":\"m\"}\r\rdata: {\"model\":\"n\"}\r\r":                        "\xef\xbb\xbfdata: {\"model\":\"pub\"}\r\rdata: {\"model\":\"pub\"}\r\r",
		"data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"m\"}}]}\n\ndata: [DONE]\n\n": "data: {\"model\":\"pub\",\"choices\":[{\"delta\":{\"content\":\"m\"}}]}\n\ndata: [DONE]\n\n",
		"data: {\"model\":\"m\"}":                                                                   "data: {\"model\":\"pub\"}",
	} {
		var rd eventReader
		var r renamer
		rd.Reset(maxEventBytes)
		rd.Fill(copy(rd.Space(len(stream)), stream))
		rd.End()
		var out []byte
		for ev, ok := rd.Next(); ok; ev, ok = rd.Next() {
			out = appendRenamed(out, ev, "pub", &r)
		}
		if string(out) != want {
			t.Errorf("%q\n got %q\nwant %q", stream, out, want)
		}
	}
}

func TestC28_ErrorsNameTheAlias(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"The model ` + "`internal-7b`" + ` does not exist."}}`: `{"error":{"message":"The model ` + "`public`" + ` does not exist."}}`,
		`{"message":"internal-7b: no"}`:                                             `{"message":"public: no"}`,
		`{"message":"internal-7b."}`:                                                `{"message":"public."}`,
		`{"message":"my-internal-7b, internal-7b-x"}`:                               `{"message":"my-internal-7b, internal-7b-x"}`,
		`{"message":"none"}`:                                                        `{"message":"none"}`,
	} {
		if got := string(replaceName([]byte(body), "internal-7b", "public")); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
}

func TestC28_AliasesAreListedBesideTheirModels(t *testing.T) {
	raw := []byte(`{"object":"model", "id":"m","root":"m","max_model_len":7}`)
	if got := string(renamed(raw, "a/b")); got != `{"object":"model", "id":"a/b","root":"m","max_model_len":7}` {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{``, `[]`, `{"x":1}`, `{"id":`} {
		if renamed([]byte(bad), "a") != nil {
			t.Errorf("%q has no id", bad)
		}
	}
	if strings.Contains(string(raw), "a/b") {
		t.Error("the engine's object was changed")
	}
}
