package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is how long a client waits for an answer where the row is not about waiting.
const patience = 20 * time.Second

// answer is a response, read to its end or to the end of the client's patience.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	err      error // of the connection or of reading the body: an unclean end
	gaveUp   bool  // the client's patience ended first
	took     time.Duration
	lastText time.Time // when an event with text last arrived
	ended    time.Time
}

// newHTTP is a client without limits of its own that repeats nothing.
func newHTTP() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send posts a body and reads the answer; headers are name, value pairs.
func send(ctx context.Context, c *http.Client, url string, body []byte, patience time.Duration, headers ...string) (a answer) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		a.ended = time.Now()
		a.took = a.ended.Sub(start)
		a.gaveUp = a.err != nil && errors.Is(limited.Err(), context.DeadlineExceeded)
	}()
	// A body of no known kind has no GetBody: the client cannot repeat the request.
	req, err := http.NewRequestWithContext(limited, http.MethodPost, url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		a.err = err
		return a
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	a.lastText = time.Now()
	for buf := make([]byte, 32<<10); a.err == nil; {
		n, err := resp.Body.Read(buf)
		if contentEvents(buf[:n]) > 0 {
			a.lastText = time.Now()
		}
		a.body = append(a.body, buf[:n]...)
		if err == io.EOF {
			return a
		}
		a.err = err
	}
	return a
}

// ok reports an answer that a client takes for whole and that is whole.
func (a answer) ok() bool {
	return a.status == http.StatusOK && a.err == nil && !a.errorEvent() && bytes.Contains(a.body, []byte(`"finish_reason":"stop"`))
}

// errorEvent reports whether an event of the body is an error object.
func (a answer) errorEvent() bool {
	for line := range bytes.Lines(a.body) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		var event struct{ Error json.RawMessage }
		if ok && json.Unmarshal(data, &event) == nil && len(event.Error) > 0 && string(event.Error) != "null" {
			return true
		}
	}
	return false
}

// Endings of a stream that the engine did not finish.
const (
	endsRight     = "error event, then abort"
	endsCut       = "body cut"
	endsComplete  = "looks complete"
	endsInvented  = "looks complete, with a finish_reason of the proxy's"
	endsDone      = "looks complete, with a [DONE] of the proxy's"
	endsErrorDone = "error event, then [DONE] and a clean end"
	endsError     = "error event, then a clean end"
	endsErrorAbrt = "error event, then [DONE], then abort"
)

// ending says how a stream whose engine broke off ended for the client. An
// SDK takes a clean end without an error event for success, [DONE] or not.
func (a answer) ending() string {
	done := bytes.Contains(a.body, []byte("data: [DONE]"))
	finish := bytes.Contains(a.body, []byte(`"finish_reason":"`))
	switch failed, clean := a.errorEvent(), a.err == nil; {
	case a.status != http.StatusOK:
		return a.outcome()
	case failed && clean && done:
		return endsErrorDone
	case failed && clean:
		return endsError
	case failed && done:
		return endsErrorAbrt
	case failed:
		return endsRight
	case !clean:
		return endsCut
	case finish:
		return endsInvented
	case done:
		return endsDone
	}
	return endsComplete
}

// outcome names an answer by its status, or by how it failed without one.
func (a answer) outcome() string {
	switch {
	case a.status != 0:
		return fmt.Sprint(a.status)
	case a.gaveUp:
		return "no answer"
	}
	return "connection closed"
}

// format says what an error's body is: OpenAI's JSON, HTML, or text.
func (a answer) format() string {
	var doc struct {
		Error struct{ Message string }
	}
	kind := a.header.Get("Content-Type")
	switch {
	case json.Unmarshal(a.body, &doc) == nil && doc.Error.Message != "":
		return "JSON"
	case strings.Contains(kind, "html"):
		return "HTML"
	case len(a.body) == 0:
		return "empty"
	}
	return "text"
}

// rawRequest is a client on a connection of its own, for what a well-behaved
// library does not do: leave at a known instant, send hop-by-hop headers.
func rawRequest(host string, body []byte, headers ...string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", host, 5*time.Second)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", generations, host, len(body))
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", headers[i], headers[i+1])
	}
	b.WriteString("\r\n")
	b.Write(body)
	if _, err := conn.Write(b.Bytes()); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
