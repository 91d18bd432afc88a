package selector

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestBindingsAreFoundAgain(t *testing.T) {
	k := NewKeyer("", "a")
	var b Bindings
	if _, ok := b.Get(k.Key("", "", DomainBound, "resp_1"), 1); ok {
		t.Error("an id that nobody made")
	}
	for i := range 1000 {
		b.Put(k.Key("", "", DomainBound, fmt.Sprint("resp_", i)), Binding{Engine: uint16(i), Mark: 7}, 10)
	}
	for i := range 1000 {
		got, ok := b.Get(k.Key("", "", DomainBound, fmt.Sprint("resp_", i)), 20)
		if !ok || got != (Binding{Engine: uint16(i), Mark: 7}) {
			t.Fatalf("resp_%d: %v %v", i, got, ok)
		}
	}
	var again Bindings
	b.All(func(key uint64, used int64, to Binding) { again.Put(key, to, used) })
	if got, ok := again.Get(k.Key("", "", DomainBound, "resp_999"), 20); !ok || got.Engine != 999 || again.Puts() != b.Puts() {
		t.Errorf("after a copy: %v %v, %d of %d", got, ok, again.Puts(), b.Puts())
	}
	if _, ok := b.Get(NewKeyer("", "b").Key("", "", DomainBound, "resp_1"), 20); ok {
		t.Error("another tenant's id")
	}
	if _, ok := b.Get(k.Key("", "", DomainID, "resp_1"), 20); ok {
		t.Error("an affinity key is taken for an id")
	}
}

// However many ids there are, the memory is that of the sets, and the ids in
// use stay.
func TestBindingsForgetTheLongestUnused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Bindings
		set := rapid.Uint64Range(0, bindingShards*bindingSets-1).Draw(t, "set")
		key := func(i int) uint64 { return uint64(i)*bindingShards*bindingSets + set }
		kept := key(0)
		b.Put(kept, Binding{Engine: 9}, 1)
		n := rapid.IntRange(1, 100).Draw(t, "ids")
		for i := 1; i <= n; i++ {
			now := int64(1 + i)
			b.Put(key(i), Binding{Engine: uint16(i)}, now)
			if got, ok := b.Get(kept, now); !ok || got.Engine != 9 {
				t.Fatalf("the id in use was forgotten after %d others", i)
			}
		}
		found := 0
		for i := 1; i <= n; i++ {
			if _, ok := b.Get(key(i), 200); ok {
				found++
				if n-i > bindingWays-2 {
					t.Fatalf("id %d of %d is still there", i, n)
				}
			}
		}
		if found != min(n, bindingWays-1) {
			t.Fatalf("%d of %d ids are kept", found, n)
		}
	})
}

func TestBindingsAtOnce(t *testing.T) {
	var b Bindings
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				k := uint64(i*7919) * 0x9e3779b97f4a7c15
				b.Put(k, Binding{Engine: uint16(i)}, int64(w+1))
				if got, ok := b.Get(k, int64(w+1)); !ok || got.Engine != uint16(i) {
					t.Errorf("%d: %v %v", i, got, ok)
					return
				}
			}
		})
	}
	wg.Wait()
}
