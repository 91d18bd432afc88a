package fleet

import (
	"time"

	"penstock/route"
)

// Snapshot is what the leader tells all, once a second and with each new plan.
type Snapshot struct {
	// Revision is the store's of the leader's lease: who hears it need not look
	// there.
	Revision uint64
	// Version is of the plan in force in this epoch, 0 while there is none.
	Version uint64
	Digest  Digest
	// Base is the version that Plan is told by its difference from; 0: it is
	// whole.
	Base uint64
	Plan *route.Plan // nil: as it was
}

// Digest is what a gateway needs to know of all others: how many there are at
// each source, and what they have on each engine.
type Digest struct {
	Gateways []SourceCount
	InFlight []EngineCount
}

// SourceCount is how many gateways report from a source, replicas included.
type SourceCount struct {
	Source string
	N      int
}

// EngineCount is what all gateways have in flight on an engine.
type EngineCount struct {
	Engine   string
	InFlight float64
}

// encode writes a snapshot; base is the plan of Base, nil for a whole one.
func (s *Snapshot) encode(base *route.Plan) []byte {
	var e encoder
	e.uint(s.Revision)
	e.uint(s.Version)
	e.count(len(s.Digest.Gateways))
	for _, c := range s.Digest.Gateways {
		e.text(c.Source)
		e.count(c.N)
	}
	e.count(len(s.Digest.InFlight))
	for _, c := range s.Digest.InFlight {
		e.text(c.Engine)
		e.figure(max(0, c.InFlight))
	}
	if s.Plan == nil {
		e.byte(0)
		return e.b
	}
	e.byte(1)
	e.uint(s.Base)
	codePlan(&e, s.Plan, base)
	return e.b
}

// decodeSnapshot reads one that a gateway with the given plan receives. A plan
// told by its difference from another than that one is a Gap: all else of the
// snapshot is good.
func decodeSnapshot(h Header, body []byte, have *route.Plan) (*Snapshot, Refusal) {
	d := &decoder{b: body}
	s := &Snapshot{Revision: d.uint(), Version: d.uint()}
	s.Digest.Gateways = make([]SourceCount, d.count(2))
	for i := range s.Digest.Gateways {
		s.Digest.Gateways[i] = SourceCount{d.text(), int(min(d.uint(), 1<<30))}
	}
	s.Digest.InFlight = make([]EngineCount, d.count(5))
	for i := range s.Digest.InFlight {
		s.Digest.InFlight[i] = EngineCount{d.text(), d.amount32()}
	}
	if d.byte() == 0 {
		if !d.done() {
			return nil, Unreadable
		}
		return s, Accepted
	}
	var base *route.Plan
	if s.Base = d.uint(); s.Base != 0 {
		if d.bad {
			return nil, Unreadable
		}
		if have == nil || have.Epoch != h.Epoch || have.Version != s.Base {
			return s, Gap
		}
		base = have
	}
	s.Plan = readPlan(d, base)
	if !d.done() || s.Plan.Version != s.Version {
		return nil, Unreadable
	}
	s.Plan.Epoch = h.Epoch
	return s, Accepted
}

// encodeLease and decodeLease are the store's record: the header says who leads
// in which epoch, the body whether it was given back.
func encodeLease(r LeaseRecord) []byte {
	if r.Free {
		return []byte{1}
	}
	return []byte{0}
}

// SealLease makes the record that the store holds.
func (k *Key) SealLease(r LeaseRecord) ([]byte, error) {
	return k.Seal(Header{Kind: KindLease, From: r.Leader, Epoch: r.Epoch}, encodeLease(r))
}

// OpenLease reads it.
func (k *Key) OpenLease(message []byte) (LeaseRecord, Refusal) {
	var r LeaseRecord
	_, why := k.open(KindLease, message, func(h Header, body []byte) Refusal {
		if len(body) != 1 {
			return Unreadable
		}
		r = LeaseRecord{Leader: h.From, Epoch: h.Epoch, Free: body[0] == 1}
		return Accepted
	})
	return r, why
}

// SealReport makes a report's message.
func (k *Key) SealReport(h Header, r *Report) ([]byte, error) {
	h.Kind = KindReport
	return k.Seal(h, r.encode())
}

// OpenReport reads one.
func (k *Key) OpenReport(message []byte) (Header, *Report, Refusal) {
	var r *Report
	h, why := k.open(KindReport, message, func(h Header, body []byte) Refusal {
		if report, ok := decodeReport(h.From.Name, body); ok {
			r = report
			return Accepted
		}
		return Unreadable
	})
	return h, r, why
}

// SealSnapshot makes a snapshot's message; base is the plan of its Base.
func (k *Key) SealSnapshot(h Header, s *Snapshot, base *route.Plan) ([]byte, error) {
	h.Kind = KindSnapshot
	return k.Seal(h, s.encode(base))
}

// OpenSnapshot reads one, where have is the plan in use, and g says whether it
// may come in. With Gap the snapshot is there without its plan.
func (k *Key) OpenSnapshot(message []byte, g *Gate, have *route.Plan) (Header, *Snapshot, Refusal) {
	var s *Snapshot
	h, why := k.open(KindSnapshot, message, func(h Header, body []byte) (why Refusal) {
		if why = g.Judge(h.From, h.Epoch, h.Seq); why == Accepted {
			s, why = decodeSnapshot(h, body, have)
		}
		return why
	})
	return h, s, why
}

// OpenStored reads the snapshot that the store keeps for those that missed it.
// It was told before, so that its plan decides whether it is news, not its
// number.
func (k *Key) OpenStored(message []byte, g *Gate, have *route.Plan) (Header, *Snapshot, Refusal) {
	var s *Snapshot
	h, why := k.open(KindSnapshot, message, func(h Header, body []byte) (why Refusal) {
		s, why = decodeSnapshot(h, body, nil)
		return why
	})
	switch {
	case why == Gap:
		return h, nil, Unreadable
	case why != Accepted:
		return h, nil, why
	case s.Plan == nil:
		return h, nil, Unreadable
	case h.Epoch < g.Epoch:
		return h, nil, Older
	case h.Epoch == g.Epoch && g.Leader != Identity{} && g.Leader != h.From:
		return h, nil, TwoLeaders
	case !newer(s.Plan, have):
		return h, nil, Replayed
	}
	return h, s, Accepted
}

// SealRoll and OpenRoll carry who reports, for people.
func (k *Key) SealRoll(h Header, all []GatewayStatus) ([]byte, error) {
	var e encoder
	e.count(len(all))
	for _, g := range all {
		e.text(g.Name)
		e.text(g.Source)
		e.uint(uint64(max(0, g.Age)))
	}
	h.Kind = KindRoll
	return k.Seal(h, e.b)
}

// OpenRoll reads what SealRoll made.
func (k *Key) OpenRoll(message []byte) (Header, []GatewayStatus, Refusal) {
	var all []GatewayStatus
	h, why := k.open(KindRoll, message, func(_ Header, body []byte) Refusal {
		d := &decoder{b: body}
		read := make([]GatewayStatus, d.count(3))
		for i := range read {
			read[i] = GatewayStatus{d.text(), d.text(), time.Duration(min(d.uint(), uint64(time.Hour)))}
		}
		if !d.done() {
			return Unreadable
		}
		all = read
		return Accepted
	})
	return h, all, why
}
