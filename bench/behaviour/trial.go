package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// trial is one repetition of a row: a proxy, the engines behind it and a client.
type trial struct {
	ctx    context.Context
	base   string // of the proxy
	pair   pair
	http   *http.Client
	limits limits
	seed   uint64
	policy *policy
	// restart replaces the proxy by a fresh one, with healthy engines.
	restart func() error

	prompts atomic.Uint64
}

// prompt is a text that no other request of the run begins with, so that
// routers which look for common beginnings see none. The same trial of the
// same row has the same prompts.
func (t *trial) prompt() string {
	n := mix(t.seed + t.prompts.Add(1)*0x9e3779b97f4a7c15)
	return fmt.Sprintf("%016x %016x tell me about it", n, mix(n))
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func chatBody(prompt string, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}],"max_tokens":64}`, modelName, stream, prompt)
}

// chat sends one request of a new conversation.
func (t *trial) chat(stream bool) answer { return t.chatFor(stream, patience) }

func (t *trial) chatFor(stream bool, patience time.Duration) answer {
	return t.post(chatBody(t.prompt(), stream), patience)
}

func (t *trial) post(body []byte, patience time.Duration, headers ...string) answer {
	return send(t.ctx, t.http, t.base+generations, body, patience, headers...)
}

// host is where the proxy listens.
func (t *trial) host() string { return strings.TrimPrefix(t.base, "http://") }

// sleep waits; false if the run was ended.
func (t *trial) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// await polls until ok; false if that did not come in time.
func (t *trial) await(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) || !t.sleep(time.Millisecond) {
			return false
		}
	}
	return true
}

// settle waits until the proxy serves: listening is not ready. Both engines
// must have answered, and the last requests must all be good.
func (t *trial) settle(limit time.Duration) error {
	const enough = 6
	var last answer
	good := 0
	ok := t.await(limit, func() bool {
		if last = t.chatFor(false, 2*time.Second); !last.ok() {
			good = 0
			t.sleep(10 * time.Millisecond)
			return false
		}
		good++
		return good >= enough && len(t.pair[0].deliveries()) > 0 && len(t.pair[1].deliveries()) > 0
	})
	switch {
	case t.ctx.Err() != nil:
		return t.ctx.Err()
	case ok:
		return nil
	case good == 0:
		return fmt.Errorf("the proxy does not serve: %s %v %.200s", last.outcome(), last.err, last.body)
	}
	return fmt.Errorf("the proxy serves, but one engine has no request after %s: %d and %d",
		limit, len(t.pair[0].deliveries()), len(t.pair[1].deliveries()))
}

// errNotMet is a scenario that did not come about.
var errNotMet = errors.New("no request met the fault")
