package trace

import "time"

// burstGPT reads BurstGPT (arXiv 2401.17644): seconds, model and lengths; later
// releases have the session too. Its failed requests have no answer.
type burstGPT struct {
	r                                  *Reader
	t                                  *table
	at, model, prompt, output, session int
	sessions                           map[string]talk
}

func newBurstGPT(r *Reader) (*burstGPT, error) {
	t, err := newTable(r.lines, "Timestamp", "Request tokens", "Response tokens")
	if err != nil {
		return nil, err
	}
	return &burstGPT{r: r, t: t, at: t.index("Timestamp"), model: t.index("Model"), prompt: t.index("Request tokens"), output: t.index("Response tokens"),
		session: t.index("Session ID"), sessions: map[string]talk{}}, nil
}

func (b *burstGPT) next() (Request, error) {
	for {
		if err := b.t.next(); err != nil {
			return Request{}, err
		}
		q, err := b.row()
		if err != nil || q.Output > 0 {
			return q, err
		}
		b.r.skip("failed: no response tokens")
	}
}

func (b *burstGPT) row() (q Request, err error) {
	q.Think = unknownThink
	v, err := b.t.number(b.at)
	if err != nil {
		return q, err
	}
	if q.At, err = instant("Timestamp", v, time.Second); err != nil {
		return q, err
	}
	if q.Prompt, err = b.t.tokens(b.prompt); err != nil {
		return q, err
	}
	if q.Output, err = b.t.tokens(b.output); err != nil || q.Output == 0 {
		return q, err
	}
	if b.model >= 0 {
		q.Class = b.t.text(b.model)
	}
	if b.session >= 0 && b.t.text(b.session) != "" {
		now, known := b.sessions[b.t.text(b.session)]
		if known {
			now.turn++
		} else {
			now.conversation = uint64(len(b.sessions)) + 1
		}
		b.sessions[b.t.text(b.session)] = now
		q.Conversation, q.Turn = now.conversation, now.turn
	}
	return q, nil
}
