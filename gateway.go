package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/admin"
	"penstock/balancer"
	"penstock/config"
	"penstock/engine"
	"penstock/fleet"
	"penstock/fleet/nats"
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
	member   member // of the gateways that plan together
	loop     *balancer.Loop
	state    *state
	selector *selector.Selector
	handler  *proxy.Handler
	data     *proxy.Listener
	certs    *proxy.Certificates // nil: clients come without TLS
	adminLn  net.Listener
	metricLn net.Listener // nil: none
	dataSrv  *http.Server
	adminSrv *http.Server
	metrSrv  *http.Server

	discovery *engine.Discovery // fills fleet, and nobody else does

	manager    *serviceManager // nil: none asked to be told
	endStreams context.CancelCauseFunc
	drain      chan struct{} // closed when told to drain through the admin API
	drainOnce  sync.Once
	reloads    reloads
}

// member is a gateway's end of what joins it with others: *fleet.Member and
// *nats.Member.
type member interface {
	balancer.Peers
	prometheus.Collector
	// Run joins the fleet until ctx ends, and leaves it.
	Run(ctx context.Context) error
	SetPeriod(time.Duration)
	Leave()
	Status() fleet.Status
	// Who is Status with all gateways in it, for which it may ask another.
	Who(ctx context.Context) fleet.Status
}

// site is what a gateway finds where it runs, beyond its configuration.
type site struct {
	fleet      *fleet.Memory        // of gateways that plan together; nil: this one is alone
	connecting func(address string) // called before each connection to an engine; nil: nothing
}

// newGateway wires a gateway and opens its listeners; nothing runs yet.
func newGateway(file *config.File, path string, logs io.Writer) (*gateway, error) {
	return newGatewayAt(file, path, logs, site{})
}

func newGatewayAt(file *config.File, path string, logs io.Writer, at site) (*gateway, error) {
	g := &gateway{path: path, delay: drainDelay, level: new(slog.LevelVar), registry: prometheus.NewRegistry(),
		fleet: engine.NewFleet(), drain: make(chan struct{})}
	g.level.Set(file.Log.Level.Level())
	g.lines = telemetry.NewLineBuffer(logs, 4<<20)
	g.log = telemetry.NewLogger(g.lines, g.level)
	g.state = &state{dir: file.Gateway.StateDir, fleet: g.fleet, log: g.log}
	g.state.restoreOrders(g.fleet)
	g.discovery = engine.NewDiscovery(g.fleet, g.log, file.Gateway.Source, filepath.Dir(path))
	if err := g.discovery.Configure(file.Engines, file.Discovery, true); err != nil {
		return nil, err
	}
	g.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if _, err := engine.NewMetrics(g.registry, g.fleet); err != nil {
		return nil, err
	}
	g.registry.MustRegister(g.discovery)
	g.tables = route.NewPublished(file.Gateway.Source)
	g.state.tables = g.tables
	var err error
	if g.member, err = joinFleet(file, g.log, at.fleet); err != nil {
		return nil, err
	}
	g.registry.MustRegister(g.member)
	g.loop = balancer.NewLoop(balancer.Options{Fleet: g.fleet, Tables: g.tables, Saved: g.state.loadTable(),
		Gateway: file.Gateway.Name, Replicas: file.Gateway.Replicas, Network: file.Network, Peers: g.member, Policy: file.Routing.Policy, Period: file.Routing.Period, Log: g.log, Registry: g.registry})
	g.selector = selector.New(g.tables, g.registry)
	g.handler = proxy.New(proxy.Options{Selector: g.selector, Fleet: g.fleet, Limits: file.Limits, HashKey: string(file.Routing.HashKey), Tenants: file.Tenants,
		Aliases: file.Aliases, Version: readVersion(debug.ReadBuildInfo()).Version,
		Memory: protect.NewMemory(bodyMemory()), MemoryLimit: processMemory(), Log: g.log, Access: g.lines, Registry: g.registry, Connecting: at.connecting})
	g.state.ids = g.handler.IDs()
	g.state.loadIDs()
	g.poller = &engine.Poller{Fleet: g.fleet, Log: g.log, Connecting: at.connecting, OnAddressChange: func(*engine.Engine) { g.handler.CloseIdle() }}
	g.discovery.OnChange = g.forgetOthers
	g.reloads.init(g, file)
	return g, g.listen(file)
}

// joinFleet is the driver that the file asks for; a gateway on its own is a
// fleet of one.
func joinFleet(file *config.File, log *slog.Logger, store *fleet.Memory) (member, error) {
	if file.Fleet.Joined() {
		return nats.New(nats.Options{Name: file.Gateway.Name, Source: file.Gateway.Source, Config: file.Fleet, StateDir: file.Gateway.StateDir, Log: log})
	}
	if store == nil {
		store = fleet.NewMemory()
	}
	return store.Join(file.Gateway.Name, file.Routing.Period)
}

func (g *gateway) listen(file *config.File) (err error) {
	if file.Listen.TLS() {
		if g.certs, err = proxy.NewCertificates(file.Listen.TLSCert, file.Listen.TLSKey, g.log, g.registry); err != nil {
			return err
		}
	}
	var opened []net.Listener
	defer func() {
		for _, l := range opened {
			if err != nil {
				l.Close()
			}
		}
	}()
	open := func(key, address string) net.Listener {
		if err != nil || address == "" {
			return nil
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			err = fmt.Errorf("%s: %w", key, err)
			return nil
		}
		opened = append(opened, l)
		return l
	}
	ln := open("listen.address", file.Listen.Address)
	g.adminLn = open("admin.address", file.Admin.Address)
	g.metricLn = open("admin.metrics_address", file.Admin.MetricsAddress)
	if err != nil {
		return err
	}
	if g.data, err = g.handler.Listen(ln, g.certs); err != nil {
		return err
	}
	base, end := context.WithCancelCause(context.Background())
	g.endStreams = end
	g.dataSrv = proxy.NewServer(base, g.handler, file.Limits.Idle, file.Listen.MaxStreams)
	views := admin.Views{Fleet: g.fleet, Tables: g.tables, Records: g.selector.Records, Decision: g.loop.Decision, Changes: g.loop.Changes,
		Metrics: g.registry, Ready: g.handler.Ready, Source: file.Gateway.Source,
		Who: g.member.Who, Reload: g.reload, Drain: func() { g.drainOnce.Do(func() { close(g.drain) }) }, Order: g.order}
	g.adminSrv = admin.NewServer(admin.Handler(views))
	g.metrSrv = admin.NewMetricsServer(admin.MetricsHandler(views))
	return nil
}

// address and adminAddress are the listeners' real addresses.
func (g *gateway) address() string      { return g.data.Addr().String() }
func (g *gateway) adminAddress() string { return g.adminLn.Addr().String() }

// run serves until ctx ends or a drain is asked for, then drains. now, when
// closed, cuts the drain short. It returns when everything it started ended.
func (g *gateway) run(ctx context.Context, now <-chan struct{}) error {
	life, stop := context.WithCancel(context.Background())
	failed := make(chan error, 16)
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
	start(&loops, "discovery", func() error { return g.discovery.Run(life) })
	start(&loops, "poller", func() error { return g.poller.Run(life) })
	start(&loops, "state", func() error { return g.state.Run(life) })
	start(&loops, "guard", func() error { return g.handler.Guard(life) })
	start(&loops, "fleet", func() error { return g.member.Run(life) })
	start(&loops, "control cycle", func() error { return g.loop.Run(life) })
	start(&loops, "key files", func() error { return g.followKeys(life) })
	start(&loops, "queue", func() error { return g.handler.Run(life) })
	start(&loops, "listener", func() error { return g.data.Run(life) })
	start(&servers, "admin listener", func() error { return g.adminSrv.Serve(g.adminLn) })
	if g.metricLn != nil {
		start(&servers, "metrics listener", func() error { return g.metrSrv.Serve(g.metricLn) })
	}
	if g.certs != nil {
		start(&loops, "certificate", func() error { return g.certs.Run(life) })
	}
	start(&servers, "data listener", func() error { return g.dataSrv.Serve(g.data) })
	version := readVersion(debug.ReadBuildInfo())
	ready := []any{"address", g.address(), "admin", g.adminAddress(), "version", version.Version, "go", version.Go}
	if g.metricLn != nil {
		ready = append(ready, "metrics", g.metricLn.Addr().String())
	}
	g.log.Info("ready", ready...)
	g.manager.tell("READY=1", "STATUS=serving")
	start(&loops, "watchdog", func() error { return g.manager.watch(life, g.alive) })

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
	g.metrSrv.Close()
	servers.Wait()
	stop()
	loops.Wait()
	g.member.Leave()
	g.log.Info("stopped")
	stopLog()
	logging.Wait()
	return err
}

// shutdown is protection.md 2.6: not ready, serve on for a while, accept no
// more, let streams finish, and tell those that do not.
func (g *gateway) shutdown(now <-chan struct{}) {
	g.handler.Drain()
	g.manager.tell("STOPPING=1", "STATUS=draining")
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
