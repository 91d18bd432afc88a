package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// How streams end after their content began. What is not whole ends with one
// error event and uncleanly, on both protocols; nothing is repeated.
func TestC02_BrokenStreamsAreVisible(t *testing.T) {
	t.Parallel()
	cut := token("never whole")[:40]
	chunks := func(pieces ...string) enginetest.Play {
		return func(x *enginetest.Exchange) {
			for _, p := range pieces {
				x.Chunk(p)
			}
			x.EndChunks()
		}
	}
	for _, c := range []struct {
		name  string
		end   enginetest.Play // after five tokens
		code  string          // of the error event; "" = the answer is whole
		extra string          // what the client gets after the tokens, if it is whole
	}{
		{"reset", func(x *enginetest.Exchange) { x.Reset() }, "stream_interrupted", ""},
		{"close", func(x *enginetest.Exchange) { x.Close() }, "stream_interrupted", ""},
		{"close in a chunk", func(x *enginetest.Exchange) { x.Write("40\r\n" + cut); x.Close() }, "stream_interrupted", ""},
		{"garbage for a chunk size", func(x *enginetest.Exchange) { x.Write("zz\r\n"); x.Hang() }, "stream_interrupted", ""},
		{"clean end without a proper end", chunks(), "stream_interrupted", ""},
		{"clean end in an event", chunks(cut), "bad_engine_event", ""},
		{"finish_reason, then a reset", func(x *enginetest.Exchange) { x.Chunk(finishEvent); x.Reset() }, "stream_interrupted", finishEvent},
		{"error event", chunks("data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}\n\n"), "stream_interrupted", ""},
		{"error event, then [DONE]", chunks("data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}\n\n" + doneEvent), "stream_interrupted", ""},
		{"error event and [DONE] apart", chunks("data: {\"error\":{\"message\":\"no\",\"code\":400}}\n\n", doneEvent), "stream_interrupted", ""},
		{"event: error", chunks("event: error\ndata: {\"message\":\"flat\"}\n\n", doneEvent), "stream_interrupted", ""},
		{"no JSON", chunks("data: Internal Server Error\n\n", doneEvent), "bad_engine_event", ""},
		{"an event of 17 MiB", func(x *enginetest.Exchange) {
			x.Chunk("data: " + strings.Repeat("x", 17<<20))
			x.Hang()
		}, "bad_engine_event", ""},
		{"[DONE]", chunks(finishEvent, doneEvent), "", finishEvent + doneEvent},
		{"[DONE], then a reset", func(x *enginetest.Exchange) { x.Chunk(finishEvent + doneEvent); x.Reset() }, "", finishEvent + doneEvent},
		{"[DONE], then silence", func(x *enginetest.Exchange) { x.Chunk(finishEvent + doneEvent); x.Hang() }, "", finishEvent + doneEvent},
		{"finish_reason without [DONE]", chunks(finishEvent), "", finishEvent + doneEvent},
		{"usage without [DONE]", chunks(finishEvent, usageEvent(3, 5)), "", finishEvent + usageEvent(3, 5) + doneEvent},
		{"finish_reason without a blank line", chunks(strings.TrimRight(finishEvent, "\n")), "", finishEvent + doneEvent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tokens := ""
			for i := range 5 {
				tokens += token(fmt.Sprint("t", i))
			}
			breaking := func(x *enginetest.Exchange) { x.StartStream(); x.Chunk(tokens); c.end(x) }
			e1, e2 := startPlayed(t, breaking), startPlayed(t, breaking)
			g := startCase(t, "", e1, e2)
			bothProtocols(t, func(t *testing.T, cl *http.Client) {
				a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", true))
				if a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
				if c.code == "" {
					if want := tokens + c.extra; a.body != want || !a.looksComplete() {
						t.Errorf("%v\n%q, want\n%q", a.err, a.body, want)
					}
					return
				}
				rest, ok := strings.CutPrefix(a.body, tokens+c.extra)
				if !ok || strings.Count(a.body, "data:") != strings.Count(tokens+c.extra, "data:")+1 || !strings.HasPrefix(rest, `data: {"error":{`) || !strings.HasSuffix(rest, "}\n\n") {
					t.Errorf("after the tokens: %q", rest)
				}
				if a.errorCode() != c.code || a.err == nil || strings.Contains(a.body, "[DONE]") {
					t.Errorf("code %q, end %v, want %s and an unclean end", a.errorCode(), a.err, c.code)
				}
			})
			if n := len(posts(e1, e2)); n != 2 {
				t.Errorf("%d attempts for 2 requests", n)
			}
			wantRequests(g, outcomes{map[bool]string{true: "ok", false: "committed"}[c.code == ""]: 2})
			idle(g, "e1", "e2")
		})
	}
}

// The same on the wire: exactly the engine's events, an error event, and no
// final chunk. On h2 the end is RST_STREAM.
func TestC02_UncleanEndOnTheWire(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) { x.StartStream(); x.Chunk(token("a")); x.Reset() })
	g := startCase(t, "", e1)
	w := dialWire(t, g)
	w.send(rawPost("/v1/chat/completions", chatBody("m", "hi", true)))
	resp := w.head()
	if resp.StatusCode != 200 || len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		t.Fatalf("%d %v", resp.StatusCode, resp.TransferEncoding)
	}
	raw, err := w.rest()
	if err != nil || !strings.Contains(raw, token("a")) || !strings.HasSuffix(raw, "}\n\n\r\n") || !strings.Contains(raw, `"code":"stream_interrupted"`) {
		t.Errorf("%v %q", err, raw)
	}
	a := g.post(overH2(t), "/v1/chat/completions", chatBody("m", "hi", true))
	if a.err == nil || !strings.Contains(a.err.Error(), "INTERNAL_ERROR") {
		t.Errorf("h2c ends with %v", a.err)
	}
}

func wantTokens(g *running, prompt, completion int) {
	g.t.Helper()
	for kind, n := range map[string]int{"prompt": prompt, "completion": completion} {
		if got := g.metric(`penstock_tokens_total{kind="` + kind + `",model="m",tenant="default"}`); int(got) != n {
			g.t.Errorf("%v %s tokens counted, want %d", got, kind, n)
		}
	}
}

// An error object as the first event becomes the status that it names; it is
// no success, has no time to first content, and is not repeated.
func TestC05_ErrorAsFirstEvent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, event, code, param string
		status                   int
		outcome                  string
	}{
		{"400", `{"error":{"message":"max_tokens is too large","type":"BadRequestError","param":"max_tokens","code":400}}`, "400", "max_tokens", 400, "client"},
		{"400 flat", `{"object":"error","message":"max_tokens is too large","type":"BadRequestError","param":"max_tokens","code":400}`, "400", "max_tokens", 400, "client"},
		{"500", `{"error":{"message":"CUDA out of memory at 10.0.0.7","type":"InternalServerError","param":null,"code":500}}`, "engine_error", "", 500, "ambiguous"},
		{"503", `{"error":{"message":"queue full","type":"Service Unavailable","param":null,"code":503}}`, "overloaded", "", 503, "not_processed"},
	} {
		for _, first := range []string{"", roleEvent} {
			t.Run(c.name+map[bool]string{true: " after the role"}[first != ""], func(t *testing.T) {
				t.Parallel()
				play := streams(first+"data: "+c.event+"\n\n", doneEvent)
				e1, e2 := startPlayed(t, play), startPlayed(t, play)
				g := startCase(t, "", e1, e2)
				cl := over1(t)
				for i := range 10 {
					a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), true), repeatedBefore...)
					if a.status != c.status || a.errorCode() != c.code || a.err != nil {
						t.Fatalf("%d %q %v %s", a.status, a.errorCode(), a.err, a.body)
					}
					if c.param != "" && (!strings.Contains(a.body, `"param":"`+c.param+`"`) || !strings.Contains(a.body, "max_tokens is too large")) {
						t.Errorf("the engine's reason is lost: %s", a.body)
					}
					if c.status >= 500 && strings.Contains(a.body, "10.0.0.7") {
						t.Errorf("the engine's words: %s", a.body)
					}
					if (a.header.Get("Retry-After") != "") != (c.outcome == "not_processed") {
						t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
					}
				}
				if n := len(posts(e1, e2)); n != 10 {
					t.Errorf("%d attempts for 10 requests", n)
				}
				wantRequests(g, outcomes{c.outcome: 10})
				if n := g.metric("penstock_ttft_seconds_count"); n != 0 {
					t.Errorf("%v times to first content", n)
				}
				if g.engineState("e1") != "ready" || g.engineState("e2") != "ready" {
					t.Errorf("%s, %s", g.engineState("e1"), g.engineState("e2"))
				}
			})
		}
	}
}

// After a comment has committed the 200, the engine's error is an event.
func TestC05_ErrorAfterAComment(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, streams(": PING\n\n", `data: {"error":{"message":"max_tokens is too large","type":"BadRequestError","param":"max_tokens","code":400}}`+"\n\n", doneEvent))
	g := startCase(t, "", e1)
	a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true))
	if a.status != 200 || a.err == nil || a.errorCode() == "" || !strings.HasPrefix(a.body, ": PING\n\n") || strings.Contains(a.body, "[DONE]") {
		t.Fatalf("%d %v %q", a.status, a.err, a.body)
	}
	if !strings.Contains(a.body, "max_tokens is too large") {
		t.Errorf("the engine's reason is lost: %q", a.body)
	}
	wantRequests(g, outcomes{"client": 1})
}

// An engine's text cannot end an event or begin another (security row 14).
func TestErrorTextCannotInjectEvents(t *testing.T) {
	t.Parallel()
	const evil = `oops\n\ndata: [DONE]\r\rdata: {\"choices\":[]}\u2028`
	object := `{"error":{"message":"` + evil + `","type":"BadRequestError","param":"a\n\nb","code":"c\n\ndata: [DONE]"}}`
	for name, before := range map[string]string{"after a comment": ": PING\n\n", "after content": token("a"), "first": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, streams(before+"data: "+object+"\n\n"))
			g := startCase(t, "", e1)
			a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true))
			if before == "" {
				if a.status < 400 || strings.Count(a.body, "\n") != 1 || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
					t.Errorf("%d %q", a.status, a.body)
				}
				return
			}
			rest, _ := strings.CutPrefix(a.body, before)
			if a.err == nil || strings.Count(rest, "\n") != 2 || strings.Contains(rest, "\r") || !strings.HasSuffix(rest, "\n\n") || !strings.HasPrefix(rest, `data: {"error":`) {
				t.Errorf("%v %q", a.err, rest)
			}
		})
	}
}

// No limit ends a stream that is still producing, however old it is.
func TestC39_OldStreamsAreNotCut(t *testing.T) {
	t.Parallel()
	const events = 30
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		for range events {
			x.Chunk(token("x"))
			if !x.Pause(60 * time.Millisecond) {
				return
			}
		}
		x.Finish()
	})
	g := startCase(t, "first_content = \"1s\"\nstall = \"1s\"\nwrite = \"1s\"\nbody_read = \"1s\"\nidle = \"1s\"", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		t.Parallel()
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true))
		if n := len(a.events()); !a.looksComplete() || n != events+2 {
			t.Errorf("%d events, %v\n%s", n, a.err, a.body[max(0, len(a.body)-300):])
		}
	})
}

// The write limit is about a write that does not move, not about the time
// since the last one.
func TestC39_PausesLongerThanTheWriteLimit(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		if !strings.Contains(string(x.Body), `"stream":true`) {
			x.Respond(200, "application/json", wholeAnswer)
			return
		}
		x.StartStream()
		for _, piece := range []string{": PING\n\n", token("a"), token("b"), finishEvent + doneEvent} {
			x.Chunk(piece)
			if !x.Pause(300 * time.Millisecond) {
				return
			}
		}
		x.EndChunks()
	})
	g := startCase(t, "write = \"100ms\"\nstall = \"5s\"", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		t.Parallel()
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true))
		if !a.looksComplete() || !strings.HasSuffix(a.body, doneEvent) {
			t.Errorf("%v %q", a.err, a.body)
		}
	})
	t.Run("the next request on the connection", func(t *testing.T) {
		w := dialWire(t, g)
		for _, request := range []string{
			rawPost("/v1/chat/completions", chatBody("m", "hi", false)),
			"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n",
			rawPost("/v1/chat/completions", chatBody("unknown", "hi", false)),
			rawPost("/v1/chat/completions", chatBody("m", "hi", false), "Expect: 100-continue"),
			rawPost("/elsewhere", "{}"),
		} {
			w.send(request)
			resp := w.head()
			for resp.StatusCode == 100 {
				resp = w.head()
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // beyond the limit: a deadline left behind would have passed
		}
	})
}

// The usage event may be cut anywhere, and [DONE] come with it, after it, or not at all.
func TestC51_UsageIsCountedHoweverItIsCut(t *testing.T) {
	t.Parallel()
	usage := usageEvent(13, 21)
	type cut struct {
		at   int
		done string // "with", "later", "missing"
	}
	var cuts []cut
	for at := 1; at < len(usage); at += 1 + at%7 {
		for _, done := range []string{"with", "later", "missing"} {
			cuts = append(cuts, cut{at, done})
		}
	}
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		var c cut
		fmt.Sscanf(x.Request.Header.Get("Openai-Cut"), "%d %s", &c.at, &c.done)
		x.StartStream()
		x.Chunk(token("a") + finishEvent)
		x.Chunk(usage[:c.at])
		if !x.Pause(time.Millisecond) {
			return
		}
		switch c.done {
		case "with":
			x.Chunk(usage[c.at:] + doneEvent)
		case "later":
			x.Chunk(usage[c.at:])
			x.Pause(time.Millisecond)
			x.Chunk(doneEvent)
		default:
			x.Chunk(usage[c.at:])
		}
		x.EndChunks()
	})
	g := startCase(t, "", e1)
	cl := over1(t)
	for _, c := range cuts {
		a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", true), "Openai-Cut", fmt.Sprintf("%d %s", c.at, c.done))
		if want := token("a") + finishEvent + usage + doneEvent; a.err != nil || a.body != want {
			t.Fatalf("%+v: %v %q", c, a.err, a.body)
		}
	}
	wantRequests(g, outcomes{"ok": len(cuts)})
	wantTokens(g, 13*len(cuts), 21*len(cuts))
}

func TestC52_TimeToFirstTokenIsThatOfContent(t *testing.T) {
	t.Parallel()
	const wait = 250 * time.Millisecond
	chunk := func(delta string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
	}
	for name, first := range map[string]string{
		"content":   token("a"),
		"reasoning": chunk(`{"reasoning_content":"hm"}`),
		"tool call": chunk(`{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]}`),
		"error":     `data: {"error":{"message":"no","code":500}}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.StartStream()
				x.Chunk(": PING\n\n")
				x.Chunk(roleEvent)
				if !x.Pause(wait) {
					return
				}
				x.Chunk(first + finishEvent + doneEvent)
				x.EndChunks()
			})
			g := startCase(t, "", e1)
			g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true))
			if name == "error" {
				wantRequests(g, outcomes{"ambiguous": 1})
				if n := g.metric("penstock_ttft_seconds_count"); n != 0 {
					t.Errorf("%v times recorded", n)
				}
				return
			}
			wantRequests(g, outcomes{"ok": 1})
			if n, sum := g.metric("penstock_ttft_seconds_count"), g.metric("penstock_ttft_seconds_sum"); n != 1 || sum < wait.Seconds() {
				t.Errorf("%v times of %v s", n, sum)
			}
		})
	}
}

// Comments are no progress: an engine that only pings has stalled.
func TestSilentStreamsEndAsStalled(t *testing.T) {
	t.Parallel()
	for name, tick := range map[string]string{"silent": "", "comments": ": PING\n\n", "blank lines": "\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.StartStream()
				x.Chunk(token("a"))
				for x.Pause(100 * time.Millisecond) {
					if tick != "" {
						x.Chunk(tick)
					}
				}
			})
			g := startCase(t, "stall = \"600ms\"", e1)
			start := time.Now()
			a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true))
			if a.errorCode() != "stream_stalled" || a.err == nil || time.Since(start) < 600*time.Millisecond {
				t.Errorf("%v after %v: %q", a.err, time.Since(start), a.body)
			}
			if (strings.Contains(a.body, ": PING")) != (name == "comments") {
				t.Errorf("comments: %q", a.body)
			}
			wantRequests(g, outcomes{"committed": 1})
			g.await("the engine's connection to close", func() bool {
				return e1.Connections()[posts(e1)[0].Conn].Ended != enginetest.Connected
			})
		})
	}
}

// What an engine sends after [DONE] buys it no time.
func TestStreamsEndAfterDone(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		for x.Chunk(token("a") + finishEvent + doneEvent); x.Pause(50 * time.Millisecond); x.Chunk(": PING\n\n") {
		}
	})
	g := startCase(t, "", e1)
	a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true))
	if !a.looksComplete() || !strings.HasPrefix(a.body, token("a")+finishEvent+doneEvent) {
		t.Errorf("%v %q", a.err, a.body)
	}
	wantRequests(g, outcomes{"ok": 1})
	idle(g, "e1")
}

// The same rules for text completions, and for answers with several choices.
func TestC02_OtherKindsOfStreams(t *testing.T) {
	t.Parallel()
	text := func(index int, text, finish string) string {
		return fmt.Sprintf(`data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":%d,"text":%q,"finish_reason":%s}]}`+"\n\n", index, text, finish)
	}
	for _, c := range []struct {
		name, path, events string
		added              string // by the gateway; "" = the stream is broken
	}{
		{"text, no end", "/v1/completions", text(0, "a", "null"), ""},
		{"text, no [DONE]", "/v1/completions", text(0, "a", "null") + text(0, "", `"length"`), doneEvent},
		{"one of two choices", "/v1/completions", text(0, "a", "null") + text(1, "b", "null") + text(1, "", `"stop"`), ""},
		{"both choices", "/v1/completions", text(0, "a", "null") + text(1, "b", `"stop"`) + text(0, "", `"stop"`), doneEvent},
		{"chat, one of two choices", "/v1/chat/completions", token("a") + strings.Replace(token("b"), `"index":0`, `"index":1`, 1) + finishEvent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, streams(c.events))
			g := startCase(t, "", e1)
			a := g.post(over1(t), c.path, `{"model":"m","stream":true,"prompt":"x","messages":[]}`)
			if c.added != "" && (a.err != nil || a.body != c.events+c.added) || c.added == "" && (a.err == nil || a.errorCode() != "stream_interrupted" || !strings.HasPrefix(a.body, c.events)) {
				t.Errorf("%v %q", a.err, a.body)
			}
			if n := g.metric("penstock_done_added_total"); (n == 1) != (c.added != "") {
				t.Errorf("[DONE] added %v times", n)
			}
		})
	}
}
