package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"penstock/engine/enginetest"
)

// The codes that an answer of the gateway's own may have, before and after the
// first content, of those in DESIGN.md 8.
var (
	faultCodes  = []string{"overloaded", "no_healthy_engine", "engine_timeout", "engine_error", "bad_engine_event"}
	streamCodes = []string{"stream_interrupted", "stream_stalled", "bad_engine_event"}
)

// Kind is what an answer is to be.
type Kind uint8

const (
	ChatStream Kind = iota // of /v1/chat/completions
	Chat                   // of the same, in one piece
	Response               // of /v1/responses, in one piece
)

// What Judge sees of answers that the gateway did not break off or refuse.
const (
	Complete  = "complete"
	Left      = "left"      // the client did
	Truncated = "truncated" // a part that looks like the whole: always wrong
	Broken    = "broken"    // nothing that may be: always wrong
	NoAnswer  = "no answer" // always wrong
	CutPrefix = "cut: "     // before the code of the error event that ends it
)

// Judge says what a client saw of the request with that id, and what is wrong
// with it: "" if it is an answer that is whole and its own, or a failure that
// cannot be taken for one. A refusal is its status and its code.
func Judge(a Answer, id string, kind Kind) (saw, wrong string) {
	switch {
	case errors.Is(a.Err, context.Canceled):
		saw = Left
		if a.Status == http.StatusOK && kind == ChatStream {
			_, wrong = readEvents(a, id, true)
		}
	case a.Status == 0:
		saw, wrong = NoAnswer, fmt.Sprint(a.Err)
	case a.Status != http.StatusOK:
		return judgeRefusal(a)
	case kind == ChatStream:
		return judgeStream(a, id)
	default:
		return judgeWhole(a, id, kind)
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
func readEvents(a Answer, id string, cut bool) (s streamText, wrong string) {
	text := a.Body
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
func judgeStream(a Answer, id string) (saw, wrong string) {
	s, wrong := readEvents(a, id, false)
	switch {
	case wrong != "":
		return Broken, wrong
	case a.Err == nil && s.code == "" && s.finished && s.done && enginetest.Complete(s.content) && enginetest.Carries(s.content, id):
		return Complete, ""
	case a.Err == nil:
		return Truncated, "a clean end of what is not whole"
	case s.done:
		return Broken, "[DONE] in an answer that broke"
	case s.code == "":
		return Broken, fmt.Sprintf("no error event before the unclean end (%v)", a.Err)
	}
	return CutPrefix + s.code, ""
}

// judgeWhole: a whole JSON answer or none.
func judgeWhole(a Answer, id string, kind Kind) (saw, wrong string) {
	text, prefix := "", "chatcmpl-"
	var err error
	if kind == Response {
		prefix = "resp_"
		text, err = textOfResponse(a.Body)
	} else {
		text, err = textOfChat(a.Body)
	}
	var doc struct{ ID string }
	switch idErr := json.Unmarshal([]byte(a.Body), &doc); {
	case a.Err != nil:
		return Broken, fmt.Sprintf("half an answer under a 200: %v", a.Err)
	case err != nil || idErr != nil || !enginetest.Complete(text):
		return Truncated, fmt.Sprintf("not a whole answer: %v", err)
	case doc.ID != prefix+id || !enginetest.Carries(text, id):
		return Complete, "another request's answer"
	}
	return Complete, ""
}

func textOfChat(body string) (string, error) {
	var doc struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil || len(doc.Choices) != 1 {
		return "", fmt.Errorf("%d choices: %v", len(doc.Choices), err)
	}
	return doc.Choices[0].Message.Content, nil
}

func textOfResponse(body string) (string, error) {
	var doc struct {
		Status string
		Output []struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.Status != "completed" || len(doc.Output) != 1 || len(doc.Output[0].Content) != 1 {
		return "", fmt.Errorf("status %q, %d items: %v", doc.Status, len(doc.Output), err)
	}
	return doc.Output[0].Content[0].Text, nil
}

// judgeRefusal: an OpenAI-shaped error. An engine's own 4xx passes as it is;
// all others are the gateway's.
func judgeRefusal(a Answer) (saw, wrong string) {
	var doc struct{ Error map[string]any }
	err := json.Unmarshal([]byte(a.Body), &doc)
	message, _ := doc.Error["message"].(string)
	kind, _ := doc.Error["type"].(string)
	_, param := doc.Error["param"]
	code := fmt.Sprint(doc.Error["code"])
	saw = fmt.Sprintf("%d %s", a.Status, code)
	switch {
	case a.Err != nil:
		return saw, fmt.Sprintf("an unclean end of an error: %v", a.Err)
	case err != nil || message == "" || kind == "" || !param || a.Header.Get("Content-Type") != "application/json":
		return saw, "not an OpenAI-shaped error"
	case a.Status == http.StatusUnprocessableEntity && code == "request_crashes_engine":
		return saw, ""
	case a.Status < 500 && a.Status != http.StatusTooManyRequests:
		if a.Header.Get("X-Penstock-Engine") == "" || code != fmt.Sprint(a.Status) {
			return saw, "a client error that is not the engine's"
		}
		if reason := a.Header.Get("X-Penstock-Reason"); reason != "" && reason != "invalid_request" {
			return saw, "an engine's word for a reason"
		}
		return saw, ""
	case !slices.Contains(faultCodes, code) || a.Header.Get("X-Penstock-Reason") == "":
		return saw, "not an error of DESIGN.md 8"
	case (code == "overloaded" || code == "no_healthy_engine") && a.Header.Get("Retry-After") == "":
		return saw, "no Retry-After"
	}
	return saw, ""
}
