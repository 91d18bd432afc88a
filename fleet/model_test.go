package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// The model is every interleaving of three gateways, the store's lease and
// delayed messages, within bounds, driven through Election and Gate
// themselves. A tick is the time's unit. In every state anything may happen
// that can: time passes, a gateway asks the store, the store acts on what is
// under way, or it or its answer is lost, the answer arrives, who believes to
// lead publishes, a table reaches a gateway, late and again, and the store
// forgets. A gateway that does nothing for long is one that was stopped.
//
// Held: no two leaders are accepted in an epoch, at any gateway; what a gateway
// accepts only grows; and while the store forgets nothing no two lead at once.
type model struct {
	now      int8
	members  [3]Election
	gates    [3]Gate
	asked    [3]wire
	written  bool // the store holds record
	record   LeaseRecord
	revision uint64
	seq      uint64
	flying   [2]table // tables under way; zero: none
	forgot   bool
	asks     int8 // operations begun so far
	lost     int8 // answers that did not come
	sent     int8 // tables
}

// wire is an operation under way.
type wire struct {
	op     Op
	stage  uint8 // 0 none, 1 on its way, 2 its answer is on its way back, 3 its answer was given up, and the store may yet act on it
	answer Answer
	late   Op // given up by its gateway; the store may act on it later
}

type table struct {
	from  Identity
	epoch uint64
	seq   uint64
}

// bounds of the search.
type bounds struct {
	ticks, asks, losses, tables int8
	forgets                     bool
}

var modelTiming = Timing{Lease: 3, Renew: 1, Margin: 1}

func newModel() model {
	var m model
	for i, name := range []string{"a", "b", "c"} {
		m.members[i] = Election{Me: Identity{name, uint64(i) + 1}, Timing: modelTiming}
	}
	return m
}

// search visits every state that can be reached from m.
type search struct {
	t       *testing.T
	bounds  bounds
	seen    map[[2]uint64]bool // states by 128 bits of hash
	leaders [3]int             // states in which each leads
}

func (s *search) from(m model) {
	todo := []model{m}
	push := func(next model) {
		id := next.id()
		if !s.seen[id] {
			s.seen[id] = true
			s.check(&next)
			todo = append(todo, next)
		}
	}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		s.steps(m, push)
		if s.t.Failed() {
			return
		}
	}
}

func (s *search) steps(m model, push func(model)) {
	if m.now < s.bounds.ticks {
		next := m
		next.now++
		push(next)
	}
	if s.bounds.forgets && !m.forgot && m.written {
		next := m
		next.written, next.forgot, next.record = false, true, LeaseRecord{}
		push(next)
	}
	for i := range m.members {
		s.storeSteps(m, i, push)
		s.tableSteps(m, i, push)
	}
}

func (s *search) storeSteps(m model, i int, push func(model)) {
	now := time.Duration(m.now)
	w := m.asked[i]
	if w.late.Kind != OpNone { // a write that everybody has given up reaches the store
		next := m
		next.asked[i].late = Op{}
		next.act(w.late)
		push(next)
	}
	switch w.stage {
	case 0:
		if m.asks >= s.bounds.asks {
			return
		}
		next := m
		// The wall clocks are far apart, and one stands still.
		op := next.members[i].Next(now, int64(m.now)*int64(i), true)
		if op.Kind == OpNone {
			return
		}
		next.asks++
		next.asked[i].op, next.asked[i].stage = op, 1
		if op.Kind == OpRead { // what it finds may be old when it is told; that it may be asked later is the same
			next.asked[i].answer, next.asked[i].stage = next.act(op), 2
		}
		push(next)
	case 1:
		next := m
		next.asked[i].answer = next.act(w.op)
		next.asked[i].stage = 2
		push(next)
		if m.lost < s.bounds.losses && w.late.Kind == OpNone { // no answer, and the store has not even seen it yet
			next := m
			next.lost++
			next.asked[i] = wire{late: w.op}
			next.members[i].Did(w.op, Answer{Result: OpUnknown}, now)
			push(next)
		}
	case 2:
		next := m
		next.asked[i].stage, next.asked[i].op, next.asked[i].answer = 0, Op{}, Answer{}
		next.members[i].Did(w.op, w.answer, now)
		push(next)
		if m.lost < s.bounds.losses && w.op.Kind != OpRead {
			next := m
			next.lost++
			next.asked[i].stage, next.asked[i].op, next.asked[i].answer = 0, Op{}, Answer{}
			next.members[i].Did(w.op, Answer{Result: OpUnknown}, now)
			push(next)
		}
	}
}

func (s *search) tableSteps(m model, i int, push func(model)) {
	if epoch, leads := m.members[i].Leads(time.Duration(m.now)); leads && m.sent < s.bounds.tables {
		for at := range m.flying { // what it replaces was lost
			next := m
			next.seq++
			next.sent++
			next.flying[at] = table{m.members[i].Me, epoch, next.seq}
			push(next)
		}
	}
	for _, f := range m.flying {
		if f.epoch != 0 && m.gates[i].Judge(f.from, f.epoch, f.seq) == Accepted {
			next := m
			next.gates[i].Enter(f.from, f.epoch, f.seq)
			next.members[i].Hear(f.epoch)
			push(next)
		}
	}
}

// act is the store: compare and set.
func (m *model) act(op Op) Answer {
	switch {
	case op.Kind == OpRead && !m.written:
		return Answer{Result: OpAbsent}
	case op.Kind == OpRead:
		return Answer{Record: m.record, Revision: m.revision}
	case op.Kind == OpCreate && m.written, op.Kind == OpUpdate && (!m.written || m.revision != op.Revision):
		return Answer{Result: OpConflict}
	}
	m.written, m.record = true, op.Record
	m.revision++
	return Answer{Revision: m.revision}
}

// id is the state in 128 bits: two hashes of all that is in it. Numbers of a
// model are small.
func (m *model) id() [2]uint64 {
	var room [512]byte
	b := append(room[:0], uint8(m.now), flag(m.written), uint8(m.revision), uint8(m.seq), flag(m.forgot), uint8(m.asks), uint8(m.lost), uint8(m.sent))
	record := func(r *LeaseRecord) {
		b = append(b, uint8(r.Leader.Instance), uint8(r.Epoch), uint8(r.Epoch>>8), flag(r.Free))
	}
	op := func(o *Op) {
		b = append(b, uint8(o.Kind), uint8(o.Revision), uint8(o.Sent))
		record(&o.Record)
	}
	record(&m.record)
	for i := range m.members {
		e, g, w := &m.members[i], &m.gates[i], &m.asked[i]
		b = append(b, uint8(e.heard), uint8(e.heard>>8), flag(e.known)|flag(e.absent)<<1|flag(e.holds)<<2|flag(e.doubt)<<3,
			uint8(e.revision), uint8(e.since), uint8(e.looked), uint8(e.until), uint8(e.renewed), uint8(e.triedAt))
		record(&e.record)
		record(&e.tried)
		b = append(b, uint8(g.Leader.Instance), uint8(g.Epoch), uint8(g.Epoch>>8), uint8(g.Seq), w.stage, uint8(w.answer.Result), uint8(w.answer.Revision))
		record(&w.answer.Record)
		op(&w.op)
		op(&w.late)
	}
	for _, f := range m.flying {
		b = append(b, uint8(f.from.Instance), uint8(f.epoch), uint8(f.epoch>>8), uint8(f.seq))
	}
	h := xxhash.Sum64(b)
	return [2]uint64{h, xxhash.Sum64(append(b, uint8(h), uint8(h>>8)))}
}

func flag(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

func (s *search) check(m *model) {
	at := -1
	for i := range m.members {
		if _, leads := m.members[i].Leads(time.Duration(m.now)); leads {
			if at >= 0 && !m.forgot {
				s.t.Fatalf("at %d %s and %s lead at once, although the store forgot nothing\n%+v", m.now, m.members[at].Me.Name, m.members[i].Me.Name, *m)
			}
			at = i
			s.leaders[i]++
		}
	}
	for i := range m.gates {
		for j := range i {
			a, b := m.gates[i], m.gates[j]
			if a.Epoch == b.Epoch && a.Leader != b.Leader {
				s.t.Fatalf("in epoch %d %s and %s are accepted\n%+v", a.Epoch, a.Leader.Name, b.Leader.Name, *m)
			}
		}
		// Nobody who can still publish in an epoch is another than who was accepted.
		for j := range m.members {
			if epoch, leads := m.members[j].Leads(time.Duration(m.now)); leads && epoch == m.gates[i].Epoch && m.gates[i].Leader != m.members[j].Me {
				s.t.Fatalf("in epoch %d %s was accepted and %s leads\n%+v", epoch, m.gates[i].Leader.Name, m.members[j].Me.Name, *m)
			}
		}
		for _, f := range m.flying {
			if f.epoch != 0 && f.epoch == m.gates[i].Epoch && f.from != m.gates[i].Leader && m.gates[i].Leader != (Identity{}) {
				s.t.Fatalf("in epoch %d there are tables of %s and %s\n%+v", f.epoch, f.from.Name, m.gates[i].Leader.Name, *m)
			}
		}
	}
}

func TestModelOfElection(t *testing.T) {
	for _, c := range []struct {
		name string
		bounds
	}{
		{"store keeps", bounds{ticks: 5, asks: 6}},
		{"answers are lost", bounds{ticks: 4, asks: 5, losses: 1}},
		{"store forgets", bounds{ticks: 3, asks: 4, tables: 1, forgets: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &search{t: t, bounds: c.bounds, seen: make(map[[2]uint64]bool)}
			s.from(newModel())
			t.Logf("%d states; a, b, c lead in %d", len(s.seen), s.leaders)
			if slices.Contains(s.leaders[:], 0) {
				t.Error("one of them never leads: the search does not reach what it is about")
			}
		})
	}
}
