package nats

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"penstock/fleet"
	"penstock/route"
)

const (
	// lookEvery is how often the election is asked what to do.
	lookEvery = 200 * time.Millisecond
	// storeFor bounds one operation on the store.
	storeFor = 1500 * time.Millisecond
	// silentFor without a snapshot the stored one is looked for, and then every
	// fetchEvery.
	silentFor  = 3 * time.Second
	fetchEvery = 5 * time.Second
	// wholeEvery-th plan is told whole, whoever may have missed what.
	wholeEvery = 16
	// hurryEvery is the least time between two reports, and two cycles of the
	// leader, that came before their time: a cycle may move conversations.
	hurryEvery = 400 * time.Millisecond
)

// Run joins the fleet until ctx ends, and leaves it. Without a server that
// answers it keeps trying.
func (m *Member) Run(ctx context.Context) error {
	if m.o.Config.URL == fleet.Embedded {
		stop, _, err := StartServer(m.o.Config.Listen, m.o.StateDir)
		if err != nil {
			return err
		}
		defer stop()
	}
	conn, err := m.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.conn = conn
	m.mu.Unlock()
	s := &store{js: js, key: m.key}
	var running sync.WaitGroup
	running.Go(func() { m.elect(ctx, conn, s) })
	running.Go(func() { m.speak(ctx, conn) })
	running.Go(func() { m.remember(ctx, conn, s) })
	running.Wait()
	m.goodbye(conn, s)
	return ctx.Err()
}

func (m *Member) dial() (*natsgo.Conn, error) {
	urls := m.o.Config.URLs()
	options := append([]natsgo.Option{
		natsgo.ConnectHandler(func(c *natsgo.Conn) { m.joined(c) }),
		natsgo.ReconnectHandler(func(c *natsgo.Conn) { m.joined(c) }),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			if err == nil { // this end closed it
				return
			}
			m.counts.lost.Add(1)
			m.log.Warn("fleet store lost: this gateway goes on with its last table", "error", err.Error())
		}),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) {
			m.warn(warning{"store", err.Error()}, "fleet store not reached", "error", err.Error())
		}),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, sub *natsgo.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			m.warn(warning{"store", "error"}, "fleet store", "error", err.Error(), "subject", subject)
		}),
	}, m.connect...)
	conn, err := natsgo.Connect(joinURLs(urls), options...)
	if err != nil {
		return nil, err
	}
	for subject, handle := range map[string]natsgo.MsgHandler{
		allTables:                           m.hearTable,
		demandSubject(m.o.Source, m.o.Name): m.hearOwnName,
	} {
		if _, err := conn.Subscribe(subject, handle); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func joinURLs(urls []string) (text string) {
	for i, u := range urls {
		if i > 0 {
			text += ","
		}
		text += u
	}
	return text
}

func (m *Member) joined(c *natsgo.Conn) {
	m.log.Info("fleet store reached", "server", c.ConnectedServerName(), "address", c.ConnectedAddr())
	signal(m.fetch)
	signal(m.wake)
}

// elect asks the election what to do, and does it.
func (m *Member) elect(ctx context.Context, conn *natsgo.Conn, s *store) {
	var listening []*natsgo.Subscription
	for rest(ctx, lookEvery+time.Duration(rand.Int64N(int64(lookEvery/4)))) {
		if conn.IsConnected() {
			m.mu.Lock()
			// Who leads goes on, whoever else takes its name.
			stands := m.told != nil && (!m.ledSince.IsZero() || time.Since(m.twin) > reportLife)
			op := m.election.Next(m.now(), time.Now().UnixMilli(), stands)
			m.mu.Unlock()
			if op.Kind != fleet.OpNone {
				answer := s.do(ctx, op)
				m.mu.Lock()
				if revision := m.accepted.forgotten(op, answer, m.now(), m.o.Timing.Lease); revision > 0 {
					m.counts.forgotten.Add(1)
					m.warnLocked(warning{"store", "forgets"}, "the fleet's store has forgotten a lease that it had accepted",
						"server", conn.ConnectedServerName(), "revision", revision)
				}
				m.election.Did(op, answer, m.now())
				// Also one that has just started takes no table from before this epoch.
				record, _ := m.election.Lease()
				m.gate.Floor(record.Epoch)
				m.mu.Unlock()
			}
		}
		listening = m.turn(conn, listening)
	}
	for _, sub := range listening {
		_ = sub.Unsubscribe()
	}
}

// accepted is the last lease of this gateway that the store said it has.
type accepted struct {
	revision uint64
	at       time.Duration
}

// forgotten notes an operation's end. Where that shows that the store has
// nothing, or something older, although the lease is not over, it returns the
// revision that was lost; else 0. Revisions only grow.
func (a *accepted) forgotten(op fleet.Op, answer fleet.Answer, now, lease time.Duration) (revision uint64) {
	was := *a
	switch {
	case op.Kind != fleet.OpRead && answer.Result == fleet.OpDone:
		if *a = (accepted{answer.Revision, op.Sent}); op.Record.Free {
			*a = accepted{}
		}
	case op.Kind != fleet.OpRead || was.revision == 0 || now-was.at > lease:
	case answer.Result == fleet.OpAbsent, answer.Result == fleet.OpDone && answer.Revision < was.revision:
		*a = accepted{}
		return was.revision
	}
	return 0
}

// reportLife is how long a twin counts that was heard.
const reportLife = fleet.Misses*fleet.ReportEvery + fleet.ReportEvery/2

// turn follows the election's result: who leads listens to reports, and who
// does not, does not. That is 1,000 reports a second for a large fleet.
func (m *Member) turn(conn *natsgo.Conn, listening []*natsgo.Subscription) []*natsgo.Subscription {
	m.mu.Lock()
	epoch, leads := m.election.Leads(m.now())
	led := !m.ledSince.IsZero()
	holder, _ := m.election.Lease()
	switch {
	case leads && !led:
		m.ledSince, m.sent, m.gathered = time.Now(), nil, false
		if p := m.plan.Load(); p != nil && p.Epoch == epoch { // it led before, in the same epoch
			m.sent = p
		}
	case leads && !m.gathered && time.Since(m.ledSince) >= gatherFor:
		m.gathered = true
		signal(m.news) // a cycle plans at once
	case !leads && led:
		m.ledSince = time.Time{}
		m.unsent, m.sent = nil, nil
	}
	m.mu.Unlock()
	switch {
	case leads && len(listening) == 0:
		for subject, handle := range map[string]natsgo.MsgHandler{allDemand: m.hearReport, rollSubject: m.answerRoll} {
			if sub, err := conn.Subscribe(subject, handle); err == nil {
				listening = append(listening, sub)
			}
		}
	case !leads && len(listening) > 0:
		for _, sub := range listening {
			_ = sub.Unsubscribe()
		}
		listening = nil
	}
	switch {
	case leads && !led:
		m.counts.elected.Add(1)
		m.log.Info("this gateway leads the fleet", "epoch", epoch)
		signal(m.wake)
	case !leads && led:
		m.log.Warn("this gateway leads the fleet no more", "epoch", epoch, "leader", holder.Leader.Name)
	}
	return listening
}

// speak sends this gateway's report, and where it leads its snapshots.
func (m *Member) speak(ctx context.Context, conn *natsgo.Conn) {
	jitter := func() time.Duration {
		return fleet.ReportEvery*9/10 + time.Duration(rand.Int64N(int64(fleet.ReportEvery/5)))
	}
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(fleet.ReportEvery))))
	defer timer.Stop()
	var told, urged time.Time // a snapshot for a plan's sake; a report before its time
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.urge:
			if time.Since(urged) >= hurryEvery { // else it is told with the next one
				urged = time.Now()
				m.sendReport(conn)
			}
			continue
		case <-m.wake:
			told = time.Now()
		case <-timer.C:
			timer.Reset(jitter())
			m.sendReport(conn)
			if time.Since(told) < fleet.ReportEvery/2 { // with a plan, all was said
				continue
			}
		}
		m.sendSnapshot(conn)
	}
}

func (m *Member) sendReport(conn *natsgo.Conn) {
	m.mu.Lock()
	own := m.told
	if own == nil || time.Since(m.toldAt) > 3*time.Minute {
		m.mu.Unlock()
		return
	}
	m.reports++
	m.reported = own
	if m.spoke.IsZero() {
		m.spoke = time.Now()
	}
	h := fleet.Header{From: m.me, Epoch: m.election.Heard(), Seq: m.reports}
	m.mu.Unlock()
	m.send(conn, demandSubject(m.o.Source, m.o.Name), &m.counts.reportBytes, func() ([]byte, error) {
		return m.key.SealReport(h, &fleet.Report{Demand: own})
	})
}

// sendSnapshot tells all what holds, with the plan where it is new.
func (m *Member) sendSnapshot(conn *natsgo.Conn) {
	m.mu.Lock()
	epoch, leads := m.election.Leads(m.now())
	if !leads || m.ledSince.IsZero() {
		m.mu.Unlock()
		return
	}
	_, revision := m.election.Lease()
	m.snapshots++
	h := fleet.Header{From: m.me, Epoch: epoch, Seq: m.snapshots}
	m.gate.Enter(m.me, epoch, m.snapshots)
	if now := time.Now(); m.gathered || m.digestAt.IsZero() {
		m.digest, m.digestAt = fleet.DigestOf(m.demandsLocked(now)), now
	} // else who led before knew better
	s := &fleet.Snapshot{Revision: revision, Digest: m.digest}
	var base *route.Plan
	if p := m.unsent; p != nil && p.Epoch == epoch {
		s.Plan, m.unsent = p, nil
		if m.sent != nil && p.Version%wholeEvery != 0 {
			s.Base, base = m.sent.Version, m.sent
		}
		m.sent = p
		signal(m.keep)
	}
	if m.sent != nil {
		s.Version = m.sent.Version
	}
	m.mu.Unlock()
	m.send(conn, tableSubject(m.me.Name), &m.counts.snapshotBytes, func() ([]byte, error) { return m.key.SealSnapshot(h, s, base) })
}

func (m *Member) send(conn *natsgo.Conn, subject string, sum *counter, seal func() ([]byte, error)) {
	message, err := seal()
	if err == nil && len(message) > fleet.MaxMessage {
		err = natsgo.ErrMaxPayload
	}
	if err == nil {
		err = conn.Publish(subject, message)
	}
	switch {
	case err == nil:
		sum.add(len(message))
	case conn.IsConnected():
		m.warn(warning{subject, "send"}, "not sent to the fleet", "subject", subject, "error", err.Error())
	}
}

// remember keeps the plan in the store where this gateway leads, and looks for
// it there where it has missed one.
func (m *Member) remember(ctx context.Context, conn *natsgo.Conn, s *store) {
	tick := time.NewTicker(fetchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.keep:
			m.storePlan(ctx, s)
			continue
		case <-m.fetch:
			// Whoever missed it with this one looks too.
			if !rest(ctx, time.Duration(rand.Int64N(int64(fleet.ReportEvery/2)))) {
				return
			}
		case <-tick.C:
			if m.silence() < silentFor {
				continue
			}
		}
		if conn.IsConnected() {
			m.fetchPlan(ctx, s)
		}
	}
}

// silence is how long no snapshot has come.
func (m *Member) silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ledSince.IsZero() {
		return 0
	}
	return time.Since(m.heard)
}

func (m *Member) storePlan(ctx context.Context, s *store) {
	m.mu.Lock()
	p, digest := m.sent, m.digest
	h := fleet.Header{From: m.me, Seq: m.snapshots}
	m.mu.Unlock()
	if p == nil {
		return
	}
	h.Epoch = p.Epoch
	message, err := m.key.SealSnapshot(h, &fleet.Snapshot{Version: p.Version, Plan: p, Digest: digest}, nil)
	if err == nil {
		err = s.keepTable(ctx, h, message)
	}
	if err != nil && ctx.Err() == nil {
		m.warn(warning{"store", "keep"}, "table not kept in the fleet's store", "error", err.Error())
		if rest(ctx, fleet.ReportEvery) {
			signal(m.keep)
		}
	}
}

func (m *Member) fetchPlan(ctx context.Context, s *store) {
	message, err := s.table(ctx)
	if err != nil || message == nil {
		return // it is looked for again
	}
	m.hearStored(message)
}

// goodbye gives the lease back and says that this gateway goes.
func (m *Member) goodbye(conn *natsgo.Conn, s *store) {
	ctx, cancel := context.WithTimeout(context.Background(), storeFor)
	defer cancel()
	if !conn.IsConnected() {
		return
	}
	m.mu.Lock()
	op := m.election.Next(m.now(), time.Now().UnixMilli(), false)
	m.reports++
	h := fleet.Header{From: m.me, Epoch: m.election.Heard(), Seq: m.reports}
	m.mu.Unlock()
	m.send(conn, demandSubject(m.o.Source, m.o.Name), &m.counts.reportBytes, func() ([]byte, error) {
		return m.key.SealReport(h, &fleet.Report{Leaves: true})
	})
	if op.Kind == fleet.OpUpdate && op.Record.Free {
		s.do(ctx, op)
	}
	_ = conn.FlushWithContext(ctx)
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
