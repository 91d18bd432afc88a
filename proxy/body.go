package proxy

import (
	"errors"
	"io"
	"math/bits"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/protect"
)

// body is a request body read whole, shared by the handler, which owns it, and
// by the attempts that send it: the HTTP client may read a body for a while
// after its request failed. It is used again when all have let go; if the owner
// is last but one, it is left to the collector.
type body struct {
	bytes  []byte
	users  atomic.Int32 // attempts that may still read; ownerGone is added when the owner is not one
	memory *protect.Memory
	class  int // of bodyPools, -1 = none
}

const ownerGone = 1 << 16

const (
	minBufferBits = 12 // 4 KiB
	maxBufferBits = 20 // 1 MiB; larger buffers are left to the collector
)

var bodyPools [maxBufferBits + 1]sync.Pool

// newBody takes a buffer for at least size bytes, nil if the memory of all
// bodies together does not allow it.
func newBody(size int, memory *protect.Memory) *body {
	class := max(minBufferBits, bits.Len(uint(max(size-1, 0))))
	capacity := 1 << class
	if class > maxBufferBits {
		class, capacity = -1, size
	}
	if !memory.Take(int64(capacity)) {
		return nil
	}
	if class > 0 {
		if b, _ := bodyPools[class].Get().(*body); b != nil {
			b.memory = memory
			return b
		}
	}
	return &body{memory: memory, class: class, bytes: make([]byte, 0, capacity)}
}

// hold is for an attempt that is about to send the body, release for when it
// reads no more.
func (b *body) hold() { b.users.Add(1) }

func (b *body) release() { b.users.Add(-1) }

// free ends the owner's use: the body's memory no longer counts.
func (b *body) free() {
	b.memory.Give(int64(cap(b.bytes)))
	if b.users.Add(ownerGone) == ownerGone && b.class > 0 {
		b.bytes, b.memory = b.bytes[:0], nil
		b.users.Store(0)
		bodyPools[b.class].Put(b)
	}
}

// splice puts text in the place of the bytes [from, to), in another buffer
// where it does not fit into this one. Nil if the memory does not allow it; b
// is then as before.
func (b *body) splice(from, to int, text []byte) *body {
	size := len(b.bytes) - (to - from) + len(text)
	if size <= cap(b.bytes) {
		b.bytes = slices.Replace(b.bytes, from, to, text...)
		return b
	}
	next := newBody(size, b.memory)
	if next == nil {
		return nil
	}
	next.bytes = append(append(append(next.bytes, b.bytes[:from]...), text...), b.bytes[to:]...)
	b.free()
	return next
}

// minBodyRate is what a client must send at least, in bytes per second, once
// body_read has passed.
const minBodyRate = 8 << 10

// bodyReader reads request bodies within the limits.
type bodyReader struct {
	limit  int64
	wait   time.Duration
	memory *protect.Memory
	rc     *http.ResponseController
	dog    *watchdog
}

// read reads the whole body into a buffer that counts against the memory of
// all bodies together. On an error no buffer is held.
func (br *bodyReader) read(w http.ResponseWriter, r *http.Request) (*body, *apiError) {
	if enc := r.Header["Content-Encoding"]; len(enc) > 0 && !(len(enc) == 1 && (enc[0] == "" || enc[0] == "identity")) {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: "invalid_request",
			message: "request bodies with a Content-Encoding are not taken; send the JSON as it is"}
	}
	if r.ContentLength > br.limit {
		return nil, br.tooLarge(w, r)
	}
	size := int(r.ContentLength)
	if size < 0 {
		size = 64 << 10 // chunked: grows as it comes
	}
	b, apiErr := br.grow(nil, size+1) // one more byte shows the end without a further growth
	if apiErr != nil {
		return nil, apiErr
	}
	// The limit is the watchdog's, which ends the read by a deadline in the
	// past: a read deadline for every request would cost two timers.
	start := time.Now()
	br.dog.start(br, br.wait, &errBodySlow)
	defer br.dog.stop()
	for {
		if len(b.bytes) == cap(b.bytes) {
			if b, apiErr = br.grow(b, 2*cap(b.bytes)); apiErr != nil {
				return nil, apiErr
			}
		}
		n, err := r.Body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if int64(len(b.bytes)) > br.limit {
			b.free()
			return nil, br.tooLarge(w, r)
		}
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			b.free()
			return nil, bodyError(err)
		}
		allowed := br.wait + time.Duration(len(b.bytes))*time.Second/minBodyRate
		br.dog.watch(allowed-time.Since(start), &errBodySlow, false)
	}
}

// end ends the read of a body that comes too slowly.
func (br *bodyReader) end(error) { br.rc.SetReadDeadline(time.Unix(1, 0)) }

// grow returns a buffer of at least size bytes with b's content, or releases b.
func (br *bodyReader) grow(b *body, size int) (*body, *apiError) {
	next := newBody(size, br.memory)
	if next == nil {
		if b != nil {
			b.free()
		}
		return nil, errNoMemory()
	}
	if b != nil {
		next.bytes = append(next.bytes, b.bytes...)
		b.free()
	}
	return next, nil
}

func errNoMemory() *apiError {
	return &apiError{status: http.StatusServiceUnavailable, code: "overloaded", reason: "gateway_memory",
		message: "the gateway holds as many request bodies as its memory allows", retryAfter: retrySoon(), close: true}
}

func bodyError(err error) *apiError {
	e := &apiError{status: http.StatusBadRequest, code: "invalid_request", message: "the request body could not be read", close: true}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.status, e.message = http.StatusRequestTimeout, "the request body came too slowly"
	}
	return e
}

const (
	// drainBytes and drainTime bound what is read of a body that was refused.
	drainBytes = 256 << 20
	drainTime  = 10 * time.Second
	// strangerBytes is the same for strangers, who have nothing that large to send.
	strangerBytes = 16 << 20
	// unreadBytes is what net/http takes in by itself.
	unreadBytes = 256 << 10
)

func (br *bodyReader) tooLarge(w http.ResponseWriter, r *http.Request) *apiError {
	e := &apiError{status: http.StatusRequestEntityTooLarge, code: "invalid_request",
		message: "the request body is larger than this gateway takes (limits.body)"}
	return e.beforeBody(w, r, drainBytes)
}

// beforeBody answers without having read the body and then takes in some of
// what the client still sends: one that writes everything before it reads
// would otherwise see a reset instead of the answer.
func (e *apiError) beforeBody(w http.ResponseWriter, r *http.Request, most int64) *apiError {
	e.close = true
	rc := http.NewResponseController(w)
	if r.ProtoMajor != 1 || r.Header.Get("Expect") != "" || rc.EnableFullDuplex() != nil {
		return e
	}
	e.write(w, shapeOf(r.URL.Path))
	rc.Flush()
	rc.SetReadDeadline(time.Now().Add(drainTime))
	io.CopyN(io.Discard, r.Body, most)
	e.answered = true
	return e
}
