// Package witness asks a gateway as clients do and says what a client saw: an
// answer that is whole and its own, a failure that cannot be taken for one, or
// something that must not be. It knows the answers of enginetest.Sim, which
// carry a nonce and end in a checksum, and the error codes of Penstock.
package witness

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Leaving says when a client goes away by itself.
type Leaving uint8

const (
	Stays      Leaving = iota
	LeavesSoon         // some time after it has sent its request: its context ends
	LeavesMid          // with the first content
)

// Answer is a response read to its end.
type Answer struct {
	Status int // 0: none came
	Header http.Header
	Body   string
	Err    error     // an unclean end
	Left   time.Time // when the client left with the first content
}

// Question is one request of a client.
type Question struct {
	Path   string
	Header http.Header // beside type and id; may be nil
	ID     string      // X-Request-Id
	Body   string
	When   Leaving
}

// Ask sends a request and reads its answer to the end, or to where the client
// leaves.
func Ask(ctx context.Context, c *http.Client, url string, q Question) Answer {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+q.Path, strings.NewReader(q.Body))
	if err != nil {
		return Answer{Err: err}
	}
	for name, values := range q.Header {
		req.Header[name] = values
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["X-Request-Id"] = []string{q.ID}
	resp, err := c.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	var text []byte
	for buf := make([]byte, 4<<10); a.Err == nil; {
		var n int
		n, a.Err = resp.Body.Read(buf)
		text = append(text, buf[:n]...)
		if q.When == LeavesMid && n > 0 && a.Left.IsZero() {
			a.Left = time.Now()
			leave()
		}
	}
	if a.Err == io.EOF {
		a.Err = nil
	}
	a.Body = string(text)
	return a
}
