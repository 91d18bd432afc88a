package enginetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Exchange is one request to a Script and the means to answer it. Its data
// does not change after the play has begun. The methods are for the play
// alone; writes to a connection that is gone do nothing.
type Exchange struct {
	Index   int // in Script.Exchanges
	Conn    int // in Script.Connections
	Arrived time.Time
	Request *http.Request // parsed head; its Body is nil
	Raw     []byte        // head and body as they came, with chunk framing
	Body    []byte        // without it

	c    *scriptConn
	gone chan struct{}
}

// Gone is closed when the peer has left during the play.
func (x *Exchange) Gone() <-chan struct{} { return x.gone }

// Pause waits. It returns false, and early, if the peer leaves or the Script
// is closed.
func (x *Exchange) Pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.gone:
	case <-x.c.script.closed:
	}
	return false
}

// Hang waits until the peer leaves or the Script is closed.
func (x *Exchange) Hang() {
	select {
	case <-x.gone:
	case <-x.c.script.closed:
	}
}

// Write sends bytes as they are, in one write.
func (x *Exchange) Write(raw string) { _, _ = x.c.conn.Write([]byte(raw)) }

// Respond sends a whole response.
func (x *Exchange) Respond(status int, contentType, body string) {
	x.Write(response(Page{Status: status, ContentType: contentType, Body: body}))
}

// StartStream sends the head of a chunked response of events.
func (x *Exchange) StartStream() {
	x.Write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
}

// Event sends "data: TEXT" and an empty line as one chunk.
func (x *Exchange) Event(text string) { x.Chunk("data: " + text + "\n\n") }

// Token sends the event of a chat completion in which content arrives.
func (x *Exchange) Token(content string) {
	x.Event(`{"id":"chatcmpl-script","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":` +
		string(appendQuoted(nil, content)) + `},"logprobs":null,"finish_reason":null,"token_ids":null}]}`)
}

// Finish sends the proper end of a chat completion stream: finish_reason,
// [DONE] and the last chunk.
func (x *Exchange) Finish() {
	x.Event(`{"id":"chatcmpl-script","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`)
	x.Event("[DONE]")
	x.EndChunks()
}

// Chunk sends one chunk of a chunked body.
func (x *Exchange) Chunk(data string) { x.Write(fmt.Sprintf("%x\r\n%s\r\n", len(data), data)) }

// EndChunks sends the last chunk.
func (x *Exchange) EndChunks() { x.Write("0\r\n\r\n") }

// Reset breaks the connection with a RST.
func (x *Exchange) Reset() { x.c.end(ResetByUs) }

// Close ends the connection with a FIN.
func (x *Exchange) Close() { x.c.end(ClosedByUs) }

func response(p Page) string {
	if p.Status == 0 {
		p.Status = http.StatusOK
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", p.Status, http.StatusText(p.Status), len(p.Body))
	if p.ContentType != "" {
		head += "Content-Type: " + p.ContentType + "\r\n"
	}
	if p.Server != "" {
		head += "Server: " + p.Server + "\r\n"
	}
	return head + "\r\n" + p.Body
}

// scriptConn is one connection of a Script; its Connection is guarded by
// Script.mu.
type scriptConn struct {
	script *Script
	conn   *net.TCPConn
	index  int
	Connection
}

// end records how the connection ended, the first time, and closes it.
func (c *scriptConn) end(how Departure) {
	c.script.mu.Lock()
	first := c.Ended == Connected
	if first {
		c.Ended, c.EndedAt = how, time.Now()
	}
	c.script.mu.Unlock()
	if !first {
		return
	}
	if how == ResetByUs {
		_ = c.conn.SetLinger(0)
	}
	_ = c.conn.Close()
}

// endBy is how a failed read tells that the connection ended.
func endBy(err error) Departure {
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return PeerReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return PeerClosed
	case errors.Is(err, net.ErrClosed):
		return ClosedByUs
	}
	return BrokenInput
}

// serve answers the requests of one connection, one after the other. While an
// answer is played, a second goroutine waits for the next byte, which is how
// the peer's departure is seen.
func (c *scriptConn) serve() {
	r := bufio.NewReader(c.conn)
	_, err := r.Peek(1)
	for err == nil {
		var x *Exchange
		if x, err = readExchange(r); err != nil {
			break
		}
		x.c, x.Conn = c, c.index
		c.script.mu.Lock()
		c.Requests++
		c.script.mu.Unlock()

		next := make(chan error, 1)
		c.script.running.Go(func() {
			_, err := r.Peek(1)
			if err != nil {
				c.end(endBy(err))
				close(x.gone)
			}
			next <- err
		})
		c.answer(x)
		if x.Request.Close {
			c.end(ClosedByUs)
		}
		err = <-next
	}
	c.end(endBy(err))
}

func (c *scriptConn) answer(x *Exchange) {
	page, ok := c.script.page(x.Request)
	if !ok {
		c.script.begin(x)(x)
		return
	}
	if page.Delay == 0 || x.Pause(page.Delay) {
		x.Write(response(page))
	}
}

// readExchange reads one request and keeps every byte of it.
func readExchange(r *bufio.Reader) (*Exchange, error) {
	x := &Exchange{Arrived: time.Now(), gone: make(chan struct{})}
	for {
		line, err := r.ReadSlice('\n')
		x.Raw = append(x.Raw, line...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if bytes.HasSuffix(x.Raw, []byte("\r\n\r\n")) {
			break
		}
	}
	var err error
	if x.Request, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(x.Raw))); err != nil {
		return nil, err
	}
	length, chunked := x.Request.ContentLength, len(x.Request.TransferEncoding) > 0
	x.Request.Body = nil
	if chunked {
		return x, x.readChunks(r)
	}
	if length > maxBody {
		return nil, fmt.Errorf("a body of %d bytes", length)
	}
	x.Body = make([]byte, length)
	_, err = io.ReadFull(r, x.Body)
	x.Raw = append(x.Raw, x.Body...)
	return x, err
}

// readChunks reads a chunked body up to the end of its trailer.
func (x *Exchange) readChunks(r *bufio.Reader) error {
	line := func() (string, error) {
		text, err := r.ReadString('\n')
		x.Raw = append(x.Raw, text...)
		return strings.TrimRight(text, "\r\n"), err
	}
	for {
		text, err := line()
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(text, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 31)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		data := make([]byte, n+2)
		if _, err = io.ReadFull(r, data); err != nil {
			return err
		}
		x.Raw = append(x.Raw, data...)
		x.Body = append(x.Body, data[:n]...)
	}
	for {
		if text, err := line(); err != nil || text == "" {
			return err
		}
	}
}
