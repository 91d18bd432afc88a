package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// contents are the rows about what is passed on, refused, and said by the proxy itself.
func contents() []*row {
	return []*row{
		{
			name: "broken JSON / duplicate keys", wanted: "400 / 400, engine not bothered",
			run:        refusals(brokenJSON, duplicateKeys),
			rightLabel: "400 / 400",
		},
		{
			name: "model missing / unknown", wanted: "400 / 404, engine not bothered",
			run:        refusals(noModel, unknownModel),
			rightLabel: "400 / 404",
		},
		{
			name: "request bytes at the engine", wanted: "identical",
			run: requestBytes, rightLabel: "identical",
		},
		{
			name: "request headers at the engine, of 7; hop-by-hop ones", wanted: "7, none hop-by-hop",
			run: requestHeaders,
			say: func(f folded) string {
				if f.label != "" {
					return fmt.Sprintf("%s; passes on %s", f.numbers[0], f.label)
				}
				return f.numbers[0].String()
			},
			right: func(f folded, _ limits) bool { return f.label == "" && f.numbers[0].low == 7 },
		},
		{
			name: "SSE bytes at the client", wanted: "identical",
			run: streamBytes, rightLabel: "identical",
		},
		{
			name: "own errors: engines reset / engines down", wanted: "JSON / JSON with Retry-After",
			run: ownErrors,
			right: func(f folded, _ limits) bool {
				reset, down, _ := strings.Cut(f.label, " / ")
				return strings.Contains(reset, "JSON") && strings.Contains(down, "JSON, Retry-After")
			},
		},
		{
			name: "/v1/models of engines with different models", wanted: "union, fields kept",
			prepare: func(p pair) {
				p[0].setModels(modelName, "only-a")
				p[1].setModels(modelName, "only-b")
			},
			run: modelList, rightLabel: "union, fields kept",
		},
	}
}

var (
	brokenJSON    = func(p string) string { return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}`, p) }
	duplicateKeys = func(p string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"model":"m","stream":false,"stream":true}`, p)
	}
	noModel = func(p string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, p)
	}
	unknownModel = func(p string) string {
		return fmt.Sprintf(`{"model":"nobody-serves-this","messages":[{"role":"user","content":%q}]}`, p)
	}
)

// refusals sends bodies that deserve an error and says what came of each: the
// status, or that the engine had to answer it.
func refusals(bodies ...func(prompt string) string) func(t *trial) (observation, error) {
	return func(t *trial) (observation, error) {
		var said []string
		for _, body := range bodies {
			prompt := t.prompt()
			a := t.post([]byte(body(prompt)), patience)
			switch {
			case len(t.pair.carrying(prompt)) > 0:
				said = append(said, "to the engine")
			case a.format() != "JSON":
				said = append(said, a.outcome()+" "+a.format())
			default:
				said = append(said, a.outcome())
			}
		}
		return observation{Label: strings.Join(said, " / ")}, nil
	}
}

// awkwardBodies are valid requests that a parser would write otherwise. %s is
// the prompt.
var awkwardBodies = []string{
	`{"model":"m","messages":[{"role":"user","content":"%s"}]}`,
	"{ \"messages\" : [ { \"content\" : \"%s\", \"role\" : \"user\" } ] ,\n\t\"model\" : \"m\" }\n",
	`{"model":"m","temperature":1.0,"top_p":1e0,"seed":1234567890123456789,"logit_bias":{"50256":-100},"messages":[{"role":"user","content":"%s"}]}`,
	`{"model":"m","messages":[{"role":"user","content":"%s \u00e9\u4f60 \ud83d\ude00 é你 😀 \/ \u003c"}]}`,
	`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}],"tools":[],"metadata":{},"stop":null}`,
	`{"model":"m","messages":[{"role":"user","content":"%s"}],"user":"u","x_unknown":{"deep":[[[{"z":1,"a":2}]]]},"max_tokens":5,"vllm_xargs":{"k":"v"}}`,
	`{"stream":false,"max_completion_tokens":7,"n":1,"messages":[{"role":"system","content":""},{"role":"user","name":"x","content":"%s"}],"model":"m"}`,
}

// requestBytes compares the bodies that the engine got with those that were sent.
func requestBytes(t *trial) (observation, error) {
	changed := 0
	for _, form := range awkwardBodies {
		prompt := t.prompt()
		body := []byte(strings.ReplaceAll(form, "%s", prompt))
		if a := t.post(body, patience); !a.ok() {
			return observation{Label: fmt.Sprintf("a valid request was answered with %s", a.outcome())}, nil
		}
		got := t.pair.carrying(prompt)
		if len(got) == 0 {
			return observation{}, fmt.Errorf("a request that was answered reached no engine")
		}
		if !bytes.Equal(got[0].Body, body) {
			changed++
		}
	}
	if changed > 0 {
		return observation{Label: fmt.Sprintf("%d of %d changed", changed, len(awkwardBodies))}, nil
	}
	return observation{Label: "identical"}, nil
}

// kept are headers that an engine has a use for, and what a client sends.
var kept = []string{
	"Accept", "application/json",
	"User-Agent", "behaviour/1",
	"Authorization", "Bearer sk-client",
	"X-Request-Id", "behaviour-1",
	"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	"Openai-Organization", "org-1",
	"X-Team-Id", "search",
}

// hopByHop belong to one connection; X-Hop because Connection names it.
var hopByHop = []string{
	"Connection", "keep-alive, X-Hop",
	"X-Hop", "1",
	"Keep-Alive", "timeout=5",
	"Proxy-Connection", "keep-alive",
	"Te", "trailers",
}

// requestHeaders looks at the headers that the engine got. Number: how many of
// kept came unchanged; label: those that should have stayed behind.
func requestHeaders(t *trial) (observation, error) {
	prompt := t.prompt()
	conn, err := rawRequest(t.host(), chatBody(prompt, false), slices.Concat(kept, hopByHop)...)
	if err != nil {
		return observation{}, err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return observation{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return observation{}, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return observation{}, err
	}
	got := t.pair.carrying(prompt)
	if len(got) == 0 {
		return observation{Label: fmt.Sprintf("refused with %d", resp.StatusCode), Numbers: []float64{0}}, nil
	}
	header := got[0].Request.Header
	n := 0.0
	for i := 0; i < len(kept); i += 2 {
		if header.Get(kept[i]) == kept[i+1] {
			n++
		}
	}
	var leaked []string
	for i := 2; i < len(hopByHop); i += 2 {
		if header.Get(hopByHop[i]) == hopByHop[i+1] {
			leaked = append(leaked, hopByHop[i])
		}
	}
	if strings.Contains(strings.ToLower(header.Get("Connection")), "x-hop") {
		leaked = append(leaked, "the client's Connection")
	}
	return observation{Label: strings.Join(leaked, ", "), Numbers: []float64{n}}, nil
}

// streamBytes compares the body of a stream with what the engine wrote.
func streamBytes(t *trial) (observation, error) {
	t.pair.setPlay(playAwkward)
	a := t.chat(true)
	want := strings.Join(awkwardStream, "")
	switch {
	case a.err != nil || a.status != http.StatusOK:
		return observation{Label: "a good stream ended with " + a.ending()}, nil
	case string(a.body) == want:
		return observation{Label: "identical"}, nil
	}
	return observation{Label: "changed"}, nil
}

// ownErrors makes the proxy speak for itself, twice.
func ownErrors(t *trial) (observation, error) {
	t.pair.setPlay(reset)
	first := t.chat(false)
	if err := t.restart(); err != nil {
		return observation{}, err
	}
	for _, e := range t.pair {
		e.down()
	}
	second := t.chat(false)
	return observation{Label: describeError(first) + " / " + describeError(second)}, nil
}

func describeError(a answer) string {
	if a.status == 0 {
		return a.outcome()
	}
	text := a.outcome() + " " + a.format()
	if a.header.Get("Retry-After") != "" {
		text += ", Retry-After"
	}
	return text
}

// modelList asks for the models of both engines, a few times: a proxy may have
// to ask them first.
func modelList(t *trial) (o observation, err error) {
	t.await(8*time.Second, func() bool {
		o, err = oneModelList(t)
		return err != nil || o.Label == "union, fields kept" || !t.sleep(250*time.Millisecond)
	})
	return o, err
}

func oneModelList(t *trial) (observation, error) {
	resp, err := t.http.Get(t.base + "/v1/models")
	if err != nil {
		return observation{}, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID  string
			Max int `json:"max_model_len"`
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &list) != nil {
		return observation{Label: fmt.Sprintf("%d, no list", resp.StatusCode)}, nil
	}
	names, fields := map[string]bool{}, true
	for _, m := range list.Data {
		names[m.ID] = true
		fields = fields && m.Max > 0
	}
	label := "union"
	switch {
	case !names["only-a"] && !names["only-b"]:
		label = "neither engine's"
	case !names["only-a"] || !names["only-b"]:
		label = "one engine's"
	}
	if fields {
		return observation{Label: label + ", fields kept"}, nil
	}
	return observation{Label: label + ", max_model_len lost"}, nil
}
