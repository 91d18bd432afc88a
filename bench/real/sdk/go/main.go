// The official openai client for Go, driven by jobs that come as lines of JSON on stdin; what the user's code saw of each goes to
// stdout. A module of its own: what the client depends on is nothing to the gateway's.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

type job struct {
	ID   int    `json:"id"`
	API  string `json:"api"`
	Base string `json:"base"`
	Key  string `json:"key"`

	Headers    map[string]string `json:"headers"`
	Retries    *int              `json:"retries"`
	Timeout    float64           `json:"timeout"` // seconds
	LeaveAfter int               `json:"leave_after"`
	Response   string            `json:"response"`
	Body       json.RawMessage   `json:"body"`
	Stream     bool              `json:"-"`
}

// seen is what the user's code saw of a job.
type seen struct {
	ID      int         `json:"id"`
	Text    string      `json:"text"`
	Finish  *string     `json:"finish"`
	Calls   [][2]string `json:"calls"`
	Usage   *usage      `json:"usage"`
	Engine  *string     `json:"engine"`
	Error   *failure    `json:"error"`
	Chunks  int         `json:"chunks"`
	Value   any         `json:"value"`
	First   *float64    `json:"first"`
	Seconds float64     `json:"seconds"`

	begin time.Time
}

type usage struct {
	Prompt int64 `json:"prompt"`
	Answer int64 `json:"answer"`
	Cached int64 `json:"cached"`
}

type failure struct {
	Class   string   `json:"class"`
	Status  *int     `json:"status"`
	Code    any      `json:"code"`
	Type    any      `json:"type"`
	Message string   `json:"message"`
	Told    []string `json:"told"` // what a refusal says about trying again
}

func (s *seen) add(text string) {
	if text == "" {
		return
	}
	if s.First == nil {
		took := time.Since(s.begin).Seconds()
		s.First = &took
	}
	s.Text += text
	s.Chunks++
}

func (s *seen) finished(reason string) {
	if reason != "" {
		s.Finish = &reason
	}
}

func (s *seen) from(r *http.Response) {
	if r != nil {
		if name := r.Header.Get("x-penstock-engine"); name != "" {
			s.Engine = &name
		}
	}
}

func (s *seen) fail(err error) {
	f := &failure{Told: []string{}, Class: fmt.Sprintf("%T", err), Message: err.Error()[:min(len(err.Error()), 300)]}
	s.Error = f
	var api *openai.Error
	var event *ssestream.StreamError
	switch {
	case errors.As(err, &api):
		f.Class = "*openai.Error"
		f.Status, f.Code, f.Type = &api.StatusCode, api.Code, api.Type
		for _, name := range []string{"retry-after", "retry-after-ms", "x-should-retry"} {
			if v := api.Response.Header.Get(name); v != "" {
				f.Told = append(f.Told, name+": "+v)
			}
		}
	case errors.As(err, &event):
		f.Class = "*ssestream.StreamError"
		var data struct {
			Error struct{ Code, Type any }
			Code  any
			Type  any
		}
		if json.Unmarshal(event.Event.Data, &data) == nil {
			f.Code, f.Type = data.Error.Code, data.Error.Type
			if f.Code == nil {
				f.Code, f.Type = data.Code, data.Type
			}
		}
	default:
		for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
			f.Class += fmt.Sprintf(" %T", inner)
		}
	}
}

func main() {
	var lock sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(v any) {
		lock.Lock()
		defer lock.Unlock()
		if err := out.Encode(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	say(map[string]string{"sdk": "openai-go", "version": version(), "runtime": runtime.Version()})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	var running sync.WaitGroup
	for in.Scan() {
		var j job
		if err := json.Unmarshal(in.Bytes(), &j); err != nil {
			fmt.Fprintln(os.Stderr, "job:", err)
			os.Exit(1)
		}
		running.Go(func() { say(work(j)) })
	}
	running.Wait()
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == "github.com/openai/openai-go/v3" {
			return d.Version
		}
	}
	return "?"
}

func work(j job) *seen {
	s := &seen{ID: j.ID, Calls: [][2]string{}, begin: time.Now()}
	retries, timeout := 2, 60.0
	if j.Retries != nil {
		retries = *j.Retries
	}
	if j.Timeout > 0 {
		timeout = j.Timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(timeout*float64(time.Second)))
	defer cancel()
	var raw *http.Response
	options := []option.RequestOption{option.WithBaseURL(j.Base + "/v1"), option.WithAPIKey(j.key()), option.WithMaxRetries(retries),
		option.WithResponseInto(&raw)}
	for name, value := range j.Headers {
		options = append(options, option.WithHeader(name, value))
	}
	client := openai.NewClient(options...)
	var asked struct{ Stream bool }
	if len(j.Body) > 0 {
		_ = json.Unmarshal(j.Body, &asked) // its parameters are read again, strictly, below
	}
	j.Stream = asked.Stream
	do, known := apis[j.API]
	if !known {
		s.fail(fmt.Errorf("openai-go has no %q here", j.API))
		return s
	}
	if err := do(ctx, &client, j, s); err != nil {
		s.fail(err)
	}
	s.from(raw)
	s.Seconds = time.Since(s.begin).Seconds()
	return s
}

func (j job) key() string {
	if j.Key == "" {
		return "none"
	}
	return j.Key
}
