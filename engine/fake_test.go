package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"penstock/engine/enginetest"
)

// page is one answer of a scripted engine.
type page struct {
	status int
	server string
	body   string
	delay  time.Duration // before the headers
	target string        // Location
}

// scripted is an HTTP server whose pages can be changed while it runs. Pages
// are of GET unless their path begins with another method; a path without a
// page has that of "", else it is 404.
type scripted struct {
	mu    sync.Mutex
	pages map[string]page
	asked map[string][]time.Time
}

func script(pages map[string]page) *scripted {
	return &scripted{pages: pages, asked: make(map[string][]time.Time)}
}

func (s *scripted) set(path string, p page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = p
}

// times is when path was asked for.
func (s *scripted) times(path string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], time.Now())
	path := r.URL.Path
	if r.Method != http.MethodGet {
		path = r.Method + " " + path
	}
	p, ok := s.pages[path]
	if !ok {
		p, ok = s.pages[""]
	}
	s.mu.Unlock()
	if !ok {
		p.status = http.StatusNotFound
	}
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-r.Context().Done():
			return
		}
	}
	if p.server != "" {
		w.Header().Set("Server", p.server)
	}
	if p.target != "" {
		w.Header().Set("Location", p.target)
	}
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, p.body)
}

// plain is a healthy engine of a kind that we do not know.
func plain(models ...string) map[string]page {
	return map[string]page{"/health": {status: 200}, modelsPath: {status: 200, body: listOf("somebody", models...)}}
}

// vllmLike adds what makes it a vLLM.
func vllmLike(metrics string, models ...string) map[string]page {
	p := plain()
	p[modelsPath] = page{status: 200, body: listOf("vllm", models...)}
	p["/metrics"] = page{status: 200, body: metrics}
	return p
}

func listOf(owner string, models ...string) string {
	objects := make([]string, len(models))
	for i, m := range models {
		objects[i] = fmt.Sprintf(`{"id":%q,"object":"model","owned_by":%q}`, m, owner)
	}
	return `{"object":"list","data":[` + strings.Join(objects, ",") + `]}`
}

// recorded is a real engine's answer kept in testdata/engines.
func recorded(t *testing.T, name string) page {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "engines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	// The bodies were shortened: their Content-Length no longer holds.
	head, body, ok := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	if !ok {
		t.Fatalf("%s has no body", name)
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\n\n"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	return page{status: resp.StatusCode, server: resp.Header.Get("Server"), body: string(body)}
}

// TestMain looks a name up before any test: package net makes a channel at its
// first look-up, and one made inside a synctest bubble would end the process
// at the first look-up outside of it.
func TestMain(m *testing.M) {
	_, _ = enginetest.NewZone().Resolver().LookupHost(context.Background(), "x.test.")
	os.Exit(m.Run())
}

// network is a net without sockets, on which loops run on a synctest clock.
type network struct {
	mu    sync.Mutex
	hosts map[string]chan net.Conn // by host:port; a nil channel swallows packets
	srvs  []*http.Server
}

func newNetwork() *network { return &network{hosts: make(map[string]chan net.Conn)} }

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	conns, ok := n.hosts[address]
	n.mu.Unlock()
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	here, there := net.Pipe()
	select {
	case conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve puts a server at address; it returns the function that ends it.
func (n *network) serve(address string, h http.Handler) (stop func()) {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	n.mu.Lock()
	n.hosts[address] = l.conns
	n.srvs = append(n.srvs, srv)
	n.mu.Unlock()
	go srv.Serve(l)
	return func() {
		n.mu.Lock()
		delete(n.hosts, address)
		n.mu.Unlock()
		srv.Close()
	}
}

// swallow lets address accept nothing and refuse nothing.
func (n *network) swallow(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[address] = nil
}

func (n *network) close() {
	for _, s := range n.srvs {
		s.Close()
	}
}

type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// logLines collects what is logged, without times.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// with lists the lines that contain part.
func (l *logLines) with(part string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// bubble runs test on a synctest clock with a poller for the engines given as
// name=address, all of dialect auto.
func bubble(t *testing.T, engines []string, prepare func(*network), test func(t *testing.T, n *network, f *Fleet, log *logLines)) {
	synctest.Test(t, func(t *testing.T) {
		n, f, log := newNetwork(), NewFleet(), new(logLines)
		var configs []Config
		for _, e := range engines {
			name, address, _ := strings.Cut(e, "=")
			configs = append(configs, Config{Name: name, URL: "http://" + address, Dialect: DialectAuto})
		}
		if err := f.Apply(configs); err != nil {
			t.Fatal(err)
		}
		prepare(n)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&Poller{Fleet: f, Log: log.logger(), dial: n.dial}).Run(ctx) }()
		test(t, n, f, log)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		n.close()
	})
}

// after lets d of the bubble's time pass, and everything that is due by then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// run starts a poller on real sockets for the time of the test.
func run(t *testing.T, p *Poller) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// eventually waits for a condition, for at most ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// listenAt serves h on loopback at address ("" for any free port).
func listenAt(t *testing.T, address string, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	if address != "" {
		var l net.Listener
		eventually(t, "listening at "+address, func() bool {
			var err error
			l, err = net.Listen("tcp", address)
			if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatal(err)
			}
			return err == nil
		})
		srv.Listener.Close()
		srv.Listener = l
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// refusing is the URL of a loopback port that is taken, but where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

func describeModels(models []Model) string {
	var parts []string
	for _, m := range models {
		parts = append(parts, fmt.Sprintf("%s:%d", m.ID, m.ContextTokens))
	}
	return strings.Join(parts, " ")
}
