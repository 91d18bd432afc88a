package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// KeyHash is what a configuration holds of an API key: HMAC-SHA-256 under a
// key of the program's own.
//
// API keys are long and random, so a stolen hash cannot be turned back by
// guessing, and neither a slow hash nor a salt would add to that. Both would
// cost: a slow hash its time on every request, also on those of strangers; a
// salt for each key a hash for each tenant, since a key does not say whose it
// is. The key of the HMAC is public and keeps these hashes apart from all
// others made of the same keys: a table of SHA-256 sums is of no use, and
// neither is a KeyHash anywhere else.
type KeyHash [sha256.Size]byte

// hashDomain is the HMAC's key. Another one makes every configured hash void.
const hashDomain = "penstock tenant key, version 1"

// The bounds of a tenant's key, in characters, which are visible ASCII.
const (
	MinKey = 20
	MaxKey = 512
)

// CheckKey says what is wrong with a tenant's key, never quoting it.
func CheckKey(key string) error {
	switch {
	case len(key) < MinKey || len(key) > MaxKey:
		return fmt.Errorf("want a key of %d to %d characters, got %d", MinKey, MaxKey, len(key))
	case !fitsHeader(key):
		return errors.New("want a key of visible ASCII characters, without spaces: it is sent in a header")
	}
	return nil
}

func fitsHeader(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}

// HashKey is the hash of a key that CheckKey accepts.
func HashKey(key string) KeyHash {
	var k keyHasher
	return k.sum(key)
}

// keyHasher hashes without allocation, but for the first time. The zero value
// is ready; not for concurrent use. Its buffer holds a key only while it is at
// work.
type keyHasher struct {
	mac hash.Hash // nil before the first use
	key [MaxKey]byte
	out KeyHash
}

func (k *keyHasher) sum(key string) KeyHash {
	if k.mac == nil {
		k.mac = hmac.New(sha256.New, []byte(hashDomain))
	}
	k.mac.Reset()
	for len(key) > 0 { // once, but for what is longer than a key may be
		n := copy(k.key[:], key)
		k.mac.Write(k.key[:n])
		clear(k.key[:n])
		key = key[n:]
	}
	k.mac.Sum(k.out[:0])
	return k.out
}

const hashPrefix = "hmac-sha256:"

// hashText is strict, so that a hash has one spelling.
var hashText = base64.RawURLEncoding.Strict()

// String is the hash as a configuration has it.
func (h KeyHash) String() string { return hashPrefix + hashText.EncodeToString(h[:]) }

// MarshalText is String.
func (h KeyHash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what String writes. The error does not quote the text:
// it may be a key that was put in the wrong place.
func (h *KeyHash) UnmarshalText(text []byte) error {
	coded, ok := strings.CutPrefix(string(text), hashPrefix)
	if !ok || len(coded) != hashText.EncodedLen(len(h)) || strings.ContainsAny(coded, "\r\n") {
		return errWantHash
	}
	sum, err := hashText.DecodeString(coded)
	if err != nil {
		return errWantHash
	}
	copy(h[:], sum)
	return nil
}

var errWantHash = errors.New("want what `penstock hash-key` prints for the key: " + hashPrefix + " and 43 characters")
