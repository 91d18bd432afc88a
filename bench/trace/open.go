package trace

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// Options say how a file is read. The zero value reads it as it is.
type Options struct {
	Format Format // Unknown: by the content
	Seed   uint64 // of what is drawn: starts of sessions, ServeGen's arrivals and lengths

	// Weka: sessions have no common clock.
	SessionsPerSecond float64       // starts are Poisson; 0: DefaultSessionsPerSecond
	LongestPause      time.Duration // a longer pause within a session becomes this; 0: DefaultLongestPause, negative: as recorded

	// ServeGen: clients are distributions.
	Workload string  // only this one; empty: all
	Scale    float64 // multiplies the rates; 0: 1
	Lengths  string  // the file of token lengths; empty: servegen_client_lengths.csv beside the rates
}

// Defaults of what a file leaves open.
const (
	DefaultSessionsPerSecond = 0.2
	DefaultLongestPause      = 30 * time.Minute
)

// Reader yields the requests of one file in time order.
type Reader struct {
	file    string
	format  Format
	lines   *lines
	close   func() error
	rows    rows
	last    time.Duration
	count   int
	skipped map[string]int
	err     error
}

// rows is a format: one request after the other, io.EOF after the last.
type rows interface {
	next() (Request, error)
}

// Open opens a trace file and finds out its format. The error is a *Fault, or
// that the file cannot be opened.
func Open(path string, o Options) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := newReader(f, path, o)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads a trace from a stream; name stands for it in faults.
func NewReader(in io.Reader, name string, o Options) (*Reader, error) { return newReader(in, name, o) }

func newReader(in io.Reader, name string, o Options) (*Reader, error) {
	l, err := newLines(in, name)
	if err != nil {
		return nil, err
	}
	first, err := l.peek()
	if errors.Is(err, io.EOF) {
		return nil, &Fault{File: name, Reason: "a trace without a request"}
	}
	if err != nil {
		return nil, err
	}
	r := &Reader{file: name, format: o.Format, lines: l, close: func() error { return nil }, skipped: map[string]int{}}
	if r.format == Unknown {
		if r.format, err = detect(first); err != nil {
			return nil, place(err, name, l.line+1)
		}
	}
	if r.rows, err = r.open(o); err != nil {
		return nil, place(err, name, l.line)
	}
	return r, nil
}

func (r *Reader) open(o Options) (rows, error) {
	switch r.format {
	case Mooncake:
		return newMooncake(r), nil
	case Azure:
		return newAzure(r)
	case BurstGPT:
		return newBurstGPT(r)
	case Bailian:
		return newBailian(r), nil
	case RAGPulse:
		return newRAGPulse(r), nil
	case Weka:
		return newWeka(r, o)
	case ServeGen:
		return newServeGen(r, o)
	case Access:
		return newAccess(r)
	}
	return nil, fmt.Errorf("format %d", r.format)
}

// Next returns the next request, io.EOF after the last one. Another error is a
// *Fault, and stays.
func (r *Reader) Next() (Request, error) {
	if r.err != nil {
		return Request{}, r.err
	}
	q, err := r.rows.next()
	switch {
	case errors.Is(err, io.EOF) && r.count == 0:
		r.err = &Fault{File: r.file, Reason: "a trace without a request" + r.whySkipped()}
	case errors.Is(err, io.EOF):
		r.err = io.EOF
	case err != nil:
		r.err = place(err, r.file, r.lines.line)
	case q.At < r.last:
		r.err = place(bad("", "", "%s after the start, but the request above came at %s: want requests in time order", q.At, r.last), r.file, r.lines.line)
	}
	if r.err != nil {
		return Request{}, r.err
	}
	r.last = q.At
	r.count++
	return q, nil
}

// skip counts a row that is no request to replay.
func (r *Reader) skip(why string) { r.skipped[why]++ }

func (r *Reader) whySkipped() string {
	text := ""
	for i, why := range slices.Sorted(maps.Keys(r.skipped)) {
		if i == 0 {
			text = ": rows left out are "
		} else {
			text += ", "
		}
		text += why
	}
	return text
}

// Format is the file's format.
func (r *Reader) Format() Format { return r.format }

// Skipped says how many rows were left out so far, by reason.
func (r *Reader) Skipped() map[string]int { return maps.Clone(r.skipped) }

// Close closes the file.
func (r *Reader) Close() error { return r.close() }

// All reads a whole file.
func All(path string, o Options) ([]Request, error) {
	r, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []Request
	for {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
}
