package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// longestLine bounds a line: the longest of the public traces has a quarter of
// a megabyte.
const longestLine = 16 << 20

// lines reads a text file line by line, unpacking gzip.
type lines struct {
	file string
	in   *bufio.Reader
	long []byte // a line that is longer than in's buffer
	line int    // of the line that next returned last; 1 is the first
	err  error  // that ended it

	ahead []byte // peeked
	has   bool
}

func newLines(in io.Reader, file string) (*lines, error) {
	l := &lines{file: file, in: bufio.NewReaderSize(in, 64<<10)}
	if magic, _ := l.in.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(l.in)
		if err != nil {
			return nil, &Fault{File: file, Reason: "gzip: " + err.Error()}
		}
		l.in = bufio.NewReaderSize(z, 64<<10)
	}
	return l, nil
}

// next returns the next line that is not blank. It is valid until the one after.
func (l *lines) next() ([]byte, error) {
	if l.has {
		l.has = false
		l.line++
		return l.ahead, nil
	}
	for l.err == nil {
		text := l.read()
		if text == nil {
			break
		}
		if l.line == 0 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // as spreadsheets write it
		}
		l.line++
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return text, nil
		}
	}
	switch {
	case errors.Is(l.err, io.EOF):
		return nil, io.EOF
	case errors.Is(l.err, io.ErrUnexpectedEOF):
		return nil, &Fault{File: l.file, Line: l.line + 1, Reason: "the file ends in the middle of its gzip stream"}
	}
	return nil, &Fault{File: l.file, Line: l.line + 1, Reason: l.err.Error()}
}

var errLongLine = errors.New("a line of more than 16 MiB")

// read is a line with its end, nil after the last one. A line that an error cut
// off is none.
func (l *lines) read() []byte {
	part, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		l.err = err
		if err != nil && (len(part) == 0 || !errors.Is(err, io.EOF)) {
			return nil
		}
		return part
	}
	l.long = append(l.long[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.long) > longestLine {
			l.err = errLongLine
			return nil
		}
		part, err = l.in.ReadSlice('\n')
		l.long = append(l.long, part...)
	}
	if l.err = err; err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return l.long
}

// peek looks at the line that next returns.
func (l *lines) peek() ([]byte, error) {
	text, err := l.next()
	if err != nil {
		return nil, err
	}
	l.line--
	l.ahead, l.has = text, true
	return text, nil
}
