package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	keyA = "sk-a-0123456789abcdefghij"
	keyB = "sk-b-0123456789abcdefghij"
)

// Hashes stand in configurations: they may not change from one release to the next.
func TestKeyHashIsHMACAndStays(t *testing.T) {
	if got := HashKey("an-example-of-a-tenant-key").String(); got != "hmac-sha256:H20IhwrAcj1301wbMrFXAmOztXYzH2wab2ONGV78a10" {
		t.Errorf("%s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOfN(rapid.ByteRange('!', '~'), MinKey, 2*MaxKey).Draw(t, "key"))
		mac := hmac.New(sha256.New, []byte("penstock tenant key, version 1"))
		mac.Write([]byte(key))
		hash := HashKey(key)
		if string(hash[:]) != string(mac.Sum(nil)) {
			t.Fatalf("%x of %q", hash, key)
		}
		var again KeyHash
		if err := again.UnmarshalText([]byte(hash.String())); err != nil || again != hash {
			t.Fatalf("%s reads as %s, %v", hash, again, err)
		}
	})
}

// A hasher that is used again knows nothing of the key before.
func TestHashersAreUsedAgain(t *testing.T) {
	var hasher keyHasher
	for _, key := range []string{keyA, strings.Repeat("k", 2*MaxKey), keyB, keyA, "", keyB} {
		if hasher.sum(key) != HashKey(key) {
			t.Errorf("the hash of %q depends on what was hashed before", key)
		}
		if hasher.key != [MaxKey]byte{} {
			t.Error("a key stays in the buffer")
		}
	}
}

func TestWrongHashesAreRefusedWithoutQuoting(t *testing.T) {
	good := HashKey(keyA).String()
	for _, text := range []string{"", keyA, good + "=", good[:len(good)-1], good + "A", strings.ToUpper(good), strings.TrimPrefix(good, "hmac-"),
		"sha256:" + strings.Repeat("0", 64), strings.Replace(good, "hmac-sha256:", "hmac-sha512:", 1), good[:20] + "\n" + good[21:],
		good[:len(good)-1] + "1", // bits that the last character does not carry: another spelling of the same hash
		good[:30] + "!" + good[31:], " " + good} {
		var h KeyHash
		err := h.UnmarshalText([]byte(text))
		if err == nil {
			t.Errorf("%q is taken as %s", text, h)
		} else if text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("quoted: %v", err)
		}
	}
}

func TestKeysOf20To512VisibleCharacters(t *testing.T) {
	for _, c := range []struct {
		key string
		ok  bool
	}{
		{strings.Repeat("k", 19), false}, {strings.Repeat("k", 20), true}, {strings.Repeat("k", 512), true}, {strings.Repeat("k", 513), false},
		{"", false}, {"sk 0123456789abcdefghij", false}, {"sk-0123456789abcdefghij\n", false}, {"sk-\x000123456789abcdefghij", false},
		{"sk-é0123456789abcdefghij", false}, {"sk-\x7f0123456789abcdefghij", false}, {"!~{}:;,\"'\\0123456789abc", true},
	} {
		err := CheckKey(c.key)
		if (err == nil) != c.ok {
			t.Errorf("%d characters %.30q: %v", len(c.key), c.key, err)
		}
		if err != nil && c.key != "" && strings.Contains(err.Error(), c.key) {
			t.Errorf("quoted: %v", err)
		}
	}
}

func TestHashKeyAllocatesNothing(t *testing.T) {
	var hasher keyHasher
	if n := testing.AllocsPerRun(1000, func() { hasher.sum(keyA) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHashKey(b *testing.B) {
	for _, n := range []int{32, 64, 512} {
		key := strings.Repeat("k", n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var hasher keyHasher
			b.ReportAllocs()
			for b.Loop() {
				hasher.sum(key)
			}
		})
	}
}
