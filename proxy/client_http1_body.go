package proxy

import (
	"bytes"
	"io"
)

// bodyKind is how a response's body ends (RFC 9112 section 6.3).
type bodyKind uint8

const (
	bodyNone    bodyKind = iota // there is none, or it was read to its end
	bodyLength                  // after left bytes
	bodyChunked                 // with the chunk of size 0 and its trailer
	bodyToClose                 // when the engine closes the connection
)

// framing is what is still to come of a body.
type framing struct {
	kind  bodyKind
	left  int64 // of the body (bodyLength) or of the chunk at hand
	phase chunkPhase
	spent int // bytes of the trailer
}

// ended reports whether the body was read to its end, by its own framing.
func (f *framing) ended() bool { return f.kind == bodyNone }

type chunkPhase uint8

const (
	chunkSize    chunkPhase = iota // a size line is next
	chunkData                      // left bytes of data are next
	chunkDataEnd                   // the CRLF after them
	chunkTrailer                   // lines up to an empty one
)

// read reads some of the body into p. io.EOF without the end of the framing
// is the connection's. Once some bytes are in p it waits for no more.
func (f *framing) read(c *engineConn, p []byte) (int, error) {
	switch f.kind {
	case bodyNone:
		return 0, io.EOF
	case bodyChunked:
		return f.readChunks(c, p)
	case bodyLength:
		if f.left == 0 {
			f.kind = bodyNone
			return 0, io.EOF
		}
		n, err := c.readSome(p[:min(int64(len(p)), f.left)])
		if f.left -= int64(n); f.left == 0 {
			f.kind = bodyNone
			err = io.EOF
		}
		return n, err
	default:
		n, err := c.readSome(p)
		if err == io.EOF {
			f.kind = bodyNone
		}
		return n, err
	}
}

// readSome reads what is buffered, else once from the connection.
func (c *engineConn) readSome(p []byte) (int, error) {
	if c.r < c.w {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	return c.Conn.Read(p)
}

// readChunks takes as many chunks as are buffered and fit.
func (f *framing) readChunks(c *engineConn, p []byte) (n int, err error) {
	for f.kind == bodyChunked {
		if f.phase == chunkData {
			if n == len(p) || n > 0 && c.buffered() == 0 {
				return n, nil
			}
			m, err := f.readData(c, p[n:])
			if n += m; err != nil {
				return n, err
			}
			continue
		}
		moved, err := f.step(c)
		if err != nil {
			return n, err
		}
		if moved {
			continue
		}
		if n > 0 {
			return n, nil
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	return n, io.EOF
}

func (f *framing) readData(c *engineConn, p []byte) (n int, err error) {
	p = p[:min(int64(len(p)), f.left)]
	if c.buffered() == 0 && len(p) < len(c.buf) {
		// The framing after the data comes with the same read.
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	if n, err = c.readSome(p); n > 0 {
		err = nil // an error comes again
	}
	if f.left -= int64(n); f.left == 0 {
		f.phase = chunkDataEnd
	}
	return n, err
}

// step passes over one line of framing; false = more has to be read for it.
func (f *framing) step(c *engineConn) (moved bool, err error) {
	b := c.buf[c.r:c.w]
	if f.phase == chunkDataEnd {
		switch {
		case len(b) >= 1 && b[0] != '\r', len(b) >= 2 && b[1] != '\n':
			return false, notHTTP("a chunk that is longer than it says")
		case len(b) < 2:
			return false, nil
		}
		c.r += 2
		f.phase = chunkSize
		return true, nil
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) >= maxFramingLine {
			return false, notHTTP("a line of chunk framing without end")
		}
		return false, nil
	}
	if end == 0 || b[end-1] != '\r' {
		return false, notHTTP("a line of chunk framing that ends without CR")
	}
	line := b[:end-1]
	c.r += end + 1
	if f.phase == chunkTrailer {
		if f.spent += end; f.spent > maxTrailer {
			return false, notHTTP("a trailer larger than 8 KiB")
		}
		if len(line) == 0 {
			f.kind = bodyNone
		} else if name, value, ok := bytes.Cut(line, []byte{':'}); !ok || !isToken(string(name)) || !isValue(string(value)) {
			return false, notHTTP("a trailer line that is none")
		}
		return true, nil
	}
	size, ok := hexSize(line)
	if !ok {
		return false, notHTTP("a chunk size that is none")
	}
	f.left, f.phase = size, chunkData
	if size == 0 {
		f.phase = chunkTrailer
	}
	return true, nil
}

const (
	maxFramingLine = 2 << 10 // less than a connection's buffer
	maxTrailer     = 8 << 10
)

// hexSize reads a chunk's size; an extension after ";" is passed over.
func hexSize(line []byte) (int64, bool) {
	digits := line
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		digits = line[:i]
		if !isValue(string(line[i:])) {
			return 0, false
		}
	}
	digits = bytes.TrimRight(digits, " \t") // before an extension, or as some servers pad
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	n := int64(0)
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}
