package fleet

import (
	"bytes"
	"compress/flate"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// Kind is what a message is. A signature of one kind is none of another.
type Kind uint8

const (
	KindReport   Kind = iota + 1 // one gateway's demand
	KindSnapshot                 // the leader's plan, or that it still holds
	KindLease                    // who leads, in the store
	KindRoll                     // who reports, for people
)

// Header is who says something, and its place among all that was said.
type Header struct {
	Kind  Kind
	From  Identity
	Epoch uint64 // of a snapshot its leader's; of a report the highest that its gateway heard of
	Seq   uint64 // of this process's messages of a kind; only grows
}

// Bounds of messages in bytes: as sent, and what they may unfold to.
const (
	MaxMessage = 1 << 20
	maxBody    = 16 << 20
	maxName    = 128
)

// Key signs and checks a fleet's messages: gateways that have the same secret
// are of one fleet.
type Key struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
	id      [keyIDSize]byte
}

const keyIDSize = 8

// NewKey derives the key of a fleet from its secret.
func NewKey(secret string) *Key {
	seed := sha256.Sum256([]byte("penstock fleet key 1\n" + secret))
	k := &Key{private: ed25519.NewKeyFromSeed(seed[:])}
	k.public = k.private.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(k.public)
	copy(k.id[:], sum[:])
	return k
}

// protocol is the version of everything below: a release that changes it reads
// both for a while.
const protocol = 1

var magic = [4]byte{'P', 'S', 'F', protocol}

// An envelope is: magic, key id, kind, length and bytes of the name, instance,
// epoch, seq (8 bytes each, lowest first), the body, deflated, and the ed25519
// signature of all before it.
const (
	nameAt       = len(magic) + keyIDSize + 2
	leastMessage = nameAt + 1 + 3*8 + ed25519.SignatureSize
)

// deflaters, inflaters and bodies are kept: to make one takes up to a megabyte, and
// a message has a few kilobytes.
var (
	deflaters = sync.Pool{New: func() any {
		z, err := flate.NewWriter(io.Discard, flate.BestSpeed)
		if err != nil {
			panic(err) // the level is one that there is
		}
		return z
	}}
	inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}
	bodies    = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// keptBody is the largest body whose memory is kept.
const keptBody = 1 << 20

// Seal makes a message.
func (k *Key) Seal(h Header, body []byte) ([]byte, error) {
	if n := len(h.From.Name); n == 0 || n > maxName {
		return nil, errors.New("a gateway's name has 1 to 128 bytes")
	}
	var b bytes.Buffer
	b.Write(magic[:])
	b.Write(k.id[:])
	b.WriteByte(byte(h.Kind))
	b.WriteByte(byte(len(h.From.Name)))
	b.WriteString(h.From.Name)
	for _, n := range []uint64{h.From.Instance, h.Epoch, h.Seq} {
		b.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	z := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(z)
	z.Reset(&b)
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	b.Write(ed25519.Sign(k.private, b.Bytes()))
	return b.Bytes(), nil
}

// Open reads the header of a message of one kind. It is believed only with
// Accepted; of a message that is refused it says who it claims to be from, if it
// does.
func (k *Key) Open(kind Kind, message []byte) (Header, Refusal) {
	h, _, why := k.check(kind, message)
	return h, why
}

// open reads a message of one kind; take reads its body, which it does not keep.
func (k *Key) open(kind Kind, message []byte, take func(h Header, body []byte) Refusal) (Header, Refusal) {
	h, deflated, why := k.check(kind, message)
	if why != Accepted {
		return h, why
	}
	z := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(z)
	if err := z.(flate.Resetter).Reset(bytes.NewReader(deflated), nil); err != nil {
		return h, Unreadable
	}
	body := bodies.Get().(*bytes.Buffer)
	defer func() {
		if body.Cap() <= keptBody {
			bodies.Put(body)
		}
	}()
	body.Reset()
	switch _, err := body.ReadFrom(io.LimitReader(z, maxBody+1)); {
	case err != nil:
		return h, Unreadable
	case body.Len() > maxBody:
		return h, Oversized
	}
	return h, take(h, body.Bytes())
}

// check finds who a message is from, and whether it is.
func (k *Key) check(kind Kind, message []byte) (h Header, deflated []byte, why Refusal) {
	if len(message) > MaxMessage {
		return h, nil, Oversized
	}
	if len(message) < leastMessage {
		return h, nil, Truncated
	}
	if [4]byte(message) != magic {
		return h, nil, UnknownVersion
	}
	n := int(message[nameAt-1])
	if n == 0 || n > maxName || len(message) < leastMessage-1+n {
		return h, nil, Truncated
	}
	signed, signature := message[:len(message)-ed25519.SignatureSize], message[len(message)-ed25519.SignatureSize:]
	rest := message[nameAt:]
	h = Header{Kind: Kind(message[nameAt-2]), From: Identity{Name: string(rest[:n])}}
	rest = rest[n:]
	h.From.Instance, h.Epoch, h.Seq = binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:]), binary.LittleEndian.Uint64(rest[16:])
	switch {
	case [keyIDSize]byte(message[len(magic):]) != k.id:
		return h, nil, WrongKey
	case !ed25519.Verify(k.public, signed, signature), h.Kind != kind:
		return h, nil, Forged
	}
	return h, signed[nameAt+n+3*8:], Accepted
}
