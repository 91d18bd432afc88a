package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// LineBytes is the buffer of a gateway's log: with access-log lines of 400
// bytes at 10,000 requests/s it bridges a sink that blocks for a second.
const LineBytes = 4 << 20

// flushEvery bounds how long a line waits in the buffer.
const flushEvery = 100 * time.Millisecond

// LineBuffer takes whole lines, one a Write, and writes them to a sink from
// one goroutine (Run), so that a writer never waits for the sink. It holds at
// most limit bytes: what comes while it is full is dropped and counted, and
// the count is a line of its own as soon as the sink takes one. Outside Run,
// before it and after, a Write goes straight to the sink: a line said during
// start-up or after the drain is not lost either. Safe for concurrent use.
type LineBuffer struct {
	sink  io.Writer
	limit int // bytes

	due   chan struct{} // capacity 1: the empty buffer got a line
	hurry chan struct{} // capacity 1: flush now

	writing sync.Mutex // held during writes to sink; taken before mu
	torn    bool       // guarded by writing: the sink has part of a line only

	mu      sync.Mutex
	running bool
	lines   []byte
	spare   []byte // the other half of the double buffer
	pending uint64 // lost lines not reported yet
	lost    uint64 // lost lines since the start
}

// NewLineBuffer holds at most limit bytes for sink. It starts nothing.
func NewLineBuffer(sink io.Writer, limit int) *LineBuffer {
	return &LineBuffer{sink: sink, limit: limit, due: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// Write takes one line with its newline. While Run runs it never blocks on the
// sink and never fails.
func (b *LineBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	if !b.running {
		b.mu.Unlock()
		b.writing.Lock()
		defer b.writing.Unlock()
		return b.sink.Write(line)
	}
	if len(b.lines)+len(line) > b.limit {
		b.pending++
		b.lost++
		b.mu.Unlock()
		return len(line), nil
	}
	first := len(b.lines) == 0
	b.lines = append(b.lines, line...)
	filling := len(b.lines) > b.limit/2
	b.mu.Unlock()
	switch {
	case filling:
		b.Hurry()
	case first:
		signal(b.due)
	}
	return len(line), nil
}

// Hurry has the buffer written out at once instead of within flushEvery.
func (b *LineBuffer) Hurry() { signal(b.hurry) }

// Lost is how many lines never reached the sink, for a counter.
func (b *LineBuffer) Lost() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// Run writes out what Write took until ctx ends, then what is left, and
// returns nil. A sink that blocks for ever blocks that last write too.
func (b *LineBuffer) Run(ctx context.Context) error {
	b.mu.Lock()
	b.running = true
	b.mu.Unlock()
	var flush <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			b.flush(false)
			return nil
		case <-b.due:
			if flush == nil {
				flush = time.After(flushEvery)
			}
		case <-flush:
			flush = nil
			b.flush(true)
		case <-b.hurry:
			flush = nil
			b.flush(true)
		}
	}
}

// flush writes out all lines taken so far, then the count of those lost since
// the last report: they came after the lines that filled the buffer.
func (b *LineBuffer) flush(running bool) {
	b.writing.Lock()
	defer b.writing.Unlock()

	b.mu.Lock()
	b.running = running
	lines := b.lines
	b.lines, b.spare = b.spare[:0], nil
	pending := b.pending
	b.pending = 0
	b.mu.Unlock()

	fresh := b.write(lines)
	pending += fresh
	if pending > 0 && b.write(lossReport(time.Now(), pending)) == 0 {
		pending = 0
	}

	b.mu.Lock()
	b.spare = lines[:0]
	b.pending += pending
	b.lost += fresh
	b.mu.Unlock()
}

// write gives chunk to the sink and returns how many of its lines the sink did
// not take whole. b.writing is held.
func (b *LineBuffer) write(chunk []byte) (missing uint64) {
	if len(chunk) == 0 {
		return 0
	}
	if b.torn {
		if _, err := b.sink.Write([]byte("\n")); err != nil {
			return uint64(bytes.Count(chunk, []byte("\n")))
		}
		b.torn = false
	}
	n, err := b.sink.Write(chunk)
	if err == nil {
		return 0
	}
	b.torn = n > 0 && chunk[n-1] != '\n'
	return uint64(bytes.Count(chunk[n:], []byte("\n")))
}

func lossReport(now time.Time, lines uint64) []byte {
	return fmt.Appendf(nil, `{"time":%q,"level":"WARN","msg":"log lines lost: the log's reader is too slow or fails","lines":%d}`+"\n",
		now.Format(time.RFC3339Nano), lines)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
