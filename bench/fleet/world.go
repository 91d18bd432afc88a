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

	"penstock/bench/child"
	"penstock/engine/enginetest"
)

// world is three clusters with an engine each, three gateways, and their store.
type world struct {
	layout
	dir      string
	penstock string
	store    *store
	gateways []*gateway
	engines  []string // addresses
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// layout is what worlds differ in.
type layout struct {
	sources []string                     // of the gateways
	trip    func(i, j int) time.Duration // between clusters i and j; nil: nothing
	profile string                       // of every engine, as its file has it
	engine  enginetest.Config            // what engines have in common
}

// plainLayout is three equal clusters with a gateway each.
func plainLayout() layout {
	return layout{sources: []string{"c0", "c1", "c2"}, profile: "capacity = 60",
		engine: enginetest.Config{Slots: 8, TTFT: 20 * time.Millisecond, TBOT: 5 * time.Millisecond}}
}

// gateway is one `penstock serve`.
type gateway struct {
	name, source, config, log string
	address, admin            string
	lines                     []*enginetest.Line // to each server of the store
	penstock                  string

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

func newWorld(ctx context.Context, o options, l layout) (w *world, err error) {
	w = &world{layout: l, penstock: o.penstock}
	w.ctx, w.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "penstock-bench-fleet-"); err != nil {
		return w, err
	}
	if w.penstock, err = child.Penstock(ctx, o.penstock, w.dir); err != nil {
		return w, err
	}
	if w.store, err = newStore(ctx, w.dir, o.servers); err != nil {
		return w, err
	}
	for i := range l.sources {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return w, err
		}
		c := l.engine
		c.Name, c.Models = fmt.Sprint("e", i), []string{"m"}
		sim := enginetest.New(c)
		w.engines = append(w.engines, ln.Addr().String())
		w.running.Go(func() { _ = sim.Serve(w.ctx, ln) })
	}
	for i := range l.sources {
		g, err := w.newGateway(i)
		if err != nil {
			return w, err
		}
		w.gateways = append(w.gateways, g)
		if err := g.start(); err != nil {
			return w, err
		}
	}
	return w, nil
}

// newGateway is the i-th, in the i-th cluster, with its lines to the store and its
// ways to the engines.
func (w *world) newGateway(i int) (*gateway, error) {
	g := &gateway{name: fmt.Sprint("gw-", i), source: w.sources[i], penstock: w.penstock}
	var urls []string
	for _, srv := range w.store.servers {
		line, err := enginetest.NewLine(srv.address)
		if err != nil {
			return nil, err
		}
		g.lines = append(g.lines, line)
		urls = append(urls, "nats://"+line.Addr())
		w.running.Go(func() { _ = line.Run(w.ctx) })
	}
	var err error
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
	fmt.Fprintf(&text, "[gateway]\nname = %q\nsource = %q\nstate_dir = %q\n[listen]\naddress = %q\n[admin]\naddress = %q\n[fleet]\nurl = %q\n[log]\nlevel = \"warn\"\n",
		g.name, g.source, state, g.address, g.admin, strings.Join(urls, ","))
	if w.trip != nil {
		text.WriteString(w.network())
	}
	for j, address := range w.engines {
		if w.trip != nil && w.trip(i, j) > 0 {
			way, err := enginetest.NewDistance(address, w.trip(i, j))
			if err != nil {
				return nil, err
			}
			w.running.Go(func() { _ = way.Run(w.ctx) })
			address = way.Addr()
		}
		fmt.Fprintf(&text, "[[engine]]\nname = \"e%d\"\nurl = \"http://%s\"\ncluster = \"c%d\"\n%s\n", j, address, j, w.profile)
	}
	g.config, g.log = filepath.Join(w.dir, g.name+".toml"), filepath.Join(w.dir, g.name+".log")
	return g, os.WriteFile(g.config, []byte(text.String()), 0o600)
}

// network is the round trips as gateways are told them: to connect through a
// Distance takes no time, so that they cannot measure it.
func (w *world) network() string {
	var text strings.Builder
	text.WriteString("[network.rtt_ms]\n")
	for i, source := range w.sources {
		fmt.Fprintf(&text, "%s = {", source)
		for j := range w.engines {
			if j > 0 {
				text.WriteString(",")
			}
			fmt.Fprintf(&text, " c%d = %g", j, max(1, float64(w.trip(i, j))/float64(time.Millisecond)))
		}
		text.WriteString(" }\n")
	}
	return text.String()
}

// cut, freeze and slow do it to all of a gateway's lines.
func (g *gateway) cut(on bool) {
	for _, l := range g.lines {
		l.Cut(on)
	}
}

func (g *gateway) freeze(on bool) {
	for _, l := range g.lines {
		l.Freeze(on)
	}
}

func (g *gateway) slow(delay time.Duration) {
	for _, l := range g.lines {
		l.Slow(delay)
	}
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
	if g.cmd != nil && g.cmd.Process != nil {
		_ = g.cmd.Process.Signal(s)
	}
}

func (g *gateway) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil && g.cmd.Process != nil {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
	}
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
	if w.store != nil {
		w.store.halt(false)
	}
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
	Weights []struct {
		Source string  `json:"source"`
		Class  string  `json:"class"`
		Engine string  `json:"engine"`
		Weight float64 `json:"weight"`
		Slots  int     `json:"slots"`
	} `json:"weights"`
	Plan *struct {
		Epoch   uint64    `json:"epoch"`
		Version uint64    `json:"version"`
		Leads   bool      `json:"leads"`
		Rows    []planRow `json:"rows"`
	} `json:"plan"`
	Proofs []proof `json:"proofs"`
}

type planRow struct {
	Source  string             `json:"source"`
	Class   string             `json:"class"`
	Guessed bool               `json:"guessed"`
	Weights map[string]float64 `json:"weights"`
}

// proof is a solution with its problem, as the leader tells it.
type proof struct {
	Problem  json.RawMessage    `json:"problem"`
	Prices   map[string]float64 `json:"prices_ms"`
	Solution []struct {
		Source  string             `json:"source"`
		Class   string             `json:"class"`
		Weights map[string]float64 `json:"weights"`
		Shed    float64            `json:"shed"`
	} `json:"solution"`
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
	_, err := g.askAs(fmt.Sprintf(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"question %d"}]}`, n), "")
	return err
}

// askAs is one of a conversation with that key, which is the request's id too, ""
// for none; it tells who answered.
func (g *gateway) askAs(body, key string) (engine string, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+g.address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-Penstock-Key", key)
		req.Header.Set("X-Request-Id", key)
	}
	resp, err := asking.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", &errStatus{resp.StatusCode, fmt.Sprintf("%s: %.200s", resp.Status, text.String())}
	}
	return resp.Header.Get("X-Penstock-Engine"), nil
}

// errStatus is an answer that is an error.
type errStatus struct {
	code int
	text string
}

func (e *errStatus) Error() string { return e.text }
