package selector

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// Domain separates the kinds of key, so that an id that a client chose can
// never meet a digest that the gateway derived.
type Domain byte

const (
	DomainID      Domain = iota // an id that names the conversation
	DomainGroup                 // prompt_cache_key: names a group
	DomainOpening               // digest of the conversation's opening
	DomainBound                 // an id that an engine made: Bindings
)

// MaxKeyBytes bounds an affinity id; longer ones are not keys.
const MaxKeyBytes = 256

// defaultSecret keys the affinity hash where none is configured, so that
// restarts and replicas agree. It hides nothing; routing.hash_key does.
const defaultSecret = "penstock affinity key, version 1"

// Keyer turns affinity identities into slot keys for one tenant. SipHash-2-4
// under a 128-bit key that is HMAC-SHA-256(secret, tenant): clients choose
// ids, and must not be able to choose slots (security.md 17). Immutable.
type Keyer struct{ k0, k1 uint64 }

// NewKeyer derives the tenant's key; an empty secret means the fixed one.
func NewKeyer(secret, tenant string) Keyer {
	if secret == "" {
		secret = defaultSecret
	}
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("penstock/affinity\x00" + tenant))
	sum := m.Sum(nil)
	return Keyer{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}
}

// Key hashes an identity within its scope: the model, the cache salt (engines
// keep one prefix cache per salt and per adapter) and the domain. Equality is
// exact over the whole id.
func (k Keyer) Key(model, salt string, d Domain, id string) uint64 {
	scope := xxhash.Sum64String(model) + uint64(d)*0x9e3779b97f4a7c15
	if salt != "" {
		scope = scope*0xff51afd7ed558ccd ^ xxhash.Sum64String(salt)
	}
	if len(id) <= 56 { // nearly all: a small buffer is cheaper to clear
		var buf [8 + 56]byte
		return k.sum(buf[:], scope, id)
	}
	var buf [8 + MaxKeyBytes]byte
	return k.sum(buf[:], scope, id)
}

func (k Keyer) sum(buf []byte, scope uint64, id string) uint64 {
	binary.LittleEndian.PutUint64(buf, scope)
	n := copy(buf[8:], id)
	return siphash.Hash(k.k0, k.k1, buf[:8+n])
}

// KeyOfDigest is Key for an opening, given as its digest.
func (k Keyer) KeyOfDigest(model, salt string, digest uint64) uint64 {
	var id [8]byte
	binary.LittleEndian.PutUint64(id[:], digest)
	return k.Key(model, salt, DomainOpening, string(id[:]))
}
