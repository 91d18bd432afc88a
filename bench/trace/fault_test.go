package trace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadFiles: whatever is wrong, the message says where and what would be right.
func TestBadFiles(t *testing.T) {
	const moon = `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}` + "\n"
	const weka = `{"session":0,"kind":"session","block_size":64,"tool_tokens":1,"system_tokens":1,"model":"m"}` + "\n"
	for _, c := range []struct {
		name, text string
		o          Options
		want       string
	}{
		{"empty", "", Options{}, "f: a trace without a request"},
		{"blank", "\n\n  \n", Options{}, "f: a trace without a request"},
		{"only a header", "arrival_s,input_tokens,output_tokens\n", Options{}, "f: a trace without a request"},
		{"no trace", "hello\nworld\n", Options{}, `f:1: no trace format has these fields: "hello"; known are mooncake,`},
		{"unknown JSON", `{"a":1}`, Options{}, `f:1: no trace format has these fields: "a"; known are`},
		{"a JSON array", "[1,2]", Options{}, `f:1: no trace format`},
		{"binary", "\x00\x01\x02", Options{}, `f:1: no trace format`},
		{"cut line", moon + `{"timestamp":0,"input_le`, Options{}, "f:2: not JSON: the line ends too early"},
		{"text after the object", moon + `{"timestamp":0,"input_length":600,"output_length":5} x`, Options{}, "f:2: something follows the JSON object on its line"},
		{"double name", moon + `{"timestamp":0,"timestamp":1}`, Options{}, `f:2: not JSON: duplicate object member name "timestamp"`},
		{"missing", moon + "\n" + `{"timestamp":0,"input_length":600}`, Options{}, "f:3: output_length: missing"},
		{"negative", moon + `{"timestamp":0,"input_length":-600,"output_length":5}`, Options{}, "f:2: input_length = -600: want a whole number, 0 or more"},
		{"fraction", moon + `{"timestamp":0,"input_length":1.5,"output_length":5}`, Options{}, "f:2: input_length = 1.5: want a whole number, 0 or more"},
		{"text for a number", moon + `{"timestamp":"0","input_length":1,"output_length":5}`, Options{}, `f:2: timestamp = "0": want a number, 0 or more`},
		{"null", moon + `{"timestamp":null,"input_length":1,"output_length":5}`, Options{}, `f:2: timestamp = null: want a number, 0 or more`},
		{"too many tokens", moon + `{"timestamp":0,"input_length":1000000000000,"output_length":5}`, Options{}, `f:2: input_length = 1000000000000: want at most 100000000 tokens`},
		{"a bad block", moon + `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,-2]}`, Options{}, "f:2: hash_ids[1] = -2: want a whole number, 0 or more"},
		{"blocks no array", moon + `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":7}`, Options{}, "f:2: hash_ids = 7: want an array of whole numbers"},
		{"too many blocks", moon + `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,2,3]}`, Options{}, "f:2: hash_ids: 3 blocks of 512 tokens for a prompt of 600"},
		{"back in time", `{"timestamp":5,"input_length":1,"output_length":5}` + "\n" + moon, Options{}, "f:2: 0s after the start, but the request above came at 5ms: want requests in time order"},
		{"beyond all time", moon + `{"timestamp":1e300,"input_length":1,"output_length":5}`, Options{}, "f:2: timestamp = 1e+300: want a time between 0 and ten years"},
		{"fields missing", "arrival_s,input_tokens,output_tokens\n1,2\n", Options{}, "f:2: 2 fields, want the 3 of the first line"},
		{"no number", "arrival_s,input_tokens,output_tokens\n0,1,1\n1,x,3\n", Options{}, "f:3: input_tokens = x: want a whole number, 0 or more"},
		{"NaN", "arrival_s,input_tokens,output_tokens\nNaN,1,3\n", Options{}, "f:2: arrival_s = NaN: want a number, 0 or more"},
		{"no date", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,3\n", Options{}, "f:2: TIMESTAMP = yesterday: want a time as 2023-11-16 18:15:46.6805900"},
		{"two columns of a name", "arrival_s,input_tokens,output_tokens,arrival_s\n", Options{}, "f:1: arrival_s: two columns have this name"},
		{"forced format without its columns", "arrival_s,input_tokens,output_tokens\n", Options{Format: BurstGPT}, `f:1: Timestamp: no such column; there are "arrival_s", "input_tokens", "output_tokens"`},
		{"forced format without its fields", moon, Options{Format: RAGPulse}, "f:1: t: missing"},
		{"all failed", "Timestamp,Model,Request tokens,Response tokens\n1,m,3,0\n", Options{}, "f: a trace without a request: rows left out are failed: no response tokens"},
		{"bad parent", `{"chat_id":1,"parent_chat_id":-2,"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]}`, Options{}, "f:1: parent_chat_id = -2: want the number of a chat, or -1"},
		{"no chat", `{"parent_chat_id":-1,"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]}`, Options{Format: Bailian}, "f:1: chat_id: missing"},
		{"bad segment", `{"t":0,"session":0,"in":10,"out":1,"segments":[[1,2],[3]]}`, Options{}, "f:1: segments[1] = [3]: want [id, tokens], two whole numbers"},
		{"segments beyond the prompt", `{"t":0,"session":0,"in":10,"out":1,"segments":[[1,20]]}`, Options{}, "f:1: segments: they have 20 tokens, in is 10"},
		{"request before its session", `{"session":0,"agent":0,"turn":0,"t":0,"in":1,"out":1,"blocks":"1"}`, Options{}, "f:1: session = 0: want a line of kind session before what belongs to it"},
		{"session twice", weka + weka, Options{}, "f:2: session = 0: a session of this number was there before"},
		{"agent without its line", weka + `{"session":0,"agent":1,"turn":0,"t":0,"in":1,"out":1,"blocks":"1"}`, Options{}, "f:2: agent = 1: want a line of kind subagent before its requests"},
		{"bad run", weka + `{"session":0,"agent":0,"turn":0,"t":0,"in":100,"out":1,"blocks":"5-2"}`, Options{}, "f:2: blocks = 5-2: want numbers and runs of them, like 1-247,260"},
		{"endless run", weka + `{"session":0,"agent":0,"turn":0,"t":0,"in":100,"out":1,"blocks":"1-99999999999999"}`, Options{}, "f:2: blocks = 1-99999999999999: more blocks than the prompt has"},
		{"unknown kind", weka + `{"session":0,"agent":0,"kind":"tool"}`, Options{}, "f:2: kind = tool: want session or subagent"},
		{"log without a request", `{"time":"2026-11-30T16:00:00Z","level":"INFO","msg":"ready"}`, Options{}, "f: a trace without a request: rows left out are another line of the log"},
		{"log line without duration", `{"time":"2026-11-30T16:00:00Z","level":"INFO","msg":"request"}`, Options{}, "f:1: duration_ms: missing"},
		{"log line with a bad time", `{"time":"now","level":"INFO","msg":"request"}`, Options{}, "f:1: time = now: want a time as"},
		{"no lengths", "workload,client,window_start_s,rate_rps,dist,shape\na,1,0,1,Gamma,1\n", Options{Lengths: "testdata/none.csv"}, "testdata/none.csv: ServeGen has the clients' token lengths in a file of their own"},
		{"no such workload", "workload,client,window_start_s,rate_rps,dist,shape\na,1,0,1,Gamma,1\n", Options{Workload: "b"}, `no workload "b"; there are "a"`},
		{"bad distribution", "workload,client,window_start_s,rate_rps,dist,shape\na,1,0,1,Pareto,1\n", Options{}, "f:2: dist = Pareto: want Gamma or Weibull"},
		{"bad shape", "workload,client,window_start_s,rate_rps,dist,shape\na,1,0,1,Weibull,0.01\n", Options{}, "f:2: shape = 0.01: want a number between 0.1 and 1e6"},
		{"windows that overlap", "workload,client,window_start_s,rate_rps,dist,shape\na,1,0,1,Gamma,1\na,1,300,1,Gamma,1\n", Options{}, "f:3: window_start_s = 300: want at least 600 s more"},
		{"terminal codes", "arrival_s,input_tokens,output_tokens\n0,\x1b[2J,3\n", Options{}, "f:2: input_tokens = ?[2J: want"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(t, c.text, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, ok := errors.AsType[*Fault](err); !ok {
				t.Errorf("error of type %T, want a *Fault", err)
			}
		})
	}
}

// TestTruncatedGzip: a file that was cut is no shorter trace.
func TestTruncatedGzip(t *testing.T) {
	whole, err := os.ReadFile("testdata/mooncake.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.jsonl.gz")
	if err := os.WriteFile(path, whole[:len(whole)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := All(path, Options{})
	if all != nil || err == nil || !strings.Contains(err.Error(), "the file ends in the middle of its gzip stream") {
		t.Errorf("%d requests, error %v", len(all), err)
	}
	whole[len(whole)-6] ^= 1 // the checksum
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := All(path, Options{}); all != nil || err == nil || !strings.Contains(err.Error(), "invalid checksum") {
		t.Errorf("%d requests, error %v", len(all), err)
	}
}

// FuzzReader: any bytes give requests in time order with sane lengths, or a
// fault with a line, and always the same.
func FuzzReader(f *testing.F) {
	files, err := filepath.Glob("testdata/*l")
	if err != nil {
		f.Fatal(err)
	}
	more, _ := filepath.Glob("testdata/*.csv")
	for _, path := range append(files, more...) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[:min(len(text), 2000)], uint8(0))
		f.Add(text, uint8(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		o := Options{Format: Format(format % uint8(len(formatNames))), Lengths: "testdata/servegen_client_lengths.csv", Scale: 1e-6}
		first, firstErr := fuzzed(t, text, o)
		second, secondErr := fuzzed(t, text, o)
		if first != second || (firstErr == nil) != (secondErr == nil) {
			t.Errorf("%d and %d requests, %v and %v", first, second, firstErr, secondErr)
		}
	})
}

func fuzzed(t *testing.T, text []byte, o Options) (n int, err error) {
	r, err := NewReader(bytes.NewReader(text), "f", o)
	if err != nil {
		if _, ok := errors.AsType[*Fault](err); !ok {
			t.Errorf("error %v of type %T", err, err)
		}
		return 0, err
	}
	for last := (Request{}); n < 10_000; n++ {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			if f, ok := errors.AsType[*Fault](err); !ok || f.File == "" || f.Reason == "" {
				t.Errorf("error %#v", err)
			}
			return n, err
		}
		if q.At < last.At || q.Prompt < 0 || q.Output < 0 || q.Prompt > mostTokens || q.Output > mostTokens || q.Turn < 0 {
			t.Fatalf("request %+v after %+v", q, last)
		}
		last = q
	}
	return n, nil
}
