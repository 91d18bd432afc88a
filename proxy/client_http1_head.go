package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// errNotHTTP is an answer that is no HTTP/1 response, or one that cannot be
// delimited beyond doubt (RFC 9112 section 6.3).
var errNotHTTP = errors.New("not an HTTP/1 response")

func notHTTP(why string) error { return fmt.Errorf("%w: %s", errNotHTTP, why) }

// appendHead writes the request's header. Lengths and the connection are ours
// to say; a value that could start a line of its own cannot.
func appendHead(b []byte, a *outgoing, length int) []byte {
	base := a.engine.Base
	method := a.method
	if method == "" {
		method = http.MethodPost
	}
	b = append(append(b, method...), ' ')
	b = appendTarget(b, base.Path, a.path, a.query)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, base.Host...)
	for name, values := range a.header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect":
			continue
		}
		for _, v := range values {
			b = append(append(append(b, "\r\n"...), name...), ": "...)
			at := len(b)
			b = append(b, v...)
			for i := at; i < len(b); i++ {
				if c := b[i]; c < ' ' && c != '\t' || c == 0x7f {
					b[i] = ' '
				}
			}
		}
	}
	if a.body != nil {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(length), 10)
	}
	if a.fresh {
		b = append(b, "\r\nConnection: close"...)
	}
	return append(b, "\r\n\r\n"...)
}

func appendTarget(b []byte, base, path, query string) []byte {
	at := len(b)
	b = append(append(b, base...), path...)
	for _, c := range b[at:] {
		if !plainPath[c] {
			u := url.URL{Path: string(b[at:])}
			b = append(b[:at], u.EscapedPath()...)
			break
		}
	}
	if query == "" {
		return b
	}
	b = append(b, '?')
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '#' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// plainPath are the bytes that a path carries as they are.
var plainPath = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/") {
		t[c] = true
	}
	return t
}()

// readHead reads up to the empty line and returns status line and header
// lines without it. The slice is valid until the next read.
func (c *engineConn) readHead() ([]byte, error) {
	for {
		if end, next := headEnd(c.buf[c.r:c.w], c.seen); end >= 0 {
			head := c.buf[c.r : c.r+end]
			c.r, c.seen = c.r+next, 0
			return head, nil
		}
		c.seen = max(0, c.w-c.r-3) // the end may begin with the last three bytes
		if c.w-c.r == len(c.buf) {
			if len(c.buf) >= engineHeaderBytes {
				return nil, notHTTP("a header larger than 64 KiB")
			}
			c.buf = append(c.buf, make([]byte, min(len(c.buf), engineHeaderBytes-len(c.buf)))...)
		}
		if err := c.fill(); err != nil {
			if err == io.EOF && c.heard {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// headEnd finds the empty line, from byte seen on: where the lines before it
// end, without their line end, and where what follows begins. Lines end with CRLF, or
// with LF alone as RFC 9112 section 2.2 allows.
func headEnd(b []byte, seen int) (end, next int) {
	for i := seen; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1, 0
		}
		i += n + 1
		switch rest := b[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i, i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i, i + 2
		}
	}
}

// head is a parsed response header.
type head struct {
	status  int
	header  http.Header
	length  int64 // Content-Length, -1 = none
	chunked bool
	keep    bool // the engine lets the connection live
}

// parseHead parses what readHead returned. It refuses what two readers could
// understand differently: folded lines, control characters, several lengths,
// codings other than chunked alone. The header lies in into, where that is not nil.
func parseHead(b []byte, into http.Header) (head, error) {
	text := string(b)
	line, rest := cutLine(text)
	h := head{length: -1}
	minor, ok := h.statusLine(line)
	if !ok {
		return h, notHTTP("a status line that is none")
	}
	if h.header = into; into == nil {
		h.header = make(http.Header, 8)
	}
	clear(h.header) // of an interim answer
	values := make([]string, 0, strings.Count(rest, "\n"))
	for rest != "" {
		line, rest = cutLine(rest)
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || !isValue(value) {
			return h, notHTTP("a header line that is none")
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		values = append(values, strings.Trim(value, " \t"))
		if have := h.header[name]; have != nil {
			h.header[name] = append(have, values[len(values)-1])
		} else {
			h.header[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	return h, h.delimit(minor)
}

func cutLine(s string) (line, rest string) {
	line, rest, _ = strings.Cut(s, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

// statusLine reads "HTTP/1.1 200 OK"; the reason is ignored.
func (h *head) statusLine(s string) (minor byte, ok bool) {
	if len(s) < len("HTTP/1.1 200") || s[:7] != "HTTP/1." || s[7] < '0' || s[7] > '9' || s[8] != ' ' {
		return 0, false
	}
	for _, c := range []byte(s[9:12]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		h.status = h.status*10 + int(c-'0')
	}
	if reason := s[12:]; reason != "" && (reason[0] != ' ' || !isValue(reason)) {
		return 0, false
	}
	return s[7] - '0', h.status >= 100 && h.status <= 599
}

// delimit decides how the body ends and whether the connection lives.
func (h *head) delimit(minor byte) error {
	alive, closes := minor > 0, false
	for _, line := range h.header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			option = strings.Trim(option, " \t")
			closes = closes || strings.EqualFold(option, "close")
			alive = alive || strings.EqualFold(option, "keep-alive")
		}
	}
	h.keep = alive && !closes
	lengths := h.header["Content-Length"]
	for i, v := range lengths {
		n, ok := decimal(v)
		if !ok || i > 0 && n != h.length {
			return notHTTP("a Content-Length that is no number, or two of them")
		}
		h.length = n
	}
	if coding := h.header["Transfer-Encoding"]; coding != nil {
		if len(coding) != 1 || !strings.EqualFold(coding[0], "chunked") || minor == 0 {
			return notHTTP("a Transfer-Encoding other than chunked")
		}
		h.chunked = true
		if lengths != nil { // RFC 9112 6.3: chunked it is, and nothing after it is to be trusted
			h.keep, h.length = false, -1
			delete(h.header, "Content-Length")
		}
		delete(h.header, "Transfer-Encoding")
	}
	if h.framing().kind == bodyToClose {
		h.keep = false
	}
	return nil
}

// framing of the body that follows.
func (h *head) framing() framing {
	switch {
	case h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		return framing{}
	case h.chunked:
		return framing{kind: bodyChunked}
	case h.length >= 0:
		return framing{kind: bodyLength, left: h.length}
	default:
		return framing{kind: bodyToClose}
	}
}

// decimal reads digits alone: no sign, no space, below 2^62.
func decimal(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// tokenByte is tchar of RFC 9110 section 5.6.2.
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()
