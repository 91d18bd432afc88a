package nats

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"penstock/fleet"
	"penstock/route"
)

// Options are what a Member works with.
type Options struct {
	Name, Source string
	Config       fleet.Config
	StateDir     string // of the embedded server's store; "": a directory that goes with the process
	Log          *slog.Logger
	Timing       fleet.Timing // zero: fleet.DefaultTiming
}

// Member is one gateway's end of the fleet. It is balancer.Peers and a
// prometheus.Collector. Safe for concurrent use.
type Member struct {
	o       Options
	key     *fleet.Key
	me      fleet.Identity
	begun   time.Time
	log     *slog.Logger
	connect []natsgo.Option

	plan  atomic.Pointer[route.Plan]
	news  chan struct{} // capacity 1: there is another plan
	wake  chan struct{} // capacity 1: a snapshot is to be sent
	keep  chan struct{} // capacity 1: the plan is to be stored
	fetch chan struct{} // capacity 1: the stored plan is wanted
	urge  chan struct{} // capacity 1: the report is not to wait

	counts counts

	mu        sync.Mutex // guards what is below
	conn      *natsgo.Conn
	election  fleet.Election
	gate      fleet.Gate
	roll      fleet.Roll
	accepted  accepted
	told      *route.Demand // of this gateway
	toldAt    time.Time
	reported  *route.Demand // the last one sent
	spoke     time.Time     // when it sent its first one
	hurried   time.Time     // a cycle last began for a report's sake
	digest    fleet.Digest
	digestAt  time.Time // zero: none yet
	heard     time.Time // of the last snapshot that was let in
	confirmed time.Time // when whoever leads last said that plan holds
	ledSince  time.Time // zero: does not lead
	gathered  bool      // the control cycle was told that it leads now
	unsent    *route.Plan
	sent      *route.Plan // the last one sent, in this epoch
	snapshots uint64      // sent
	reports   uint64      // sent
	twin      time.Time   // when another process of this name was last heard
	warned    map[warning]time.Time
}

// gatherFor is how long a new leader listens before it plans: every gateway
// that is there has reported by then, for all their jitter.
const gatherFor = fleet.ReportEvery * 5 / 4

// New returns a member that has not joined yet. It starts nothing.
func New(o Options) (*Member, error) {
	if o.Timing == (fleet.Timing{}) {
		o.Timing = fleet.DefaultTiming
	}
	var instance [8]byte
	rand.Read(instance[:])
	m := &Member{o: o, log: o.Log, me: fleet.Identity{Name: o.Name, Instance: binary.LittleEndian.Uint64(instance[:])},
		key: fleet.NewKey(cmp.Or(o.Config.Key, "a fleet on loopback")), begun: time.Now(), warned: make(map[warning]time.Time),
		news: make(chan struct{}, 1), wake: make(chan struct{}, 1), keep: make(chan struct{}, 1), fetch: make(chan struct{}, 1), urge: make(chan struct{}, 1)}
	m.election = fleet.Election{Me: m.me, Timing: o.Timing}
	var err error
	m.connect, err = connectOptions(&o.Config)
	return m, err
}

// now is on the clock of the election.
func (m *Member) now() time.Duration { return time.Since(m.begun) }

// token is a name as a part of a subject.
func token(name string) string { return strings.ReplaceAll(name, ".", "=") }

func demandSubject(source, name string) string {
	return "penstock.demand." + token(source) + "." + token(name)
}

func tableSubject(name string) string { return "penstock.table." + token(name) }

const (
	allDemand   = "penstock.demand.>"
	allTables   = "penstock.table.>"
	rollSubject = "penstock.roll"
)

// Tell reports the gateway's demand: with the next report, or at once where it
// says of an engine what others should know.
func (m *Member) Tell(own *route.Demand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told, m.toldAt = own, time.Now()
	if m.ledSince.IsZero() && fleet.Pressing(m.reported, own) {
		signal(m.urge)
	}
}

// SetPeriod is for drivers whose reports follow the control cycle.
func (m *Member) SetPeriod(time.Duration) {}

// Leave is done by Run, as it ends.
func (m *Member) Leave() {}

// Demands are the reports of all gateways where this one leads; elsewhere its
// own, and all others' in one.
func (m *Member) Demands() []*route.Demand {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.demandsLocked(time.Now())
}

func (m *Member) demandsLocked(now time.Time) []*route.Demand {
	if m.told == nil {
		return nil
	}
	if m.ledSince.IsZero() {
		all := []*route.Demand{m.told}
		if !m.digestAt.IsZero() {
			all = append(all, m.digest.Others(m.told, m.digestAt)...)
		}
		return all
	}
	return insert(m.roll.Demands(now), m.told)
}

// insert puts a gateway's own demand among those of others, by name.
func insert(others []*route.Demand, own *route.Demand) []*route.Demand {
	all := make([]*route.Demand, 0, len(others)+1)
	for _, d := range others {
		if own != nil && own.Gateway < d.Gateway {
			all, own = append(all, own), nil
		}
		all = append(all, d)
	}
	if own != nil {
		all = append(all, own)
	}
	return all
}

// Gateways are those that there are by the last word of whoever leads, or led.
func (m *Member) Gateways() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil {
		return nil
	}
	counted := !m.ledSince.IsZero() || m.digestAt.IsZero() || !m.spoke.IsZero() && m.digestAt.Sub(m.spoke) >= countedAfter
	return m.digest.BySource(m.told, counted)
}

// countedAfter its first report a gateway is among those whom the leader counts.
const countedAfter = fleet.ReportEvery * 3 / 2

// Leads reports whether this gateway plans for all, and in which epoch: while
// it holds the lease and has heard of everybody.
func (m *Member) Leads() (epoch uint64, leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch, leads = m.election.Leads(m.now())
	leads = leads && !m.ledSince.IsZero() && time.Since(m.ledSince) >= gatherFor
	if p := m.plan.Load(); leads && p != nil && p.Epoch == epoch {
		m.confirmed = time.Now()
	}
	return epoch, leads
}

// Publish gives the leader's plan to all: it is sent by Run, and followed here
// at once.
func (m *Member) Publish(p *route.Plan) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch, leads := m.election.Leads(m.now())
	last := m.plan.Load()
	why := fleet.NotLeading
	switch {
	case !leads:
	case p.Epoch != epoch:
		why = fleet.WrongEpoch
	case last != nil && cmp.Or(cmp.Compare(p.Epoch, last.Epoch), cmp.Compare(p.Version, last.Version)) <= 0:
		why = fleet.NotNewer
	default:
		m.unsent, m.confirmed = p, time.Now()
		m.plan.Store(p)
		signal(m.news)
		signal(m.wake)
		return nil
	}
	m.counts.plans[why].Add(1)
	holder, _ := m.election.Lease()
	return &fleet.RefusedError{Why: why, Epoch: p.Epoch, Version: p.Version, Leader: holder.Leader.Name}
}

// Plan is the newest plan of whoever leads; nil before the first.
func (m *Member) Plan() *route.Plan { return m.plan.Load() }

// PlanAge is how long ago whoever leads last said that Plan holds.
func (m *Member) PlanAge() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plan.Load() == nil {
		return time.Since(m.begun)
	}
	return time.Since(m.confirmed)
}

// News has a value when Plan has changed since the last one was taken.
func (m *Member) News() <-chan struct{} { return m.news }

// signal leaves a value in a channel of capacity 1 where there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
