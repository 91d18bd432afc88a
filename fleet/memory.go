package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/route"
)

// Misses is how many reports a gateway may miss before it is dropped: its
// demand counts no more, and it leads no more.
const Misses = 3

// Memory joins gateways of one process. Safe for concurrent use.
type Memory struct {
	mu      sync.Mutex // guards what is below, and the members' fields but plan
	members map[string]*Member
	leader  *Member // nil: nobody leads
	epoch   uint64  // of the leader; only grows
	plan    *route.Plan
}

// NewMemory returns a store without members.
func NewMemory() *Memory { return &Memory{members: make(map[string]*Member)} }

// Member is one gateway's end of the store. Safe for concurrent use.
type Member struct {
	memory *Memory
	name   string
	plan   atomic.Pointer[route.Plan] // the last one that was accepted
	news   chan struct{}              // capacity 1: there is another plan

	period  time.Duration // from one of its reports to the next
	demand  *route.Demand // nil: has told nothing since it joined or left
	heard   time.Time     // when it told it
	refused [whys]uint64  // of its plans
}

// ErrNameTaken is that of a gateway whose name another one has.
var ErrNameTaken = errors.New("another gateway of this fleet has the name")

// Join adds a gateway that will report once a period. It counts from its first
// report on.
func (m *Memory) Join(name string, period time.Duration) (*Member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[name] != nil {
		return nil, fmt.Errorf("%s: %w", name, ErrNameTaken)
	}
	s := &Member{memory: m, name: name, period: period, news: make(chan struct{}, 1)}
	m.members[name] = s
	s.give(m.plan)
	return s, nil
}

// SetPeriod is for a gateway that reports in another rhythm from now on.
func (s *Member) SetPeriod(period time.Duration) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.period = period
}

// Leave ends the membership. Who led is followed at once.
func (s *Member) Leave() {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[s.name] == s {
		delete(m.members, s.name)
	}
	s.demand = nil
	m.elect(time.Now())
}

// Tell reports the gateway's demand, which nobody changes afterwards.
func (s *Member) Tell(d *route.Demand) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[s.name] != s {
		return // it has left
	}
	now := time.Now()
	s.demand, s.heard = d, now
	m.elect(now)
}

// Demands are the last reports of all gateways that still report, by name.
func (s *Member) Demands() []*route.Demand {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*route.Demand
	for _, other := range m.present(time.Now()) {
		all = append(all, other.demand)
	}
	return all
}

// Gateways are those that still report, by source.
func (s *Member) Gateways() map[string]int {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	n := make(map[string]int)
	for _, other := range m.present(time.Now()) {
		n[other.demand.Source] += max(1, other.demand.Replicas)
	}
	return n
}

// Leads reports whether this gateway plans for all, and in which epoch.
func (s *Member) Leads() (epoch uint64, leads bool) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elect(time.Now())
	return m.epoch, m.leader == s
}

// Plan is the newest plan of whoever leads; nil while there was none.
func (s *Member) Plan() *route.Plan { return s.plan.Load() }

// PlanAge is how long ago whoever leads confirmed Plan: who shares a process
// with its leader need not wonder.
func (s *Member) PlanAge() time.Duration { return 0 }

// Run waits: there is nothing to do between reports.
func (s *Member) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Who is Status, for drivers that have to ask.
func (s *Member) Who(context.Context) Status { return s.Status() }

// News has a value when Plan has changed since the last one was taken.
func (s *Member) News() <-chan struct{} { return s.news }

// give hands on a plan that is newer than all before.
func (s *Member) give(p *route.Plan) {
	if p == nil {
		return
	}
	s.plan.Store(p)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// present are the members that were heard of lately, by name.
func (m *Memory) present(now time.Time) []*Member {
	var all []*Member
	for _, s := range m.members {
		// Half a period more, since reports are not sent on the second.
		if s.demand != nil && now.Sub(s.heard) <= Misses*s.period+s.period/2 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Member) int { return strings.Compare(a.name, b.name) })
	return all
}

// elect keeps the leader while it is present; else the first by name follows,
// in a new epoch. The clock is in it, so that epochs go on growing over a
// restart (fleet.md 6).
func (m *Memory) elect(now time.Time) {
	all := m.present(now)
	if slices.Contains(all, m.leader) {
		return
	}
	m.leader = nil
	if len(all) > 0 {
		m.leader = all[0]
		m.epoch = max(m.epoch, uint64(max(now.UnixMilli(), 0))) + 1
	}
}

// newer compares plans by (epoch, version).
func newer(p, than *route.Plan) bool {
	return than == nil || cmp.Or(cmp.Compare(p.Epoch, than.Epoch), cmp.Compare(p.Version, than.Version)) > 0
}
