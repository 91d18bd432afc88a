package nats

import (
	"context"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"penstock/fleet"
)

// hearTable takes a snapshot of whoever leads.
func (m *Member) hearTable(msg *natsgo.Msg) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, s, why := m.key.OpenSnapshot(msg.Data, &m.gate, m.plan.Load())
	if (why == fleet.Accepted || why == fleet.Gap) && msg.Subject != tableSubject(h.From.Name) {
		why = fleet.WrongSender
	}
	if why != fleet.Accepted && why != fleet.Gap {
		m.refuseLocked(aboutTable, why, h, msg)
		return
	}
	now := time.Now()
	m.gate.Enter(h.From, h.Epoch, h.Seq)
	m.election.Hear(h.Epoch)
	m.election.Beat(fleet.LeaseRecord{Leader: h.From, Epoch: h.Epoch}, s.Revision, m.now())
	m.digest, m.digestAt, m.heard = s.Digest, now, now
	if why == fleet.Gap {
		m.counts.refused[aboutTable][fleet.Gap].Add(1)
		signal(m.fetch)
		return
	}
	m.takeLocked(h, s, now)
}

// takeLocked installs the snapshot's plan, or finds that the one here holds.
func (m *Member) takeLocked(h fleet.Header, s *fleet.Snapshot, now time.Time) {
	have := m.plan.Load()
	switch {
	case s.Plan != nil:
		m.plan.Store(s.Plan)
		m.confirmed = now
		m.counts.taken.Add(1)
		signal(m.news)
	case s.Version == 0: // it leads and has not planned yet
	case have != nil && have.Epoch == h.Epoch && have.Version == s.Version:
		m.confirmed = now
	default:
		signal(m.fetch)
	}
}

// hearStored takes the whole table that the store keeps.
func (m *Member) hearStored(message []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, s, why := m.key.OpenStored(message, &m.gate, m.plan.Load())
	switch {
	case why == fleet.Replayed: // what is here already
		return
	case why != fleet.Accepted:
		m.refuseLocked(aboutTable, why, h, &natsgo.Msg{Subject: "$KV." + bucketName + "." + tableKey})
		return
	case h.Epoch > m.gate.Epoch:
		m.gate.Enter(h.From, h.Epoch, h.Seq)
	}
	m.election.Hear(h.Epoch)
	now := time.Now()
	if m.digestAt.IsZero() { // it has just joined
		m.digest, m.digestAt = s.Digest, now
	}
	m.takeLocked(h, s, now)
}

// hearReport takes a gateway's report, where this one leads.
func (m *Member) hearReport(msg *natsgo.Msg) {
	h, report, why := m.key.OpenReport(msg.Data)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case why != fleet.Accepted:
	case !fromItself(msg.Subject, h, report):
		why = fleet.WrongSender
	case h.From.Name == m.me.Name:
		if h.From.Instance == m.me.Instance {
			return
		}
		why = fleet.NameTaken
	default:
		m.election.Hear(h.Epoch)
		now, was := time.Now(), m.roll.Last(h.From.Name)
		why = m.roll.Hear(h, report, now)
		if why == fleet.Accepted && m.gathered && now.Sub(m.hurried) >= hurryEvery && fleet.Pressing(was, report.Demand) {
			m.hurried = now
			signal(m.news) // a cycle plans at once
		}
	}
	if why != fleet.Accepted {
		m.refuseLocked(aboutReport, why, h, msg)
	}
}

// fromItself reports whether a report came where only its gateway may send. Of
// one that leaves the source is not known.
func fromItself(subject string, h fleet.Header, r *fleet.Report) bool {
	if r.Leaves {
		return strings.HasSuffix(subject, "."+token(h.From.Name))
	}
	return subject == demandSubject(r.Demand.Source, h.From.Name)
}

// hearOwnName hears of another process of this gateway's name: neither then
// stands for election, and who had the name first keeps it.
func (m *Member) hearOwnName(msg *natsgo.Msg) {
	h, report, why := m.key.OpenReport(msg.Data)
	if why != fleet.Accepted || report.Leaves || h.From.Name != m.me.Name || h.From.Instance == m.me.Instance {
		return // of forged ones the leader tells
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledSince.IsZero() {
		m.refuseLocked(aboutReport, fleet.NameTaken, h, msg)
	}
	m.twin = time.Now()
}

// Who is the fleet as its leader knows it; what this gateway knows where the
// leader does not answer.
func (m *Member) Who(ctx context.Context) fleet.Status {
	st := m.Status()
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	if !st.Partial || conn == nil || !conn.IsConnected() {
		return st
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	msg, err := conn.RequestWithContext(ctx, rollSubject, nil)
	if err != nil {
		return st
	}
	if h, all, why := m.key.OpenRoll(msg.Data); why == fleet.Accepted && h.From.Name == st.Leader {
		st.Gateways, st.Partial = all, false
	}
	return st
}

// answerRoll tells who asks who reports.
func (m *Member) answerRoll(msg *natsgo.Msg) {
	st := m.Status()
	if st.Partial || msg.Reply == "" {
		return
	}
	if message, err := m.key.SealRoll(fleet.Header{From: m.me, Epoch: st.Epoch}, st.Gateways); err == nil {
		_ = msg.Respond(message)
	}
}

// Status is what this gateway knows by itself.
func (m *Member) Status() fleet.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	st := fleet.Status{Driver: "nats", Store: "not reached", Epoch: m.gate.Epoch, Partial: m.ledSince.IsZero()}
	if m.conn != nil && m.conn.IsConnected() {
		st.Store = "reached"
	}
	switch {
	case !m.ledSince.IsZero():
		st.Leader = m.me.Name
		st.Epoch, _ = m.election.Leads(m.now())
	case now.Sub(m.heard) <= silentFor:
		st.Leader = m.gate.Leader.Name
	}
	if p := m.plan.Load(); p != nil {
		st.Version, st.PlanAge = p.Version, now.Sub(m.confirmed)
	}
	for _, d := range m.demandsLocked(now) {
		if d == m.told || !st.Partial {
			st.Gateways = append(st.Gateways, fleet.GatewayStatus{Name: d.Gateway, Source: d.Source, Age: now.Sub(d.At)})
		}
	}
	return st
}
