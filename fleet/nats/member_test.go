package nats

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/fleet"
	"penstock/route"
)

// logBook collects log lines.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// node is a member with what a control cycle does to it: it tells its demand,
// and plans where it leads.
type node struct {
	*Member
	log    *logBook
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	seen   []route.Plan // taken, in order
	failed error
}

// quick is a lease that tests can wait for.
var quick = fleet.Timing{Lease: 1500 * time.Millisecond, Renew: 400 * time.Millisecond, Margin: 300 * time.Millisecond}

func startNode(t testing.TB, url, name, source string) *node {
	t.Helper()
	return startNodeAs(t, fleet.Config{URL: url}, name, source)
}

// steady is a lease that is not lost for want of a processor.
var steady = fleet.Timing{Lease: time.Minute, Renew: 400 * time.Millisecond, Margin: time.Second}

func startNodeAs(t testing.TB, config fleet.Config, name, source string) *node {
	t.Helper()
	return startNodeTimed(t, config, name, source, quick)
}

func startNodeTimed(t testing.TB, config fleet.Config, name, source string, timing fleet.Timing) *node {
	t.Helper()
	n := &node{log: &logBook{}, ended: make(chan struct{})}
	m, err := New(Options{Name: name, Source: source, Config: config, Timing: timing,
		Log: slog.New(slog.NewTextHandler(n.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	n.Member = m
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var running sync.WaitGroup
	running.Go(func() { n.failed = m.Run(ctx) })
	running.Go(func() { n.cycle(ctx) })
	go func() {
		running.Wait()
		close(n.ended)
	}()
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.cancel()
	<-n.ended
}

// cycle is the control cycle, with a plan whose weights say who made it.
func (n *node) cycle(ctx context.Context) {
	for rest(ctx, 100*time.Millisecond) {
		n.Tell(&route.Demand{Gateway: n.me.Name, Source: n.o.Source, Replicas: 1, At: time.Now(),
			Rows:    []route.DemandRow{{Class: route.ClassKey{Model: "m"}, Rate: 1}},
			Engines: []route.Sighting{{Engine: "e", InFlight: 2, Factor: 1}}})
		last := n.Plan()
		if epoch, leads := n.Leads(); leads {
			p := &route.Plan{Epoch: epoch, Version: 1, Policy: "optimal", Rows: []route.PlanRow{{Source: n.o.Source, Class: route.ClassKey{Model: "m"},
				Weights: []route.PlanWeight{{Engine: "e", Weight: 1, InFlight: float64(len(n.Demands()))}}}}}
			if last != nil && last.Epoch == epoch {
				p.Version = last.Version + 1
			}
			_ = n.Publish(p)
		}
		if p := n.Plan(); p != nil {
			n.mu.Lock()
			if k := len(n.seen); k == 0 || n.seen[k-1].Epoch != p.Epoch || n.seen[k-1].Version != p.Version {
				n.seen = append(n.seen, *p)
			}
			n.mu.Unlock()
		}
	}
}

func (n *node) leads() bool { _, leads := n.Leads(); return leads }

// plans are those that the node had, in order.
func (n *node) plans() []route.Plan {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

func await(t testing.TB, what string, nodes []*node, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > 30*time.Second {
			for _, n := range nodes {
				t.Logf("%s\n%s", n.me.Name, n.log)
			}
			t.Fatalf("waited 30 s for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

func startStore(t testing.TB) (url string) {
	t.Helper()
	stop, address, err := StartServer("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return "nats://" + address
}

// leaderOf is who leads, with all others on its plan; nil while that is not so.
func leaderOf(nodes []*node) *node {
	var leader *node
	for _, n := range nodes {
		if n.leads() {
			leader = n
		}
	}
	if leader == nil {
		return nil
	}
	epoch, _ := leader.Leads()
	for _, n := range nodes {
		if p := n.Plan(); p == nil || p.Epoch != epoch || n.PlanAge() > 2*time.Second {
			return nil
		}
	}
	return leader
}

func without(nodes []*node, gone *node) []*node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n == gone })
}

func TestFleetOverNATS(t *testing.T) {
	t.Parallel()
	url := startStore(t)
	var nodes []*node
	for i, name := range []string{"gw.a", "gw.b", "gw.c"} {
		nodes = append(nodes, startNode(t, url, name, fmt.Sprint("source-", i/2)))
	}
	var leader *node
	took := await(t, "one to lead and all to follow", nodes, func() bool { leader = leaderOf(nodes); return leader != nil })
	t.Logf("elected after %s", took)
	await(t, "the leader to hear all", nodes, func() bool { return len(leader.Demands()) == 3 })
	for _, n := range without(nodes, leader) {
		await(t, n.me.Name+" to hear of others", nodes, func() bool {
			all := n.Demands()
			return len(all) == 2 && len(all[1].Engines) == 1 && all[1].Engines[0].InFlight == 4
		})
		st := n.Who(t.Context())
		if st.Leader != leader.me.Name || st.Partial || len(st.Gateways) != 3 || st.Store != "reached" {
			t.Errorf("%s knows the fleet as %+v", n.me.Name, st)
		}
	}
	// It leaves: another follows without waiting for the lease.
	first, _ := leader.Leads()
	leader.stop()
	left := without(nodes, leader)
	var next *node
	took = await(t, "another to lead", left, func() bool { next = leaderOf(left); return next != nil })
	second, _ := next.Leads()
	t.Logf("followed after %s", took)
	if second <= first {
		t.Errorf("epoch %d after %d", second, first)
	}
	// Who comes now has the plan although it missed how that came about.
	late := startNode(t, url, "late", "source-0")
	await(t, "a late one to have the plan", left, func() bool { p := late.Plan(); return p != nil && p.Epoch == second })
	increasing(t, append(nodes, late))
}

// increasing holds that what each node had only grew, and that an epoch had
// one leader at all of them.
func increasing(t *testing.T, nodes []*node) {
	t.Helper()
	leaders := map[uint64]string{}
	for _, n := range nodes {
		var last route.Plan
		for _, p := range n.plans() {
			if p.Epoch < last.Epoch || p.Epoch == last.Epoch && p.Version <= last.Version {
				t.Errorf("%s took %d/%d after %d/%d", n.me.Name, p.Epoch, p.Version, last.Epoch, last.Version)
			}
			last = p
			if was := leaders[p.Epoch]; was != "" && was != p.Rows[0].Source {
				t.Errorf("epoch %d had plans of %s and %s", p.Epoch, was, p.Rows[0].Source)
			}
			leaders[p.Epoch] = p.Rows[0].Source
		}
	}
}
