package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"penstock/fleet"
	"penstock/fleet/nats"
	"penstock/route"
)

// scaleResult is what a fleet of many members costs. The members share one
// process; each has what a gateway has, but for its control cycle.
type scaleResult struct {
	Gateways      int     `json:"gateways"`
	Whole         int     `json:"whole"` // that read and follow the tables
	Seconds       float64 `json:"seconds"`
	SnapshotBytes float64 `json:"snapshot_bytes"` // sent for each plan
	Plans         int     `json:"plans"`
	P50           float64 `json:"p50_ms"` // from Publish to the plan in use at a member
	P99           float64 `json:"p99_ms"`
	Most          float64 `json:"max_ms"`
	Missed        int     `json:"missed"`      // plans that a member never had, of all
	ServerCPU     float64 `json:"server_cpu"`  // cores
	MembersCPU    float64 `json:"members_cpu"` // cores, all of them and the leader
	Reports       float64 `json:"reports_per_s"`
	Elected       float64 `json:"all_follow_after_s"`
}

func (r *scaleResult) print(w io.Writer) {
	fmt.Fprintf(w, "%d gateways on one server for %.0f s, %d of them whole members; those followed the leader after %.1f s\n", r.Gateways, r.Seconds, r.Whole, r.Elected)
	fmt.Fprintf(w, "%d plans of %.1f KiB (%.1f MB/s out), %.0f reports/s in\n", r.Plans, r.SnapshotBytes/1024, r.SnapshotBytes*float64(r.Gateways)*float64(r.Plans)/r.Seconds/1e6, r.Reports)
	fmt.Fprintf(w, "from publish to the plan in use: %.0f ms median, %.0f ms p99, %.0f ms at most; %d missed\n", r.P50, r.P99, r.Most, r.Missed)
	fmt.Fprintf(w, "CPU: server %.2f cores, all gateways together %.2f\n", r.ServerCPU, r.MembersCPU)
}

const snapshotGoal = 500.0 // ms, p99

func (r *scaleResult) missed() []string {
	if r.P99 > snapshotGoal {
		return []string{fmt.Sprintf("snapshot p99 %.0f ms", r.P99)}
	}
	return nil
}

// serverVariable makes this program a NATS server and nothing else: the scale
// run measures its CPU apart.
const serverVariable = "PENSTOCK_BENCH_FLEET_SERVER"

func init() {
	if os.Getenv(serverVariable) == "" {
		return
	}
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(address)
	_, _ = io.Copy(io.Discard, os.Stdin) // until its parent goes
	stop()
	os.Exit(0)
}

// startServer runs it; stop ends it.
func startServer() (pid int, address string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, "", nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serverVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	stop = func() { in.Close(); _ = cmd.Wait() }
	if err != nil {
		stop()
		return 0, "", nil, err
	}
	return cmd.Process.Pid, strings.TrimSpace(line), stop, nil
}

// cpuOf is the CPU time of a process so far.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / 100
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// crowd is the members and what they noted.
type crowd struct {
	members []*nats.Member
	others  atomic.Uint64 // reports of those that are no whole members
	mu      sync.Mutex
	sent    map[uint64]time.Time // by version
	late    []float64            // ms
	count   bool
	closed  bool // plans from now on do not count
}

func runScale(ctx context.Context, o options, errs io.Writer) (result, error) {
	pid, address, stopServer, err := startServer()
	if err != nil {
		return nil, err
	}
	defer stopServer()
	c := &crowd{sent: make(map[uint64]time.Time)}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for i := o.whole; i < o.gateways; i++ {
		running.Go(func() {
			if err := light(ctx, address, i, &c.others); err != nil {
				fmt.Fprintln(errs, "fleet:", err)
			}
		})
		if i%50 == 0 && !sleep(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	for i := range o.whole {
		m, err := nats.New(nats.Options{Name: fmt.Sprint("gw-", i), Source: fmt.Sprint("s", i%20), Config: fleet.Config{URL: "nats://" + address, Key: scaleKey}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
		running.Go(func() { _ = m.Run(ctx) })
		running.Go(func() { c.cycle(ctx, m, i) })
		running.Go(func() { c.note(ctx, m) })
		if i%50 == 0 && !sleep(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	begin := time.Now()
	for !c.together() {
		if time.Since(begin) > 2*time.Minute {
			return nil, errors.New("after 2 min not all members follow one leader")
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	r := &scaleResult{Gateways: o.gateways, Whole: o.whole, Elected: time.Since(begin).Seconds()}
	fmt.Fprintf(errs, "fleet: %d members follow one leader after %.1f s; measuring for %s\n", o.whole, r.Elected, o.length)
	c.measure(ctx, o, r, pid)
	return r, ctx.Err()
}

// scaleKey is that of the fleet.
var scaleKey = strings.Repeat("k", 32)

// light is a gateway as the leader and the server see it: it reports like a whole
// member and gets all tables, but reads none: those of a fleet have machines of
// their own for that.
func light(ctx context.Context, address string, i int, sent *atomic.Uint64) error {
	conn, err := natsgo.Connect("nats://"+address, natsgo.NoEcho(), natsgo.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Subscribe("penstock.table.>", func(*natsgo.Msg) {}); err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(uint64(i), 1))
	own, key := reportOf(dice, i), fleet.NewKey(scaleKey)
	subject := fmt.Sprintf("penstock.demand.%s.%s", own.Source, own.Gateway)
	for seq := uint64(1); sleep(ctx, time.Duration(900+dice.IntN(200))*time.Millisecond); seq++ {
		message, err := key.SealReport(fleet.Header{From: fleet.Identity{Name: own.Gateway, Instance: uint64(i)}, Seq: seq}, &fleet.Report{Demand: own})
		if err != nil {
			return err
		}
		if conn.Publish(subject, message) == nil { // lost ones are missed by the leader
			sent.Add(1)
		}
	}
	return nil
}

// reportOf is a report about 20 engines.
func reportOf(dice *rand.Rand, i int) *route.Demand {
	own := &route.Demand{Gateway: fmt.Sprint("gw-", i), Source: fmt.Sprint("s", i%20), Replicas: 1, Rows: []route.DemandRow{{Class: route.ClassKey{Model: "m"}, Rate: 10 * dice.Float64(), Prompt: 800, Output: 150}}}
	for j := range 20 {
		own.Engines = append(own.Engines, route.Sighting{Engine: engineName(j), RTT: 50 * dice.Float64(), InFlight: 3 * dice.Float64(), Factor: 1, Speed: route.Speed{Step: 10 * dice.Float64(), PerSeq: dice.Float64(), PerToken: 0.1, Slots: 64, Answers: 30}})
	}
	return own
}

// together reports whether one leads and all have a plan of its epoch.
func (c *crowd) together() bool {
	epoch, found := uint64(0), false
	for _, m := range c.members {
		if e, leads := m.Leads(); leads {
			epoch, found = e, true
		}
	}
	if !found {
		return false
	}
	for _, m := range c.members {
		if p := m.Plan(); p == nil || p.Epoch != epoch {
			return false
		}
	}
	return true
}

func (c *crowd) measure(ctx context.Context, o options, r *scaleResult, pid int) {
	tables, reports := c.bytes()
	server, own, begin := cpuOf(pid), ownCPU(), time.Now()
	c.mu.Lock()
	c.count, c.sent = true, make(map[uint64]time.Time)
	c.mu.Unlock()
	sleep(ctx, o.length)
	c.mu.Lock()
	c.closed = true
	plans := len(c.sent)
	c.mu.Unlock()
	r.Seconds = time.Since(begin).Seconds()
	r.ServerCPU, r.MembersCPU = (cpuOf(pid)-server).Seconds()/r.Seconds, (ownCPU()-own).Seconds()/r.Seconds
	after, reported := c.bytes()
	r.Reports = float64(reported.messages-reports.messages) / r.Seconds
	r.SnapshotBytes = float64(after.bytes-tables.bytes) / float64(max(1, plans))
	sleep(ctx, time.Second) // the last ones arrive
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.late)
	r.Plans, r.Missed = plans, plans*(o.whole-1)-len(c.late)
	if k := len(c.late); k > 0 {
		r.P50, r.P99, r.Most = c.late[k/2], c.late[k*99/100], c.late[k-1]
	}
}

type sums struct{ messages, bytes uint64 }

func (c *crowd) bytes() (tables, reports sums) {
	for _, m := range c.members {
		s := m.Sent()
		tables.messages, tables.bytes = tables.messages+s.Tables, tables.bytes+s.TableBytes
		reports.messages, reports.bytes = reports.messages+s.Reports, reports.bytes+s.ReportBytes
	}
	reports.messages += c.others.Load()
	return tables, reports
}

// cycle is a member's control cycle: a report about 20 engines, and where it
// leads a plan of 100 engines for 20 sources whose weights all move, 16 KiB of
// it.
func (c *crowd) cycle(ctx context.Context, m *nats.Member, i int) {
	dice := rand.New(rand.NewPCG(uint64(i), 1))
	own := reportOf(dice, i)
	for sleep(ctx, time.Duration(900+dice.IntN(200))*time.Millisecond) {
		m.Tell(own)
		epoch, leads := m.Leads()
		if !leads {
			continue
		}
		p := planOf(dice, epoch, m.Plan())
		now := time.Now()
		c.mu.Lock()
		if !c.closed {
			c.sent[p.Version] = now
		}
		c.mu.Unlock()
		if m.Publish(p) != nil {
			c.mu.Lock()
			delete(c.sent, p.Version)
			c.mu.Unlock()
		}
	}
}

func planOf(dice *rand.Rand, epoch uint64, last *route.Plan) *route.Plan {
	p := &route.Plan{Epoch: epoch, Version: 1, Policy: "optimal"}
	if last != nil && last.Epoch == epoch {
		p.Version = last.Version + 1
	}
	for j := range 100 {
		p.Engines = append(p.Engines, route.PlanEngine{Name: engineName(j), Load: 40 * dice.Float64(), Capacity: 40, InFlight: 60 * dice.Float64(), Latency: 900 * dice.Float64(), Price: dice.Float64()})
	}
	for i := range 20 {
		row := route.PlanRow{Source: fmt.Sprint("s", i), Class: route.ClassKey{Model: "m"}}
		left := 1.0
		for range 58 {
			w := left * dice.Float64() * 0.1
			left -= w
			row.Weights = append(row.Weights, route.PlanWeight{Engine: engineName(dice.IntN(100)), Weight: w, InFlight: 9 * dice.Float64()})
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

func engineName(j int) string { return fmt.Sprintf("vllm-%03d", j) }

// note measures how late plans are at a member.
func (c *crowd) note(ctx context.Context, m *nats.Member) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.News():
		}
		now, p := time.Now(), m.Plan()
		if _, leads := m.Leads(); p == nil || leads {
			continue
		}
		c.mu.Lock()
		if at, ok := c.sent[p.Version]; ok && c.count {
			c.late = append(c.late, now.Sub(at).Seconds()*1000)
		}
		c.mu.Unlock()
	}
}
