package enginetest

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A client that leaves frees its slot, running or waiting, streamed or not.
func TestClientThatLeavesIsAborted(t *testing.T) {
	s, url := serve(t, Config{Slots: 1, TBOT: 20 * time.Millisecond})
	for _, stream := range []bool{true, false} {
		ctx, leave := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		before := len(s.Stats().Disconnects)
		for i := range 2 {
			clients.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions",
					strings.NewReader(chatBody("leaver"+strconv.Itoa(i), "x", 10_000, stream)))
				req.Header.Set("Content-Type", "application/json")
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		}
		eventually(t, "one runs and one waits", func() bool { st := s.Stats(); return st.Running == 1 && st.Waiting == 1 })
		leave()
		clients.Wait()
		eventually(t, "both are gone", func() bool { st := s.Stats(); return st.Running+st.Waiting == 0 && st.KVUsed == 0 })
		eventually(t, "both are recorded", func() bool { return len(s.Stats().Disconnects) == before+2 })
	}
	st := s.Stats()
	if st.Deliveries["leaver0"] != 2 || st.Deliveries["leaver1"] != 2 || st.Completed != 0 || st.Received != 4 {
		t.Errorf("%+v", st)
	}
	for _, d := range st.Disconnects {
		if !strings.HasPrefix(d.ID, "leaver") || time.Since(d.At) > time.Minute {
			t.Errorf("%+v", d)
		}
	}
}

func TestRequestsAreKeptByteForByte(t *testing.T) {
	s, url := serve(t, Config{Keep: 2})
	body := "{ \"messages\" :[ ],\n\t\"max_tokens\":2, \"x\":\"\\u00e9 ü\"}"
	for i := range 3 {
		readAll(t, post(t, url+"/v1/chat/completions?a=b", body, "X-Request-Id", strconv.Itoa(i), "Traceparent", "t").Body)
	}
	kept := s.Requests()
	if len(kept) != 2 || kept[0].ID != "1" || kept[1].ID != "2" {
		t.Fatalf("%+v", kept)
	}
	if r := kept[1]; string(r.Body) != body || r.Header.Get("Traceparent") != "t" || r.Target != "/v1/chat/completions?a=b" || r.Method != "POST" {
		t.Errorf("%+v", r)
	}
}

// A terminated engine ends what is open as vLLM does, and leaves.
func TestStopEndsOpenRequests(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Slots: 1, TBOT: 20 * time.Millisecond, Faults: mustParse(t, "health-hang")})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	url := "http://" + ln.Addr().String()
	bodies := make([]string, 3)
	codes := make([]int, 3)
	var clients sync.WaitGroup
	for i := range bodies { // a stream that runs, one that waits, and one answer in a piece
		clients.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(chatBody("", "x", 1000, i < 2)))
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			bodies[i], codes[i] = string(b), resp.StatusCode
		})
	}
	go func() {
		if resp, err := http.Get(url + "/health"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	eventually(t, "all are in", func() bool { st := s.Stats(); return st.Running == 1 && st.Waiting == 2 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	clients.Wait()
	for i := range 2 {
		if v := viewOf(t, bodies[i]); v.errors != 1 || !v.done || v.finished != 0 || codes[i] != 200 {
			t.Errorf("%d %s", codes[i], bodies[i])
		}
	}
	if codes[2] != 500 || !strings.Contains(bodies[2], "EngineCore") {
		t.Errorf("%d %s", codes[2], bodies[2])
	}
}

// Many streams at once are answered in full, each its own, and leave nothing.
func TestManyStreams(t *testing.T) {
	before := runtime.NumGoroutine()
	const streams = 500
	ctx, stop := context.WithCancel(t.Context())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Slots: streams, KVTokens: 1 << 20, TBOT: 500 * time.Microsecond})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	transport := &http.Transport{MaxIdleConnsPerHost: streams}
	client := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			nonce := "nonce" + strconv.Itoa(i)
			resp, err := client.Post("http://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(nonce, "hello", 30, true)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
				return
			}
			if v := viewOf(t, string(b)); v.content != 30 || !v.done || !Complete(v.text[0]) || !Carries(v.text[0], nonce) {
				t.Errorf("%s: %+v", nonce, v)
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	if st.Completed != streams || st.Running != 0 || st.Generated != streams*30 || len(st.Deliveries) != streams {
		t.Errorf("%d completed, %d tokens, %d ids", st.Completed, st.Generated, len(st.Deliveries))
	}
	transport.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// BenchmarkTokens is the cost of one streamed token, client included.
func BenchmarkTokens(b *testing.B) {
	s := New(Config{Slots: 64, KVTokens: 1 << 20})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(ctx, ln) })
	defer served.Wait()
	defer stop()
	const tokens = 200
	b.ReportAllocs()
	for b.Loop() {
		resp, err := http.Post("http://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("n", "hello", tokens, true)))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
}
