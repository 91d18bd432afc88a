package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

// Outcome is how a request ended, as its client saw it.
type Outcome uint8

const (
	OK         Outcome = iota
	Shed               // 429 or 503: refused on purpose
	Refused            // another 4xx
	Failed             // another 5xx, or a status that nobody expects
	Unreached          // no connection
	Broken             // the connection broke off, before or within the answer
	ErrorEvent         // an error within a stream
	Truncated          // a clean end of what is not a whole answer
	TimedOut           // no whole answer within the limit
	Unsent             // the generator had no room for it
	Cut                // ended from here: the run was over
)

var outcomeNames = [...]string{"ok", "shed", "refused", "failed", "unreached", "broken", "error event", "truncated", "timed out", "unsent", "cut off"}

func (o Outcome) String() string { return outcomeNames[o] }

// Answer is one answer as it came.
type Answer struct {
	Outcome  Outcome
	Status   int
	Why      string // of what is not OK, bounded
	Engine   string // that the load balancer says it came from
	Attempts int
	First    time.Time // content event
	Last     time.Time
	End      time.Time // of the request, whatever its outcome
	Events   int       // content events
	Gaps     []time.Duration
	Text     string
	Prompt   int // tokens, by the server's usage
	Cached   int
	Output   int // tokens; content events where there is no usage
	Counted  bool
}

// Client asks one server over kept connections.
type Client struct {
	Base   string // root URL, without /v1
	Key    string // API key; may be empty
	Header http.Header
	http   *http.Client
}

// NewClient makes a client that keeps as many connections as it needs.
func NewClient(base, key string, header http.Header) *Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &Client{Base: strings.TrimRight(base, "/"), Key: key, Header: header,
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 1 << 16, DisableCompression: true,
			ForceAttemptHTTP2: false, ReadBufferSize: 8 << 10}}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range c.Header {
		req.Header[name] = values
	}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// FirstModel asks which model the server lists first.
func (c *Client) FirstModel(ctx context.Context) (string, error) {
	req, err := c.request(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET /v1/models: %s", resp.Status)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(&list); err != nil {
		return "", fmt.Errorf("GET /v1/models: %w", err)
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", ErrNoModel
	}
	return list.Data[0].ID, nil
}

// ErrNoModel is a list without a model.
var ErrNoModel = errors.New("/v1/models lists no model: name one with --model")

// Stream sends a chat request and reads the answer to its end. keep: the text is
// wanted. gaps: the times between content events are.
func (c *Client) Stream(ctx context.Context, body []byte, session string, keep, gaps bool) Answer {
	a := Answer{}
	req, err := c.request(ctx, http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return a.ended(ctx, err)
	}
	if session != "" {
		req.Header.Set("X-Session-Id", session)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a.ended(ctx, err)
	}
	defer resp.Body.Close()
	a.Status, a.Engine = resp.StatusCode, resp.Header.Get("X-Penstock-Engine")
	a.Attempts, _ = strconv.Atoi(resp.Header.Get("X-Penstock-Attempts"))
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the connection is kept
		a.Outcome, a.Why = ofStatus(resp.StatusCode), resp.Status+": "+string(bytes.TrimSpace(said))
		a.End = time.Now()
		return a
	}
	return a.ended(ctx, a.read(resp.Body, keep, gaps))
}

func ofStatus(status int) Outcome {
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return Shed
	case status >= 400 && status < 500:
		return Refused
	}
	return Failed
}

var (
	errTruncated = errors.New("the stream ended without [DONE]")
	errEvent     = errors.New("an error event")
)

// ended is the answer with the outcome that an error makes of it.
func (a Answer) ended(ctx context.Context, err error) Answer {
	a.End = time.Now()
	if err == nil {
		return a
	}
	a.Why = err.Error()
	var op *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a.Outcome = TimedOut
	case ctx.Err() != nil:
		a.Outcome = Cut
	case errors.Is(err, errTruncated):
		a.Outcome = Truncated
	case errors.Is(err, errEvent):
		a.Outcome = ErrorEvent
	case errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED):
		a.Outcome = Unreached
	default:
		a.Outcome = Broken
	}
	return a
}

// read takes in the events of a stream.
func (a *Answer) read(body io.Reader, keep, gaps bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 8<<10), 4<<20)
	var text strings.Builder
	done := false
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			done = true
			continue // to the end, so that the connection is kept
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event that is not JSON: %w", err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return fmt.Errorf("%w: %s", errEvent, e.Error[:min(len(e.Error), 300)])
		}
		if u := e.Usage; u != nil && u.Completion > 0 {
			a.Prompt, a.Cached, a.Output, a.Counted = u.Prompt, u.Details.Cached, u.Completion, true
		}
		for i := range e.Choices {
			if said := e.Choices[i].Delta.text(); said != "" {
				a.content(time.Now(), gaps)
				if keep {
					text.WriteString(said)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !done || a.Events == 0 {
		return errTruncated
	}
	if a.Text = text.String(); !a.Counted {
		a.Output = a.Events
	}
	return nil
}

func (a *Answer) content(now time.Time, gaps bool) {
	if a.Events == 0 {
		a.First = now
	} else if gaps {
		a.Gaps = append(a.Gaps, now.Sub(a.Last))
	}
	a.Last = now
	a.Events++
}

// event is what is read of a stream's event.
type event struct {
	Choices []struct {
		Delta delta `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// delta is a part of an answer, or of the reasoning before it.
type delta struct {
	Content   string          `json:"content"`
	Thinking  string          `json:"reasoning_content"`
	Reasoning string          `json:"reasoning"`
	Tools     json.RawMessage `json:"tool_calls"`
}

func (d *delta) text() string {
	switch {
	case d.Content != "":
		return d.Content
	case d.Thinking != "":
		return d.Thinking
	case d.Reasoning != "":
		return d.Reasoning
	case len(d.Tools) > 2 && string(d.Tools) != "null":
		return " "
	}
	return ""
}
