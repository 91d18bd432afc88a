package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
)

// FuzzForm: a form that is taken is one to mime/multipart too, with one model,
// where it was found.
func FuzzForm(f *testing.F) {
	f.Add("multipart/form-data; boundary=b", []byte(formOf("b", field("model", "m"), field("stream", "true"))))
	f.Add(`multipart/form-data; boundary="b c"`, []byte(formOf("b c", "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: audio/wav\r\n\r\n\x00--b c\r\n", field("model", "m"))))
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\r\n--b--"))
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"\\\"model\"; x=y\r\nA:b\r\n\r\nm\r\n--b--\r\n"))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		var s Scanner
		var env Envelope
		if err := s.ScanForm(kind, body, &env); err != nil {
			var bad *BadRequest
			if !errors.As(err, &bad) || bad.Message == "" || len(bad.Message) > 400 {
				t.Fatalf("error %v", err)
			}
			return
		}
		if string(body[env.ModelFrom:env.ModelTo]) != env.Model || env.Model == "" {
			t.Fatalf("model %q at %q", env.Model, body[env.ModelFrom:env.ModelTo])
		}
		_, params, err := mime.ParseMediaType(kind)
		if err != nil {
			t.Fatal(err)
		}
		r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		var models []string
		for {
			p, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("taken, but mime/multipart says %v of %q", err, body)
			}
			value, err := io.ReadAll(p)
			if err != nil {
				t.Fatalf("taken, but mime/multipart says %v of %q", err, body)
			}
			if strings.EqualFold(p.FormName(), "model") {
				models = append(models, string(value))
			}
		}
		if len(models) != 1 || models[0] != env.Model {
			t.Fatalf("model %q, mime/multipart finds %q in %q", env.Model, models, body)
		}
	})
}

// FuzzRenamer: the pieces make no difference, JSON stays JSON, and text
// without the name of a member stays as it is.
func FuzzRenamer(f *testing.F) {
	f.Add([]byte(`{"model":"m","response":{"model":"x"},"choices":[{"model":"y"}]}`), uint8(3))
	f.Add([]byte(`[{"model":"a\"b"},["model","c"]]`), uint8(1))
	f.Add([]byte(`{"a":"model","model":{"model":"x"},"message":{"m\u006fdel":"x"}}`), uint8(7))
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		whole := renamedWhole(string(body), "alias")
		var r renamer
		r.begin("alias")
		var out []byte
		for rest := body; len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			out = r.append(out, rest[:n])
			rest = rest[n:]
		}
		if string(out) != whole {
			t.Fatalf("%q\nin pieces %q\nwhole     %q", body, out, whole)
		}
		if json.Valid(body) && !json.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
		if !bytes.Contains(body, []byte("model")) && string(out) != string(body) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

// FuzzAnswersOfEachAPI: however a stream is cut into reads, it is judged the
// same; a stream that an error event is in is never complete.
func FuzzAnswersOfEachAPI(f *testing.F) {
	for _, name := range engineFiles(f) {
		if file := readEngineFile(f, name); file.stream() && answerOf(name) != answerChat {
			f.Add(uint8(answerOf(name)), file.body[:min(len(file.body), 1500)], uint8(17))
		}
	}
	f.Add(uint8(answerGenerate), []byte("data: {\"text\":\"a\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}\n\ndata: [DONE]\n\n"), uint8(1))
	f.Add(uint8(answerResponses), []byte("event: error\ndata: {\"type\":\"error\"}\n\ndata: {\"type\":\"response.completed\"}\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte, size uint8) {
		k := answerKind(kind % uint8(len(members)))
		whole := judgeStreamOf(t, k, [][]byte{body}, true)
		var reads [][]byte
		for rest := body; len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			reads = append(reads, rest[:n])
			rest = rest[n:]
		}
		cut := judgeStreamOf(t, k, reads, true)
		if cut.usage != whole.usage || cut.ending != whole.ending || cut.tokens != whole.tokens || cut.id != whole.id || cut.fault != whole.fault {
			t.Fatalf("%d %q\nwhole %+v\ncut   %+v", k, body, whole, cut)
		}
		for _, v := range whole.verdicts {
			if (v == verdictError || v == verdictMalformed) && (whole.ending == endingComplete || whole.ending == endingAddDone) {
				t.Fatalf("%d %q: %v with %v in it", k, body, whole.ending, v)
			}
		}
		if whole.id != "" && !plainID(whole.id) {
			t.Fatalf("the id %q", whole.id)
		}
	})
}

// Reading an API's events, and renaming the model in them, costs no memory.
func TestEventsOfEachAPIAllocateNothing(t *testing.T) {
	for kind, text := range map[answerKind]string{
		answerResponses: `{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"word"}`,
		answerMessages:  `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word"}}`,
		answerNative:    `{"index":0,"content":"word","tokens":[1],"stop":false,"tokens_predicted":1,"tokens_evaluated":2}`,
		answerGenerate:  `{"text":"word","output_ids":[1],"meta_info":{"finish_reason":null,"prompt_tokens":1,"completion_tokens":2}}`,
		answerAny:       `{"type":"x","model":"m"}`,
	} {
		a := new(answer)
		a.Begin(kind, false, true)
		ev := sseEvent{Raw: []byte("data: " + text + "\n\n"), Data: []byte(text)}
		var r renamer
		out := make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(100, func() {
			a.observe(ev)
			out = appendRenamed(out[:0], ev, "alias", &r)
		}); n != 0 {
			t.Errorf("%d: %v allocations", kind, n)
		}
	}
}
