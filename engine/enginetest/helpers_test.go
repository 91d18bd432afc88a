package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// patience is how long a test waits for what must come, on a busy machine too.
const patience = 30 * time.Second

// serve runs a Sim on a loopback port until the test ends.
func serve(t *testing.T, c Config) (*Sim, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("Serve does not return")
		}
	})
	return s, "http://" + ln.Addr().String()
}

// eventually polls a condition until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// post sends one request with a connection of its own.
func post(t *testing.T, url, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// recorded is the status, headers and body of a file in testdata.
func recorded(t *testing.T, name string) (*http.Response, string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vllm_v0.32.0_"+name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	if !ok {
		t.Fatal("no empty line in " + name)
	}
	// The chunked framing is not in the files.
	var lines []string
	for line := range strings.Lines(string(head)) {
		if !strings.HasPrefix(line, "transfer-encoding") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n")+"\r\n\r\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// shape is a JSON text with every value replaced by its kind; of a list only
// the first element counts.
func shape(t *testing.T, text string) string {
	t.Helper()
	dec := jsontext.NewDecoder(strings.NewReader(text))
	out, err := shapeOf(dec)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

func shapeOf(dec *jsontext.Decoder) (string, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	switch kind := tok.Kind(); kind {
	case '{':
		var parts []string
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return "", err
			}
			text := name.String()
			v, err := shapeOf(dec)
			if err != nil {
				return "", err
			}
			parts = append(parts, text+":"+v)
		}
		_, err = dec.ReadToken()
		return "{" + strings.Join(parts, ",") + "}", err
	case '[':
		first := ""
		for i := 0; dec.PeekKind() != ']'; i++ {
			v, err := shapeOf(dec)
			if err != nil {
				return "", err
			}
			if i == 0 {
				first = v
			}
		}
		_, err = dec.ReadToken()
		return "[" + first + "]", err
	case 't', 'f':
		return "bool", nil
	case 'n':
		return "null", nil
	default:
		return map[jsontext.Kind]string{'"': "string", '0': "number"}[kind], nil
	}
}

// events are the data of an event stream.
func events(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for _, block := range strings.Split(strings.TrimSpace(body), "\n\n") {
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok {
			t.Fatalf("not an event: %q", block)
		}
		out = append(out, data)
	}
	return out
}

type chunkView struct {
	ID      string
	Choices []struct {
		Index int
		Delta struct {
			Role, Content string
		}
		Text         string
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Code int }
}

// view is what a client sees of a stream.
type view struct {
	text     map[int]string
	finished int // choices with a finish_reason
	done     bool
	errors   int
	broken   int // events that are not JSON
	content  int // content events
	cached   int
	usage    bool
}

func viewOf(t *testing.T, body string) view {
	t.Helper()
	v := view{text: make(map[int]string)}
	for _, data := range events(t, body) {
		if data == "[DONE]" {
			v.done = true
			continue
		}
		var c chunkView
		if json.Unmarshal([]byte(data), &c, json.MatchCaseInsensitiveNames(true)) != nil {
			v.broken++
			continue
		}
		if c.Error != nil {
			v.errors++
		}
		if c.Usage != nil {
			v.usage, v.cached = true, c.Usage.Details.Cached
		}
		for _, ch := range c.Choices {
			if piece := ch.Delta.Content + ch.Text; piece != "" {
				v.text[ch.Index] += piece
				v.content++
			}
			if ch.FinishReason != nil {
				v.finished++
			}
		}
	}
	return v
}

// chatBody is a request for an answer of that many tokens.
func chatBody(nonce, prompt string, tokens int, stream bool) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t,"nonce":%q}`, prompt, tokens, stream, nonce)
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return out
}
