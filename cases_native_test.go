package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// Bodies of the engines' own routes name no model: the only one is meant, an
// adapter beside it does not count.
func TestModelOfNativeRoutes(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, playCalls)
	e1.SetPage("/v1/models", enginetest.Page{ContentType: "application/json", Body: `{"object":"list","data":[{"id":"m","object":"model"},{"id":"m-lora","object":"model","parent":"m"}]}`})
	g := startAny(t, "", e1)
	c := over1(t)
	for path, body := range map[string]string{"/generate": `{"text":"hi"}`, "/generate_stream": `{"inputs":"hi"}`, "/completion": `{"prompt":"hi"}`, "/tokenize": `{"content":"hi"}`, "/embedding": `{"content":"hi"}`, "/v1/moderations": `{"input":"hi"}`} {
		if a := g.post(c, path, body); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	wantRequests(g, outcomes{"ok": 6})
	checkError(t, g.post(c, "/v1/rerank", `{"query":"q"}`), 400, "invalid_request")
	e1.SetModels("m", "n")
	g.await("a second model", func() bool { ids, _ := g.listedModels(c); return len(ids) == 2 && ids[1] == "n" })
	a := g.post(c, "/generate", `{"text":"hi"}`)
	checkError(t, a, 400, "invalid_request")
	if !strings.Contains(a.body, `"param":"model"`) {
		t.Errorf("%s", a.body)
	}
}

// /version and /load are the gateway's own, whatever engines say there.
func TestPagesOfTheGateway(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	e1 := startScript(t, playUntil(release))
	g := startAny(t, "", e1)
	c := over1(t)
	if a := g.get(c, "/version"); a.status != 200 || a.body != fmt.Sprintf("{\"version\":%q}\n", readVersion(debug.ReadBuildInfo()).Version) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.get(c, "/load"); a.body != "{\"server_load\":0}\n" {
		t.Errorf("%s", a.body)
	}
	r := open(t, g, c, chatBody("m", "hi", true))
	if a := g.get(c, "/load"); a.body != "{\"server_load\":1}\n" {
		t.Errorf("%s", a.body)
	}
	close(release)
	r.Body.Close()
	if n := e1.PageHits("/load"); n != 0 {
		t.Errorf("the engine was asked for its load %d times", n)
	}
}

// Transcriptions come as JSON, as text in several formats, as events, and of
// silence as nothing; a page in their place is none.
func TestTranscriptions(t *testing.T) {
	t.Parallel()
	transcript := events(`{"type":"transcript.text.delta","delta":"hello"}`, `{"type":"transcript.text.done","text":"hello"}`)
	e1 := startPlayed(t, good)
	g := startAny(t, "", e1)
	form := working[slices.IndexFunc(working, func(c apiCall) bool { return c.path == "/v1/audio/transcriptions" })]
	for _, k := range []struct {
		name, kind, body string
		status           int
		play             enginetest.Play
	}{
		{"json", "application/json", `{"text":"hello"}`, 200, nil},
		{"text", "text/plain; charset=utf-8", "hello\n", 200, nil},
		{"vtt", "text/vtt", "WEBVTT\n\n00:00 --> 00:01\nhello\n", 200, nil},
		{"srt", "application/x-subrip", "1\n00:00 --> 00:01\nhello\n", 200, nil},
		{"silence", "text/plain", "", 200, nil},
		{"a page", "text/html", "<html></html>", 502, nil},
		{"events", "text/event-stream", strings.Join(transcript, ""), 200, streams(transcript...)},
		{"events of vLLM", "text/event-stream", token("hello") + finishEvent + doneEvent, 200, streams(token("hello"), finishEvent, doneEvent)},
	} {
		play := k.play
		if play == nil {
			play = func(x *enginetest.Exchange) { x.Respond(200, k.kind, k.body) }
		}
		e1.SetPlay(onPosts(play))
		a := form.send(g, over1(t), fmt.Sprintf(form.body, "m"))
		if a.status != k.status || a.err != nil || k.status == 200 && (a.body != k.body || !strings.HasPrefix(a.header.Get("Content-Type"), k.kind)) {
			t.Errorf("%s: %d %v %q %q", k.name, a.status, a.err, a.header.Get("Content-Type"), a.body)
		}
	}
	e1.SetPlay(onPosts(streams(transcript[0])))
	if a := form.send(g, over1(t), fmt.Sprintf(form.body, "m")); a.err == nil || !strings.Contains(a.body, "stream_interrupted") {
		t.Errorf("a transcript without its end: %v %s", a.err, a.body)
	}
	before := len(posts(e1))
	for _, body := range []string{"", `{"model":"m"}`, strings.Replace(fmt.Sprintf(form.body, "m"), "--b--", "--b", 1), fmt.Sprintf(form.body, "")} {
		a := form.send(g, over1(t), body)
		checkError(t, a, 400, "invalid_request")
	}
	checkError(t, form.send(g, over1(t), fmt.Sprintf(form.body, "nobody")), 404, "model_not_found")
	if n := len(posts(e1)); n != before {
		t.Errorf("the engine saw %d forms that cannot be read", n-before)
	}
}

// llama.cpp answers several prompts, or one several times, in one stream: the
// end of the first is not that of the others.
func TestSeveralAnswersInOneNativeStream(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		x.Chunk("data: null\n\n")
		x.Chunk(`data: {"index":1,"content":"a","stop":false}` + "\n\n" + `data: {"index":1,"content":"","stop":true}` + "\n\n")
		if !x.Pause(700 * time.Millisecond) { // longer than what may follow an end
			return
		}
		if strings.Contains(string(x.Body), "cut") {
			x.Close()
			return
		}
		x.Chunk(`data: {"index":0,"content":"b","stop":false}` + "\n\n" + `data: {"index":0,"content":"","stop":true}` + "\n\n")
		x.EndChunks()
	})
	g := startAny(t, "", e1)
	for _, body := range []string{`{"prompt":["x","y"],"stream":true}`, `{"prompt":"x","n":2,"stream":true}`, `{"prompt":"x","n_cmpl":2,"stream":true}`, `{"prompt":[[1],[2]],"stream":true}`} {
		if a := g.post(over1(t), "/completion", body); a.status != 200 || a.err != nil || len(a.events()) != 5 {
			t.Errorf("%s: %d %v\n%s", body, a.status, a.err, a.body)
		}
		if a := g.post(over1(t), "/completion", strings.Replace(body, "{", `{"user":"cut",`, 1)); a.err == nil {
			t.Errorf("%s, cut: %d, a clean end\n%s", body, a.status, a.body)
		}
	}
}
