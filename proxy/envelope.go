package proxy

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json/jsontext"

	"penstock/engine"
)

// bytesPerToken makes a lower bound of a prompt's tokens from its bytes. It is
// far above what any tokenizer reaches on text, so that without a tokenizer a
// good request is never refused.
const bytesPerToken = 10

// Envelope is what the gateway reads of a request body. The body itself is
// forwarded byte for byte. It holds no reference to the body.
type Envelope struct {
	API          API
	Model        string // "" where the body need not name one and does not
	ModelFrom    int    // where the model's value stands in the body, quotes included
	ModelTo      int
	Stream       bool // "stream": true; any other value is the engine's to judge
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // the API's bound on the answer; 0 = not given
	N            int  // 0 = not given
	Needs        engine.Capability
	EarlierTurns bool // the conversation has been answered before
	Several      bool // more than one prompt, each with an answer of its own

	// BoundTo is the id of something that one engine holds and the request
	// goes on from, of kind BoundKind.
	BoundTo   string
	BoundKind idKind
	// KeepsID says that a later request may name this one's answer by its id.
	KeepsID bool

	// PromptBytes is a lower bound of the longest single prompt's text, without
	// media; a token id counts as bytesPerToken.
	PromptBytes int

	Key         string    // affinity id of the body, valid; "" = none
	KeySource   KeySource // where Key came from
	InvalidKeys int       // ids in the body that were ignored as unfit
	CacheSalt   string    // scopes the affinity key

	// Opening is the digest of how the conversation opens: equal for all its
	// turns, whatever spelling the JSON has. It does not cover the model.
	Opening    uint64
	HasOpening bool
}

// MinTokens is a lower bound of the prompt's length in tokens.
func (e *Envelope) MinTokens() int { return e.PromptBytes / bytesPerToken }

// maxModelBytes is longer than any model id, file paths included.
const maxModelBytes = 1000

// Scanner reads envelopes. The zero value is ready; it keeps its buffers from
// one Scan to the next, so callers pool it. Not for concurrent use.
type Scanner struct {
	dec jsontext.Decoder
	rd  bytes.Buffer // the body: the decoder reads a bytes.Buffer in place, without a copy

	names     [maxDepth + 2]int // member names so far of the object open at each depth
	openNames int               // their sum: what the decoder remembers

	text  xxhash.Digest // text of the message or prompt at hand
	value xxhash.Digest // one string inside a canonical value
	stage [2048]byte    // unescaped text on its way into a digest
	short [1024]byte    // an unescaped name or id; longer than all that are compared

	models [8]string // interned ids, by hash
	findings
}

// findings is what one Scan has seen so far. Byte slices are raw JSON strings
// inside the body.
type findings struct {
	env           *Envelope
	nameBytes     int // of all member names
	model         []byte
	modelEnd      int    // in the body
	held          []byte // raw id of BoundTo
	session       []byte // the same by another name
	salt          []byte
	ids           [bodyKeys][]byte
	maxTokens     int
	maxCompletion int
	maxNew        int // what other APIs call it
	several       int // n, where it is among the sampling parameters

	tools, functions uint64 // canonical digests; 0 = none
	system           uint64 // digest of what stands apart from the messages: instructions, system
	opening          uint64 // of the messages so far
	openingBytes     int    // how much both cover
	openingDone      bool   // the first user message has passed
	users            int
	lists            int  // of prompts, open at this point
	texts, numbers   int  // entries of the outermost of them
	seeking          bool // parts may be nested in the value at hand
}

var scanOptions = []jsontext.Options{jsontext.AllowInvalidUTF8(true)} // lone surrogate escapes are legal JSON; raw bytes are checked apart

// Scan fills env from the body in one pass and validates the body as JSON: no
// duplicate names, no invalid UTF-8, nesting of at most maxDepth. The error is
// a *BadRequest and says what is wrong and where, never what the body holds.
func (s *Scanner) Scan(path API, body []byte, env *Envelope) error {
	*env = Envelope{API: path, KeepsID: path == APIResponses} // kept unless the client says no
	if err := checkEncoding(body); err != nil {
		return err
	}
	s.findings = findings{env: env}
	s.openNames = 0
	s.rd = *bytes.NewBuffer(body)
	s.dec.Reset(&s.rd, scanOptions...)
	err := s.document(body)
	if err == nil {
		err = s.finish()
	}
	s.release()
	return err
}

// release drops what would pin the body, or memory that an odd body grew,
// while the scanner waits in its pool.
func (s *Scanner) release() {
	const ordinaryNames = 64 << 10
	if s.nameBytes > ordinaryNames {
		s.dec = jsontext.Decoder{}
	}
	s.findings = findings{}
	s.rd = bytes.Buffer{}
	s.dec.Reset(&s.rd)
}

// checkEncoding refuses what is no JSON text before a parser sees it.
func checkEncoding(body []byte) error {
	switch {
	case len(body) == 0:
		return badRequest("", "the body is empty, a JSON object is expected")
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return badRequest("", "the body begins with a byte order mark, which JSON does not allow")
	case utf8.Valid(body):
		return nil
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && n <= 1 {
			return badRequest("", "invalid UTF-8 at byte %d", at)
		}
		at += n
	}
}

// document walks the whole body.
func (s *Scanner) document(body []byte) error {
	switch k := s.dec.PeekKind(); k {
	case '{', jsontext.KindInvalid:
	case '[', '"', '0', 'n', 't', 'f':
		return badRequest("", "the body is not a JSON object")
	}
	if err := s.step(); err != nil {
		return err
	}
	for s.more('}') {
		raw, err := s.name()
		if err != nil {
			return err
		}
		if err := s.member(s.word(raw)); err != nil {
			return err
		}
	}
	if err := s.step(); err != nil {
		return err
	}
	end := int(s.dec.InputOffset())
	if rest := bytes.TrimLeft(body[end:], " \t\r\n"); len(rest) > 0 {
		return badRequest("", "text after the JSON object, at byte %d", len(body)-len(rest))
	}
	return nil
}

// member reads the value of one top-level member. Longer than a screen: it is
// the list of what the gateway reads.
func (s *Scanner) member(name []byte) error {
	env := s.env
	if env.API != APICompletions && env.API != APIEmbeddings {
		if read, err := s.ownMember(name); read {
			return err
		}
	}
	switch string(name) {
	case "model":
		return s.modelID()
	case "stream":
		return s.boolean(&env.Stream)
	case "stream_options":
		return s.streamOptions()
	case "max_tokens":
		return s.integer(&s.maxTokens)
	case "max_completion_tokens":
		return s.integer(&s.maxCompletion)
	case "n":
		return s.integer(&env.N)
	case "messages":
		return s.messages()
	case "prompt", "input":
		return s.prompts(name)
	case "tools":
		return s.toolList(&s.tools)
	case "functions":
		return s.toolList(&s.functions)
	case "response_format":
		return s.responseFormat()
	case "modalities":
		return s.modalities()
	case "conversation":
		return s.conversation()
	case "metadata":
		return s.metadata()
	case "session_id":
		return s.id(KeySessionID)
	case "rid":
		return s.id(KeyRID)
	case "litellm_session_id":
		return s.id(KeyLiteLLMSessionID)
	case "prompt_cache_key":
		return s.id(KeyPromptCacheKey)
	case "cache_salt":
		return s.str(&s.salt)
	}
	if known := caseVariant(env.API, name); known != "" {
		return badRequest(known, "member %s differs from %q only in case, ends at byte %d", quoteName(name), known, s.dec.InputOffset())
	}
	return s.skip()
}

func (s *Scanner) modelID() error {
	text := s.dec.PeekKind() == '"'
	if err := s.str(&s.model); err != nil || text {
		s.modelEnd = int(s.dec.InputOffset())
		return err
	}
	return badRequest("model", "model is not a string")
}

// finish turns what was seen into the rest of the envelope.
func (s *Scanner) finish() error {
	env := s.env
	switch id := s.word(s.model); {
	case s.model == nil && !env.API.namesModel():
	case s.model == nil:
		return badRequest("model", "model is missing")
	case len(id) == 0:
		return badRequest("model", "model is empty")
	case len(id) > maxModelBytes:
		return badRequest("model", "model is longer than %d bytes", maxModelBytes)
	default:
		env.Model = s.intern(id)
		env.ModelFrom, env.ModelTo = s.modelEnd-len(s.model), s.modelEnd
	}
	if s.held == nil {
		s.held = s.session
	}
	if s.held != nil {
		env.BoundTo = string(s.word(s.held))
	}
	for _, n := range [...]int{s.maxNew, s.maxTokens, s.maxCompletion} {
		if n > 0 {
			env.MaxTokens = n
		}
	}
	if env.N == 0 {
		env.N = s.several
	}
	if env.API == APIEmbeddings {
		env.Needs |= engine.Embeddings
		env.EarlierTurns = false
		return nil
	}
	env.CacheSalt = string(s.word(s.salt))
	s.bodyKey()
	if env.HasOpening = s.openingBytes > 0; env.HasOpening {
		tools := mix(s.tools, s.functions)
		env.Opening = mix(mix(uint64(env.API), tools), s.opening)
		if s.system != 0 {
			env.Opening = mix(env.Opening, s.system)
		}
	}
	return nil
}

// intern returns the model id as a string, the same one for the same id as
// long as no other takes its place: few models make most of the requests.
func (s *Scanner) intern(id []byte) string {
	slot := &s.models[xxhash.Sum64(id)%uint64(len(s.models))]
	if *slot != string(id) {
		*slot = string(id)
	}
	return *slot
}

// parseInteger reads a JSON number that is a non-negative integer, saturating;
// 0 for any other.
func parseInteger(raw []byte) int {
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0
		}
	}
	const safeDigits = 18 // always fit an int64
	if len(raw) > safeDigits {
		return math.MaxInt
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return n
}
