package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// leak is what no error of the gateway may hold: addresses, ports, paths, Go's words.
var leak = regexp.MustCompile(`127\.0\.0\.1|\blocalhost\b|:\d{4,5}\b|\bdial\b|\btcp\b|EOF|net/http|\.go\b|/home|/tmp|context canceled|context deadline`)

// checkError fails unless the answer is a whole error object of the gateway's own.
func checkError(t testing.TB, a answered, status int, code string) {
	t.Helper()
	if a.err != nil || a.status != status || a.errorCode() != code || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v %d %s %q, want %d %s\n%s", a.err, a.status, a.header.Get("Content-Type"), a.errorCode(), status, code, a.body)
	}
	if a.header.Get("X-Request-Id") == "" || a.header.Get("X-Penstock-Reason") == "" {
		t.Errorf("headers %v", a.header)
	}
	for _, member := range []string{`"message":"`, `"type":"`, `"param":`, `"code":"`} {
		if !strings.Contains(a.body, member) {
			t.Errorf("no %s in %s", member, a.body)
		}
	}
	if found := leak.FindString(a.body); found != "" {
		t.Errorf("%q in %s", found, a.body)
	}
}

const htmlPage = "<html><head><title>502 Bad Gateway</title></head><body>nginx at 127.0.0.1:8001</body></html>"

// What engines send instead of an answer. Nothing of it reaches a client
// under a 200, whether it asked for a stream or not, and no engine is asked twice.
func TestC35_AnswersThatAreNone(t *testing.T) {
	t.Parallel()
	head := func(line string, headers ...string) string {
		return "HTTP/1.1 " + line + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	}
	write := func(raw string) enginetest.Play { // a whole response: its connection stays
		return func(x *enginetest.Exchange) { x.Write(raw) }
	}
	breakOff := func(raw string) enginetest.Play {
		return func(x *enginetest.Exchange) { x.Write(raw); x.Close() }
	}
	respond := func(status int, contentType, body string) enginetest.Play {
		return func(x *enginetest.Exchange) { x.Respond(status, contentType, body) }
	}
	const events = "Content-Type: text/event-stream"
	for _, c := range []struct {
		name    string
		play    enginetest.Play
		status  int
		code    string
		outcome string
	}{
		{"close", func(x *enginetest.Exchange) { x.Close() }, 502, "engine_error", "ambiguous"},
		{"reset", func(x *enginetest.Exchange) { x.Reset() }, 502, "engine_error", "ambiguous"},
		{"garbage", breakOff("\x00\x01\x02 this is not HTTP\r\n\r\n"), 502, "engine_error", "ambiguous"},
		{"garbage without a line end", breakOff(strings.Repeat("A", 5000)), 502, "engine_error", "ambiguous"},
		{"half a head", breakOff("HTTP/1.1 200 OK\r\nContent-Ty"), 502, "engine_error", "ambiguous"},
		{"head above 64 KiB", write(head("200 OK", "X-Big: "+strings.Repeat("x", 80<<10), "Content-Type: application/json", "Content-Length: 2") + "{}"), 502, "engine_error", "ambiguous"},
		{"many informational heads", write(strings.Repeat(head("103 Early Hints"), 20) + head("200 OK", "Content-Type: application/json", "Content-Length: 2") + "{}"), 502, "engine_error", "ambiguous"},
		{"502 of a proxy", respond(502, "text/html", htmlPage), 502, "engine_error", "ambiguous"},
		{"500 in plain text", respond(500, "text/plain", "Internal Server Error at main.go:17"), 500, "engine_error", "ambiguous"},
		{"504", respond(504, "text/html", htmlPage), 504, "engine_timeout", "ambiguous"},
		{"500 cut short", breakOff(head("500 Oops", "Content-Type: application/json", "Content-Length: 900") + `{"error":`), 500, "engine_error", "ambiguous"},
		{"HTML under 200", respond(200, "text/html; charset=utf-8", htmlPage), 502, "engine_error", "ambiguous"},
		{"redirect", write(head("302 Found", "Location: http://169.254.169.254/latest/meta-data", "Content-Length: 0")), 502, "engine_error", "ambiguous"},
		{"permanent redirect", write(head("308 Permanent Redirect", "Location: /v1/chat/completions", "Content-Length: 0")), 502, "engine_error", "ambiguous"},
		{"304", write(head("304 Not Modified")), 502, "engine_error", "ambiguous"},
		{"204", write(head("204 No Content")), 502, "engine_error", "ambiguous"},
		{"101", write(head("101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket")), 502, "engine_error", "ambiguous"},
		{"gzip unasked", write(head("200 OK", "Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 4") + "\x1f\x8b\x08\x00"), 502, "engine_error", "ambiguous"},
		{"gzip events unasked", write(head("200 OK", events, "Content-Encoding: gzip", "Content-Length: 4") + "\x1f\x8b\x08\x00"), 502, "engine_error", "ambiguous"},
		{"empty 200", respond(200, "application/json", ""), 502, "engine_error", "ambiguous"},
		{"blank 200", respond(200, "application/json", " \r\n"), 502, "engine_error", "ambiguous"},
		{"empty without a type", write(head("200 OK", "Content-Length: 0")), 502, "engine_error", "ambiguous"},
		{"empty audio", respond(200, "audio/mpeg", ""), 502, "engine_error", "ambiguous"},
		{"empty ndjson, chunked", write(head("200 OK", "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked") + "0\r\n\r\n"), 502, "engine_error", "ambiguous"},
		{"truncated JSON, right framing", respond(200, "application/json", wholeAnswer[:60]), 502, "engine_error", "ambiguous"},
		{"JSON and more", respond(200, "application/json", wholeAnswer+"{}"), 502, "engine_error", "ambiguous"},
		{"text as JSON", respond(200, "application/json", "Internal Server Error"), 502, "engine_error", "ambiguous"},
		{"Content-Length not reached", breakOff(head("200 OK", "Content-Type: application/json", "Content-Length: 900") + wholeAnswer), 502, "engine_error", "ambiguous"},
		{"chunked JSON not ended", breakOff(head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(wholeAnswer), wholeAnswer)), 502, "engine_error", "ambiguous"},
		{"another JSON", respond(200, "application/json", `{"status":"loading model"}`), 502, "engine_error", "ambiguous"},
		{"an error in JSON of its own", respond(200, "application/json", `{"detail":"CUDA at 127.0.0.1:8001"}`), 502, "engine_error", "ambiguous"},
		{"no choice", respond(200, "application/json", `{"id":"chatcmpl-1","object":"chat.completion","choices":[]}`), 502, "engine_error", "ambiguous"},
		{"a list", respond(200, "application/json", `[]`), 502, "engine_error", "ambiguous"},
		{"error object under 200", respond(200, "application/json", `{"error":{"message":"CUDA at 127.0.0.1:8001","code":500}}`), 500, "engine_error", "ambiguous"},
		{"events: none", streams(), 502, "engine_error", "ambiguous"},
		{"events: [DONE] alone", streams(doneEvent), 502, "engine_error", "ambiguous"},
		{"events: role alone", streams(roleEvent), 502, "engine_error", "ambiguous"},
		{"events: role, then a reset", func(x *enginetest.Exchange) { x.StartStream(); x.Chunk(roleEvent); x.Reset() }, 502, "engine_error", "ambiguous"},
		{"events: head, then a close", func(x *enginetest.Exchange) { x.StartStream(); x.Close() }, 502, "engine_error", "ambiguous"},
		{"events: another JSON", streams(`data: {"status":"loading model"}`+"\n\n", doneEvent), 502, "engine_error", "ambiguous"},
		{"events: counts alone", streams(usageEvent(3, 0), doneEvent), 502, "engine_error", "ambiguous"},
		{"events: [DONE] first", streams(doneEvent, token("a"), finishEvent), 502, "engine_error", "ambiguous"},
		{"events: plain text", streams("Internal Server Error\n\n"), 502, "engine_error", "ambiguous"},
		{"events: no JSON", streams("data: oops\n\n", doneEvent), 502, "bad_engine_event", "ambiguous"},
		{"events: HTML", streams(htmlPage), 502, "engine_error", "ambiguous"},
		{"events: one of 17 MiB", func(x *enginetest.Exchange) {
			x.StartStream()
			x.Chunk("data: " + strings.Repeat("x", 17<<20))
			x.Hang()
		}, 502, "bad_engine_event", "ambiguous"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e1, e2 := startPlayed(t, c.play), startPlayed(t, c.play)
			g := startCase(t, "", e1, e2)
			n := 0
			bothProtocols(t, func(t *testing.T, cl *http.Client) {
				for _, stream := range []bool{true, false} {
					a := g.post(cl, "/v1/chat/completions", chatBody("m", "hi", stream), repeatedBefore...)
					n++
					checkError(t, a, c.status, c.code)
					if a.header.Get("X-Penstock-Attempts") != "1" {
						t.Errorf("%s attempts", a.header.Get("X-Penstock-Attempts"))
					}
				}
			})
			if got := len(posts(e1, e2)); got != n {
				t.Errorf("%d requests at the engines, want %d", got, n)
			}
			wantRequests(g, outcomes{c.outcome: n})
			idle(g, "e1", "e2")
		})
	}
}

// The engine stops (refused), then comes to nothing at all: every answer is
// the gateway's own.
func TestC35_EngineStopped(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	e1.Close()
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, stream := range []bool{true, false, true} {
			a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", stream))
			checkError(t, a, 503, "no_healthy_engine")
			if a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	})
	g.await("the engine to be down", func() bool { return g.engineState("e1") == "down" })
	checkError(t, g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", true)), 503, "no_healthy_engine")
}

// An unasked encoding of an error is not passed on either: the client could
// not read it.
func TestEncodedErrorsAreReplaced(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.Write("HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00")
	})
	g := startCase(t, "", e1)
	a := g.post(over1(t), "/v1/chat/completions", chatBody("m", "hi", false))
	checkError(t, a, 400, "invalid_request")
	if a.header.Get("Content-Encoding") != "" {
		t.Errorf("%v", a.header)
	}
}

// An engine that takes requests and never answers: 504 in the time for first
// content, its connection closed; the other engine is not slowed.
func TestC40_EnginesThatNeverAnswer(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]enginetest.Play{
		"no header": silent,
		"header":    func(x *enginetest.Exchange) { x.StartStream(); x.Hang() },
		"role":      func(x *enginetest.Exchange) { x.StartStream(); x.Chunk(roleEvent); x.Hang() },
		"roles without end": func(x *enginetest.Exchange) {
			for x.StartStream(); x.Pause(20 * time.Millisecond); x.Chunk(roleEvent) {
			}
		},
		"half an answer": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"id\"")
			x.Hang()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1, e2 := startPlayed(t, play), startPlayed(t, good)
			const limit = 700 * time.Millisecond
			g := startCase(t, fmt.Sprintf("first_content = %q\nstall = %q", limit, limit), e1, e2)
			cl := over1(t)
			type timed struct {
				answered
				took time.Duration
			}
			const n = 24
			answers := make(chan timed, n)
			for i := range n {
				go func() {
					start := time.Now()
					a := g.post(cl, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0), off...)
					answers <- timed{a, time.Since(start)}
				}()
			}
			late := 0
			for range n {
				a := <-answers
				switch a.header.Get("X-Penstock-Engine") {
				case "e1":
					late++
					checkError(t, a.answered, 504, "engine_timeout")
					if a.took < limit {
						t.Errorf("given up after %v", a.took)
					}
				case "e2":
					if !a.looksComplete() {
						t.Errorf("%d %s", a.status, a.body)
					}
				default:
					t.Errorf("%v %d %s", a.err, a.status, a.body)
				}
			}
			if late == 0 || late == n {
				t.Fatalf("%d of %d on e1", late, n)
			}
			wantAttempts(g, "e1", outcomes{"ambiguous": late})
			wantAttempts(g, "e2", outcomes{"ok": n - late})
			wantPosts(t, e1, late)
			idle(g, "e1", "e2")
			g.await("e1's connections to close", func() bool {
				for _, x := range posts(e1) {
					if e1.Connections()[x.Conn].Ended == enginetest.Connected {
						return false
					}
				}
				return true
			})
		})
	}
}

// After a comment the 200 is out: what fails then is an error event.
func TestC40_SilenceAfterAComment(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, func(x *enginetest.Exchange) { x.StartStream(); x.Chunk(": PING\n\n"); x.Hang() })
	g := startCase(t, `first_content = "300ms"`, e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true))
		if a.status != 200 || a.err == nil || a.errorCode() != "engine_timeout" || !strings.HasPrefix(a.body, ": PING\n\n") {
			t.Errorf("%d %v %q", a.status, a.err, a.body)
		}
	})
	wantRequests(g, outcomes{"ambiguous": 2})
}

// A raw answer that breaks after its header is out ends uncleanly; an
// HTTP/1.0 client has no other sign, and no clean end either.
func TestBrokenRawAnswers(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]enginetest.Play{
		"Content-Length not reached": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nContent-Length: 900\r\n\r\nabc")
			x.Close()
		},
		"chunked, not ended": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
			x.Close()
		},
		"stalled": func(x *enginetest.Exchange) {
			x.Write("HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
			x.Hang()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, play)
			g := startCase(t, `stall = "500ms"`, e1)
			bothProtocols(t, func(t *testing.T, c *http.Client) {
				if a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true)); a.status != 200 || a.err == nil || a.body != "abc" {
					t.Errorf("%d %v %q", a.status, a.err, a.body)
				}
			})
			t.Run("http1.0", func(t *testing.T) {
				w := dialWire(t, g)
				w.send(strings.Replace(rawPost("/v1/chat/completions", chatBody("m", "hi", true)), "HTTP/1.1", "HTTP/1.0", 1))
				if a := w.answer(); a.status != 200 || a.err == nil {
					t.Errorf("%d %v %q", a.status, a.err, a.body)
				}
			})
			wantRequests(g, outcomes{"committed": 3})
		})
	}
}

// A large JSON answer is relayed as it comes; cut short, it ends uncleanly.
func TestLargeJSONAnswers(t *testing.T) {
	t.Parallel()
	answer := `{"id":"e","object":"list","model":"m","data":"` + strings.Repeat("x", 12<<20) + `"}`
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.Write(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(answer)))
		if strings.Contains(string(x.Body), "cut") {
			x.Write(answer[:10<<20])
			x.Close()
			return
		}
		x.Write(answer)
	})
	g := startCase(t, "", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		if a := g.post(c, "/v1/embeddings", `{"model":"m","input":"x"}`); a.err != nil || a.body != answer {
			t.Errorf("%d %v, %d bytes", a.status, a.err, len(a.body))
		}
		if a := g.post(c, "/v1/embeddings", `{"model":"m","input":"cut"}`); a.err == nil {
			t.Errorf("%d, a clean end after %d bytes", a.status, len(a.body))
		}
	})
	wantRequests(g, outcomes{"ok": 2, "committed": 2})
}

func TestC34_MalformedRequests(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	for _, body := range []string{
		"", " ", "{", "[]", "null", `"x"`, "{}", "17", "{} {}", `{"model":`, `{"messages":[]}`,
		`{"model":17}`, `{"model":null}`, `{"model":""}`, `{"model":["m"]}`, `{"model":{"m":1}}`, `{"model":"m","model":"m"}`,
		"{\"model\":\"m\",\"x\":\"\xff\xfe\"}", "{\"model\":\"m\x00\"}", `{"model":"m","x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}",
		"model=m&stream=true",
	} {
		bothProtocols(t, func(t *testing.T, c *http.Client) {
			a := g.post(c, "/v1/chat/completions", body)
			if code := a.errorCode(); a.status != 400 || code != "invalid_request" {
				t.Errorf("%.60q: %d %s", body, a.status, a.body)
			}
			checkError(t, a, 400, "invalid_request")
		})
	}
	wantPosts(t, e1, 0)
	if n := g.metric("penstock_panics_total"); n != 0 {
		t.Errorf("%v panics\n%s", n, g.logs)
	}
	// What can be routed is the engine's to judge.
	for _, body := range []string{
		`{"model":"m","stream":"true"}`, "\xef\xbb\xbf" + chatBody("m", "hi", false), `{"model":"m","messages":"no list"}`,
	} {
		if a := g.post(over1(t), "/v1/chat/completions", body); a.status != 200 && a.status != 400 {
			t.Errorf("%.60q: %d %s", body, a.status, a.body)
		} else if a.status == 400 {
			checkError(t, a, 400, "invalid_request")
		}
	}
}

// controlRoutes are those of engines that change or show more than inference
// needs: none of them leads to an engine.
var controlRoutes = []string{
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter", "/start_profile", "/stop_profile",
	"/scale_elastic_ep", "/is_scaling_elastic_ep", "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/is_paused",
	"/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/update_weights", "/update_weights_from_disk", "/collective_rpc",
	"/server_info", "/abort_requests", "/abort_request", "/invocations", "/ping", "/docs", "/openapi.json", "/redoc", "/tokenizer_info", "/kv_event_sources",
	"/flush_cache", "/release_memory_occupation", "/resume_memory_occupation", "/get_load", "/v1/loads", "/get_server_info", "/model_info", "/get_model_info",
	"/health_generate", "/props", "/slots", "/slots/0", "/lora-adapters", "/models", "/models/load", "/models/unload", "/info", "/v1/internal/model/info",
}

func TestC36_PathsAndMethods(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		ask := func(method, path string) answered {
			req, err := http.NewRequest(method, g.url+path, strings.NewReader(`{"model":"m"}`))
			if err != nil {
				t.Fatal(err)
			}
			return do(c, req)
		}
		for _, path := range append([]string{"/", "/v1", "/v1/chat/completions/", "/v1/chat/completions/x/y", "/v1/responses/", "/v1/responses/x/y", "/v1/models/",
			"/V1/chat/completions", "//v1/chat/completions", "/v1/chat/../chat/completions", "/metrics", "/engines", "/-/reload", "/v1/files", "/v1/realtime",
			"/openai/deployments/m/chat/completions"}, controlRoutes...) {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				checkError(t, ask(method, path), 404, "invalid_request")
			}
		}
		for path, allow := range map[string]string{"/v1/chat/completions": "POST", "/v1/completions": "POST", "/v1/embeddings": "POST",
			"/v1/responses": "POST", "/v1/rerank": "POST", "/tokenize": "POST", "/v1/responses/resp_1/cancel": "POST", "/v1/responses/resp_1": "GET, DELETE",
			"/v1/conversations/c/items": "GET, POST", "/version": "GET, HEAD", "/load": "GET, HEAD", "/v1/health": "GET, HEAD",
			"/v1/models": "GET, HEAD", "/v1/models/m": "GET, HEAD", "/health": "GET, HEAD", "/livez": "GET, HEAD", "/readyz": "GET, HEAD"} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
				if strings.Contains(allow, method) {
					continue
				}
				a := ask(method, path)
				checkError(t, a, 405, "invalid_request")
				if a.header.Get("Allow") != allow {
					t.Errorf("%s %s: Allow %q, want %q", method, path, a.header.Get("Allow"), allow)
				}
			}
		}
		for _, path := range []string{"/health", "/v1/health", "/livez", "/readyz", "/v1/models", "/v1/models/m", "/version", "/load"} {
			if a := ask("GET", path); a.status != 200 || a.body == "" {
				t.Errorf("GET %s: %d %q", path, a.status, a.body)
			}
			if a := ask("HEAD", path); a.status != 200 || a.body != "" {
				t.Errorf("HEAD %s: %d %q", path, a.status, a.body)
			}
		}
	})
	wantPosts(t, e1, 0)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
		body := `{"model":"m","prompt":"x","input":"x","messages":[]}`
		if a := g.post(over1(t), path+"?stream=1&api_key=secret", body); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		x := posts(e1)
		if last := x[len(x)-1].Request; last.URL.RequestURI() != path {
			t.Errorf("the engine was asked for %s", last.URL.RequestURI())
		}
	}
}

// The place is held until the stream has ended, not until its header was sent.
func TestC37_StreamsHoldTheirPlace(t *testing.T) {
	t.Parallel()
	end := make(chan bool)
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		for x.Chunk(token("x")); x.Pause(20 * time.Millisecond); x.Chunk(token("x")) {
			select {
			case <-end:
				x.Finish()
				return
			default:
			}
		}
	})
	g := startGateway(t, noQueue+engineTOML("e1", e1.URL(), `dialect = "vllm"`, "max_in_flight = 2"), "e1")
	c := over1(t)
	ask := func() *http.Response { return open(t, g, c, chatBody("m", "hi", true)) }
	first, second := ask(), ask()
	for range 3 {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hi", true))
		checkError(t, a, 429, "overloaded")
		if a.header.Get("Retry-After") == "" || a.header.Get("X-Penstock-Reason") == "" {
			t.Errorf("%v", a.header)
		}
		time.Sleep(150 * time.Millisecond)
	}
	end <- true // one of the two
	g.await("one place to be free", func() bool { return g.metric(`penstock_inflight{engine="e1"}`) == 1 })
	third := ask()
	if third.StatusCode != 200 {
		t.Errorf("%d after a stream has ended", third.StatusCode)
	}
	checkError(t, g.post(c, "/v1/chat/completions", chatBody("m", "hi", false)), 429, "overloaded")
	close(end)
	for _, r := range []*http.Response{first, second, third} {
		if b, err := io.ReadAll(r.Body); err != nil || !strings.HasSuffix(string(b), doneEvent) {
			t.Errorf("%v, %d bytes", err, len(b))
		}
	}
	wantPosts(t, e1, 3)
	wantAttempts(g, "e1", outcomes{"ok": 3})
	wantRequests(g, outcomes{"ok": 3, "not_processed": 4})
	idle(g, "e1")
}
