package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// turnText is one message by what it says.
type turnText struct{ role, text string }

// speller writes the same JSON in many spellings: order of members, white
// space, escapes, text as a string or as parts.
type speller struct{ r *rand.Rand }

func (s speller) space() string {
	return []string{"", "", " ", "\n\t", "  \r\n"}[s.r.IntN(5)]
}

func (s speller) str(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c < ' ' || c == '"' || c == '\\' || s.r.IntN(6) == 0:
			s.escape(&b, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (s speller) escape(b *strings.Builder, c rune) {
	if i := strings.IndexRune("\b\f\n\r\t\"\\/", c); i >= 0 && s.r.IntN(2) == 0 {
		b.WriteString([]string{`\b`, `\f`, `\n`, `\r`, `\t`, `\"`, `\\`, `\/`}[i])
		return
	}
	for _, unit := range utf16.Encode([]rune{c}) {
		fmt.Fprintf(b, []string{`\u%04x`, `\u%04X`}[s.r.IntN(2)], unit)
	}
}

func (s speller) object(members map[string]string) string {
	var out []string
	for name, value := range members {
		out = append(out, s.space()+s.str(name)+s.space()+":"+s.space()+value+s.space())
	}
	slices.Sort(out)
	s.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return "{" + strings.Join(out, ",") + "}"
}

func (s speller) list(entries []string) string {
	return "[" + s.space() + strings.Join(entries, s.space()+","+s.space()) + s.space() + "]"
}

// content spells text as a string or cut into parts.
func (s speller) content(text string) string {
	if s.r.IntN(2) == 0 {
		return s.str(text)
	}
	var parts []string
	for runes := []rune(text); len(runes) > 0; {
		n := 1 + s.r.IntN(len(runes))
		part := map[string]string{"type": s.str("text"), "text": s.str(string(runes[:n]))}
		if s.r.IntN(3) == 0 {
			part["cache_control"] = `{"type":"ephemeral"}`
		}
		parts = append(parts, s.object(part))
		runes = runes[n:]
	}
	return s.list(parts)
}

// value spells a decoded JSON value.
func (s speller) value(v any) string {
	switch v := v.(type) {
	case string:
		return s.str(v)
	case []any:
		var entries []string
		for _, e := range v {
			entries = append(entries, s.value(e))
		}
		return s.list(entries)
	case map[string]any:
		members := map[string]string{}
		for name, e := range v {
			members[name] = s.value(e)
		}
		return s.object(members)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func (s speller) chat(turns []turnText, tools []any) string {
	var messages []string
	for _, turn := range turns {
		messages = append(messages, s.object(map[string]string{"role": s.str(turn.role), "content": s.content(turn.text)}))
	}
	body := map[string]string{
		"model": s.str("m"), "messages": s.list(messages),
		"temperature": fmt.Sprint(s.r.Float64()), "stream": fmt.Sprint(s.r.IntN(2) == 0), "seed": fmt.Sprint(s.r.Int64()),
	}
	if tools != nil {
		body["tools"] = s.value(any(tools))
	}
	return s.object(body)
}

var (
	anyText  = rapid.StringN(1, 60, -1)
	anyTurns = rapid.Custom(func(t *rapid.T) []turnText {
		var turns []turnText
		for range rapid.IntRange(0, 2).Draw(t, "systems") {
			turns = append(turns, turnText{rapid.SampledFrom([]string{"system", "developer"}).Draw(t, "role"), anyText.Draw(t, "system")})
		}
		return append(turns, turnText{"user", anyText.Draw(t, "user")})
	})
	anyTools = rapid.Custom(func(t *rapid.T) []any {
		var tools []any
		for _, name := range rapid.SliceOfN(anyText, 0, 3).Draw(t, "tools") {
			tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": name, "strict": true,
				"parameters": map[string]any{"type": "object", "required": []any{"a", name}, "max": json.Number("1.50"), "x": nil}}})
		}
		return tools
	})
)

func drawSpeller(t *rapid.T) speller {
	return speller{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "spelling"), 1))}
}

// C16: what the client varies without meaning it does not change the key.
func TestC16_OpeningIgnoresSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, tools := anyTurns.Draw(t, "turns"), anyTools.Draw(t, "tools")
		a, b := drawSpeller(t).chat(turns, tools), drawSpeller(t).chat(turns, tools)
		if x, y := openingOf(t, a), openingOf(t, b); x != y {
			t.Fatalf("%x of %s\n%x of %s", x, a, y, b)
		}
	})
}

// C16: the grown history of later turns has the key of the first.
func TestC16_OpeningSurvivesLaterTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, tools := anyTurns.Draw(t, "turns"), anyTools.Draw(t, "tools")
		first := openingOf(t, drawSpeller(t).chat(turns, tools))
		grown := slices.Clone(turns)
		for range rapid.IntRange(1, 4).Draw(t, "later turns") {
			role := rapid.SampledFrom([]string{"assistant", "tool", "user", "system"}).Draw(t, "role")
			grown = append(grown, turnText{role, anyText.Draw(t, "text")})
		}
		if got := openingOf(t, drawSpeller(t).chat(grown, tools)); got != first {
			t.Fatalf("%x, then %x with turns %q", first, got, grown)
		}
	})
}

// Different conversations have different keys.
func TestOpeningSeesEveryText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, tools := anyTurns.Draw(t, "turns"), anyTools.Draw(t, "tools")
		first := openingOf(t, drawSpeller(t).chat(turns, tools))
		other := slices.Clone(turns)
		i := rapid.IntRange(0, len(turns)-1).Draw(t, "which")
		other[i].text += rapid.SampledFrom([]string{"x", " ", "\x00", "é"}).Draw(t, "more")
		if openingOf(t, drawSpeller(t).chat(other, tools)) == first {
			t.Fatalf("equal for %q and %q", turns, other)
		}
		more := append(slices.Clone(tools), map[string]any{"type": "function"})
		if openingOf(t, drawSpeller(t).chat(turns, more)) == first {
			t.Fatalf("equal with one tool more")
		}
	})
}

func openingOf(t interface{ Fatalf(string, ...any) }, body string) uint64 {
	env, err := new(Scanner).scanned(APIChat, body)
	if err != nil || !env.HasOpening {
		t.Fatalf("%v, opening %v, of %s", err, env.HasOpening, body)
	}
	return env.Opening
}

func (s *Scanner) scanned(path API, body string) (env Envelope, err error) {
	err = s.Scan(path, []byte(body), &env)
	return env, err
}

// Bodies in one group share a conversation; bodies in two groups do not.
func TestOpeningGroups(t *testing.T) {
	user := func(content string) string {
		return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
	}
	image := func(data string) string {
		return user(`[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"` + data + `"}}]`)
	}
	long := strings.Repeat("A", 65<<10)
	p := strings.Repeat("p", openingPrompt)
	groups := []struct {
		path   API
		bodies []string
	}{
		{APIChat, []string{user(`"hi"`), user(`[{"type":"text","text":"hi"}]`), user(`["h",{"text":"i"}]`), `{"model":"other","tools":[],"functions":null,"messages":[{"role":"system","content":""},{"role":"user","content":"hi"}]}`}},
		{APIChat, []string{`{"model":"m","messages":[{"role":"system","content":"hi"}]}`}},
		{APIChat, []string{`{"model":"m","tools":[{"a":1}],"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","messages":[{"role":"assistant","content":"Hello!"},{"role":"user","content":"hi"}],"tools":[{"a":1}]}`}},
		{APIChat, []string{`{"model":"m","functions":[{"a":1}],"messages":[{"role":"user","content":"hi"}]}`}},
		{APIChat, []string{`{"model":"m","tools":[{"a":1.0}],"messages":[{"role":"user","content":"hi"}]}`}},
		{APIChat, []string{`{"model":"m","tools":[{"a":[1]}],"messages":[{"role":"user","content":"hi"}]}`}},
		{APIChat, []string{image("AA"), user(`[{"text":"s"},{"text":"ee"},{"image_url":{"\u0075rl":"\u0041A"},"type":"image_url"}]`)}},
		{APIChat, []string{image("AB")}},
		{APIChat, []string{image(long), strings.Replace(image(long), "AAAA", `A\u0041AA`, 1)}},
		{APIChat, []string{image(long + "B")}},
		{APIChat, []string{user(`[{"type":"image_url","image_url":{"url":"AA"}},{"type":"text","text":"see"}]`)}},
		{APICompletions, []string{`{"model":"m","prompt":"hi"}`, `{"prompt":[ "h\u0069" ],"model":"m"}`}},
		{APICompletions, []string{`{"model":"m","prompt":["h","i"]}`, `{"model":"m","prompt":[ "h" ,"i"]}`}},
		{APICompletions, []string{`{"model":"m","prompt":[1,2]}`, `{"model":"m","prompt":[ 1 , 2 ]}`, `{"model":"m","prompt":[[1,2]]}`}},
		{APICompletions, []string{`{"model":"m","prompt":[12]}`}},
		{APICompletions, []string{`{"model":"m","prompt":[[1],[2]]}`}},
		{APICompletions, []string{`{"model":"m","prompt":"` + p + `"}`, `{"model":"m","prompt":"` + p + ` and more"}`, `{"model":"m","prompt":"\u0070` + p + `\n"}`}},
		{APICompletions, []string{`{"model":"m","prompt":"` + p[1:] + `"}`}},
	}
	seen := map[uint64]int{}
	for i, g := range groups {
		for _, body := range g.bodies {
			env := mustScan(t, g.path, body)
			if !env.HasOpening {
				t.Errorf("no opening in %.200s", body)
			}
			if j, ok := seen[env.Opening]; ok && j != i {
				t.Errorf("groups %d and %d share an opening: %.200s", j, i, body)
			}
			seen[env.Opening] = i
		}
	}
	if len(seen) != len(groups) {
		t.Errorf("%d openings in %d groups", len(seen), len(groups))
	}
}

func TestNoOpening(t *testing.T) {
	for body, path := range map[string]API{
		`{"model":"m"}`:               APIChat,
		`{"model":"m","messages":[]}`: APIChat,
		`{"model":"m","messages":[{"role":"user","content":null}]}`:         APIChat,
		`{"model":"m","messages":[{"role":"user","content":[]}]}`:           APIChat,
		`{"model":"m","messages":[{"role":"assistant","content":"hello"}]}`: APIChat,
		`{"model":"m","tools":[{"a":1}]}`:                                   APIChat,
		`{"model":"m","prompt":""}`:                                         APICompletions,
		`{"model":"m","prompt":[]}`:                                         APICompletions,
		`{"model":"m","prompt":null}`:                                       APICompletions,
		`{"model":"m","input":"text"}`:                                      APIEmbeddings,
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`:          APIEmbeddings,
	} {
		if env := mustScan(t, path, body); env.HasOpening || env.Opening != 0 {
			t.Errorf("%v: opening %x of %s", path, env.Opening, body)
		}
	}
}

// Openings of conversations from one template spread evenly.
func TestOpeningsSpread(t *testing.T) {
	var buckets [4]int
	for i := range 2000 {
		buckets[openingOf(t, fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Question %d"}]}`, i))>>62]++
	}
	for i, n := range buckets {
		if n < 425 || n > 575 {
			t.Errorf("bucket %d has %d of 2000", i, n)
		}
	}
}
