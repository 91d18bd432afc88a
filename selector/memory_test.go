package selector

import (
	"math/rand/v2"
	"testing"

	"penstock/route"
)

// What was put is found for the KV lifetime, then not.
func TestMemoryExpires(t *testing.T) {
	m := newMemory()
	for range 1000 {
		key, id, at := rand.Uint64(), uint16(rand.Uint32()), rand.Int64N(1<<40)
		m.put(key, id, at)
		if got, ok := m.get(key, at); !ok || got != id {
			t.Fatalf("key %x: %d %t, put was %d", key, got, ok, id)
		}
		if got, ok := m.get(key, at+route.KVLifetime); !ok || got != id {
			t.Fatalf("key %x is gone within the lifetime", key)
		}
		if _, ok := m.get(key, at+3*route.KVLifetime); ok {
			t.Fatalf("key %x is there after the lifetime", key)
		}
	}
}

// Using a conversation keeps it; it is not the first put that counts.
func TestMemoryIsKeptByUse(t *testing.T) {
	m := newMemory()
	m.put(99, 7, 0)
	for at := int64(0); at < 3000; at += 100 {
		if id, ok := m.get(99, at); !ok || id != 7 {
			t.Fatalf("forgotten at %d s although it was used 100 s before", at)
		}
	}
}

// The table holds its size under any number of keys, prefers to forget the
// longest unused, and hardly ever takes one key for another.
func TestMemoryIsBounded(t *testing.T) {
	m := newMemory()
	const n = 1_500_000
	for i := range uint64(n) {
		m.put(i*0x9e3779b97f4a7c15, uint16(i), int64(i/100_000))
	}
	recent, wrong := 0, 0
	for i := uint64(n - 100_000); i < n; i++ {
		if id, ok := m.get(i*0x9e3779b97f4a7c15, n/100_000); ok {
			recent++
			if id != uint16(i) {
				wrong++
			}
		}
	}
	if recent < 99_000 {
		t.Errorf("only %d of the last 100,000 keys are remembered", recent)
	}
	if wrong > 3 {
		t.Errorf("%d keys got another key's engine", wrong)
	}
	strangers := 0
	for range 100_000 {
		if _, ok := m.get(rand.Uint64(), n/100_000); ok {
			strangers++
		}
	}
	if strangers > 20 {
		t.Errorf("%d of 100,000 unknown keys are remembered", strangers)
	}
}
