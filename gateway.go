package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/admin"
	"penstock/balancer"
	"penstock/config"
	"penstock/engine"
	"penstock/protect"
	"penstock/proxy"
	"penstock/route"
	"penstock/selector"
	"penstock/telemetry"
)

const (
	// drainDelay is how long a gateway that was told to go still serves new
	// requests: readiness has to reach whoever sends them.
	drainDelay = 5 * time.Second
	// drainTimeout is how long streams may then take to finish.
	drainTimeout = 120 * time.Second
	// drainWarning before its end they get an error event instead of silence.
	drainWarning = 2 * time.Second
)

// gateway is one Penstock: both planes, their listeners and their loops. This
// file is the only place where they meet.
type gateway struct {
	path  string // of the configuration file, "" = none
	delay time.Duration

	lines    *telemetry.LineBuffer
	level    *slog.LevelVar
	log      *slog.Logger
	registry *prometheus.Registry
	fleet    *engine.Fleet
	poller   *engine.Poller
	tables   *route.Published
	loop     *balancer.Loop
	selector *selector.Selector
	handler  *proxy.Handler
	data     *proxy.Listener
	adminLn  net.Listener
	dataSrv  *http.Server
	adminSrv *http.Server

	endStreams context.CancelCauseFunc
	drain      chan struct{} // closed when told to drain through the admin API
	drainOnce  sync.Once
	reloads    reloads
}

// newGateway wires a gateway and opens its listeners; nothing runs yet.
func newGateway(file *config.File, path string, logs io.Writer) (*gateway, error) {
	g := &gateway{path: path, delay: drainDelay, level: new(slog.LevelVar), registry: prometheus.NewRegistry(),
		fleet: engine.NewFleet(), drain: make(chan struct{})}
	g.level.Set(file.Log.Level.Level())
	g.lines = telemetry.NewLineBuffer(logs, 4<<20)
	g.log = telemetry.NewLogger(g.lines, g.level)
	if err := g.fleet.Apply(file.Engines); err != nil {
		return nil, err
	}
	g.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if _, err := engine.NewMetrics(g.registry, g.fleet); err != nil {
		return nil, err
	}
	g.tables = route.NewPublished(file.Gateway.Source)
	g.loop = balancer.NewLoop(g.fleet, g.tables, g.log, g.registry)
	g.selector = selector.New(g.tables, g.registry)
	g.handler = proxy.New(proxy.Options{Selector: g.selector, Limits: file.Limits, HashKey: string(file.Routing.HashKey),
		Memory: protect.NewMemory(bodyMemory()), Log: g.log, Access: g.lines, Registry: g.registry})
	g.poller = &engine.Poller{Fleet: g.fleet, Log: g.log, OnAddressChange: func(*engine.Engine) { g.handler.CloseIdle() }}
	g.reloads.init(g, file)
	return g, g.listen(file)
}

func (g *gateway) listen(file *config.File) error {
	ln, err := net.Listen("tcp", file.Listen.Address)
	if err != nil {
		return fmt.Errorf("listen.address: %w", err)
	}
	if g.adminLn, err = net.Listen("tcp", file.Admin.Address); err != nil {
		ln.Close()
		return fmt.Errorf("admin.address: %w", err)
	}
	if g.data, err = proxy.Listen(ln); err != nil {
		ln.Close()
		g.adminLn.Close()
		return err
	}
	base, end := context.WithCancelCause(context.Background())
	g.endStreams = end
	g.dataSrv = proxy.NewServer(base, g.handler, file.Limits.Idle, file.Listen.MaxStreams)
	g.adminSrv = admin.NewServer(admin.Handler(admin.Views{Fleet: g.fleet, Tables: g.tables, Records: g.selector.Records,
		Metrics: g.registry, Ready: g.handler.Ready, Source: file.Gateway.Source,
		Reload: g.reload, Drain: func() { g.drainOnce.Do(func() { close(g.drain) }) }}))
	return nil
}

// address and adminAddress are the listeners' real addresses.
func (g *gateway) address() string      { return g.data.Addr().String() }
func (g *gateway) adminAddress() string { return g.adminLn.Addr().String() }

// run serves until ctx ends or a drain is asked for, then drains. now, when
// closed, cuts the drain short. It returns when everything it started ended.
func (g *gateway) run(ctx context.Context, now <-chan struct{}) error {
	life, stop := context.WithCancel(context.Background())
	failed := make(chan error, 8)
	var loops, servers sync.WaitGroup
	start := func(wg *sync.WaitGroup, what string, run func() error) {
		wg.Go(func() {
			if err := run(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	logCtx, stopLog := context.WithCancel(context.Background())
	var logging sync.WaitGroup
	start(&logging, "log", func() error { return g.lines.Run(logCtx) })
	start(&loops, "poller", func() error { return g.poller.Run(life) })
	start(&loops, "control cycle", func() error { return g.loop.Run(life) })
	start(&loops, "listener", func() error { return g.data.Run(life) })
	start(&servers, "admin listener", func() error { return g.adminSrv.Serve(g.adminLn) })
	start(&servers, "data listener", func() error { return g.dataSrv.Serve(g.data) })
	version := readVersion(debug.ReadBuildInfo())
	g.log.Info("ready", "address", g.address(), "admin", g.adminAddress(), "version", version.Version, "go", version.Go)

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		g.shutdown(now)
	case <-g.drain:
		g.shutdown(now)
	}
	g.endStreams(proxy.ErrDraining)
	g.dataSrv.Close()
	g.adminSrv.Close()
	servers.Wait()
	stop()
	loops.Wait()
	g.log.Info("stopped")
	stopLog()
	logging.Wait()
	return err
}

// shutdown is protection.md 2.6: not ready, serve on for a while, accept no
// more, let streams finish, and tell those that do not.
func (g *gateway) shutdown(now <-chan struct{}) {
	g.handler.Drain()
	g.log.Info("draining", "serve_for", g.delay.String(), "streams_for", drainTimeout.String())
	select {
	case <-now:
		return
	case <-time.After(g.delay):
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-now:
			cancel()
		case <-time.After(drainTimeout - drainWarning):
			g.endStreams(proxy.ErrDraining)
		}
	}()
	if err := g.dataSrv.Shutdown(ctx); err != nil {
		g.log.Warn("streams cut at the end of the drain")
	}
}
