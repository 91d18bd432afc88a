package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"penstock/engine/enginetest"
)

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestC38_BodiesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const limit, size = 1 << 20, 20 << 20
	e1 := startPlayed(t, good)
	g := startCase(t, `body = "1MiB"`, e1)
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for name, length := range map[string]int64{"length": size, "chunked": -1} {
			req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", io.LimitReader(zeros{}, size))
			req.ContentLength = length
			a := do(c, req)
			if a.status == 0 {
				t.Errorf("%s: %v", name, a.err)
				continue
			}
			checkError(t, a, 413, "invalid_request")
		}
	})
	// A client that writes everything before it reads.
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, strings.Repeat(" ", 1<<20))
	for name, raw := range map[string]string{
		"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n", size) + strings.Repeat(" ", size),
		"chunked": "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, 20) + "0\r\n\r\n",
	} {
		w := dialWire(t, g)
		w.send("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n" + raw)
		a := w.answer()
		if a.status != 413 {
			t.Errorf("%s: %d %v", name, a.status, a.err)
		}
		checkError(t, a, 413, "invalid_request")
		if more, err := w.rest(); err != nil || more != "" {
			t.Errorf("%s: after the answer: %v %q", name, err, more)
		}
	}
	// One that asks first need not send it.
	w := dialWire(t, g)
	w.send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size))
	checkError(t, w.answer(), 413, "invalid_request")
	// The limit itself still passes.
	body := chatBody("m", "", false)
	body = strings.Replace(body, `"content":""`, `"content":"`+strings.Repeat("x", limit-len(body))+`"`, 1)
	if a := g.post(over1(t), "/v1/chat/completions", body); a.status != 200 || len(body) != limit {
		t.Errorf("%d bytes: %d %s", len(body), a.status, a.body)
	}
	wantPosts(t, e1, 1)
	g.await("the bodies' memory to be given back", func() bool { return g.metric("penstock_body_bytes") == 0 })
}

// Images travel in bodies: with the default limit, 25 MiB pass unchanged.
func TestC53_BigBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	for i, size := range []int{9 << 20, 25 << 20} {
		image := make([]byte, size/3)
		r := rand.NewChaCha8([32]byte{byte(i)})
		for i := range image {
			image[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[r.Uint64()&63]
		}
		part := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + string(image) + `"}}`
		body := `{"model":"m","messages":[{"role":"user","content":[` + part + "," + part + "," + part + `]}]}`
		c := over1(t)
		if i == 1 {
			c = overH2(t)
		}
		if a := g.post(c, "/v1/chat/completions", body); !a.looksComplete() {
			t.Fatalf("%d MiB: %d %v %s", size>>20, a.status, a.err, a.body)
		}
		if x := posts(e1); len(x) != i+1 || string(x[i].Body) != body {
			t.Errorf("%d MiB: the engine got other bytes", size>>20)
		}
	}
}

// The body goes on byte for byte, whatever is in it.
func TestC54_BodiesAreForwardedByteForByte(t *testing.T) {
	t.Parallel()
	body := " {\n\t\"unknown\": {\"deep\":[1,  2.50, 1.0, -0, 1e400, 1E+2, 9007199254740993, {\"a\":null}]}, \"seed\": 9007199254740993 ,\"model\" :\"m\"," +
		`"chat_template_kwargs":{"enable_thinking":false},"guided_regex":"\\d+","temperature":1.0,"top_p":1e0,"messages":[{"role":"user","content":"a \u00e9 \ud83d\ude00 é < & > \/ \u2028  two  spaces"}],` +
		`"vllm_xargs":{"x":1},"logit_bias":{"50256":-100}, "stop":["\n\n"]}` + "\r\n "
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	n := 0
	bothProtocols(t, func(t *testing.T, c *http.Client) {
		for _, chunked := range []bool{false, true} {
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = io.MultiReader(strings.NewReader(body[:7]), strings.NewReader(body[7:]))
			}
			req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", r)
			req.Header.Set("Content-Type", "application/json")
			if a := do(c, req); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			n++
			x := posts(e1)
			if len(x) != n {
				t.Fatalf("%d requests", len(x))
			}
			if last := x[n-1]; string(last.Body) != body || last.Request.ContentLength != int64(len(body)) {
				t.Errorf("the engine got %d bytes %q", last.Request.ContentLength, last.Body)
			}
		}
	})
}

// Speech, and other kinds of answer on any path, pass as they come.
func TestC55_OtherContentTypesPassUnchanged(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{3}).Read(noise)
	lines := strings.Repeat(`{"model":"m","response":"x","done":false}`+"\n", 1000)
	for kind, body := range map[string]string{"audio/mpeg": string(noise), "application/x-ndjson": lines, "application/octet-stream": "data: {\n\n\r" + string(noise[:100])} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e1 := startPlayed(t, func(x *enginetest.Exchange) {
				x.Write("HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nTransfer-Encoding: chunked\r\n\r\n")
				for rest := body; rest != ""; {
					n := min(len(rest), 64<<10)
					x.Chunk(rest[:n])
					rest = rest[n:]
				}
				x.EndChunks()
			})
			g := startCase(t, "", e1)
			bothProtocols(t, func(t *testing.T, c *http.Client) {
				for path, ask := range map[string]string{"/v1/chat/completions": chatBody("m", "hi", true), "/v1/audio/speech": `{"model":"m","input":"hi","voice":"v"}`} {
					a := g.post(c, path, ask)
					if a.err != nil || a.body != body || a.header.Get("Content-Type") != kind {
						t.Errorf("%s: %v %s, %d bytes of %d", path, a.err, a.header.Get("Content-Type"), len(a.body), len(body))
					}
				}
			})
			wantRequests(g, outcomes{"ok": 4})
			if log := g.logs.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
				t.Error(log)
			}
		})
	}
}
