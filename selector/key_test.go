package selector

import (
	"strings"
	"testing"
)

// Keys are a contract between replicas and over upgrades: these may not change.
func TestKeysAreFixed(t *testing.T) {
	k := NewKeyer("", "")
	for _, c := range []struct {
		key  uint64
		want uint64
	}{
		{k.Key("m", "", DomainID, "s1"), 0xaede09bf9c1c9f34},
		{k.KeyOfDigest("m", "", 0x0123456789abcdef), 0x634e9b75c8ae60ca},
		{NewKeyer("secret", "").Key("m", "salt", DomainGroup, strings.Repeat("x", 256)), 0xd4d2e3c293182b9e},
	} {
		if c.key != c.want {
			t.Errorf("key %#x, want %#x", c.key, c.want)
		}
	}
}

// Every part of the scope separates: model, salt, domain, id, tenant, secret.
func TestKeyScope(t *testing.T) {
	base := NewKeyer("s", "t").Key("model", "salt", DomainID, "id")
	seen := map[uint64]string{base: "base"}
	for name, key := range map[string]uint64{
		"secret":          NewKeyer("S", "t").Key("model", "salt", DomainID, "id"),
		"tenant":          NewKeyer("s", "T").Key("model", "salt", DomainID, "id"),
		"model":           NewKeyer("s", "t").Key("modem", "salt", DomainID, "id"),
		"salt":            NewKeyer("s", "t").Key("model", "sald", DomainID, "id"),
		"no salt":         NewKeyer("s", "t").Key("model", "", DomainID, "id"),
		"domain":          NewKeyer("s", "t").Key("model", "salt", DomainGroup, "id"),
		"prefix":          NewKeyer("s", "t").Key("model", "salt", DomainID, "i"),
		"longer":          NewKeyer("s", "t").Key("model", "salt", DomainID, "id2"),
		"long, same head": NewKeyer("s", "t").Key("model", "salt", DomainID, "id"+strings.Repeat("0", 100)),
	} {
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
}
