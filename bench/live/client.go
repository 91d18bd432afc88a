package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"penstock/engine/enginetest"
)

// message is what was said in a conversation.
type message struct{ role, text string }

// words is text of so many tokens that begins nowhere else.
func words(seed uint64, tokens int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	dice := rand.New(rand.NewPCG(seed, 17))
	text := make([]byte, 0, 4*tokens)
	for range tokens {
		r := dice.Uint64()
		text = append(text, letters[r%26], letters[(r>>16)%26], letters[(r>>32)%26], ' ')
	}
	return string(text)
}

// body is the request for the next answer. Texts hold nothing that JSON escapes.
func body(messages []message, out int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + modelName + `","stream":true,"stream_options":{"include_usage":true},"max_tokens":` + strconv.Itoa(out) + `,"messages":[`)
	for i, m := range messages {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"role":"` + m.role + `","content":"` + m.text + `"}`)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// answer is one answer as it came.
type answer struct {
	engine      string // that the gateway says it came from
	first, last time.Time
	text        []byte
	tokens      int
	prompt      int
	cached      int
}

// client asks over kept connections.
type client struct{ http *http.Client }

func newClient() *client {
	return &client{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true, ReadBufferSize: 8 << 10}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// errRefused is an answer with another status than 200.
type errRefused int

func (e errRefused) Error() string { return "status " + strconv.Itoa(int(e)) }

// ask sends a body and reads the answer to its end; progress hears of every
// read how many tokens there are by then.
func (c *client) ask(ctx context.Context, address, session string, body []byte, progress func(tokens int)) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	if session != "" {
		req.Header.Set("X-Session-Id", session)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.engine = resp.Header.Get("X-Penstock-Engine")
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, resp.Body)
		return a, errRefused(resp.StatusCode)
	}
	return a, a.read(resp.Body, progress)
}

var errNotWhole = errors.New("not a whole answer")

// read takes in the events of a stream.
func (a *answer) read(r io.Reader, progress func(int)) error {
	buf, have, done := make([]byte, 8<<10), 0, false
	for {
		n, err := r.Read(buf[have:])
		now := time.Now()
		have += n
		rest := buf[:have]
		for {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				break
			}
			done = a.take(rest[:end], now) || done
			rest = rest[end+1:]
		}
		if len(rest) == len(buf) {
			return fmt.Errorf("a line of more than %d bytes", len(buf))
		}
		have = copy(buf, rest)
		progress(a.tokens)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if !done || !enginetest.Complete(string(a.text)) {
		return errNotWhole
	}
	return nil
}

var (
	dataPrefix = []byte("data: ")
	doneMark   = []byte("[DONE]")
	contentKey = []byte(`"content":"`)
	cachedKey  = []byte(`"cached_tokens":`)
	promptKey  = []byte(`"prompt_tokens":`)
)

// take reads a line; true: it was the last.
func (a *answer) take(line []byte, now time.Time) (done bool) {
	data, ok := bytes.CutPrefix(line, dataPrefix)
	if !ok {
		return false
	}
	if bytes.Equal(bytes.TrimSpace(data), doneMark) {
		return true
	}
	if i := bytes.Index(data, contentKey); i >= 0 {
		text := data[i+len(contentKey):]
		if end := bytes.IndexByte(text, '"'); end > 0 {
			if a.tokens == 0 {
				a.first = now
			}
			a.last = now
			a.tokens++
			a.text = append(a.text, text[:end]...)
		}
		return false
	}
	if n, ok := numberAfter(data, cachedKey); ok {
		a.cached = n
	}
	if n, ok := numberAfter(data, promptKey); ok {
		a.prompt = n
	}
	return false
}

func numberAfter(data, key []byte) (n int, ok bool) {
	i := bytes.Index(data, key)
	if i < 0 {
		return 0, false
	}
	for _, c := range data[i+len(key):] {
		if c < '0' || c > '9' {
			break
		}
		n, ok = 10*n+int(c-'0'), true
	}
	return n, ok
}
