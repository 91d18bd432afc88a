package nats

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"penstock/fleet"
)

const (
	bucketName = "penstock"
	leaseKey   = "lease"
	tableKey   = "table"
)

// store is the bucket: the lease and the last table. Safe for concurrent use.
type store struct {
	js    jetstream.JetStream
	key   *fleet.Key
	found atomic.Pointer[jetstream.KeyValue] // nil: to be looked up
}

// bucket finds the bucket, and makes it where there is none: a store that was
// wiped is made again. To look it up is a request of its own, which the server
// answers one after the other: it is done once.
func (s *store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if kv := s.found.Load(); kv != nil {
		return *kv, nil
	}
	kv, err := s.js.KeyValue(ctx, bucketName)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucketName, Description: "Penstock: who leads, and the last table",
			History: 1, Replicas: s.replicas(), MaxValueSize: fleet.MaxMessage})
	}
	if err == nil {
		s.found.Store(&kv)
	}
	return kv, err
}

// replicas is on how many servers the bucket is: on three where there are, by the
// configuration or by the servers' own word.
func (s *store) replicas() int {
	if len(s.js.Conn().Servers()) >= 3 {
		return 3
	}
	return 1
}

// failed looks the bucket up again after an operation that failed: it may be
// there no more.
func (s *store) failed(err error) error {
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) && !errors.Is(err, jetstream.ErrKeyExists) {
		s.found.Store(nil)
	}
	return err
}

// do carries out one operation on the lease.
func (s *store) do(ctx context.Context, op fleet.Op) fleet.Answer {
	ctx, cancel := context.WithTimeout(ctx, storeFor)
	defer cancel()
	kv, err := s.bucket(ctx)
	if err != nil {
		// Nothing was sent, but who knows what was before.
		return fleet.Answer{Result: fleet.OpUnknown}
	}
	if op.Kind == fleet.OpRead {
		return s.read(ctx, kv)
	}
	value, err := s.key.SealLease(op.Record)
	if err != nil {
		return fleet.Answer{Result: fleet.OpConflict}
	}
	var revision uint64
	if op.Kind == fleet.OpCreate {
		revision, err = kv.Create(ctx, leaseKey, value)
	} else {
		revision, err = kv.Update(ctx, leaseKey, value, op.Revision)
	}
	err = s.failed(err)
	switch refused, isAPI := errors.AsType[jetstream.JetStreamError](err); {
	case err == nil:
		return fleet.Answer{Revision: revision}
	case errors.Is(err, jetstream.ErrKeyExists), isAPI && refused.APIError() != nil:
		return fleet.Answer{Result: fleet.OpConflict}
	}
	return fleet.Answer{Result: fleet.OpUnknown}
}

// read reads the lease. A record that cannot be believed is taken for one of
// nobody: its revision is overwritten once it has stood for long enough.
func (s *store) read(ctx context.Context, kv jetstream.KeyValue) fleet.Answer {
	entry, err := kv.Get(ctx, leaseKey)
	err = s.failed(err)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return fleet.Answer{Result: fleet.OpAbsent}
	case err != nil:
		return fleet.Answer{Result: fleet.OpUnknown}
	}
	record, _ := s.key.OpenLease(entry.Value())
	return fleet.Answer{Record: record, Revision: entry.Revision()}
}

// keepTable stores a whole table unless the store has one of a later epoch.
func (s *store) keepTable(ctx context.Context, h fleet.Header, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeFor)
	defer cancel()
	kv, err := s.bucket(ctx)
	if err != nil {
		return err
	}
	entry, err := kv.Get(ctx, tableKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		_, err = kv.Create(ctx, tableKey, message)
		return s.failed(err)
	case err != nil:
		return s.failed(err)
	}
	if was, why := s.key.Open(fleet.KindSnapshot, entry.Value()); why == fleet.Accepted && was.Epoch > h.Epoch {
		return nil
	}
	_, err = kv.Update(ctx, tableKey, message, entry.Revision())
	return s.failed(err)
}

// table is the last whole table; nil where there is none.
func (s *store) table(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storeFor)
	defer cancel()
	kv, err := s.bucket(ctx)
	if err != nil {
		return nil, err
	}
	entry, err := kv.Get(ctx, tableKey)
	if s.failed(err) != nil && errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}
