package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/engine/enginetest"
	"penstock/fleet/nats"
)

// world is three clusters: an engine and a gateway each, and one store.
type world struct {
	dir      string
	penstock string
	store    *storeProcess
	gateways []*gateway
	engines  []string // URLs
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// storeProcess is the NATS server, which can be ended and begun again, with
// what it had or without.
type storeProcess struct {
	address, dir string
	mu           sync.Mutex
	end          func() // nil: it does not run
}

func (s *storeProcess) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return nil
	}
	var err error
	for range 50 { // the port may not be free at once
		if s.end, _, err = nats.StartServer(s.address, s.dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func (s *storeProcess) halt(wipe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
		s.end = nil
	}
	if wipe {
		os.RemoveAll(filepath.Join(s.dir, "fleet"))
	}
}

// gateway is one `penstock serve`.
type gateway struct {
	name, config, log string
	address, admin    string
	line              *enginetest.Line
	penstock          string

	mu   sync.Mutex
	cmd  *exec.Cmd
	down []span // when clients could expect no answer of it
	life int    // processes so far
}

// span is a time; the end is zero while it lasts.
type span struct{ from, to time.Time }

// freePort is a port that nobody listens on now.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func newWorld(o options) (w *world, err error) {
	w = &world{penstock: o.penstock}
	if w.dir, err = os.MkdirTemp("", "penstock-bench-fleet-"); err != nil {
		return nil, err
	}
	if w.penstock == "" {
		w.penstock = filepath.Join(w.dir, "penstock")
		if out, err := exec.Command("go", "build", "-o", w.penstock, "penstock").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build penstock: %w: %s", err, out)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	store, err := freePort()
	if err != nil {
		return nil, err
	}
	w.store = &storeProcess{address: store, dir: filepath.Join(w.dir, "store")}
	if err := os.MkdirAll(w.store.dir, 0o700); err != nil {
		return nil, err
	}
	if err := w.store.start(); err != nil {
		return nil, err
	}
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		sim := enginetest.New(enginetest.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, Slots: 8, TTFT: 20 * time.Millisecond, TBOT: 5 * time.Millisecond})
		w.engines = append(w.engines, "http://"+ln.Addr().String())
		w.running.Go(func() { _ = sim.Serve(ctx, ln) })
	}
	for i := range 3 {
		g, err := w.newGateway(i)
		if err != nil {
			return nil, err
		}
		w.gateways = append(w.gateways, g)
		w.running.Go(func() { _ = g.line.Run(ctx) })
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) newGateway(i int) (*gateway, error) {
	g := &gateway{name: fmt.Sprint("gw-", i), penstock: w.penstock}
	var err error
	if g.line, err = enginetest.NewLine(w.store.address); err != nil {
		return nil, err
	}
	if g.address, err = freePort(); err != nil {
		return nil, err
	}
	if g.admin, err = freePort(); err != nil {
		return nil, err
	}
	state := filepath.Join(w.dir, g.name)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[gateway]\nname = %q\nsource = \"c%d\"\nstate_dir = %q\n[listen]\naddress = %q\n[admin]\naddress = %q\n[fleet]\nurl = \"nats://%s\"\n[log]\nlevel = \"warn\"\n",
		g.name, i, state, g.address, g.admin, g.line.Addr())
	for j, url := range w.engines {
		fmt.Fprintf(&text, "[[engine]]\nname = \"e%d\"\nurl = %q\ncluster = \"c%d\"\ncapacity = 60\n", j, url, j)
	}
	g.config, g.log = filepath.Join(w.dir, g.name+".toml"), filepath.Join(w.dir, g.name+".log")
	return g, os.WriteFile(g.config, []byte(text.String()), 0o600)
}

// start runs the process; it does not wait for it to be ready.
func (g *gateway) start() error {
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cmd = exec.Command(g.penstock, "serve", "--config", g.config)
	g.cmd.Stderr = log
	g.life++
	return g.cmd.Start()
}

func (g *gateway) signal(s os.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.cmd.Process.Signal(s)
}

func (g *gateway) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

// setDown notes that clients can expect no answer, or can again.
func (g *gateway) setDown(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.down); down {
		g.down = append(g.down, span{from: time.Now()})
	} else if n > 0 && g.down[n-1].to.IsZero() {
		g.down[n-1].to = time.Now()
	}
}

// wasDown reports whether a request from then until now met such a time.
func (g *gateway) wasDown(from time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.down {
		if s.to.IsZero() || s.to.After(from) {
			return true
		}
	}
	return false
}

// awaitReady waits until the gateway serves.
func (g *gateway) awaitReady(ctx context.Context) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if resp, err := asking.Get("http://" + g.admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return errors.New(g.name + " does not get ready")
}

func (w *world) close() {
	for _, g := range w.gateways {
		g.signal(syscall.SIGCONT)
		g.kill()
	}
	w.stop()
	w.running.Wait()
	w.store.halt(false)
	os.RemoveAll(w.dir)
}

// asking is the client of admin listeners and gateways.
var asking = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// fleetPage is what is read of GET /fleet and GET /table.
type fleetPage struct {
	Leader string `json:"leader"`
	Epoch  uint64 `json:"epoch"`
	Store  string `json:"store"`
}

type tablePage struct {
	Plan *struct {
		Epoch   uint64          `json:"epoch"`
		Version uint64          `json:"version"`
		Leads   bool            `json:"leads"`
		Rows    json.RawMessage `json:"rows"`
	} `json:"plan"`
}

func (g *gateway) get(path string, v any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+path, nil)
	if err != nil {
		return err
	}
	resp, err := asking.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

// ask is one request of a client; nil where it was answered well.
func (g *gateway) ask(n int) error {
	body := fmt.Sprintf(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"question %d"}]}`, n)
	resp, err := asking.Post("http://"+g.address+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.200s", resp.Status, text.String())
	}
	return nil
}
