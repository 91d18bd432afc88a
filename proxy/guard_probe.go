package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"penstock/engine"
	"penstock/protect"
)

const (
	probeWithin = 5 * time.Second
	probeAgain  = 500 * time.Millisecond // in the half open state, while clients' requests do not decide
	probeBytes  = 64 << 10               // of an answer
)

// How a probe went.
const (
	probeOK = iota
	probeFailed
	probeUnclear
)

var probeResults = [...]string{"ok", "failed", "unclear"}

// wantsProbe reports whether it is time to ask the engine for one token: its
// breaker's wait is over, or trials go on. While its health is not good, that
// is asked by others, and nothing here.
func (g *guard) wantsProbe(now time.Time) bool {
	w := &g.watched
	if w.probing != nil {
		select {
		case <-w.probing:
			w.probing, w.probed = nil, now
		default:
			return false
		}
	}
	if g.live.Health().State != engine.Ready {
		return false
	}
	return g.breaker.Due(now) || g.breaker.State() == protect.BreakerHalfOpen && now.Sub(w.probed) >= probeAgain
}

// startProbe takes a trial's place for a request of the gateway's own, which
// costs no client anything if the engine is still ill.
func (gs *guards) startProbe(ctx context.Context, e *engine.Engine, g *guard, now time.Time) {
	if g.breaker.State() != protect.BreakerHalfOpen {
		g.shown.Store(false)
	}
	end, ok := g.breaker.Try()
	if !ok {
		return
	}
	g.followBreaker(now)
	done := make(chan struct{})
	g.watched.probing = done
	gs.wg.Go(func() {
		defer close(done)
		err := gs.probe(ctx, e)
		end(err)
		result := probeOK
		switch {
		case errors.Is(err, protect.ErrNoVerdict):
			result = probeUnclear
		case err != nil:
			result = probeFailed
		}
		g.probes[result].Add(1)
		if result != probeFailed {
			g.shown.Store(true)
		}
		g.followBreaker(time.Now())
	})
}

// probe asks the engine for one token. Nil: it answered. ErrNoVerdict: it says
// that it is full, or that it does not know such a request; then clients'
// requests decide.
func (gs *guards) probe(ctx context.Context, e *engine.Engine) error {
	text, ok := probeBody(e)
	if !ok {
		return protect.ErrNoVerdict
	}
	body := newBody(len(text), gs.memory)
	if body == nil {
		return protect.ErrNoVerdict
	}
	body.bytes = append(body.bytes, text...)
	defer body.free()
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	h := &halt{}
	defer context.AfterFunc(ctx, func() { h.end(context.Cause(ctx)) })()
	header := http.Header{"Content-Type": jsonType, "User-Agent": {"penstock"}, "X-Request-Id": {newRequestID()}}
	if key := e.Authorization(); key != nil {
		header["Authorization"] = key
	}
	in, failed := gs.client.send(h, &outgoing{engine: e, method: http.MethodPost, path: "/v1/chat/completions", header: header, body: body, fresh: true})
	if failed != nil {
		return errEngineFailed
	}
	defer in.body.Close()
	answer, err := io.ReadAll(io.LimitReader(in.body, probeBytes))
	switch {
	case err != nil, h.ended():
		return errEngineFailed
	case in.status == http.StatusTooManyRequests, in.status == http.StatusServiceUnavailable:
		return protect.ErrNoVerdict
	case in.status >= 400 && in.status < 500, in.status == http.StatusNotImplemented:
		return protect.ErrNoVerdict
	case in.status < 200 || in.status > 299 || !bytes.Contains(answer, []byte(`"choices"`)) || !json.Valid(answer):
		return errEngineFailed
	}
	return nil
}

// probeBody asks the engine's first model for a token. False: it has none.
func probeBody(e *engine.Engine) ([]byte, bool) {
	models, _ := e.Serves()
	if len(models) == 0 {
		return nil, false
	}
	model, err := json.Marshal(models[0].ID)
	if err != nil {
		return nil, false
	}
	return append(append([]byte(`{"model":`), model...), `,"messages":[{"role":"user","content":"1"}],"max_tokens":1}`...), true
}
