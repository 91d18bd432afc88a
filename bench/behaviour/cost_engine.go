package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// costChunks is how many content events a stream of the cost engine has.
const costChunks = 50

// costEngine answers at once, at two addresses: plain with about 1 KB, streams
// with events of about 200 bytes, each in a write of its own.
type costEngine struct {
	server    *http.Server
	listeners [2]net.Listener
	serving   sync.WaitGroup
}

func startCostEngine() (*costEngine, error) {
	e := &costEngine{server: &http.Server{Handler: costHandler()}}
	for i := range e.listeners {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			e.close()
			return nil, err
		}
		e.listeners[i] = ln
		e.serving.Go(func() { _ = e.server.Serve(ln) }) // ends with close
	}
	return e, nil
}

func (e *costEngine) addresses() (a [2]string) {
	for i, ln := range e.listeners {
		a[i] = ln.Addr().String()
	}
	return a
}

func (e *costEngine) close() {
	_ = e.server.Close()
	e.serving.Wait()
}

func costHandler() http.Handler {
	plain := []byte(wholeAnswer(strings.Repeat("word ", 150)))
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	last := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm"}]}`)
	})
	mux.HandleFunc("POST "+generations, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if !streams(body) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(plain)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for range costChunks {
			_, _ = w.Write(event)
			_ = rc.Flush()
			time.Sleep(200 * time.Microsecond) // so that events come one by one
		}
		_, _ = w.Write(last)
	})
	return mux
}

// streams reports whether a body asks for a stream.
func streams(body []byte) bool {
	var in struct{ Stream bool }
	return json.Unmarshal(body, &in) == nil && in.Stream
}

// bareRole is the first argument of this command as the bare proxy.
const bareRole = "bare-reverse-proxy"

// bareTarget is httputil.ReverseProxy, as a proxy that this program, at self, is itself.
func bareTarget(self string) *target {
	return &target{version: runtime.Version(), policy: &policy{}, command: self, peer: &peer{
		name: "bare", title: "httputil.ReverseProxy",
		write: func(s setup) ([]string, error) {
			return []string{bareRole, s.listen, strings.Join(s.engines[:], ",")}, nil
		},
	}}
}

// bareProxy serves with httputil.ReverseProxy and nothing else, set up so that
// it is right and quick: flushed at once, pooled buffers, kept connections,
// the engines by turns. It returns only with an error.
func bareProxy(listen string, engines []string) error {
	var targets []*url.URL
	for _, e := range engines {
		u, err := url.Parse("http://" + e)
		if err != nil {
			return err
		}
		targets = append(targets, u)
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(targets[turn.Add(1)%uint64(len(targets))]) },
		FlushInterval: -1,
		BufferPool:    &bareBuffers{},
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true},
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil { // else it truncates streams
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	return fmt.Errorf("bare proxy: %w", server.Serve(ln))
}

type bareBuffers struct{ pool sync.Pool }

func (b *bareBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *bareBuffers) Put(p []byte) { b.pool.Put(&p) }
