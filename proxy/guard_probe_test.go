package proxy

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/engine"
	"penstock/protect"
)

// probedClient answers probes as the test says; nil: the engine is silent.
type probedClient struct{ answers chan *incoming }

func (c *probedClient) send(*halt, *outgoing) (*incoming, *sendError) {
	if in := <-c.answers; in != nil {
		return in, nil
	}
	return nil, &sendError{}
}
func (c *probedClient) closeIdle()                       {}
func (c *probedClient) forget(func(address string) bool) {}

// An engine whose breaker is half open is given no client's request before a
// probe has had an answer: a client would wait as long as the engine is silent.
func TestProbesFindOutBeforeClientsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		live := engine.NewLive(1)
		live.SetStatus(engine.Ready, engine.ReasonHealthy, time.Now())
		live.SetModels(&engine.ModelList{Models: []engine.Model{{ID: "m"}}})
		e := &engine.Engine{Live: live}
		c := &probedClient{answers: make(chan *incoming)}
		gs := &guards{client: c, memory: protect.NewMemory(-1), log: log}
		g := newGuard(live, log)
		g.breaker.Trip(protect.TripSilent)
		g.followBreaker(time.Now())
		probe := func() {
			t.Helper()
			for end := time.Now().Add(5 * time.Minute); !g.wantsProbe(time.Now()); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no probe is wanted")
				}
			}
			gs.startProbe(t.Context(), e, g, time.Now())
			synctest.Wait()
			if !live.OnTrial() {
				t.Fatalf("%s while it is probed", live.Status().State)
			}
		}
		answer := func(in *incoming) { c.answers <- in; synctest.Wait() }
		for range 2 {
			probe()
			if live.Try() != nil {
				t.Error("a client is sent there while the probe has no answer")
			}
			answer(nil)
			if live.Try() != nil || live.OnTrial() {
				t.Error("it is on trial after a probe without an answer")
			}
		}
		probe()
		answer(&incoming{status: 200, body: io.NopCloser(strings.NewReader(`{"choices":[]}`))})
		if live.Try() == nil {
			t.Error("no client is sent there although it has answered a probe")
		}
	})
}

// A stream that is asked for as a probe shows something with its end alone. One
// that pauses has failed long before its time is over.
func TestStreamsAsProbes(t *testing.T) {
	const token = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\n"
	for name, c := range map[string]struct {
		events []string
		every  time.Duration
		hangs  bool
		want   error
		within time.Duration
	}{
		"whole":              {events: []string{token, token, finish, "data: [DONE]\n\n"}},
		"without [DONE]":     {events: []string{token, finish}},
		"broken off":         {events: []string{token, token, token}, want: errEngineFailed},
		"an error":           {events: []string{token, `data: {"error":{"code":500}}` + "\n\n"}, want: errEngineFailed},
		"full":               {events: []string{`data: {"error":{"code":503}}` + "\n\n"}, want: protect.ErrNoVerdict},
		"no JSON":            {events: []string{token, "data: x\n\n"}, want: errEngineFailed},
		"no events":          {events: []string{"<html>"}, want: errEngineFailed},
		"pauses":             {events: []string{token, token}, hangs: true, want: errEngineFailed, within: probePause},
		"silent":             {hangs: true, want: errEngineFailed, within: streamProbe},
		"slow":               {events: slices.Repeat([]string{token}, 100), every: 1100 * time.Millisecond, want: protect.ErrNoVerdict, within: streamProbe},
		"more than asked of": {events: slices.Repeat([]string{token}, 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r, w := io.Pipe()
				h := &halt{}
				h.hold(func() { r.CloseWithError(io.ErrClosedPipe) })
				limit := time.AfterFunc(streamProbe, func() { h.end(context.DeadlineExceeded) })
				defer limit.Stop()
				go func() {
					for _, ev := range c.events {
						time.Sleep(c.every)
						if _, err := io.WriteString(w, ev); err != nil {
							return
						}
					}
					if !c.hangs {
						w.Close()
					}
				}()
				if err := probeStream(r, h); err != c.want || time.Since(began) > c.within {
					t.Errorf("%v after %v, want %v within %v", err, time.Since(began), c.want, c.within)
				}
				r.Close()
				h.letGo()
				time.Sleep(c.every) // until who writes has seen it
			})
		})
	}
}
