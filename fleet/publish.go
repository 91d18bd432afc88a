package fleet

import (
	"fmt"
	"time"

	"penstock/route"
)

// Why is the reason for which a plan is refused.
type Why uint8

const (
	NotLeading Why = iota // another gateway leads, or leads since
	WrongEpoch            // the plan is of another epoch than its leader's
	NotNewer              // version and epoch are not above those of the last plan
	whys
)

func (w Why) String() string { return [...]string{"not_leading", "wrong_epoch", "not_newer"}[w] }

// RefusedError is a plan that nobody got.
type RefusedError struct {
	Why            Why
	Epoch, Version uint64 // of the plan
	Leader         string // "" = nobody
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("plan %d/%d refused: %s (leader %q)", e.Epoch, e.Version, e.Why, e.Leader)
}

// Publish hands the plan to all members; nobody changes it afterwards. It is
// refused, and counted, unless this gateway leads and the plan is newer than
// all before: of two that think they lead, one is refused.
func (s *Member) Publish(p *route.Plan) error {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elect(time.Now())
	if why, ok := m.judge(s, p); !ok {
		s.refused[why]++
		err := &RefusedError{Why: why, Epoch: p.Epoch, Version: p.Version}
		if m.leader != nil {
			err.Leader = m.leader.name
		}
		return err
	}
	m.plan = p
	for _, other := range m.members {
		other.give(p)
	}
	return nil
}

func (m *Memory) judge(s *Member, p *route.Plan) (why Why, ok bool) {
	switch {
	case m.leader != s:
		return NotLeading, false
	case p.Epoch != m.epoch:
		return WrongEpoch, false
	case !newer(p, m.plan):
		return NotNewer, false
	}
	return 0, true
}

// Status is what a gateway knows of its fleet, for people.
type Status struct {
	Leader   string // "" = nobody
	Epoch    uint64
	Version  uint64          // of the plan in use, in its epoch; 0 = none
	PlanAge  time.Duration   // since whoever leads last confirmed it
	Driver   string          // what joins them
	Store    string          // how that is, in a word
	Gateways []GatewayStatus // that report, by name
	// Partial is set where this gateway does not know all that report.
	Partial bool
}

// GatewayStatus is one gateway.
type GatewayStatus struct {
	Name, Source string
	Age          time.Duration // of its last report
}

// Status tells who is there and who leads.
func (s *Member) Status() Status {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.elect(now)
	st := Status{Epoch: m.epoch, Driver: "memory", Store: "in this process"}
	if p := s.Plan(); p != nil {
		st.Version = p.Version
	}
	if m.leader != nil {
		st.Leader = m.leader.name
	}
	for _, other := range m.present(now) {
		st.Gateways = append(st.Gateways, GatewayStatus{other.name, other.demand.Source, now.Sub(other.heard)})
	}
	return st
}
