package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/bench/child"
	"penstock/engine/enginetest"
)

// stopGrace is what a gateway or an engine gets to end by itself.
const stopGrace = 3 * time.Second

// fleet is the engines of a scenario and, with a policy, a gateway before them.
type fleet struct {
	s       *scenario
	engines []*child.Server
	roads   []*enginetest.Distance // by engine, nil where it is near
	open    sync.WaitGroup         // roads
	shut    context.CancelFunc     // of roads
	gateway *child.Server          // nil: clients place requests themselves
}

// newFleet starts everything and waits until it serves.
func newFleet(ctx context.Context, s *scenario, c *column, o *options, dir string) (f *fleet, err error) {
	running, shut := context.WithCancel(context.Background())
	f = &fleet{s: s, shut: shut}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	for i := range s.speeds {
		args := append([]string{"sim", "--listen", "127.0.0.1:0", "--seed", fmt.Sprint(i + 1)}, s.simFlags(i, o.stretch)...)
		p, err := child.Serve(ctx, filepath.Join(dir, s.engineName(i)+".log"), o.penstock, args...)
		if err != nil {
			return f, err
		}
		f.engines = append(f.engines, p)
		var road *enginetest.Distance
		if rtt := s.rtt(i); rtt > 0 {
			if road, err = enginetest.NewDistance(p.Address, time.Duration(float64(rtt)*o.stretch)); err != nil {
				return f, err
			}
			f.open.Go(func() { _ = road.Run(running) })
		}
		f.roads = append(f.roads, road)
	}
	if c.gateway {
		return f, f.startGateway(ctx, c, o, dir)
	}
	return f, nil
}

// address is where engine i is reached.
func (f *fleet) address(i int) string {
	if f.roads[i] != nil {
		return f.roads[i].Addr()
	}
	return f.engines[i].Address
}

func (f *fleet) startGateway(ctx context.Context, c *column, o *options, dir string) (err error) {
	file := filepath.Join(dir, "penstock.toml")
	if err := os.WriteFile(file, []byte(f.config(c, o)), 0o600); err != nil {
		return err
	}
	if f.gateway, err = child.Serve(ctx, filepath.Join(dir, "gateway.log"), o.penstock, "serve", "--config", file); err != nil {
		return err
	}
	if err := f.gateway.Await(ctx, child.ReadyLimit, "in service", f.inService); err != nil {
		return fmt.Errorf("the gateway %w", err)
	}
	time.Sleep(time.Second) // until every engine is in service
	return nil
}

func (f *fleet) inService() bool {
	resp, err := http.Get("http://" + f.gateway.Address + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// config is the gateway's file: names, addresses, models, and a policy where
// another one than its own is asked for.
func (f *fleet) config(c *column, o *options) string {
	var b strings.Builder
	b.WriteString("[gateway]\nname = \"live\"\n[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n")
	if c.policy != "" {
		fmt.Fprintf(&b, "[routing]\npolicy = %q\n", c.policy)
	}
	b.WriteString(o.extra)
	for i := range f.engines {
		fmt.Fprintf(&b, "[[engine]]\nname = %q\nurl = \"http://%s\"\nmodels = [%q]\n", f.s.engineName(i), f.address(i), modelName)
	}
	return b.String()
}

func (f *fleet) stop() {
	if f.gateway != nil {
		f.gateway.Stop(stopGrace)
	}
	f.shut()
	f.open.Wait()
	for _, e := range f.engines {
		e.Stop(stopGrace)
	}
}
