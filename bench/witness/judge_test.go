package witness

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

const id = "q1"

func event(text string, more string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-%s","choices":[{"delta":{"content":%q}%s}]}`, id, text, more) + "\n\n"
}

// streamed is a whole answer of eight tokens as events, without [DONE].
func streamed(finish string) string {
	text := enginetest.Answer(1, id, 8)
	var b strings.Builder
	for i := 0; i < len(text); i += 4 {
		b.WriteString(event(text[i:min(i+4, len(text))], ""))
	}
	return b.String() + finish
}

const (
	finished = `data: {"id":"chatcmpl-q1","choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done     = "data: [DONE]\n\n"
	cutOff   = `data: {"error":{"message":"m","type":"t","code":"stream_interrupted"}}` + "\n\n"
)

// The judge takes what is whole, and nothing that only looks so.
func TestJudge(t *testing.T) {
	unclean := errors.New("unexpected EOF")
	ok := func(body string) Answer { return Answer{Status: 200, Body: body} }
	whole := func(id, text string) string {
		return fmt.Sprintf(`{"id":"chatcmpl-%s","choices":[{"message":{"content":%q}}]}`, id, text)
	}
	response := func(text string) string {
		return fmt.Sprintf(`{"id":"resp_%s","status":"completed","output":[{"content":[{"text":%q}]}]}`, id, text)
	}
	mine, other := enginetest.Answer(1, id, 8), enginetest.Answer(1, "q2", 8)
	refusal := func(code string, header ...string) Answer {
		a := Answer{Status: 503, Header: http.Header{"Content-Type": {"application/json"}},
			Body: fmt.Sprintf(`{"error":{"message":"m","type":"t","param":null,"code":%q}}`, code)}
		for i := 0; i < len(header); i += 2 {
			a.Header.Set(header[i], header[i+1])
		}
		return a
	}
	for name, c := range map[string]struct {
		a     Answer
		kind  Kind
		saw   string
		wrong bool
	}{
		"whole stream":                  {ok(streamed(finished + done)), ChatStream, Complete, false},
		"no [DONE]":                     {ok(streamed(finished)), ChatStream, Truncated, true},
		"no finish_reason":              {ok(streamed(done)), ChatStream, Truncated, true},
		"a token is missing":            {ok(event(mine[:8], "") + event(mine[12:], "") + finished + done), ChatStream, Truncated, true},
		"a token twice":                 {ok(event(mine[:12], "") + event(mine[8:], "") + finished + done), ChatStream, Truncated, true},
		"another's answer":              {ok(event(other, "") + finished + done), ChatStream, Broken, true},
		"broken with an error event":    {Answer{Status: 200, Body: event(mine[:8], "") + cutOff, Err: unclean}, ChatStream, "cut: stream_interrupted", false},
		"the same with a clean end":     {ok(event(mine[:8], "") + cutOff), ChatStream, Truncated, true},
		"the same with [DONE]":          {Answer{Status: 200, Body: event(mine[:8], "") + cutOff + done, Err: unclean}, ChatStream, Broken, true},
		"broken without an error event": {Answer{Status: 200, Body: event(mine[:8], ""), Err: unclean}, ChatStream, Broken, true},
		"whole body":                    {ok(whole(id, mine)), Chat, Complete, false},
		"half of it":                    {ok(whole(id, mine[:12])), Chat, Truncated, true},
		"another's body":                {ok(whole("q2", other)), Chat, Complete, true},
		"whole response":                {ok(response(mine)), Response, Complete, false},
		"half a response":               {ok(response(mine[:12])), Response, Truncated, true},
		"a refusal": {refusal("no_healthy_engine", "Retry-After", "1", "X-Penstock-Reason", "no_healthy_engine"), Chat,
			"503 no_healthy_engine", false},
		"a refusal without Retry-After":   {refusal("no_healthy_engine", "X-Penstock-Reason", "no_healthy_engine"), Chat, "503 no_healthy_engine", true},
		"a refusal of somebody else":      {refusal("oops", "X-Penstock-Reason", "x"), Chat, "503 oops", true},
		"nothing at all":                  {Answer{Err: unclean}, Chat, NoAnswer, true},
		"a page that is no error of ours": {Answer{Status: 502, Header: http.Header{}, Body: "<html>"}, Chat, "502 <nil>", true},
	} {
		if saw, wrong := Judge(c.a, id, c.kind); saw != c.saw || (wrong != "") != c.wrong {
			t.Errorf("%s: %q, %q", name, saw, wrong)
		}
	}
}
