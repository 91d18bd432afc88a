package enginetest

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

var tiny = Config{Name: "tiny", Models: []string{"tiny"}, MaxModelLen: 1024}

// Each event has the members, in their order, that vLLM's has in its place.
func TestStreamHasTheShapeOfVLLM(t *testing.T) {
	_, url := serve(t, tiny)
	for _, c := range []struct{ file, path, body string }{
		{"stream_usage", "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":6,"stream":true,"stream_options":{"include_usage":true}}`},
		{"stream_nousage", "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":2,"stream":true}`},
		{"completions_stream", "/v1/completions", `{"prompt":"hi there","max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}`},
	} {
		t.Run(c.file, func(t *testing.T) {
			wantHead, wantBody := recorded(t, c.file)
			resp := post(t, url+c.path, c.body)
			if got, want := resp.Header.Get("Content-Type"), wantHead.Header.Get("Content-Type"); got != want {
				t.Errorf("Content-Type %q, want %q", got, want)
			}
			if len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
				t.Errorf("transfer encoding %v", resp.TransferEncoding)
			}
			got, want := events(t, readAll(t, resp.Body)), events(t, wantBody)
			if len(got) != len(want) {
				t.Fatalf("%d events, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
			}
			for i := range got {
				if want[i] == "[DONE]" {
					if got[i] != want[i] {
						t.Errorf("event %d is %s", i, got[i])
					}
					continue
				}
				if g, w := shape(t, got[i]), shape(t, want[i]); g != w {
					t.Errorf("event %d:\n got %s\nwant %s", i, g, w)
				}
			}
		})
	}
}

func TestAnswersHaveTheShapeOfVLLM(t *testing.T) {
	_, url := serve(t, tiny)
	for _, c := range []struct{ file, method, path, body, contentType string }{
		{"nonstream", "POST", "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":4}`, ""},
		{"err_unknown_model", "POST", "/v1/chat/completions", `{"model":"no-such-model","messages":[]}`, ""},
		{"err_missing_messages", "POST", "/v1/chat/completions", `{"model":"tiny"}`, ""},
		{"err_maxtokens_beyond", "POST", "/v1/chat/completions", `{"messages":[],"max_tokens":100000}`, ""},
		{"err_ctype_text", "POST", "/v1/chat/completions", `{"messages":[]}`, "text/plain"},
		{"err_404", "GET", "/nope", "", ""},
		{"err_405", "GET", "/v1/chat/completions", "", ""},
		{"get_v1_models", "GET", "/v1/models", "", ""},
		{"get_version", "GET", "/version", "", ""},
		{"get_health", "GET", "/health", "", ""},
	} {
		t.Run(c.file, func(t *testing.T) {
			want, wantBody := recorded(t, c.file)
			req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if c.contentType != "" {
				req.Header.Set("Content-Type", c.contentType)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body := readAll(t, resp.Body)
			if resp.StatusCode != want.StatusCode {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, want.StatusCode, body)
			}
			for _, h := range []string{"Content-Type", "Allow"} {
				if resp.Header.Get(h) != want.Header.Get(h) {
					t.Errorf("%s %q, want %q", h, resp.Header.Get(h), want.Header.Get(h))
				}
			}
			if strings.TrimSpace(wantBody) == "" {
				if body != "" {
					t.Errorf("body %q, want none", body)
				}
				return
			}
			if g, w := shape(t, body), shape(t, wantBody); g != w {
				t.Errorf("\n got %s\nwant %s", g, w)
			}
			if strings.HasPrefix(c.file, "err_") && !strings.Contains(c.file, "missing") && strings.TrimSpace(body) != strings.TrimSpace(wantBody) {
				t.Errorf("\n got %s\nwant %s", body, wantBody)
			}
		})
	}
}

func TestInvalidRequestsAreRefusedAsVLLMDoes(t *testing.T) {
	s, url := serve(t, Config{MaxModelLen: 256})
	for _, c := range []struct {
		path, body, param string
		status            int
	}{
		{"/v1/chat/completions", `{"messages": [`, "body.14", 400},
		{"/v1/chat/completions", `{"messages": "hi"}`, "body.messages", 400},
		{"/v1/chat/completions", `{"messages": [], "max_tokens": 0}`, "max_tokens", 400},
		{"/v1/chat/completions", `{"messages": [], "max_tokens": "ten"}`, "body.max_tokens", 400},
		{"/v1/chat/completions", `{"messages": [], "n": 0}`, "n", 400},
		{"/v1/chat/completions", `{"messages": [{"role":"user","content":"` + strings.Repeat("long ", 1000) + `"}]}`, "input_tokens", 400},
		{"/v1/completions", `{"prompt": {"a": 1}}`, "body.prompt", 400},
		{"/v1/completions", `{"prompt": []}`, "body.prompt", 400},
		{"/v1/embeddings", `{}`, "body.input", 400},
		{"/v1/embeddings", `{"model": "other", "input": "x"}`, "model", 404},
	} {
		resp := post(t, url+c.path, c.body)
		body := readAll(t, resp.Body)
		var got struct {
			Error struct {
				Message, Type, Param string
				Code                 int
			}
		}
		if err := json.Unmarshal([]byte(body), &got, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.status || got.Error.Code != c.status || got.Error.Param != c.param || got.Error.Message == "" {
			t.Errorf("%.60s: %d %s", c.body, resp.StatusCode, body)
		}
	}
	if st := s.Stats(); st.Refused != 10 || st.Received != 10 || st.Steps != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAnswersAreDeterministic(t *testing.T) {
	ask := func(seed uint64, nonce string) string {
		_, url := serve(t, Config{Seed: seed})
		return viewOf(t, readAll(t, post(t, url+"/v1/chat/completions",
			`{"messages":[{"role":"user","content":"tell me"}],"stream":true,"nonce":"`+nonce+`"}`).Body)).text[0]
	}
	a := ask(1, "x")
	if n := (len(a) + 1) / tokenBytes; n < 16 || n > 64 {
		t.Errorf("an answer without limit has %d tokens", n)
	}
	if b := ask(1, "x"); a != b {
		t.Errorf("the same question has two answers:\n%s\n%s", a, b)
	}
	if b := ask(2, "x"); a == b {
		t.Error("the seed does not matter")
	}
	if b := ask(1, "y"); a == b || !Complete(b) || !Carries(b, "y") || Carries(b, "x") {
		t.Errorf("the nonce does not matter: %s", b)
	}
}

func TestRequestIDBecomesTheCompletionID(t *testing.T) {
	s, url := serve(t, Config{})
	for range 2 {
		resp := post(t, url+"/v1/chat/completions", `{"messages":[],"max_tokens":8}`, "X-Request-Id", "abc-1")
		var got struct {
			ID      string `json:"id"`
			Choices []struct {
				Message struct {
					Content string `json:"content"`
				} `json:"message"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(readAll(t, resp.Body)), &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != "chatcmpl-abc-1" || !Carries(got.Choices[0].Message.Content, "abc-1") {
			t.Errorf("%+v", got)
		}
	}
	if n := s.Stats().Deliveries["abc-1"]; n != 2 {
		t.Errorf("%d deliveries, want 2", n)
	}
}

func TestSeveralChoicesAndPrompts(t *testing.T) {
	_, url := serve(t, Config{Slots: 2})
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/v1/chat/completions", `{"messages":[],"n":3,"max_tokens":12,"stream":true}`, 3},
		{"/v1/completions", `{"prompt":["a","b"],"n":2,"max_tokens":12,"stream":true}`, 4},
		{"/v1/completions", `{"prompt":[1,2,3],"max_tokens":12,"stream":true}`, 1},
		{"/v1/completions", `{"prompt":[[1,2],[3]],"max_tokens":12,"stream":true}`, 2},
	} {
		v := viewOf(t, readAll(t, post(t, url+c.path, c.body).Body))
		if len(v.text) != c.want || v.finished != c.want || !v.done {
			t.Errorf("%s: %+v", c.body, v)
		}
		seen := make(map[string]bool)
		for _, text := range v.text {
			if !Complete(text) || seen[text] {
				t.Errorf("%s: %q", c.body, text)
			}
			seen[text] = true
		}
	}
}

func TestResponses(t *testing.T) {
	_, url := serve(t, Config{})
	var got struct {
		Object string `json:"object"`
		Status string `json:"status"`
		Output []struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"output"`
		Usage struct {
			Output int `json:"output_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(readAll(t, post(t, url+"/v1/responses", `{"input":"What?","nonce":"n1","max_output_tokens":9}`).Body)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Object != "response" || got.Status != "completed" || got.Usage.Output != 9 || len(got.Output) != 1 {
		t.Fatalf("%+v", got)
	}
	if text := got.Output[0].Content[0].Text; !Complete(text) || !Carries(text, "n1") {
		t.Errorf("%q", text)
	}
	if resp := post(t, url+"/v1/responses", `{"input":"What?","stream":true}`); resp.StatusCode != 400 {
		t.Errorf("streamed with %d", resp.StatusCode)
	}
}

func TestEmbeddings(t *testing.T) {
	_, url := serve(t, Config{})
	ask := func(body string) (vectors [][]float32) {
		var got struct {
			Data []struct {
				Embedding []float32 `json:"embedding"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(readAll(t, post(t, url+"/v1/embeddings", body).Body)), &got); err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Data {
			vectors = append(vectors, d.Embedding)
		}
		return vectors
	}
	v := ask(`{"input":["one","two","one"],"dimensions":5}`)
	if len(v) != 3 || len(v[0]) != 5 || v[0][0] != v[2][0] || v[0][0] == v[1][0] {
		t.Errorf("%v", v)
	}
	norm := float32(0)
	for _, x := range v[0] {
		norm += x * x
	}
	if norm < 0.999 || norm > 1.001 {
		t.Errorf("length %v", norm)
	}
	body := readAll(t, post(t, url+"/v1/embeddings", `{"input":"one","encoding_format":"base64"}`).Body)
	if !regexp.MustCompile(`"embedding":"[A-Za-z0-9+/]{43}="`).MatchString(body) { // 8 x 4 bytes
		t.Error(body)
	}
}

// A conversation's next turn, with the answer in it, hits the prefix cache,
// and another model's or another salt's does not.
func TestSecondTurnIsCached(t *testing.T) {
	s, url := serve(t, Config{Models: []string{"m", "adapter"}})
	opening := strings.Repeat("a long opening of a conversation ", 20)
	turn := func(messages, more string) view {
		return viewOf(t, readAll(t, post(t, url+"/v1/chat/completions",
			`{"messages":[`+messages+`],"max_tokens":100,"stream":true,"stream_options":{"include_usage":true}`+more+`}`).Body))
	}
	first := `{"role":"user","content":"` + opening + `"}`
	v := turn(first, "")
	if v.cached != 0 || !v.usage {
		t.Errorf("first turn: %+v", v)
	}
	second := first + `,{"role":"assistant","content":"` + v.text[0] + `"},{"role":"user","content":[{"type":"text","text":"and then?"}]}`
	// All blocks of the first turn that were full before its last token.
	want := (1 + (len(opening)+3)/4 + 1 + 99) / BlockTokens * BlockTokens
	if got := turn(second, "").cached; got != want {
		t.Errorf("second turn: %d tokens cached, want %d", got, want)
	}
	if got := turn(second, `,"cache_salt":"tenant"`).cached; got != 0 {
		t.Errorf("another salt: %d tokens cached", got)
	}
	if got := turn(second, `,"model":"adapter"`).cached; got != 0 {
		t.Errorf("another model: %d tokens cached", got)
	}
	if st := s.Stats(); st.Cached != int64(want) {
		t.Errorf("counted %d, want %d", st.Cached, want)
	}
}

// Every family of the page has the name, type and labels that it has in vLLM.
func TestMetricsPageSpeaksVLLM(t *testing.T) {
	_, url := serve(t, Config{Models: []string{"smol"}})
	readAll(t, post(t, url+"/v1/chat/completions", `{"messages":[],"max_tokens":5}`).Body)
	readAll(t, post(t, url+"/v1/chat/completions", `{"messages":[]}`).Body)
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page := readAll(t, resp.Body)
	real, err := os.ReadFile("testdata/vllm_v0.32.0_cpu_real_busy.txt")
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]bool)
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	key := func(line string) string {
		name, rest, _ := strings.Cut(line, "{")
		names := []string{}
		for _, m := range label.FindAllStringSubmatch(rest, -1) {
			switch m[1] {
			case "le", "reason", "finished_reason", "model_name", "engine":
				names = append(names, m[0])
			}
		}
		return name + strings.Join(sorted(names), ",")
	}
	for line := range strings.Lines(string(real)) {
		if strings.HasPrefix(line, "# TYPE ") {
			series[strings.TrimSpace(line)] = true
		} else if line[0] != '#' {
			series[key(line)] = true
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "# HELP") {
			continue
		}
		k := strings.TrimSpace(line)
		if line[0] != '#' {
			k = key(line)
		}
		if !series[k] {
			t.Errorf("vLLM has no %s", k)
		}
	}
	for _, want := range []string{
		`vllm:request_success_total{engine="0",model_name="smol",finished_reason="length"} 1.0`,
		`vllm:request_success_total{engine="0",model_name="smol",finished_reason="stop"} 1.0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="smol"} 2.0`,
		`vllm:num_requests_running{engine="0",model_name="smol"} 0.0`,
		`vllm:prompt_tokens_total{engine="0",model_name="smol"} 2.0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s in\n%s", want, page)
		}
	}
}

func TestQueueLimitAnswers503(t *testing.T) {
	s, url := serve(t, Config{Slots: 1, QueueLimit: 1, TBOT: time.Second})
	for i := range 2 { // one runs, one waits
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(chatBody("", "x", 60, false)))
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		eventually(t, "the request is in", func() bool { st := s.Stats(); return st.Running+st.Waiting == i+1 && st.Running == 1 })
	}
	_, want := recorded(t, "admission_503_stream")
	resp := post(t, url+"/v1/chat/completions", chatBody("", "x", 60, true))
	if body := readAll(t, resp.Body); resp.StatusCode != 503 || body != strings.TrimSpace(want) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
