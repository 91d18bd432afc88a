package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

const (
	heldStreams = 2000
	heldIdle    = 5000
)

// What streams that wait and connections without a request cost the gateway's
// process, in resident memory: 2,000 streams that have had their first event,
// then 5,000 connections more. All is held at once, and then every stream ends
// as it should.
//
//	go test -run '^$' -bench Held -benchtime 1x .
func BenchmarkHeld(b *testing.B) {
	for _, kind := range []struct {
		name string
		tls  bool
		h2   bool
	}{{"http1", false, false}, {"h2c", false, true}, {"tls-http1", true, false}, {"tls-h2", true, true}} {
		b.Run(kind.name, func(b *testing.B) { benchHeld(b, kind.tls, kind.h2) })
	}
}

func benchHeld(b *testing.B, secure, h2 bool) {
	release := make(chan struct{})
	e := startScript(b, onPosts(func(x *enginetest.Exchange) {
		x.StartStream()
		x.Chunk(token("first"))
		if strings.Contains(string(x.Body), "held") {
			select {
			case <-release:
			case <-x.Gone():
				return
			}
		}
		x.Finish()
	}))
	lines := ""
	if secure {
		lines = tlsKeys(b)
	}
	file := filepath.Join(b.TempDir(), "penstock.toml")
	if err := os.WriteFile(file, []byte(listenWith(lines, "[limits]\nstall = \"10m\"\n"+engineTOML("e1", e.URL(), "max_in_flight = 10000", `dialect = "vllm"`))), 0o600); err != nil {
		b.Fatal(err)
	}
	p := startChild(b, "penstock", file)
	if secure {
		p.url = strings.Replace(p.url, "http:", "https:", 1)
	}
	g := &running{t: b, url: p.url, admin: p.admin}
	tr := &http.Transport{DisableCompression: true, TLSClientConfig: trusting(), MaxIdleConnsPerHost: heldStreams}
	if h2 {
		tr.Protocols = http2Only()
	}
	c := &http.Client{Transport: tr}
	defer tr.CloseIdleConnections()
	g.await("the engine", func() bool { return g.get(c, "/readyz").status == http.StatusOK })
	for range 200 { // pools and buffers have their size
		g.post(c, "/v1/chat/completions", chatBody("m", "warm", true), off...)
	}
	before := p.rss(b)

	var first atomic.Int64
	var all sync.WaitGroup
	slots := make(chan bool, 32) // streams that are being opened
	for i := range heldStreams {
		slots <- true
		all.Go(func() {
			resp, err := c.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", fmt.Sprint("held ", i), true)))
			if err != nil {
				<-slots
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			lines := bufio.NewReaderSize(resp.Body, 512)
			_, err = lines.ReadString('\n')
			first.Add(1)
			<-slots
			rest, err2 := io.ReadAll(lines)
			if err != nil || err2 != nil || !strings.HasSuffix(string(rest), doneEvent) {
				b.Errorf("%v %v, %q", err, err2, rest)
			}
		})
	}
	awaitCond(b, "all streams", func() bool { return first.Load() == heldStreams || b.Failed() })
	time.Sleep(2 * time.Second) // a collection, or not: what a service manager would see
	streams := p.rss(b)
	b.ReportMetric(float64(streams-before)/heldStreams/1024, "KiB/stream")
	b.ReportMetric(g.metric("go_goroutines"), "goroutines")
	b.ReportMetric(g.metric("go_memstats_stack_inuse_bytes")/heldStreams/1024, "KiB-stack/stream")
	b.ReportMetric(g.metric("go_memstats_heap_inuse_bytes")/heldStreams/1024, "KiB-heap/stream")

	idle := make([]net.Conn, 0, heldIdle)
	defer func() {
		for _, conn := range idle {
			conn.Close()
		}
	}()
	for range heldIdle {
		idle = append(idle, idleConn(b, p.url))
	}
	if n := g.metric("penstock_client_connections"); n < heldIdle {
		b.Errorf("%v connections are open", n)
	}
	both := p.rss(b)
	b.ReportMetric(float64(both-streams)/heldIdle/1024, "KiB/idle-conn")
	b.ReportMetric(float64(both)/(1<<20), "MiB-all")
	b.ReportMetric(0, "ns/op")
	close(release)
	all.Wait()
}

// idleConn opens a connection that has had an answer and waits.
func idleConn(b *testing.B, url string) net.Conn {
	b.Helper()
	scheme, address, _ := strings.Cut(url, "://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	if scheme == "https" {
		config := trusting()
		config.ServerName = "localhost"
		conn = tls.Client(conn, config)
	}
	fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: gateway\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(err, resp)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return conn
}

// rss is the resident memory of the child, in bytes.
func (c *child) rss(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		b.Skip("no /proc on this machine")
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			var kib int64
			fmt.Sscan(f[1], &kib)
			return kib << 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
