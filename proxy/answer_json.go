package proxy

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxCount bounds what is believed of one count of an engine.
const maxCount = 1 << 32

var errNotOneValue = errors.New("not exactly one JSON value of the wanted kind")

// count reads a token count; what is not a number leaves it as it is.
func (j *jsonReader) count(n *int64) error {
	err := j.value()
	if err == nil && j.raw.Kind() == jsontext.KindNumber {
		*n = min(max(integer(j.raw), 0), maxCount)
	}
	return err
}

// integer is the number in raw, truncated and saturated.
func integer(raw jsontext.Value) int64 {
	n := int64(0)
	for i, c := range raw {
		if c < '0' || c > '9' || i > 17 {
			f, err := strconv.ParseFloat(string(raw), 64)
			switch {
			case f > math.MaxInt32<<16:
				return math.MaxInt32 << 16
			case f < 0 || err != nil:
				return -1
			}
			return int64(f)
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// present reports whether raw says something: not null, false or "".
func present(raw jsontext.Value) bool {
	switch raw.Kind() {
	case jsontext.KindNull, jsontext.KindFalse:
		return false
	case jsontext.KindString:
		return len(raw) > len(`""`)
	}
	return true
}

// filled reports whether raw is present and no empty array or object.
func filled(raw jsontext.Value) bool {
	if k := raw.Kind(); k == jsontext.KindBeginArray || k == jsontext.KindBeginObject {
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	}
	return present(raw)
}

// chunk is what one JSON object of an answer holds, apart from the counts.
type chunk struct {
	content bool
	finish  bool
	fault   bool
	failed  bool // the API's own event for a failure
	idle    bool // says only that the engine is there

	kind    jsontext.Value // its type
	status  jsontext.Value // of a response
	object  jsontext.Value // of a whole answer
	stopped bool

	texts            int // content members that are strings
	textFrom, textTo int // what is between the quotes of the last one, in the data

	index       int64 // of the choice being read
	finishIndex bool  // whether it has a finish_reason
	total       bool  // whether the usage being read has its sum
	cached      int64 // of the timings being read
	prompt      int64
	predicted   int64
}

// readChunk reads data, one object and nothing else, in one pass.
func (a *answer) readChunk(data []byte) (chunk, error) {
	a.chunk = chunk{}
	a.json.begin(data)
	if a.json.kind() != '{' {
		return chunk{}, errNotOneValue
	}
	if err := a.object(members[a.kind]); err != nil {
		return chunk{}, err
	}
	if judge := judges[a.kind]; judge != nil {
		judge(a)
	}
	return a.chunk, a.json.end()
}

// members reads the members of one object of each kind of answer; judges then
// says what the object is, where one member alone does not.
var (
	members = [...]func(a *answer, name []byte) error{
		answerAny: (*answer).anyMember, answerChat: (*answer).topMember, answerResponses: (*answer).responsesMember,
		answerMessages: (*answer).messagesMember, answerGenerate: (*answer).generateMember, answerNative: (*answer).nativeMember,
		answerTranscript: (*answer).transcriptMember, answerTokens: (*answer).topMember,
	}
	judges = [...]func(a *answer){
		answerAny: (*answer).judgeAny, answerResponses: (*answer).judgeResponses, answerMessages: (*answer).judgeMessages,
		answerGenerate: nil, answerNative: (*answer).judgeNative, answerTranscript: (*answer).judgeTranscript, answerTokens: nil,
	}
)

// object reads an object, giving each member to the reader of its kind; any other value is
// skipped. The readers are method expressions: closures would allocate.
func (a *answer) object(member func(a *answer, name []byte) error) error {
	if a.json.kind() != '{' {
		return a.json.value()
	}
	a.json.enter()
	for {
		name, err := a.json.next()
		if err != nil || name == nil {
			return err
		}
		if err := member(a, name); err != nil {
			return err
		}
	}
}

func (a *answer) topMember(name []byte) error {
	switch string(name) {
	case "choices":
		return a.readChoices()
	case "usage":
		return a.readUsage()
	case "timings":
		return a.readTimings()
	case "error":
		err := a.json.value()
		a.chunk.fault = a.chunk.fault || err == nil && present(a.json.raw)
		return err
	case "object": // SGLang's flat error
		err := a.json.value()
		a.chunk.fault = a.chunk.fault || string(a.json.raw) == `"error"`
		return err
	case "id":
		return a.readID(&a.id)
	}
	return a.json.value()
}

// readID keeps an id, if ids are wanted and it is the first.
func (a *answer) readID(to *string) error {
	err := a.json.value()
	if err == nil && a.keepsID && *to == "" {
		a.noteID(to, a.json.raw)
	}
	return err
}

// noteID takes an id out of raw; what cannot be named in a path is none.
func (a *answer) noteID(to *string, raw jsontext.Value) {
	if len(raw) < 2 || raw.Kind() != jsontext.KindString {
		return
	}
	if id := raw[1 : len(raw)-1]; plainID(string(id)) {
		*to = string(id)
	}
}

// anyMember reads an answer of which only errors and counts matter.
func (a *answer) anyMember(name []byte) error {
	switch string(name) {
	case "meta":
		return a.object((*answer).metaMember)
	case "choices":
		return a.json.value()
	}
	return a.topMember(name)
}

// metaMember finds the counts of Cohere's API.
func (a *answer) metaMember(name []byte) error {
	if string(name) == "billed_units" {
		return a.readUsage()
	}
	return a.json.value()
}

func (a *answer) judgeAny() {
	a.chunk.content = true
	a.choices = true
}

func (a *answer) readChoices() error {
	if a.json.kind() != '[' {
		return a.json.value()
	}
	a.json.enter()
	for {
		if more, err := a.json.more(']'); err != nil || !more {
			return err
		}
		if err := a.readChoice(); err != nil {
			return err
		}
	}
}

func (a *answer) readChoice() error {
	a.chunk.index, a.chunk.finishIndex = 0, false
	if err := a.object((*answer).choiceMember); err != nil {
		return err
	}
	a.choices = true
	a.chunk.finish = a.chunk.finish || a.chunk.finishIndex
	a.track(a.chunk.finishIndex)
	return nil
}

// track notes a part of the answer with the index at hand, and whether that
// index has its end.
func (a *answer) track(finished bool) {
	i := a.chunk.index
	if i < 0 || i >= maxChoice {
		a.untracked = true
		return
	}
	a.seen.add(int(i))
	if finished {
		a.finished.add(int(i))
	}
}

func (a *answer) readIndex() error {
	err := a.json.value()
	a.chunk.index = -1
	if err == nil && a.json.raw.Kind() == jsontext.KindNumber {
		a.chunk.index = integer(a.json.raw)
	}
	return err
}

func (a *answer) choiceMember(name []byte) error {
	switch string(name) {
	case "delta", "message":
		return a.object((*answer).deltaMember)
	case "text":
		return a.readContent()
	case "token_ids":
		if a.kind == answerTokens {
			return a.readContent()
		}
	case "index":
		return a.readIndex()
	case "finish_reason":
		err := a.json.value()
		a.chunk.finishIndex = err == nil && present(a.json.raw)
		return err
	}
	return a.json.value()
}

func (a *answer) deltaMember(name []byte) error {
	switch string(name) {
	case "content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio":
		return a.readContent()
	}
	return a.json.value()
}

func (a *answer) readContent() error {
	err := a.json.value()
	if err != nil || !filled(a.json.raw) {
		return err
	}
	a.chunk.content = true
	if a.json.raw.Kind() == jsontext.KindString {
		a.chunk.texts++
		a.chunk.textFrom, a.chunk.textTo = a.json.at-len(a.json.raw)+1, a.json.at-1
	} else {
		a.chunk.texts += 2 // more than text
	}
	return nil
}

// readUsage takes what is there over what earlier events said: usage may come in every event and
// its details only in the last.
func (a *answer) readUsage() error {
	if a.json.kind() == '{' {
		if !a.counted {
			a.usage = usage{}
		}
		a.counted, a.usage.Known = true, true
	}
	a.chunk.total = false
	err := a.object((*answer).usageMember)
	if !a.chunk.total {
		a.usage.Total = a.usage.Prompt + a.usage.Completion
	}
	return err
}

func (a *answer) usageMember(name []byte) error {
	switch string(name) {
	case "prompt_tokens", "input_tokens":
		return a.json.count(&a.usage.Prompt)
	case "completion_tokens", "output_tokens":
		return a.json.count(&a.usage.Completion)
	case "total_tokens":
		a.chunk.total = true
		return a.json.count(&a.usage.Total)
	case "prompt_tokens_details", "input_tokens_details":
		return a.object((*answer).detailMember)
	}
	return a.json.value()
}

func (a *answer) detailMember(name []byte) error {
	if string(name) == "cached_tokens" {
		return a.json.count(&a.usage.Cached)
	}
	return a.json.value()
}

// readTimings takes llama.cpp's counts, which its streams carry also where no usage was asked for.
func (a *answer) readTimings() error {
	found := a.json.kind() == '{'
	err := a.object((*answer).timingsMember)
	if c := &a.chunk; found && !a.counted {
		a.usage = usage{
			Prompt:     c.cached + c.prompt,
			Completion: c.predicted,
			Total:      c.cached + c.prompt + c.predicted,
			Cached:     c.cached,
			Known:      true,
		}
	}
	return err
}

func (a *answer) timingsMember(name []byte) error {
	switch string(name) {
	case "cache_n":
		return a.json.count(&a.chunk.cached)
	case "prompt_n":
		return a.json.count(&a.chunk.prompt)
	case "predicted_n":
		return a.json.count(&a.chunk.predicted)
	}
	return a.json.value()
}
