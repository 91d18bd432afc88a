package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The cost of the gateway beside a bare httputil.ReverseProxy, in CPU time of
// the proxy's process alone: engine and clients are in this process, each
// proxy is a child. Rounds alternate between the two, so that a machine that
// slows down slows both; the medians and the ratio are what to read.
//
//	go test -run '^$' -bench Gateway -benchtime 3000x .

const (
	childRole   = "PENSTOCK_BENCH_CHILD"
	childEngine = "PENSTOCK_BENCH_ENGINE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "reverseproxy":
		bareProxy(os.Getenv(childEngine))
	case "penstock":
		os.Exit(run(context.Background(), []string{"serve", "--config", os.Getenv(childEngine)}, os.Stdout, os.Stderr))
	default:
		flag.Parse()
		if f := flag.Lookup("test.parallel"); testsAtOnce != "" && f.Value.String() == f.DefValue {
			_ = f.Value.Set(testsAtOnce)
		}
		code := m.Run()
		if builds.Load() {
			dir, _ := build()
			os.RemoveAll(dir)
		}
		os.Exit(code)
	}
}

// bareProxy is httputil.ReverseProxy and nothing else, set up so that it is
// right and quick: flushed at once, pooled buffers, kept connections.
func bareProxy(engine string) {
	target, err := url.Parse(engine)
	if err != nil {
		panic(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		BufferPool:    &benchBuffers{},
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true},
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"address\":%q}\n", ln.Addr())
	panic(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() // else it truncates streams
		proxy.ServeHTTP(w, r)
	})))
}

type benchBuffers struct{ pool sync.Pool }

func (b *benchBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *benchBuffers) Put(p []byte) { b.pool.Put(&p) }

// child is one proxy in a process of its own.
type child struct {
	cmd   *exec.Cmd
	url   string
	admin string
}

func startChild(b *testing.B, role, arg string) *child {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childEngine+"="+arg, "GOMAXPROCS=1")
	// The log goes to a file, as under a service manager that appends to one:
	// a pipe would be read by this process, on the processors that it measures.
	logs, err := os.Create(filepath.Join(b.TempDir(), role+".log"))
	if err != nil {
		b.Fatal(err)
	}
	defer logs.Close()
	cmd.Stderr = logs
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c := &child{cmd: cmd}
	awaitCond(b, role+" to start", func() bool {
		text, err := os.ReadFile(logs.Name())
		for line := range bytes.Lines(text) {
			var ready struct{ Msg, Address, Admin string }
			if err == nil && json.Unmarshal(line, &ready) == nil && ready.Msg == "ready" {
				c.url, c.admin = "http://"+ready.Address, "http://"+ready.Admin
			}
		}
		return c.url != ""
	})
	return c
}

// cpu is the user and system time of the child so far, in ticks of 10 ms.
func (c *child) cpu(b *testing.B) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		b.Skip("no /proc on this machine")
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// benchEngine answers chat completions at once: plain with about 1 KB, streams
// with chunks events of about 200 bytes, each in a write of its own.
func benchEngine(chunks int) http.Handler {
	plain := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 150) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":150,"total_tokens":170}}`)
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	last := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if r.Header.Get("Accept") != "text/event-stream" {
			w.Header().Set("Content-Type", "application/json")
			w.Write(plain)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for range chunks {
			w.Write(event)
			rc.Flush()
			time.Sleep(200 * time.Microsecond) // so that events come one by one
		}
		w.Write(last)
	})
	return mux
}

const benchChunks = 50

func BenchmarkGateway(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	engine := &http.Server{Handler: benchEngine(benchChunks)}
	go engine.Serve(ln)
	b.Cleanup(func() { engine.Close() })
	address := "http://" + ln.Addr().String()
	file := filepath.Join(b.TempDir(), "penstock.toml")
	text := "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n" + engineTOML("e1", address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	bare, ours := startChild(b, "reverseproxy", address), startChild(b, "penstock", file)
	awaitCond(b, "the gateway to be ready", func() bool {
		resp, err := http.Get(ours.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	for _, c := range []struct {
		name   string
		prompt int
		stream bool
		per    int // what the figure is divided by, per request
	}{{"plain-1KB", 1 << 10, false, 1}, {"plain-32KB", 32 << 10, false, 1}, {"stream-chunk", 1 << 10, true, benchChunks + 2}} {
		b.Run(c.name, func(b *testing.B) { benchGateway(b, bare, ours, c.prompt, c.stream, c.per) })
	}
}

func benchGateway(b *testing.B, bare, ours *child, prompt int, stream bool, per int) {
	const rounds, clients = 9, 8
	perRound := max(clients, b.N/rounds)
	if stream {
		perRound = max(clients, perRound/10)
	}
	var costs [2][]float64 // microseconds
	for range rounds {
		for i, p := range []*child{bare, ours} {
			before := p.cpu(b)
			drive(b, p.url, prompt, stream, perRound, clients)
			costs[i] = append(costs[i], float64((p.cpu(b)-before).Microseconds())/float64(perRound*per))
		}
	}
	var ratios []float64
	for i := range costs[0] {
		ratios = append(ratios, costs[1][i]/costs[0][i])
	}
	for _, list := range [][]float64{costs[0], costs[1], ratios} {
		slices.Sort(list)
	}
	b.ReportMetric(costs[0][rounds/2], "bare-us")
	b.ReportMetric(costs[1][rounds/2], "penstock-us")
	b.ReportMetric(ratios[rounds/2], "ratio")
	b.ReportMetric(ratios[0], "ratio-min")
	b.ReportMetric(ratios[rounds-1], "ratio-max")
	b.ReportMetric(0, "ns/op")
}

// drive sends n requests over a fixed number of connections, each with a
// conversation of its own, and reads every answer to its end.
func drive(b *testing.B, target string, prompt int, stream bool, n, clients int) {
	tr := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer tr.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				body := fmt.Sprintf(`{"model":"m","stream":%t,"messages":[{"role":"system","content":"conversation %d-%d"},{"role":"user","content":%q}],"max_tokens":150}`,
					stream, c, i, strings.Repeat("some words of a prompt ", prompt/23))
				req, _ := http.NewRequest(http.MethodPost, target+"/v1/chat/completions", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				if stream {
					req.Header.Set("Accept", "text/event-stream")
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Error(err)
					return
				}
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || stream && !bytes.HasSuffix(answer, []byte("[DONE]\n\n")) {
					b.Errorf("%d %v %.200s", resp.StatusCode, err, answer)
					return
				}
			}
		})
	}
	wg.Wait()
}
