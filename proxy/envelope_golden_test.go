package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

var updateEnvelopes = flag.Bool("update-envelopes", false, "rewrite testdata/conversations/envelopes.golden")

// conversation is one request of testdata/conversations.
type conversation struct {
	name   string
	path   API
	header http.Header
	body   string
}

// conversations reads both files, long prompts expanded.
func conversations(t testing.TB) []conversation {
	t.Helper()
	var all []conversation
	for _, line := range jsonLines(t, "testdata/conversations/requests.jsonl") {
		var r struct {
			Name, Path string
			Headers    map[string]string
			Body       json.RawMessage
			Expand     []struct {
				Pointer string
				Repeat  int
			}
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(r.Path, "?")
		if methods, _ := endpointsOf(path); methods == nil {
			continue // the case of the whole gateway
		}
		c := conversation{name: r.Name, path: apiOf(t, path), header: http.Header{}, body: string(r.Body)}
		for k, v := range r.Headers {
			c.header.Set(k, v)
		}
		for _, e := range r.Expand {
			c.body = repeatAt(t, c.body, e.Pointer, e.Repeat)
		}
		all = append(all, c)
	}
	for _, line := range jsonLines(t, "testdata/conversations/edge_bodies.jsonl") {
		var r struct {
			Name, Path string
			Body       string `json:"raw_body"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, conversation{name: "edge " + r.Name, path: apiOf(t, r.Path), header: http.Header{}, body: r.Body})
	}
	return all
}

func jsonLines(t testing.TB, file string) (lines [][]byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if len(bytes.TrimSpace(sc.Bytes())) > 0 {
			lines = append(lines, bytes.Clone(sc.Bytes()))
		}
	}
	return lines
}

func apiOf(t testing.TB, path string) API {
	for a, name := range apiNames {
		if path == "/v1/"+name {
			return API(a)
		}
	}
	t.Fatalf("no API of path %s", path)
	return 0
}

// repeatAt repeats the string at a JSON pointer.
func repeatAt(t testing.TB, body, pointer string, times int) string {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var whole any
	if err := d.Decode(&whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, step := range steps {
		if list, ok := at.([]any); ok {
			n, err := strconv.Atoi(step)
			if err != nil {
				t.Fatal(err)
			}
			at = list[n]
			continue
		}
		object := at.(map[string]any)
		if i == len(steps)-1 {
			object[step] = strings.Repeat(object[step].(string), times)
		}
		at = object[step]
	}
	out, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestConversationEnvelopes(t *testing.T) {
	const golden = "testdata/conversations/envelopes.golden"
	var got strings.Builder
	for _, c := range conversations(t) {
		fmt.Fprintf(&got, "%s (%s)\n", c.name, c.path)
		env, err := scanBody(t, c.path, c.body)
		if err != nil {
			fmt.Fprintf(&got, "  400 %s, param %q\n", err, err.(*BadRequest).Param)
			continue
		}
		id, source, unfit := affinityKey(c.header, &env)
		fmt.Fprintf(&got, "  model %q stream %v usage %v max_tokens %d n %d needs %q earlier %v prompt %d B salt %q opening %016x\n  key %q from %s, %d unfit\n",
			env.Model, env.Stream, env.IncludeUsage, env.MaxTokens, env.N, env.Needs, env.EarlierTurns, env.PromptBytes, env.CacheSalt, env.Opening, id, source, unfit)
	}
	if *updateEnvelopes {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("envelopes differ from %s; got\n%s", golden, got.String())
	}
}
