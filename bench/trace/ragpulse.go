package trace

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ragBlock is the tokens of a block that a RAGPulse prompt is cut into. Its
// segments (passages, history) have lengths of their own.
const ragBlock = 64

// ragPulse reads RAGPulse: requests of a retrieval service, each prompt a list
// of segments. What is equal at the prompt's start is a common prefix.
type ragPulse struct {
	r     *Reader
	line  *object
	turns map[int]int // turns of a session so far
}

// segment is a part of a prompt: equal ids are equal text.
type segment struct{ id, tokens int }

func newRAGPulse(r *Reader) *ragPulse {
	return &ragPulse{r: r, line: newObject(nil), turns: map[int]int{}}
}

func (p *ragPulse) next() (Request, error) {
	line, err := p.r.lines.next()
	if err != nil {
		return Request{}, err
	}
	q := Request{At: -1, Prompt: -1, Output: -1, Think: unknownThink, BlockTokens: ragBlock}
	session := -1
	var segments []segment
	p.line.reset(line)
	for {
		name, ok, err := p.line.name()
		if err != nil {
			return q, err
		}
		if !ok {
			break
		}
		switch name {
		case "t":
			err = p.line.instant(&q.At, time.Second)
		case "session":
			session, err = p.line.count()
		case "in":
			err = p.line.tokens(&q.Prompt)
		case "out":
			err = p.line.tokens(&q.Output)
		case "segments":
			segments, err = p.line.segments()
		default:
			err = p.line.skip()
		}
		if err != nil {
			return q, err
		}
	}
	if err := complete(&q, "t", "in", "out"); err != nil {
		return q, err
	}
	sum := 0
	for _, s := range segments {
		sum += s.tokens
	}
	if sum > q.Prompt {
		return q, bad("segments", "", "they have %d tokens, in is %d", sum, q.Prompt)
	}
	q.Blocks = cut(segments, ragBlock)
	if session >= 0 {
		q.Conversation, q.Turn = uint64(session)+1, p.turns[session]
		p.turns[session]++
	}
	return q, nil
}

// segments reads [[id, tokens], ...].
func (o *object) segments() ([]segment, error) {
	if t, err := o.dec.ReadToken(); err != nil {
		return nil, notJSON(err)
	} else if t.Kind() != '[' {
		return nil, bad(o.field, t.String(), "want an array of [id, tokens]")
	}
	var all []segment
	for o.dec.PeekKind() != ']' {
		where := o.field + "[" + strconv.Itoa(len(all)) + "]"
		v, err := o.dec.ReadValue()
		if err != nil {
			return nil, notJSON(err)
		}
		s, ok := pair(v)
		if !ok {
			return nil, bad(where, string(v), "want [id, tokens], two whole numbers")
		}
		if err := tokens(where, s.tokens); err != nil {
			return nil, err
		}
		if all = append(all, s); len(all) > 100_000 {
			return nil, bad(o.field, "", "more than 100,000 segments")
		}
	}
	_, err := o.dec.ReadToken()
	return all, err
}

func pair(v jsontext.Value) (segment, bool) {
	part := object{}
	if v.Kind() != '[' {
		return segment{}, false
	}
	numbers, err := part.list(nil, v)
	if err != nil || len(numbers) != 2 || numbers[0] > 1<<62 || numbers[1] > 1<<62 {
		return segment{}, false
	}
	return segment{int(numbers[0]), int(numbers[1])}, true
}

// cut makes blocks of a prompt of segments, whole ones only. A block's number
// depends on everything up to its end.
func cut(segments []segment, size int) []uint64 {
	var blocks []uint64
	prefix, filled := uint64(0), 0
	for _, s := range segments {
		for at := 0; at < s.tokens; {
			take := min(size-filled, s.tokens-at)
			filled, at = filled+take, at+take
			prefix = mix(prefix, uint64(s.id), uint64(at))
			if filled == size {
				blocks = append(blocks, prefix)
				filled = 0
			}
		}
	}
	return blocks
}
