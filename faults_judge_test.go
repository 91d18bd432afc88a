package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"penstock/engine/enginetest"
)

// leaving says when a client goes away by itself.
type leaving uint8

const (
	stays      leaving = iota
	leavesSoon         // some time after it has sent its request
	leavesMid          // with the first content
)

// fetch sends one request and reads its answer to the end, or to where the
// client leaves.
func fetch(ctx context.Context, c *http.Client, url, id, body string, when leaving) answered {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["X-Request-Id"] = []string{id}
	resp, err := c.Do(req)
	if err != nil {
		return answered{err: err}
	}
	defer resp.Body.Close()
	a := answered{status: resp.StatusCode, header: resp.Header}
	var text []byte
	for buf := make([]byte, 4<<10); a.err == nil; {
		var n int
		n, a.err = resp.Body.Read(buf)
		text = append(text, buf[:n]...)
		if when == leavesMid && n > 0 {
			leave()
		}
	}
	if a.err == io.EOF {
		a.err = nil
	}
	a.body = string(text)
	return a
}

// The codes that an answer of the gateway's own may have, before and after the
// first content, of those in DESIGN.md 8.
var (
	faultCodes  = []string{"overloaded", "no_healthy_engine", "engine_timeout", "engine_error", "bad_engine_event"}
	streamCodes = []string{"stream_interrupted", "stream_stalled", "bad_engine_event"}
)

// judge says what a client saw of the request with that id, and what is wrong
// with it: "" if it is an answer that is whole and its own, or a failure that
// cannot be taken for one.
func judge(a answered, id string, stream bool) (saw, wrong string) {
	switch {
	case errors.Is(a.err, context.Canceled):
		saw = "left"
		if a.status == http.StatusOK && stream {
			_, wrong = readEvents(a, id, true)
		}
	case a.status == 0:
		saw, wrong = "no answer", fmt.Sprint(a.err)
	case a.status != http.StatusOK:
		return judgeRefusal(a)
	case stream:
		return judgeStream(a, id)
	default:
		return judgeWhole(a, id)
	}
	return saw, wrong
}

// streamText is what the events of a stream say.
type streamText struct {
	content  string
	finished bool // finish_reason
	done     bool // [DONE]
	code     string
}

// readEvents reads the events of a stream, of which the last may be cut.
func readEvents(a answered, id string, cut bool) (s streamText, wrong string) {
	text := a.body
	if cut {
		text = text[:strings.LastIndex(text, "\n\n")+1]
	} else if text != "" && !strings.HasSuffix(text, "\n\n") {
		return s, "the last event is cut"
	}
	for event := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case event == "" && cut:
			continue
		case !ok:
			return s, fmt.Sprintf("no event: %.200q", event)
		case s.done || s.code != "":
			return s, fmt.Sprintf("an event after the last one: %.200s", event)
		case data == "[DONE]":
			s.done = true
			continue
		}
		if wrong = s.take(data, id); wrong != "" {
			return s, wrong
		}
	}
	if !enginetest.Carries(s.content, id) && len(s.content) >= len("abc def ghi jkl") {
		return s, fmt.Sprintf("the content of another answer: %q", s.content)
	}
	return s, ""
}

// take reads one event that is not [DONE].
func (s *streamText) take(data, id string) (wrong string) {
	var ev struct {
		ID      string
		Choices []struct {
			Delta        struct{ Content string }
			FinishReason *string `json:"finish_reason"`
		}
		Error *struct{ Message, Type, Code string }
	}
	switch err := json.Unmarshal([]byte(data), &ev); {
	case err != nil:
		return fmt.Sprintf("%v in %.200s", err, data)
	case ev.Error != nil:
		if s.code = ev.Error.Code; !slices.Contains(streamCodes, s.code) || ev.Error.Message == "" || ev.Error.Type == "" {
			return fmt.Sprintf("an error event that is none of ours: %.200s", data)
		}
		return ""
	case ev.ID != "chatcmpl-"+id:
		return fmt.Sprintf("an event of the answer %s", ev.ID)
	}
	for _, ch := range ev.Choices {
		s.content += ch.Delta.Content
		s.finished = s.finished || ch.FinishReason != nil
	}
	return ""
}

// judgeStream: whole, or an error event and an unclean end and no [DONE].
func judgeStream(a answered, id string) (saw, wrong string) {
	s, wrong := readEvents(a, id, false)
	switch {
	case wrong != "":
		return "broken", wrong
	case a.err == nil && s.code == "" && s.finished && s.done && enginetest.Complete(s.content) && enginetest.Carries(s.content, id):
		return "complete", ""
	case a.err == nil:
		return "truncated", "a clean end of what is not whole"
	case s.done:
		return "broken", "[DONE] in an answer that broke"
	case s.code == "":
		return "broken", fmt.Sprintf("no error event before the unclean end (%v)", a.err)
	}
	return "cut: " + s.code, ""
}

// judgeWhole: a whole JSON answer or none.
func judgeWhole(a answered, id string) (saw, wrong string) {
	var doc struct {
		ID      string
		Choices []struct{ Message struct{ Content string } }
	}
	switch err := json.Unmarshal([]byte(a.body), &doc); {
	case a.err != nil:
		return "broken", fmt.Sprintf("half an answer under a 200: %v", a.err)
	case err != nil || len(doc.Choices) != 1 || !enginetest.Complete(doc.Choices[0].Message.Content):
		return "truncated", fmt.Sprintf("not a whole answer: %v", err)
	case doc.ID != "chatcmpl-"+id || !enginetest.Carries(doc.Choices[0].Message.Content, id):
		return "complete", "another request's answer"
	}
	return "complete", ""
}

// judgeRefusal: an OpenAI-shaped error. An engine's own 4xx passes as it is;
// all others are the gateway's.
func judgeRefusal(a answered) (saw, wrong string) {
	var doc struct{ Error map[string]any }
	err := json.Unmarshal([]byte(a.body), &doc)
	message, _ := doc.Error["message"].(string)
	kind, _ := doc.Error["type"].(string)
	_, param := doc.Error["param"]
	code := fmt.Sprint(doc.Error["code"])
	saw = fmt.Sprintf("%d %s", a.status, code)
	switch {
	case a.err != nil:
		return saw, fmt.Sprintf("an unclean end of an error: %v", a.err)
	case err != nil || message == "" || kind == "" || !param || a.header.Get("Content-Type") != "application/json":
		return saw, "not an OpenAI-shaped error"
	case a.status < 500 && a.status != http.StatusTooManyRequests:
		if a.header.Get("X-Penstock-Engine") == "" || code != fmt.Sprint(a.status) {
			return saw, "a client error that is not the engine's"
		}
		if reason := a.header.Get("X-Penstock-Reason"); reason != "" && reason != "invalid_request" {
			return saw, "an engine's word for a reason"
		}
		return saw, ""
	case !slices.Contains(faultCodes, code) || a.header.Get("X-Penstock-Reason") == "":
		return saw, "not an error of DESIGN.md 8"
	case (code == "overloaded" || code == "no_healthy_engine") && a.header.Get("Retry-After") == "":
		return saw, "no Retry-After"
	}
	return saw, ""
}
