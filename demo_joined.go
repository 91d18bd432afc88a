package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/balancer"
	"penstock/engine/enginetest"
	"penstock/fleet/nats"
)

// joinedDemo is the world as a fleet that a network joins: a gateway in every
// cluster, and a NATS server that each reaches over a way of its own. One of
// the gateways is killed while clients go on.
type joinedDemo struct {
	*demoFleet
	seen    *tally
	clients []*demoClient        // by gateway
	serving []atomic.Int32       // by cluster: the gateway that its clients go to
	ends    []context.CancelFunc // of the gateways
	links   []*link
	stopped func()
	screen  *screen
	errs    io.Writer
}

// link is a gateway's way to the store.
type link struct {
	*enginetest.Distance
	cut context.CancelFunc
}

// storeTrip is the round trip from a gateway to the store.
const storeTrip = 20 * time.Millisecond

// lastConnections is how long a gateway that is killed serves what clients sent
// before they went elsewhere.
const lastConnections = 500 * time.Millisecond

// joinedReport is what --json prints of it beside what clients saw.
type joinedReport struct {
	Killed   string   `json:"killed"`   // the gateway that led
	Leader   string   `json:"leader"`   // that leads after it
	TookMS   float64  `json:"took_ms"`  // until all that are left follow it
	Epochs   []uint64 `json:"epochs"`   // before and after
	Versions []uint64 `json:"versions"` // of the plans in use, before and after
}

func newJoinedDemo(w world, logs, errs io.Writer) (d *joinedDemo, err error) {
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		return nil, err
	}
	d = &joinedDemo{stopped: stop, errs: errs, seen: newTally(w.engines(), errs), serving: make([]atomic.Int32, len(w.clusters))}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	var urls []string
	for i := range w.clusters {
		way, err := enginetest.NewDistance(address, storeTrip)
		if err != nil {
			return nil, err
		}
		d.links = append(d.links, &link{Distance: way})
		urls = append(urls, "nats://"+way.Addr())
		d.serving[i].Store(int32(i))
	}
	if d.demoFleet, err = newDemoFleetAt(w, contestant{name: "fleet", policy: balancer.Optimal}, logs, urls); err != nil {
		return nil, err
	}
	d.ends = make([]context.CancelFunc, len(d.gateways))
	for _, g := range d.gateways {
		d.clients = append(d.clients, newDemoClient(g.address(), d.seen))
	}
	return d, nil
}

// run is the show: an election, load, the leader's end, and what follows.
// length is how long it lasts at most, 0 for ever; kill tells when to kill.
func (d *joinedDemo) run(ctx context.Context, length time.Duration, kill <-chan struct{}) (*joinedReport, error) {
	defer d.stopped()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	life, end := context.WithCancel(context.Background())
	var parts, gateways sync.WaitGroup
	start := func(wg *sync.WaitGroup, ctx context.Context, what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	for _, e := range d.engines {
		start(&parts, life, "engine "+e.Name, func(ctx context.Context) error { return e.sim.Serve(ctx, e.ln) })
	}
	for _, w := range d.ways {
		start(&parts, life, "network", w.Run)
	}
	for _, l := range d.links {
		own, cut := context.WithCancel(life)
		l.cut = cut
		start(&parts, own, "network", l.Run)
	}
	now := make(chan struct{})
	// The last one leads, because it comes first: it has the fewest clients, who
	// have to go elsewhere with its end.
	for k := range d.gateways {
		g := d.gateways[len(d.gateways)-1-k]
		own, stop := context.WithCancel(life)
		d.ends[len(d.gateways)-1-k] = stop
		start(&gateways, own, "gateway", func(ctx context.Context) error { return g.run(ctx, now) })
		if k == 0 {
			awaitTrue(ctx, demoReady, func() bool { _, leads := g.member.Leads(); return leads })
		}
	}
	report, err := d.play(ctx, length, kill)
	for _, stop := range d.ends {
		stop()
	}
	late := time.AfterFunc(demoGrace, func() { close(now) })
	gateways.Wait()
	late.Stop()
	end()
	parts.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return report, err
}

func (d *joinedDemo) play(ctx context.Context, length time.Duration, kill <-chan struct{}) (*joinedReport, error) {
	if err := d.awaitReady(ctx); err != nil || ctx.Err() != nil {
		return nil, err
	}
	leader := -1
	if !awaitTrue(ctx, demoReady, func() bool { leader = d.leader(nil); return leader >= 0 }) {
		return nil, errors.New("no gateway leads after " + demoReady.String())
	}
	d.printf("Three gateways, each %s from a NATS server: %s leads.\n", storeTrip, d.gateways[leader].member.Status().Leader)
	d.printf("  %s fleet status --admin %s\n\n", ownCommand(), d.gateways[leader].adminAddress())
	over, cancel := ctx, context.CancelFunc(func() {})
	if length > 0 {
		over, cancel = context.WithTimeout(ctx, length)
	}
	defer cancel()
	var load sync.WaitGroup
	load.Go(func() { d.load(ctx, over) })
	report := &joinedReport{}
	err := d.watch(over, leader, kill, report)
	load.Wait()
	return report, err
}

// watch shows the fleet until over ends, and kills the leader when told.
func (d *joinedDemo) watch(over context.Context, leader int, kill <-chan struct{}, report *joinedReport) error {
	line := time.NewTicker(time.Second)
	defer line.Stop()
	for {
		select {
		case <-over.Done():
			return nil
		case <-line.C:
			d.printf("  %s\n", d.line(d.gateways[leader], report.Killed != ""))
		case <-kill:
			kill = nil
			next, err := d.kill(over, leader, report)
			if err != nil {
				return err
			}
			leader = next
		}
	}
}

// kill takes the leader out of the fleet without a word, and its clients to
// another gateway; it ends with another that leads.
func (d *joinedDemo) kill(ctx context.Context, leader int, report *joinedReport) (next int, err error) {
	st := d.gateways[leader].member.Status()
	report.Killed, report.Epochs, report.Versions = st.Leader, []uint64{st.Epoch}, []uint64{st.Version}
	d.printf("\nKilled: %s hears and says nothing any more. Its clients go to the next gateway.\n", st.Leader)
	begin := time.Now()
	other := int32((leader + 1) % len(d.gateways))
	for i := range d.serving {
		d.serving[i].CompareAndSwap(int32(leader), other)
	}
	d.links[leader].cut()
	rest(ctx, lastConnections)
	d.ends[leader]()
	next = -1
	if !awaitTrue(ctx, demoReady, func() bool { next = d.leader(d.gateways[leader]); return next >= 0 }) {
		if ctx.Err() != nil {
			return leader, nil // the demo has ended before
		}
		return leader, errors.New("no other gateway leads after " + demoReady.String())
	}
	after := d.gateways[next].member.Status()
	report.Leader, report.TookMS = after.Leader, rounded(time.Since(begin).Seconds()*1000)
	report.Epochs, report.Versions = append(report.Epochs, after.Epoch), append(report.Versions, after.Version)
	d.printf("After %.1f s %s leads. Its lease had to end first; until then all kept their tables.\n\n", report.TookMS/1000, after.Leader)
	return next, nil
}

// leader is who leads by all accounts, dead left out; -1 while they differ.
func (d *joinedDemo) leader(dead *gateway) int {
	at := -1
	for i, g := range d.gateways {
		if g == dead {
			continue
		}
		if _, leads := g.member.Leads(); leads {
			at = i
		}
	}
	if at < 0 {
		return -1
	}
	epoch, _ := d.gateways[at].member.Leads()
	for _, g := range d.gateways {
		if p := g.member.Plan(); g != dead && (p == nil || p.Epoch != epoch) {
			return -1
		}
	}
	return at
}

// line is how it stands, in one line.
func (d *joinedDemo) line(g *gateway, killed bool) string {
	s, f := g.member.Status(), d.seen.figures()
	text := fmt.Sprintf("leader %-8s plan %d  %d gateways  %d requests  %d errors  mean %.0f ms", s.Leader, s.Version, len(s.Gateways), f.requests, f.errors, f.mean)
	if !killed && d.screen != nil && d.screen.tty {
		text += "   (Enter kills the leader)"
	}
	return text
}

func (d *joinedDemo) printf(format string, args ...any) {
	if d.screen != nil {
		d.screen.printf(format, args...)
	}
}

// load sends the requests of all clusters' clients, each to the gateway that
// serves its cluster at the time.
func (d *joinedDemo) load(ctx, over context.Context) {
	begin := time.Now()
	var sources, requests sync.WaitGroup
	for i := range d.world.clusters {
		sources.Go(func() {
			s := newSchedule(&d.world.clusters[i], i)
			for {
				a := s.take()
				due := begin.Add(a.at)
				if !rest(over, time.Until(due)) {
					return
				}
				requests.Go(func() {
					q := question{talk: a.conversation(d.world.clusters[i].name), words: a.words, due: due}
					d.ask(ctx, i, q)
				})
			}
		})
	}
	sources.Wait()
	requests.Wait()
}

// ask asks the cluster's gateway. Where nobody accepts the connection any more,
// or a gateway that has gone closed it without a word, the next one is asked, as
// clients with a list of addresses do.
func (d *joinedDemo) ask(ctx context.Context, cluster int, q question) {
	at := d.serving[cluster].Load()
	told, err := d.clients[at].stream(ctx, q, onlooker{})
	dial, ok := errors.AsType[*net.OpError](err)
	if ok && dial.Op == "dial" || errors.Is(err, io.EOF) && d.serving[cluster].Load() != at {
		told, err = d.clients[d.serving[cluster].Load()].stream(ctx, q, onlooker{})
	}
	if ctx.Err() == nil {
		d.seen.add(told, err)
	}
}

// enters has a value after each line of input.
func enters(in io.Reader) <-chan struct{} {
	c := make(chan struct{}, 1)
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}()
	return c
}
