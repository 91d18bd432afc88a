package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"penstock/config"
	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/route"
)

// demoModel is what the simulated engines serve.
const demoModel = "demo"

const (
	// demoReady is how long engines and gateway may take to be in service.
	demoReady = 30 * time.Second
	// demoGrace is how long streams of others may take to finish at the end.
	demoGrace = 2 * time.Second
)

// demoEngine is one simulated engine and the requests per second that the
// gateway's configuration says it can carry.
type demoEngine struct {
	enginetest.Config
	capacity float64
}

// demoEngines write at the pace of people reading, each its own.
var demoEngines = []demoEngine{
	{enginetest.Config{Name: "swift", Slots: 16, TTFT: 40 * time.Millisecond, TBOT: 30 * time.Millisecond}, 12},
	{enginetest.Config{Name: "steady", Slots: 12, TTFT: 80 * time.Millisecond, TBOT: 45 * time.Millisecond}, 8},
	{enginetest.Config{Name: "small", Slots: 8, TTFT: 160 * time.Millisecond, TBOT: 60 * time.Millisecond}, 4},
}

// demo is one run of the command.
type demo struct {
	engines []demoEngine
	length  time.Duration // 0: until ctx ends
	logs    io.Writer     // of the gateway
	logFile string        // "" = discarded
	screen  *screen       // nil: no show
	errs    io.Writer
}

// run starts engines and gateway, lets clients use them and returns what those
// saw. It returns when everything it started has ended.
func (d *demo) run(ctx context.Context) (*demoReport, error) {
	fleet, err := newDemoFleet(d.engines, d.logs)
	if err != nil {
		return nil, err
	}
	seen := newTally(d.engines, d.errs)
	err = fleet.serve(ctx, func(ctx context.Context) error { return d.use(ctx, fleet, seen) })
	report := seen.report()
	if err == nil && report.Errors > 0 {
		err = fmt.Errorf("%d of %d requests failed", report.Errors, report.Requests)
	}
	return report, err
}

// use is all that happens while the fleet is up.
func (d *demo) use(ctx context.Context, fleet *demoFleet, seen *tally) error {
	if err := fleet.awaitReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	over := ctx // ends first: nothing new is begun after it
	if d.length > 0 {
		var cancel context.CancelFunc
		over, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	client := newDemoClient(fleet.gateway.address(), seen)
	defer client.close()
	if d.screen == nil {
		fmt.Fprintf(d.errs, "%d simulated engines, clients at http://%s/v1, operators at http://%s; the gateway's log is %s\n",
			len(d.engines), fleet.gateway.address(), fleet.gateway.adminAddress(), d.logText())
		crowd{client: client, people: 24, turns: 3, words: 6, pause: 20 * time.Millisecond}.talk(ctx, over)
		return client.useAll(ctx, fleet.names())
	}
	t := &tour{screen: d.screen, fleet: fleet, client: client, over: over, log: d.logText()}
	if err := t.play(ctx); err != nil || over.Err() != nil {
		t.farewell()
		return err
	}
	var talking sync.WaitGroup
	talking.Go(func() {
		crowd{client: client, people: 8, turns: 4, words: 16, pause: 800 * time.Millisecond}.talk(ctx, over)
	})
	t.watch(over)
	talking.Wait()
	t.farewell()
	return nil
}

func (d *demo) logText() string {
	if d.logFile == "" {
		return "discarded (--log FILE keeps it)"
	}
	return "in " + d.logFile
}

// demoFleet is the engines and the gateway, with their listeners open.
type demoFleet struct {
	engines []*runningEngine
	gateway *gateway
}

type runningEngine struct {
	demoEngine
	sim     *enginetest.Sim
	ln      net.Listener
	address string
}

// newDemoFleet opens the listeners; nothing runs yet.
func newDemoFleet(engines []demoEngine, logs io.Writer) (f *demoFleet, err error) {
	f = &demoFleet{}
	defer func() {
		if err != nil {
			for _, e := range f.engines {
				e.ln.Close()
			}
		}
	}()
	file := config.Default()
	file.Gateway.Name = "demo"
	file.Listen.Address, file.Admin.Address = "127.0.0.1:0", "127.0.0.1:0"
	for _, e := range engines {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		e.Models = []string{demoModel}
		f.engines = append(f.engines, &runningEngine{e, enginetest.New(e.Config), ln, ln.Addr().String()})
		file.Engines = append(file.Engines, engine.Config{Name: e.Name, URL: "http://" + ln.Addr().String(),
			Cluster: file.Gateway.Source, Capacity: &e.capacity, MaxInFlight: e.Slots * 115 / 100})
	}
	if f.gateway, err = newGateway(file, "", logs); err != nil {
		return nil, err
	}
	f.gateway.delay = 0 // nobody has to learn that it is going
	return f, nil
}

// serve runs the fleet for as long as use takes, or until a part of it fails.
func (f *demoFleet) serve(parent context.Context, use func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	live, stopEngines := context.WithCancel(context.Background())
	var engines sync.WaitGroup
	for _, e := range f.engines {
		engines.Go(func() {
			if err := e.sim.Serve(live, e.ln); err != nil {
				fail(fmt.Errorf("engine %s: %w", e.Name, err))
			}
		})
	}
	gatewayCtx, stopGateway := context.WithCancel(context.Background())
	now := make(chan struct{})
	var gateway sync.WaitGroup
	gateway.Go(func() {
		if err := f.gateway.run(gatewayCtx, now); err != nil {
			fail(fmt.Errorf("gateway: %w", err))
		}
	})
	err := use(ctx)
	stopGateway()
	late := time.AfterFunc(demoGrace, func() { close(now) })
	gateway.Wait()
	late.Stop()
	stopEngines()
	engines.Wait()
	if cause := context.Cause(ctx); cause != nil && parent.Err() == nil {
		return cause
	}
	return err
}

func (f *demoFleet) names() (names []string) {
	for _, e := range f.engines {
		names = append(names, e.Name)
	}
	return names
}

func (f *demoFleet) named(name string) *runningEngine {
	for _, e := range f.engines {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// awaitReady waits until every engine has weight, or ctx ends.
func (f *demoFleet) awaitReady(ctx context.Context) error {
	waiting := func() (names []string) {
		for _, e := range f.engines {
			if f.weight(e.Name) == 0 {
				names = append(names, e.Name)
			}
		}
		return names
	}
	if !awaitTrue(ctx, demoReady, func() bool { return len(waiting()) == 0 }) && ctx.Err() == nil {
		return errors.New("engines not in service after " + demoReady.String() + ": " + strings.Join(waiting(), ", "))
	}
	return nil
}

// weight is an engine's share of the demo's class by the table in use.
func (f *demoFleet) weight(name string) float64 {
	pool := f.gateway.tables.Load().Classes[route.ClassKey{Model: demoModel}]
	if pool == nil {
		return 0
	}
	for i := range pool.Candidates {
		if pool.Candidates[i].Engine.Name == name {
			return pool.Candidates[i].Weight
		}
	}
	return 0
}

// awaitTrue polls ok until it holds, the time is up or ctx ends.
func awaitTrue(ctx context.Context, within time.Duration, ok func() bool) bool {
	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) || !rest(ctx, 5*time.Millisecond) {
			return ok()
		}
	}
	return true
}

// rest waits for d; false if ctx ended before.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
