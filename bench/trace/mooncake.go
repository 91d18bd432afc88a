package trace

import (
	"strconv"
	"time"
)

// mooncakeBlock is the tokens of a block of a Mooncake trace.
const mooncakeBlock = 512

// mooncake reads Mooncake's traces (FAST'25 and arXiv 2407.00079): a time in ms,
// lengths in tokens, a number for each block of the prompt.
type mooncake struct {
	r     *Reader
	line  *object
	talks *talks
}

func newMooncake(r *Reader) *mooncake {
	return &mooncake{r: r, line: newObject(nil), talks: newTalks()}
}

func (m *mooncake) next() (Request, error) {
	line, err := m.r.lines.next()
	if err != nil {
		return Request{}, err
	}
	q := Request{At: -1, Prompt: -1, Output: -1, Think: unknownThink, BlockTokens: mooncakeBlock}
	m.line.reset(line)
	for {
		name, ok, err := m.line.name()
		if err != nil {
			return q, err
		}
		if !ok {
			break
		}
		switch name {
		case "timestamp":
			err = m.line.instant(&q.At, time.Millisecond)
		case "input_length":
			err = m.line.tokens(&q.Prompt)
		case "output_length":
			err = m.line.tokens(&q.Output)
		case "hash_ids":
			q.Blocks, err = m.line.ids()
		default:
			err = m.line.skip()
		}
		if err != nil {
			return q, err
		}
	}
	if err := complete(&q, "timestamp", "input_length", "output_length"); err != nil {
		return q, err
	}
	if err := blocksFit(&q, "hash_ids"); err != nil {
		return q, err
	}
	m.talks.join(&q)
	return q, nil
}

// complete looks that time and lengths were there: they begin at -1.
func complete(q *Request, at, prompt, output string) error {
	switch {
	case q.At < 0:
		return missing(at)
	case q.Prompt < 0:
		return missing(prompt)
	case q.Output < 0:
		return missing(output)
	}
	return nil
}

// blocksFit looks that there are no more blocks than the prompt has.
func blocksFit(q *Request, field string) error {
	if most := (q.Prompt + q.BlockTokens - 1) / q.BlockTokens; len(q.Blocks) > most {
		return bad(field, "", "%d blocks of %d tokens for a prompt of %s", len(q.Blocks), q.BlockTokens, strconv.Itoa(q.Prompt))
	}
	return nil
}

func (o *object) instant(at *time.Duration, unit time.Duration) error {
	v, err := o.number()
	if err != nil {
		return err
	}
	*at, err = instant(o.field, v, unit)
	return err
}

func (o *object) tokens(n *int) (err error) {
	if *n, err = o.count(); err != nil {
		return err
	}
	return tokens(o.field, *n)
}

// talks finds the conversations of a trace that names none, by their blocks: a
// request goes on with the conversation whose last prompt it repeats as far as
// that prompt's last whole block, if nobody had that block before.
type talks struct {
	seen map[uint64]struct{} // blocks
	ends map[uint64]talk     // by the last whole block of a prompt
	last uint64              // conversation
}

type talk struct {
	conversation uint64
	turn         int
}

func newTalks() *talks { return &talks{seen: map[uint64]struct{}{}, ends: map[uint64]talk{}} }

func (t *talks) join(q *Request) {
	if len(q.Blocks) == 0 {
		return
	}
	now := talk{}
	for i := len(q.Blocks) - 1; i >= 0; i-- {
		if before, ok := t.ends[q.Blocks[i]]; ok {
			now = talk{before.conversation, before.turn + 1}
			delete(t.ends, q.Blocks[i])
			break
		}
	}
	if now.conversation == 0 {
		t.last++
		now.conversation = t.last
	}
	if whole := min(q.Prompt/q.BlockTokens, len(q.Blocks)); whole > 0 {
		end := q.Blocks[whole-1]
		if _, known := t.seen[end]; !known {
			t.ends[end] = now
		}
	}
	for _, b := range q.Blocks {
		t.seen[b] = struct{}{}
	}
	q.Conversation, q.Turn = now.conversation, now.turn
}
