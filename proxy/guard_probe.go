package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"penstock/engine"
	"penstock/protect"
)

const (
	probeWithin = 5 * time.Second
	// Of an engine whose streams broke off, probeTokens are asked for as a
	// stream, which may take longer. One that is not whole by then says nothing;
	// one that pauses for probePause has failed.
	probeTokens = 16
	streamProbe = 15 * time.Second
	probePause  = 3 * time.Second
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
	streams := g.breaksOff()
	g.followBreaker(now)
	done := make(chan struct{})
	g.watched.probing = done
	gs.wg.Go(func() {
		defer close(done)
		err := gs.probe(ctx, e, streams)
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

// probe asks the engine for one token, or for a short stream to its end. Nil:
// it answered. ErrNoVerdict: it says that it is full, or that it does not know
// such a request; then clients' requests decide.
func (gs *guards) probe(ctx context.Context, e *engine.Engine, streams bool) error {
	within := probeWithin
	if streams {
		within = streamProbe
	}
	text, ok := probeBody(e, streams)
	if !ok {
		return protect.ErrNoVerdict
	}
	body := newBody(len(text), gs.memory)
	if body == nil {
		return protect.ErrNoVerdict
	}
	body.bytes = append(body.bytes, text...)
	defer body.free()
	ctx, cancel := context.WithTimeout(ctx, within)
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
	switch s := in.status; {
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable, s >= 400 && s < 500, s == http.StatusNotImplemented:
		return protect.ErrNoVerdict
	case s < 200 || s > 299:
		return errEngineFailed
	case mediaType(in.header) == "text/event-stream":
		return probeStream(in.body, h)
	}
	answer, err := io.ReadAll(io.LimitReader(in.body, probeBytes))
	if err != nil || h.ended() || !bytes.Contains(answer, []byte(`"choices"`)) || !json.Valid(answer) {
		return errEngineFailed
	}
	return nil
}

// probeStream reads a stream to its end.
func probeStream(body io.Reader, h *halt) error {
	var rd eventReader
	var a answer
	rd.Reset(probeBytes)
	a.Begin(answerChat, false, false)
	pause := time.AfterFunc(streamProbe, func() { h.end(errStalled) })
	defer pause.Stop()
	for size := 0; ; {
		n, err := body.Read(rd.Space(readAtLeast))
		rd.Fill(n)
		if size += n; err == io.EOF {
			rd.End()
		}
		for ev, ok := rd.Next(); ok; ev, ok = rd.Next() {
			switch a.observe(ev) {
			case verdictFirstContent, verdictMoreContent:
				pause.Reset(probePause)
			case verdictError:
				if s := a.fault.Status; s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable {
					return protect.ErrNoVerdict
				}
				return errEngineFailed
			case verdictMalformed:
				return errEngineFailed
			}
		}
		switch {
		case rd.Err() != nil:
			return errEngineFailed
		case size > probeBytes: // more than was asked for
			return nil
		case err == nil && !a.done:
			continue
		}
		switch end := a.finish(err == io.EOF); {
		case end == endingComplete, end == endingAddDone:
			return nil
		case a.committed && h.ended() && h.reason() != errStalled:
			return protect.ErrNoVerdict
		}
		return errEngineFailed
	}
}

// probeBody asks the engine's first model for a token, or for a short stream.
// False: it has none.
func probeBody(e *engine.Engine, streams bool) ([]byte, bool) {
	models, _ := e.Serves()
	if len(models) == 0 {
		return nil, false
	}
	model, err := json.Marshal(models[0].ID)
	if err != nil {
		return nil, false
	}
	b := append(append([]byte(`{"model":`), model...), `,"messages":[{"role":"user","content":"1"}],"max_tokens":`...)
	if !streams {
		return append(b, "1}"...), true
	}
	return append(strconv.AppendInt(b, probeTokens, 10), `,"stream":true}`...), true
}
