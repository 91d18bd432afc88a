package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"penstock/engine/enginetest"
)

// demoClient talks to a gateway as any client does: HTTP, streaming.
type demoClient struct {
	http *http.Client
	url  string
	seen *tally
}

func newDemoClient(address string, seen *tally) *demoClient {
	return &demoClient{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		url: "http://" + address + "/v1/chat/completions", seen: seen}
}

func (c *demoClient) close() { c.http.CloseIdleConnections() }

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// question is what is asked.
type question struct {
	talk    []chatMessage
	words   int       // of the answer
	require string    // labels that the engine must have; "" = none
	due     time.Time // from which on the answer's time counts; zero: from now
}

// told is one answer as the client saw it.
type told struct {
	id, engine, affinity string
	attempts             int
	text                 string
	words                int
	first, total         time.Duration
	prompt, cached       int // tokens
}

// errShed is an answer of 429: the gateway refused on purpose.
var errShed = errors.New("shed")

// onlooker sees an answer arrive. Its functions may be nil.
type onlooker struct {
	begin func(engine string)
	word  func(text string)
}

// ask sends a conversation and reads the answer to its end. What is not whole,
// or not the answer to this request, is an error. It counts both.
func (c *demoClient) ask(ctx context.Context, q question, see onlooker) (told, error) {
	a, err := c.stream(ctx, q, see)
	if ctx.Err() != nil {
		return a, ctx.Err() // broken off from here: no failure of anybody's
	}
	c.seen.add(a, err)
	return a, err
}

func (c *demoClient) stream(ctx context.Context, q question, see onlooker) (a told, err error) {
	body, err := json.Marshal(map[string]any{"model": demoModel, "stream": true, "max_tokens": q.words, "messages": q.talk,
		"stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	if q.require != "" {
		req.Header.Set("X-Penstock-Require", q.require)
	}
	begin := q.due
	if begin.IsZero() {
		begin = time.Now()
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	h := resp.Header
	a = told{id: h.Get("X-Request-Id"), engine: h.Get("X-Penstock-Engine"), affinity: h.Get("X-Penstock-Affinity")}
	a.attempts, _ = strconv.Atoi(h.Get("X-Penstock-Attempts"))
	if resp.StatusCode == http.StatusTooManyRequests {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1000))
		return a, errShed
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return a, fmt.Errorf("request %s: status %s: %s", a.id, resp.Status, firstLine(text))
	}
	if see.begin != nil {
		see.begin(a.engine)
	}
	if err := a.read(resp.Body, begin, see); err != nil {
		return a, fmt.Errorf("request %s on %s: %w", a.id, a.engine, err)
	}
	return a, nil
}

// read takes in the events of a stream.
func (a *told) read(body io.Reader, begin time.Time, see onlooker) error {
	finished, done := false, false
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			continue
		case data == "[DONE]":
			done = true
			continue
		}
		var event chatEvent
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		if event.Error != nil {
			return errors.New("error event: " + event.Error.Message)
		}
		finished = a.take(&event, begin, see) || finished
	}
	a.total = time.Since(begin)
	switch err := lines.Err(); {
	case err != nil:
		return err
	case !done || !finished || !enginetest.Complete(a.text):
		return fmt.Errorf("the answer is not whole: [DONE] %t, finish_reason %t, %d words", done, finished, a.words)
	case !enginetest.Carries(a.text, a.id):
		return errors.New("the answer is that of another request")
	}
	return nil
}

// take adds an event to the answer. True: it had a finish_reason.
func (a *told) take(event *chatEvent, begin time.Time, see onlooker) (finished bool) {
	if u := event.Usage; u != nil {
		a.prompt, a.cached = u.Prompt, u.Details.Cached
	}
	for _, choice := range event.Choices {
		finished = finished || choice.FinishReason != ""
		word := choice.Delta.Content
		if word == "" {
			continue
		}
		if a.words++; a.words == 1 {
			a.first = time.Since(begin)
		}
		a.text += word
		if see.word != nil {
			see.word(word)
		}
	}
	return finished
}

// chatEvent is what the demo reads of a stream's event.
type chatEvent struct {
	Choices []struct {
		Delta        struct{ Content string } `json:"delta"`
		FinishReason string                   `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error *struct{ Message string } `json:"error"`
}

// useAll opens conversations until every engine has served one.
func useAll(ctx context.Context, clients []*demoClient, seen *tally) error {
	const enough = 500
	for n := range enough {
		if seen.used() || ctx.Err() != nil {
			return nil
		}
		hello := question{talk: []chatMessage{{"user", fmt.Sprintf("Hello for the %d. time.", n+1)}}, words: 4}
		if _, err := clients[n%len(clients)].ask(ctx, hello, onlooker{}); err != nil {
			return nil // counted
		}
	}
	return fmt.Errorf("an engine was not used in %d conversations", enough)
}
