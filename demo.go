package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"penstock/balancer"
)

// demo is one run of the command.
type demo struct {
	world   world
	length  time.Duration // 0: until ctx ends
	logs    io.Writer     // of the gateways
	logFile string        // "" = discarded
	screen  *screen       // nil: no show
	errs    io.Writer
}

// run starts fleets, lets clients use them and returns what those saw. It
// returns when everything it started has ended.
func (d *demo) run(ctx context.Context) (*demoReport, error) {
	logs := &oneAtATime{w: d.logs}
	compared, err := newComparison(d.world, logs, d.errs)
	if err != nil {
		return nil, err
	}
	defer compared.close()
	looking := newTally(d.world.engines(), d.errs) // of the reader's own requests
	if d.screen == nil {
		err = d.measure(ctx, compared)
	} else {
		err = d.show(ctx, compared, looking, logs)
	}
	report := reportOf(append(compared.tallies(), looking))
	report.Policies = compared.last
	if err == nil && report.Errors > 0 {
		err = fmt.Errorf("%d of %d requests failed", report.Errors, report.Requests)
	}
	return report, err
}

// lasting is a context that ends with the demo's time: nothing new is begun
// after it.
func (d *demo) lasting(ctx context.Context) (over context.Context, cancel context.CancelFunc) {
	if d.length > 0 {
		return context.WithTimeout(ctx, d.length)
	}
	return context.WithCancel(ctx)
}

// measure is the comparison without a show.
func (d *demo) measure(ctx context.Context, compared *comparison) error {
	return compared.serve(ctx, func(ctx context.Context) error {
		over, cancel := d.lasting(ctx)
		defer cancel()
		home := compared.shown().home()
		fmt.Fprintf(d.errs, "%d policies in fleets of %d gateways and engines; clients at http://%s/v1, operators at http://%s; the gateways' log is %s\n",
			len(compared.rivals), len(d.world.clusters), home.address(), home.adminAddress(), d.logText())
		compared.run(ctx, over)
		return useAll(ctx, compared.rivals[0].clients, compared.rivals[0].seen)
	})
}

// show is the tour, in a fleet that has nothing else to do, and then the
// comparison.
func (d *demo) show(ctx context.Context, compared *comparison, looking *tally, logs io.Writer) error {
	guide, err := newDemoFleet(d.world, contestant{name: "tour", policy: balancer.Optimal}, logs)
	if err != nil {
		return err
	}
	return guide.serve(ctx, func(ctx context.Context) error {
		if err := guide.awaitReady(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		over, cancel := d.lasting(ctx)
		defer cancel()
		client := newDemoClient(guide.home().address(), looking)
		defer client.close()
		t := &tour{screen: d.screen, fleet: guide, client: client, over: over, log: d.logText()}
		if err := t.play(ctx); err != nil || over.Err() != nil {
			t.farewell(compared)
			return err
		}
		return compared.serve(ctx, func(ctx context.Context) error {
			var running sync.WaitGroup
			running.Go(func() { compared.run(ctx, over) })
			t.watch(over, compared)
			running.Wait()
			t.farewell(compared)
			return nil
		})
	})
}

func (d *demo) logText() string {
	if d.logFile == "" {
		return "discarded (--log FILE keeps it)"
	}
	return "in " + d.logFile
}

// oneAtATime lets several gateways write to one file.
type oneAtATime struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
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
