package proxy

import (
	"bytes"
	"errors"
)

const (
	// maxEventBytes bounds one event of an engine (protection.md 3); SDKs stop at 32 MiB.
	maxEventBytes = 16 << 20
	// readBufferBytes is what a stream holds while its events are small.
	readBufferBytes = 2 << 10
	// keepBufferBytes is the largest buffer that survives a huge event or a reset.
	keepBufferBytes = 64 << 10
)

var (
	errEventTooLarge = errors.New("engine sent an event beyond the size limit")

	utf8BOM = []byte("\xef\xbb\xbf")
)

// sseEvent is one unit of a stream that can be forwarded: an event with its blank line, or a
// comment or blank line between events, which waits for nothing. Raw, Data and Name are valid
// until the next call of Space or Reset.
type sseEvent struct {
	Raw  []byte // the engine's bytes; all Raws concatenated are the stream
	Data []byte // the data lines joined by \n; nil without a data line
	Name []byte // the event field, empty when absent

	Comment bool // no field line: comments and blank lines between events
	Cut     bool // the stream ended before the blank line
}

// closing is what must follow a cut event on the wire before anything else is written, so that
// the two do not become one.
func (e sseEvent) closing() string {
	switch {
	case !e.Cut:
		return ""
	case bytes.HasSuffix(e.Raw, []byte("\n")):
		return "\n"
	default:
		return "\n\n" // also after a CR, whose line end the first \n completes
	}
}

// span is a range of the pending bytes, relative to eventReader.start.
type span struct{ from, to int }

// eventReader cuts an engine's byte stream into events, by the WHATWG algorithm, without copying:
// the caller reads into Space, says so with Fill, and takes events with Next until it has none.
// Each byte is searched once, whatever the size of the reads. Which events come out, and with
// which bytes, does not depend on how the stream was split into reads.
type eventReader struct {
	buf   []byte // [:taken] old, [taken:start] handed out since Space, [start:] pending
	taken int
	start int
	limit int
	eof   bool
	err   error

	// Everything below is relative to start, so that moving the pending bytes keeps it.
	line    int  // start of the current line
	scan    int  // no line end in [line:scan)
	lf      int  // the first LF at or after scan, or the end of the part known to have none
	lfFound bool // which of the two lf is

	begun   bool // the start of the stream, with or without a BOM, has been seen
	afterCR bool // the line before ended with a CR: an LF here is part of it
	// bareCR says that the stream has used CR alone as line end. Until then the end of a line at a
	// CR waits for the next byte; from then on it does not, and an LF goes with what follows.
	bareCR bool

	fields    bool // a field line of the current event was read
	dataLines int
	data      span
	name      span
	join      []byte // the data of an event with several data lines

	searched int64 // bytes searched for line ends: the bound on the work of a stream
}

// Reset makes r ready for a new stream; a buffer of ordinary size is kept.
func (r *eventReader) Reset(limit int) {
	buf, join := r.buf, r.join
	if cap(buf) > keepBufferBytes {
		buf = nil
	}
	if cap(join) > keepBufferBytes {
		join = nil
	}
	*r = eventReader{buf: buf[:0], join: join[:0], limit: limit}
}

// Space returns at least n free bytes for the next read. Events taken before are invalid after it.
func (r *eventReader) Space(n int) []byte {
	pending := len(r.buf) - r.start
	oversized := cap(r.buf) > keepBufferBytes && pending+n <= keepBufferBytes/2
	switch {
	case oversized || pending+n > cap(r.buf):
		size := max(readBufferBytes, pending+n)
		if !oversized {
			size = max(size, min(2*cap(r.buf), r.limit+n))
		}
		grown := make([]byte, pending, size)
		copy(grown, r.buf[r.start:])
		r.buf, r.start = grown, 0
	case pending == 0:
		r.buf, r.start = r.buf[:0], 0
	case cap(r.buf)-len(r.buf) < n:
		// Moves no more than the last read brought: what was pending before it has been taken.
		copy(r.buf, r.buf[r.start:])
		r.buf, r.start = r.buf[:pending], 0
	}
	if cap(r.join) > keepBufferBytes && r.dataLines < 2 {
		r.join = nil
	}
	r.taken = r.start
	return r.buf[len(r.buf):cap(r.buf)]
}

// Fill says that n bytes of the last Space were written.
func (r *eventReader) Fill(n int) { r.buf = r.buf[:len(r.buf)+n] }

// End says that no bytes follow; Next then also gives the event that was cut.
func (r *eventReader) End() { r.eof = true }

// Err is errEventTooLarge once an event exceeded the limit: no event follows.
func (r *eventReader) Err() error { return r.err }

// Taken is the bytes of all events that Next gave since the last Space, for one write.
func (r *eventReader) Taken() []byte { return r.buf[r.taken:r.start] }

// Next gives the next unit that can be forwarded, or false when it needs more bytes.
func (r *eventReader) Next() (sseEvent, bool) {
	if r.err != nil {
		return sseEvent{}, false
	}
	p := r.buf[r.start:]
	for r.skipPrefix(p) {
		i := r.findLineEnd(p)
		if i < 0 {
			break
		}
		next, known := r.afterLineEnd(p, i)
		if !known {
			break
		}
		from := r.line
		r.line, r.scan = next, next
		switch {
		case i == from || p[from] == ':':
			if i == from || !r.fields {
				return r.emit(p, next, false)
			}
		default:
			r.field(p, from, i)
		}
	}
	if r.eof && len(p) > 0 {
		if r.line < len(p) && p[r.line] != ':' {
			r.field(p, r.line, len(p))
		}
		return r.emit(p, len(p), true)
	}
	if len(p) > r.limit {
		r.err = errEventTooLarge
	}
	return sseEvent{}, false
}

// skipPrefix steps over what precedes a line without being part of it: a BOM, or the LF of a CRLF
// whose CR already ended the line before. It reports false when it needs more bytes to know.
func (r *eventReader) skipPrefix(p []byte) bool {
	if !r.begun {
		if len(p) < len(utf8BOM) && bytes.HasPrefix(utf8BOM, p) && !r.eof {
			return false
		}
		r.begun = true
		if bytes.HasPrefix(p, utf8BOM) {
			r.line, r.scan = len(utf8BOM), len(utf8BOM)
		}
	}
	if r.afterCR {
		if r.line == len(p) {
			return false
		}
		r.afterCR = false
		if p[r.line] == '\n' {
			r.line++
			r.scan = r.line
		}
	}
	return true
}

// findLineEnd returns the index of the CR or LF that ends the current line, or -1. The first LF
// is remembered: without that, a buffer of bare CRs would be searched once per line.
func (r *eventReader) findLineEnd(p []byte) int {
	if r.lf < r.scan {
		r.lf, r.lfFound = r.scan, false
	}
	if !r.lfFound {
		i := bytes.IndexByte(p[r.lf:], '\n')
		if r.lfFound = i >= 0; !r.lfFound {
			i = len(p) - r.lf
		}
		r.searched += int64(i)
		r.lf += i
	}
	i := bytes.IndexByte(p[r.scan:r.lf], '\r')
	if i >= 0 {
		r.searched += int64(i)
		r.scan += i
		return r.scan
	}
	r.searched += int64(r.lf - r.scan)
	r.scan = r.lf
	if r.lfFound {
		return r.lf
	}
	return -1
}

// afterLineEnd returns where the line after the line end at i starts, and whether that is known.
func (r *eventReader) afterLineEnd(p []byte, i int) (next int, known bool) {
	switch {
	case p[i] == '\n':
		return i + 1, true
	case r.bareCR:
		r.afterCR = true
		return i + 1, true
	case i+1 == len(p):
		return i + 1, r.eof
	case p[i+1] == '\n':
		return i + 2, true
	default:
		r.bareCR = true
		return i + 1, true
	}
}

// field takes one field line. Only data and event matter; a line without a colon is a field name
// with an empty value, and unknown fields are ignored, as the algorithm says.
func (r *eventReader) field(p []byte, from, to int) {
	r.fields = true
	line := p[from:to]
	switch {
	case isField(line, "data"):
		r.addData(p, value(p, from+len("data"), to))
	case isField(line, "event"):
		r.name = value(p, from+len("event"), to)
	}
}

func isField(line []byte, name string) bool {
	return len(line) >= len(name) && string(line[:len(name)]) == name &&
		(len(line) == len(name) || line[len(name)] == ':')
}

// value is what follows a field's name, without the colon and one space.
func value(p []byte, from, to int) span {
	if from < to {
		from++
	}
	if from < to && p[from] == ' ' {
		from++
	}
	return span{from, to}
}

func (r *eventReader) addData(p []byte, v span) {
	switch r.dataLines {
	case 0:
		r.data = v
	case 1:
		r.join = append(r.join[:0], p[r.data.from:r.data.to]...)
		fallthrough
	default:
		r.join = append(r.join, '\n')
		r.join = append(r.join, p[v.from:v.to]...)
	}
	r.dataLines++
}

// emit hands out the first n pending bytes as one unit.
func (r *eventReader) emit(p []byte, n int, cut bool) (sseEvent, bool) {
	if n > r.limit {
		r.err = errEventTooLarge
		return sseEvent{}, false
	}
	ev := sseEvent{Raw: p[:n:n], Name: p[r.name.from:r.name.to:r.name.to], Comment: !r.fields, Cut: cut}
	switch r.dataLines {
	case 0:
	case 1:
		ev.Data = p[r.data.from:r.data.to:r.data.to]
	default:
		ev.Data = r.join
	}
	r.start += n
	r.line, r.scan = 0, 0
	if r.lf -= n; r.lf < 0 {
		r.lf, r.lfFound = 0, false
	}
	r.fields, r.dataLines, r.data, r.name = false, 0, span{}, span{}
	return ev, true
}
