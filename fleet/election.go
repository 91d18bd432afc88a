package fleet

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// Identity is one process of a gateway: a name, and what tells it from another
// process of the same name.
type Identity struct {
	Name     string
	Instance uint64
}

// LeaseRecord is what the store holds under the lease's key.
type LeaseRecord struct {
	Leader Identity
	Epoch  uint64
	Free   bool // it was given back: who comes first has it
}

// Timing of the lease (fleet.md 6).
type Timing struct {
	Lease  time.Duration // how long a record must stand unchanged until another may take it
	Renew  time.Duration // from one renewal, or one look, to the next
	Margin time.Duration // before the end of its lease a leader falls silent
}

// DefaultTiming lets a leader that dies be followed in Lease, as others see its
// last renewal, and a poll.
var DefaultTiming = Timing{Lease: 6 * time.Second, Renew: 2 * time.Second, Margin: time.Second}

// OpKind is what an Election asks of the store.
type OpKind uint8

const (
	OpNone   OpKind = iota
	OpRead          // tell me the record
	OpCreate        // write Record where there is none
	OpUpdate        // write Record over the one of Revision, and over no other
)

// Op is one request to the store.
type Op struct {
	Kind     OpKind
	Record   LeaseRecord
	Revision uint64
	Sent     time.Duration
}

// OpResult is how an Op ended.
type OpResult uint8

const (
	OpDone     OpResult = iota
	OpConflict          // the store holds something else
	OpAbsent            // of OpRead: it holds nothing
	OpUnknown           // no answer: it may have happened, or may happen yet
)

// Answer is what the store said.
type Answer struct {
	Result   OpResult
	Record   LeaseRecord // of OpRead
	Revision uint64
}

// Election is one gateway's part in choosing who leads. It is a value: no
// clock, no store, no goroutine; equal elections that are told the same do the
// same. Times count from any instant, on a clock that never goes back. One
// operation is under way at a time: every Op that is not OpNone is followed by
// Did.
//
// A record that changes is another lease term. Who does not hold it takes it
// over once it has stood unchanged for Lease since it was first seen; who holds
// it counts Lease from before its renewal was sent. The first always ends later
// than the second, so that no clocks need agree, only run at one speed.
type Election struct {
	Me     Identity
	Timing Timing

	heard    uint64 // the highest epoch that anybody was heard of with
	known    bool   // the store's record is known, as of looked
	absent   bool   // it holds none
	record   LeaseRecord
	revision uint64
	since    time.Duration // when this revision was first seen
	looked   time.Duration // when the record was last confirmed

	holds   bool // record is ours, until then
	until   time.Duration
	renewed time.Duration // the last renewal was sent
	doubt   bool          // a write of ours may have happened

	tried   LeaseRecord // of the last write that would make us leader
	triedAt time.Duration
}

// epochStep is the distance of epochs of one gateway: the bits below tell
// gateways apart, so that two that know nothing of each other, before a store
// that forgets, do not take the same epoch. Epochs stay below 2^53.
const epochStep = 1 << 10

// lane is the part of a gateway's epochs that its name decides.
func lane(name string) uint64 { return xxhash.Sum64String(name) % epochStep }

// nextEpoch is the first of this gateway's epochs above all that were heard of
// and above the clock: a store that was wiped locks nobody out.
func (e *Election) nextEpoch(unixMS int64) uint64 {
	top := max(e.heard, e.record.Epoch, uint64(max(unixMS, 0))*epochStep)
	next := top - top%epochStep + lane(e.Me.Name)
	if next <= top {
		next += epochStep
	}
	return next
}

// Next is what to ask the store for. unixMS is the wall clock, which decides
// nothing but how high epochs are. stands is false for a gateway that does not
// want to lead; what it holds it gives back.
func (e *Election) Next(now time.Duration, unixMS int64, stands bool) Op {
	if e.holds && now >= e.until {
		e.holds = false
	}
	switch {
	case !e.known || e.doubt:
		return Op{Kind: OpRead, Sent: now}
	case e.holds && !stands:
		return Op{Kind: OpUpdate, Record: LeaseRecord{Leader: e.Me, Epoch: e.record.Epoch, Free: true}, Revision: e.revision, Sent: now}
	case e.holds && e.heard > e.record.Epoch: // somebody was accepted with a higher one
		return e.try(Op{Kind: OpUpdate, Revision: e.revision, Sent: now}, unixMS)
	case e.holds && now-e.renewed >= e.Timing.Renew:
		return Op{Kind: OpUpdate, Record: e.record, Revision: e.revision, Sent: now}
	case e.holds:
		return Op{}
	case stands && e.absent:
		return e.try(Op{Kind: OpCreate, Sent: now}, unixMS)
	case stands && (e.record.Free && !e.absent || now-e.since >= e.Timing.Lease):
		return e.try(Op{Kind: OpUpdate, Revision: e.revision, Sent: now}, unixMS)
	case now-e.looked >= e.Timing.Renew:
		return Op{Kind: OpRead, Sent: now}
	}
	return Op{}
}

func (e *Election) try(op Op, unixMS int64) Op {
	op.Record = LeaseRecord{Leader: e.Me, Epoch: e.nextEpoch(unixMS)}
	e.tried, e.triedAt = op.Record, op.Sent
	e.heard = max(e.heard, op.Record.Epoch) // never twice, whatever becomes of it
	return op
}

// Did tells how the operation ended that Next asked for.
func (e *Election) Did(op Op, a Answer, now time.Duration) {
	switch {
	case a.Result == OpUnknown:
		e.doubt = e.doubt || op.Kind != OpRead
	case op.Kind == OpRead:
		e.doubt = false
		e.read(a, now)
	case a.Result == OpConflict:
		e.holds, e.known = false, false
	default:
		e.see(op.Record, a.Revision, now)
		e.holds = !op.Record.Free
		e.until, e.renewed = op.Sent+e.Timing.Lease, op.Sent
	}
}

// read takes what the store holds.
func (e *Election) read(a Answer, now time.Duration) {
	if a.Result == OpAbsent {
		e.known, e.absent, e.holds, e.looked = true, true, false, now
		e.record, e.revision = LeaseRecord{}, 0
		return
	}
	e.see(a.Record, a.Revision, now)
	switch {
	case a.Record.Leader != e.Me || a.Record.Free:
		e.holds = false
	case e.holds:
		// A renewal came through whose answer was lost: the lease counts from the
		// one that was answered.
	case a.Record == e.tried && now < e.triedAt+e.Timing.Lease:
		e.holds, e.until, e.renewed = true, e.triedAt+e.Timing.Lease, e.triedAt
	}
}

// see notes the store's record; one of a revision not seen before begins a term.
func (e *Election) see(r LeaseRecord, revision uint64, now time.Duration) {
	if !e.known || e.absent || revision != e.revision || r != e.record {
		e.since = now
	}
	e.known, e.absent, e.record, e.revision, e.looked = true, false, r, revision, now
	e.heard = max(e.heard, r.Epoch)
}

// Hear notes an epoch that a report or a table carries.
func (e *Election) Hear(epoch uint64) { e.heard = max(e.heard, epoch) }

// Heard is the highest epoch that anybody was heard of with.
func (e *Election) Heard() uint64 { return e.heard }

// Beat notes that the leader itself told of its lease, which spares a look at
// the store.
func (e *Election) Beat(r LeaseRecord, revision uint64, now time.Duration) {
	if e.holds || r.Epoch < e.record.Epoch || e.known && !e.absent && r.Epoch == e.record.Epoch && revision < e.revision {
		return
	}
	e.see(r, revision, now)
}

// Leads reports whether this gateway plans for all, and in which epoch.
func (e *Election) Leads(now time.Duration) (epoch uint64, leads bool) {
	if !e.holds || now >= e.until-e.Timing.Margin {
		return e.record.Epoch, false
	}
	return e.record.Epoch, true
}

// Lease is the record as it is known, with its revision.
func (e *Election) Lease() (LeaseRecord, uint64) { return e.record, e.revision }
