package load

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
)

// words are of one token each in the vocabularies of today's models, and with
// their space of four bytes, by which servers without a tokenizer count.
var words = strings.Fields(`the and for are but not you all any can had her was one our out day get has him
his how man new now old see two way who boy did its let put say she too use dad mom car dog cat sun sea sky ice
air end far few got hot job key law lot low map may met mid mix net odd oil own pay per ran red run sat set sit
six son ten top try war win yes yet age ago arm art ask bad bag bar bed big bit box bus buy cut die dry ear eat`)

// Text is n tokens that a seed decides.
func Text(seed uint64, n int) string {
	dice := rand.New(rand.NewPCG(seed, 17))
	var b strings.Builder
	b.Grow(4 * n)
	for range n {
		b.WriteString(words[dice.Uint32N(uint32(len(words)))])
		b.WriteByte(' ')
	}
	return b.String()
}

// message is what was said in a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Ask is the body of a chat request.
type Ask struct {
	Model     string         `json:"model"`
	Messages  []message      `json:"messages"`
	MaxTokens int            `json:"max_tokens"`
	Stream    bool           `json:"stream"`
	Options   *streamOptions `json:"stream_options,omitempty"`
	IgnoreEOS bool           `json:"ignore_eos,omitempty"`
}

type streamOptions struct {
	Usage bool `json:"include_usage"`
}

func (a *Ask) body() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // it holds text and numbers
	}
	return text
}

// opening is the first thing said: text that others begin with too, then text
// of its own.
func (t *Talk) opening(seed uint64) []message {
	own := t.Turns[0].User
	if t.Turns[0].Total == 0 { // not of a trace: a system prompt that is shared
		said := []message{{"user", Text(seed^t.ID*0x9e3779b97f4a7c15, own)}}
		if len(t.Shared) > 0 {
			said = append([]message{{"system", Text(t.Shared[0], t.Block)}}, said...)
		}
		return said
	}
	// A trace's blocks say which part of a prompt others have; the last one may be
	// partial.
	var b strings.Builder
	for _, block := range t.Shared {
		n := min(own, t.Block)
		b.WriteString(Text(block, n))
		own -= n
	}
	b.WriteString(Text(seed^t.ID*0x9e3779b97f4a7c15, own))
	return []message{{"user", b.String()}}
}
