package trace

import "time"

// bailianBlock is the tokens of a block of a Bailian trace.
const bailianBlock = 16

// bailian reads Alibaba's traces of Qwen on Bailian (ATC'25, "KVCache Cache in
// the Wild"): a time in seconds, and chat_id with the chat that it continues.
type bailian struct {
	r     *Reader
	line  *object
	chats map[int]talk
}

func newBailian(r *Reader) *bailian {
	return &bailian{r: r, line: newObject(nil), chats: map[int]talk{}}
}

func (b *bailian) next() (Request, error) {
	line, err := b.r.lines.next()
	if err != nil {
		return Request{}, err
	}
	q := Request{At: -1, Prompt: -1, Output: -1, Think: unknownThink, BlockTokens: bailianBlock}
	chat, parent := -1, -1
	b.line.reset(line)
	for {
		name, ok, err := b.line.name()
		if err != nil {
			return q, err
		}
		if !ok {
			break
		}
		switch name {
		case "chat_id":
			chat, err = b.line.count()
		case "parent_chat_id":
			parent, err = b.line.parent()
		case "timestamp":
			err = b.line.instant(&q.At, time.Second)
		case "input_length":
			err = b.line.tokens(&q.Prompt)
		case "output_length":
			err = b.line.tokens(&q.Output)
		case "type":
			q.Class, err = b.line.text()
		case "hash_ids":
			q.Blocks, err = b.line.ids()
		default: // turn is counted from the chats
			err = b.line.skip()
		}
		if err != nil {
			return q, err
		}
	}
	if chat < 0 {
		return q, missing("chat_id")
	}
	if err := complete(&q, "timestamp", "input_length", "output_length"); err != nil {
		return q, err
	}
	if err := blocksFit(&q, "hash_ids"); err != nil {
		return q, err
	}
	// A chat whose parent is from before the trace begins one here.
	now, known := b.chats[parent]
	if known {
		now.turn++
	} else {
		now = talk{conversation: uint64(chat) + 1}
	}
	b.chats[chat] = now
	q.Conversation, q.Turn = now.conversation, now.turn
	return q, nil
}

// parent is a number of a chat, -1 for none.
func (o *object) parent() (int, error) {
	v, err := o.dec.ReadValue()
	if err != nil {
		return 0, notJSON(err)
	}
	if string(v) == "-1" {
		return -1, nil
	}
	n, err := parseCount(o.field, v)
	if err != nil {
		return 0, bad(o.field, string(v), "want the number of a chat, or -1")
	}
	return n, nil
}
