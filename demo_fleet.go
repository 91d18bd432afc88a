package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/config"
	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/fleet"
	"penstock/route"
)

// demoModel is what the simulated engines serve.
const demoModel = "demo"

// residencyLabel names the cluster of an engine to those who require one.
const residencyLabel = "residency"

const (
	// demoReady is how long engines and gateways may take to be in service.
	demoReady = 30 * time.Second
	// demoGrace is how long streams of others may take to finish at the end.
	demoGrace = 2 * time.Second
	// demoInFlight bounds what one gateway sends to one engine at once: where
	// an engine gets too much, requests wait for some seconds at most.
	demoInFlight = 48
	// demoMaxLag keeps the engines' speed on a machine that is busy.
	demoMaxLag = 5 * time.Second
)

// demoFleet is the world under one policy: in every cluster an engine and a
// gateway, which share all engines and plan together.
type demoFleet struct {
	contestant
	world    world
	engines  []*runningEngine       // by cluster
	gateways []*gateway             // by cluster
	ways     []*enginetest.Distance // between clusters
	stores   []string               // URLs of the gateways' store, by cluster; nil: this process
}

type runningEngine struct {
	enginetest.Config
	sim     *enginetest.Sim
	ln      net.Listener
	address string
}

// newDemoFleet opens the listeners; nothing runs yet. Its gateways plan together
// in this process.
func newDemoFleet(w world, c contestant, logs io.Writer) (f *demoFleet, err error) {
	return newDemoFleetAt(w, c, logs, nil)
}

// newDemoFleetAt is one whose gateways find their store by URLs, by cluster; nil:
// in this process.
func newDemoFleetAt(w world, c contestant, logs io.Writer, stores []string) (f *demoFleet, err error) {
	f = &demoFleet{contestant: c, world: w, stores: stores}
	defer func() {
		if err != nil {
			f.abandon()
		}
	}()
	for _, c := range w.clusters {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		c.engine.Models, c.engine.MaxLag = []string{demoModel}, demoMaxLag
		f.engines = append(f.engines, &runningEngine{c.engine, enginetest.New(c.engine), ln, ln.Addr().String()})
	}
	store := fleet.NewMemory()
	for i := range w.clusters {
		if c.alone {
			store = fleet.NewMemory()
		}
		if err := f.addGateway(i, store, logs); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// addGateway adds the gateway of the i-th cluster and its ways to the engines.
func (f *demoFleet) addGateway(i int, store *fleet.Memory, logs io.Writer) error {
	own := &f.world.clusters[i]
	file := config.Default()
	file.Gateway.Name, file.Gateway.Source = f.name+"-"+own.name, own.name
	file.Listen.Address, file.Admin.Address = "127.0.0.1:0", "127.0.0.1:0"
	file.Routing.Policy = f.policy
	if f.stores != nil {
		file.Fleet.URL = f.stores[i]
	}
	waits := make(map[string]time.Duration)
	for j := range f.world.clusters {
		c, e := &f.world.clusters[j], f.engines[j]
		address := e.address
		if rtt := f.world.rtt(i, j); rtt > 0 {
			way, err := enginetest.NewDistance(address, rtt)
			if err != nil {
				return err
			}
			f.ways = append(f.ways, way)
			address = way.Addr()
			waits[address] = rtt
		}
		file.Engines = append(file.Engines, engine.Config{Name: e.Name, URL: "http://" + address, Cluster: c.name,
			Capacity: &c.capacity, MaxInFlight: demoInFlight, Profile: c.profile(), Labels: map[string][]string{residencyLabel: {strings.ToLower(c.name)}}})
	}
	g, err := newGatewayAt(file, "", &taggedLog{w: logs, gateway: file.Gateway.Name},
		site{fleet: store, connecting: func(address string) { time.Sleep(waits[address]) }})
	if err != nil {
		return err
	}
	g.delay = 0 // nobody has to learn that it is going
	f.gateways = append(f.gateways, g)
	return nil
}

// abandon closes the listeners of a fleet that will not run.
func (f *demoFleet) abandon() {
	for _, e := range f.engines {
		e.ln.Close()
	}
	for _, w := range f.ways {
		w.Close()
	}
	for _, g := range f.gateways {
		g.data.Close()
		g.adminLn.Close()
	}
}

// taggedLog writes log lines with the name of their gateway in front.
type taggedLog struct {
	w       io.Writer
	gateway string
}

func (l *taggedLog) Write(lines []byte) (int, error) {
	var tagged bytes.Buffer
	for line := range bytes.Lines(lines) {
		if rest, ok := bytes.CutPrefix(line, []byte("{")); ok {
			fmt.Fprintf(&tagged, "{\"gateway\":%q,%s", l.gateway, rest)
		} else {
			tagged.Write(line)
		}
	}
	if _, err := l.w.Write(tagged.Bytes()); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// serve runs the fleet for as long as use takes, or until a part of it fails.
func (f *demoFleet) serve(parent context.Context, use func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	live, stopEngines := context.WithCancel(context.Background())
	var engines, gateways sync.WaitGroup
	start := func(wg *sync.WaitGroup, what string, run func() error) {
		wg.Go(func() {
			if err := run(); err != nil {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	for _, e := range f.engines {
		start(&engines, "engine "+e.Name, func() error { return e.sim.Serve(live, e.ln) })
	}
	for _, w := range f.ways {
		start(&engines, "network", func() error { return w.Run(live) })
	}
	gatewayCtx, stopGateways := context.WithCancel(context.Background())
	now := make(chan struct{})
	// The reader looks on at the gateway that plans for all: it leads because it
	// comes first.
	lead := func(g *gateway) bool { _, leads := g.member.Leads(); return leads }
	start(&gateways, "gateway", func() error { return f.home().run(gatewayCtx, now) })
	awaitTrue(ctx, demoReady, func() bool { return lead(f.home()) })
	for _, g := range f.gateways {
		if g != f.home() {
			start(&gateways, "gateway", func() error { return g.run(gatewayCtx, now) })
		}
	}
	err := use(ctx)
	stopGateways()
	late := time.AfterFunc(demoGrace, func() { close(now) })
	gateways.Wait()
	late.Stop()
	stopEngines()
	engines.Wait()
	if cause := context.Cause(ctx); cause != nil && parent.Err() == nil {
		return cause
	}
	return err
}

// serveAll is serve for several fleets at once.
func serveAll(parent context.Context, fleets []*demoFleet, use func(context.Context) error) error {
	if len(fleets) == 0 {
		return use(parent)
	}
	return fleets[0].serve(parent, func(ctx context.Context) error {
		return serveAll(ctx, fleets[1:], use)
	})
}

// home is the gateway of the cluster that has too much: where the reader
// looks on.
func (f *demoFleet) home() *gateway { return f.gateways[excess] }

func (f *demoFleet) named(name string) *runningEngine {
	for _, e := range f.engines {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// awaitReady waits until every gateway has every engine in service, or ctx ends.
func (f *demoFleet) awaitReady(ctx context.Context) error {
	waiting := func() (names []string) {
		for _, g := range f.gateways {
			if g.tables.Load().Classes[route.ClassKey{Model: demoModel}] == nil {
				names = append(names, "a table")
			}
			for _, e := range f.engines {
				if known := g.fleet.Set().ByName(e.Name); known == nil || !known.Ready() {
					names = append(names, e.Name)
				}
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	if !awaitTrue(ctx, demoReady, func() bool { return len(waiting()) == 0 }) && ctx.Err() == nil {
		return errors.New("not in service after " + demoReady.String() + ": " + strings.Join(waiting(), ", "))
	}
	return nil
}

// leastWeight is the weight from which on an engine is said to get something.
const leastWeight = 0.0005

// weights are what a gateway's table gives to the engines, by class. Engines
// that get nothing to speak of are left out.
func (f *demoFleet) weights(g *gateway) map[route.ClassKey]map[string]float64 {
	all := make(map[route.ClassKey]map[string]float64)
	for key, pool := range g.tables.Load().Classes {
		if key.Model != demoModel {
			continue
		}
		all[key] = make(map[string]float64)
		for i := range pool.Candidates {
			if w := pool.Candidates[i].Weight; w >= leastWeight {
				all[key][pool.Candidates[i].Engine.Name] = w
			}
		}
	}
	return all
}

// inFlight is what all gateways have on an engine.
func (f *demoFleet) inFlight(name string) (sum int64) {
	for _, g := range f.gateways {
		if e := g.fleet.Set().ByName(name); e != nil {
			sum += e.InFlight()
		}
	}
	return sum
}

// sharesText is weights for people: "b 74%, c 26%", the largest first.
func sharesText(weights map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(weights), func(a, b string) int {
		if weights[a] != weights[b] {
			if weights[a] > weights[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %.0f%%", name, 100*weights[name]))
	}
	return strings.Join(parts, ", ")
}
