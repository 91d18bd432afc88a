package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine/enginetest"
)

// demoClient talks to the gateway as any client does: HTTP, streaming.
type demoClient struct {
	http   *http.Client
	url    string
	seen   *tally
	opened atomic.Int64 // conversations so far
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

// told is one answer as the client saw it.
type told struct {
	id, engine, affinity string
	attempts             int
	text                 string
	words                int
	first, total         time.Duration
	prompt, cached       int // tokens
}

// onlooker sees an answer arrive. Its functions may be nil.
type onlooker struct {
	begin func(engine string)
	word  func(text string)
}

// ask sends a conversation and reads the answer to its end. What is not whole,
// or not the answer to this request, is an error. It counts both.
func (c *demoClient) ask(ctx context.Context, talk []chatMessage, words int, see onlooker) (told, error) {
	a, err := c.stream(ctx, talk, words, see)
	if ctx.Err() != nil {
		return a, ctx.Err() // broken off from here: no failure of anybody's
	}
	c.seen.add(a, err)
	return a, err
}

func (c *demoClient) stream(ctx context.Context, talk []chatMessage, words int, see onlooker) (a told, err error) {
	body, err := json.Marshal(map[string]any{"model": demoModel, "stream": true, "max_tokens": words, "messages": talk,
		"stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	h := resp.Header
	a = told{id: h.Get("X-Request-Id"), engine: h.Get("X-Penstock-Engine"), affinity: h.Get("X-Penstock-Affinity")}
	a.attempts, _ = strconv.Atoi(h.Get("X-Penstock-Attempts"))
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

// crowd is people who hold one conversation after the other.
type crowd struct {
	client *demoClient
	people int
	turns  int           // of a conversation
	words  int           // of an answer: from this to twice as many
	pause  time.Duration // before the next turn, on average
}

// talk lasts until over ends; turns that were begun are then finished.
func (c crowd) talk(ctx, over context.Context) {
	var people sync.WaitGroup
	for range c.people {
		people.Go(func() {
			for over.Err() == nil {
				c.converse(ctx, over)
			}
		})
	}
	people.Wait()
}

// crowdTopics open the conversations of the crowd, each with its number.
var crowdTopics = [...]string{
	"Please summarise the minutes of the meeting about the new water intake and list who promised to do what until when.",
	"Write a reply to a customer whose parcel was left in the rain, with an apology and two ways in which we can make up for it.",
	"Explain to a new colleague how the turbines are started after an inspection, one step after the other, with what to check.",
	"Translate the safety notice at the upper gate into plain words that visitors of all ages understand at the first reading.",
}

func (c crowd) converse(ctx, over context.Context) {
	n := c.client.opened.Add(1)
	talk := []chatMessage{{"user", fmt.Sprintf("Conversation %d. %s", n, crowdTopics[n%int64(len(crowdTopics))])}}
	for turn := 1; ; turn++ {
		a, err := c.client.ask(ctx, talk, c.words+rand.IntN(c.words+1), onlooker{})
		pause := c.pause/2 + time.Duration(rand.Int64N(int64(c.pause)))
		if !rest(over, pause) || err != nil || turn == c.turns {
			return
		}
		talk = append(talk, chatMessage{"assistant", a.text}, chatMessage{"user", fmt.Sprintf("Thank you. Now point %d in more detail, please.", turn)})
	}
}

// useAll opens conversations until every engine has served one. A conversation
// goes to each engine with the probability of its weight, so that a few do.
func (c *demoClient) useAll(ctx context.Context, engines []string) error {
	const enough = 500
	for range enough {
		if c.seen.used(engines) || ctx.Err() != nil {
			return nil
		}
		n := c.opened.Add(1)
		if _, err := c.ask(ctx, []chatMessage{{"user", fmt.Sprintf("Conversation %d. Hello.", n)}}, 4, onlooker{}); err != nil {
			return nil // counted
		}
	}
	return fmt.Errorf("an engine was not used in %d conversations", c.opened.Load())
}
