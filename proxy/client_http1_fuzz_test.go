package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// scraps is a connection whose reads bring at most a few bytes each.
type scraps struct {
	net.Conn
	data  []byte
	sizes []byte // of the reads, over and over
	next  int
}

func (s *scraps) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := len(s.data)
	if len(s.sizes) > 0 {
		n = 1 + int(s.sizes[s.next%len(s.sizes)])
		s.next++
	}
	n = copy(p, s.data[:min(n, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

func (s *scraps) SetDeadline(time.Time) error { return nil }

// readWhole reads one response as the client does, the body by pieces of size.
func readWhole(conn net.Conn, size int) (r *response, body []byte, err error) {
	r = &response{conn: newEngineConn(conn, 0), halt: &halt{}}
	if err := r.readHead(&r.in); err != nil {
		return r, nil, err
	}
	p := make([]byte, size)
	for {
		n, err := r.Read(p)
		body = append(body, p[:n]...)
		if err == io.EOF {
			return r, body, nil
		}
		if err != nil {
			return r, body, err
		}
		if n == 0 {
			return r, body, errors.New("a read that brings nothing")
		}
	}
}

var responses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nto the end",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 503 Busy now\nRetry-After: 3\nA: b\nA: c\nConnection: close\n\nlf only",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
}

// net/http's reader is the second opinion: where both read a whole response,
// they read the same one, however the bytes arrive. Ours may refuse more.
func FuzzHTTP1Response(f *testing.F) {
	for _, r := range responses {
		f.Add([]byte(r), []byte{}, uint8(200))
		f.Add([]byte(r), []byte{0}, uint8(1))
		f.Add([]byte(r), []byte{2, 0, 6}, uint8(7))
	}
	f.Fuzz(func(t *testing.T, data, sizes []byte, piece uint8) {
		r, body, err := readWhole(&scraps{data: slices.Clone(data), sizes: sizes}, int(piece)+1)
		if err != nil {
			return
		}
		in := bufio.NewReader(bytes.NewReader(data))
		var want *http.Response
		for {
			if want, err = http.ReadResponse(in, &http.Request{Method: http.MethodPost}); err != nil {
				t.Fatalf("net/http refuses it: %v", err)
			}
			if want.StatusCode >= 200 {
				break
			}
		}
		wantBody, err := io.ReadAll(want.Body)
		if err != nil {
			t.Fatalf("net/http does not read the body to its end: %v", err)
		}
		if r.in.status != want.StatusCode || !bytes.Equal(body, wantBody) {
			t.Fatalf("status %d body %q, net/http reads %d %q", r.in.status, body, want.StatusCode, wantBody)
		}
		if r.keep && want.Close {
			t.Error("the connection is kept, net/http would close it")
		}
		for name, values := range r.in.header {
			if name == "Content-Length" || name == "Trailer" || name == "Connection" {
				continue // net/http moves these to fields of their own
			}
			if !slices.Equal(values, want.Header[name]) {
				t.Errorf("%s: %q, net/http reads %q", name, values, want.Header[name])
			}
		}
	})
}

// Each of these responses is read to its end, in any pieces.
func TestHTTP1ResponseInPieces(t *testing.T) {
	for i, text := range responses {
		var first []byte
		for _, sizes := range [][]byte{nil, {0}, {1}, {6, 2}} {
			for _, piece := range []int{1, 3, 4096} {
				_, body, err := readWhole(&scraps{data: []byte(text), sizes: sizes}, piece)
				if err != nil {
					t.Fatalf("response %d: %v", i, err)
				}
				if first == nil {
					first = append([]byte{}, body...)
				}
				if !bytes.Equal(body, first) {
					t.Errorf("response %d: %q and %q", i, body, first)
				}
			}
		}
	}
}

// What can be understood in two ways, or is cut, is no whole response.
func TestHTTP1ResponseRefused(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\n"
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	for name, text := range map[string]string{
		"no status line":         "hello\r\n\r\n",
		"HTTP/2":                 "HTTP/2.0 200 OK\r\n\r\n",
		"status of two digits":   "HTTP/1.1 20 OK\r\n\r\n",
		"status 700":             "HTTP/1.1 700 X\r\nContent-Length: 0\r\n\r\n",
		"switching protocols":    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"six interim answers":    strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 6) + ok + "Content-Length: 0\r\n\r\n",
		"folded line":            ok + "A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
		"space before the colon": ok + "Content-Length : 0\r\n\r\n",
		"control character":      ok + "A: b\x00\r\nContent-Length: 0\r\n\r\n",
		"bare CR":                ok + "A: b\rContent-Length: 9\r\nContent-Length: 0\r\n\r\n",
		"two lengths":            ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"length with a sign":     ok + "Content-Length: +1\r\n\r\na",
		"length beyond numbers":  ok + "Content-Length: 99999999999999999999\r\n\r\na",
		"empty length":           ok + "Content-Length:\r\n\r\n",
		"gzip, chunked":          ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":          ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"body cut":               ok + "Content-Length: 5\r\n\r\nhell",
		"chunk cut":              chunked + "5\r\nhell",
		"no last chunk":          chunked + "5\r\nhello\r\n",
		"trailer cut":            chunked + "0\r\nA: b\r\n",
		"chunk longer":           chunked + "5\r\nhello!\r\n0\r\n\r\n",
		"chunk size with sign":   chunked + "+5\r\nhello\r\n0\r\n\r\n",
		"chunk size 0x":          chunked + "0x5\r\nhello\r\n0\r\n\r\n",
		"empty chunk size":       chunked + "\r\nhello\r\n0\r\n\r\n",
		"huge chunk size":        chunked + "ffffffffffffffffff\r\nhello",
		"LF in chunk framing":    chunked + "5\nhello\n0\n\n",
		"endless extension":      chunked + "5;" + strings.Repeat("x", 5000) + "\r\nhello\r\n0\r\n\r\n",
		"endless trailer":        chunked + "0\r\n" + strings.Repeat("A: b\r\n", 5000) + "\r\n",
		"endless header":         ok + strings.Repeat("A: b\r\n", 20000) + "\r\n",
		"header cut":             ok + "A: b\r\n",
		"nothing":                "",
	} {
		if _, body, err := readWhole(&scraps{data: []byte(text)}, 512); err == nil {
			t.Errorf("%s: taken for a whole response, body %q", name, body)
		}
	}
}
