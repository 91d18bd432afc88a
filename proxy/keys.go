package proxy

import (
	"bytes"
	"net/http"
	"strings"
)

// KeySource says where a request's affinity key came from. The order of the
// constants is the precedence.
type KeySource uint8

const (
	KeyNone KeySource = iota

	KeyPenstock // from here on: headers
	KeyXSessionID
	KeyClaudeCode
	KeySessionAffinity
	KeySessionIDDash
	KeySessionIDHeader
	KeyThreadID
	KeyDynamo
	KeySMG
	KeyOpenWebUI
	KeyConversationHeader
	KeyHelicone
	KeyLiteLLMHeader
	KeyGenericHeader // any other x-*-session-id, the first name in order

	KeySessionID // from here on: members of the body
	KeyConversation
	KeyRID
	KeyLiteLLMSessionID
	KeyMetadataSession
	KeyMetadataConversation
	KeyMetadataUser   // the session in it, if there is one
	KeyPromptCacheKey // names a group of conversations rather than one

	KeyOpening // derived: Envelope.Opening

	KeyHolder // no choice: one engine holds what the request names
)

// keySourceNames are the values of the response header x-penstock-affinity.
var keySourceNames = [...]string{
	KeyPenstock: "x-penstock-key", KeyXSessionID: "x-session-id", KeyClaudeCode: "x-claude-code-session-id",
	KeySessionAffinity: "x-session-affinity", KeySessionIDDash: "session-id", KeySessionIDHeader: "header session_id",
	KeyThreadID: "thread-id", KeyDynamo: "x-dynamo-session-id", KeySMG: "x-smg-routing-key",
	KeyOpenWebUI: "x-openwebui-chat-id", KeyConversationHeader: "x-conversation-id", KeyHelicone: "helicone-session-id",
	KeyLiteLLMHeader: "x-litellm-session-id", KeyGenericHeader: "x-*-session-id",
	KeySessionID: "session_id", KeyConversation: "conversation", KeyRID: "rid", KeyLiteLLMSessionID: "litellm_session_id",
	KeyMetadataSession: "metadata.session_id", KeyMetadataConversation: "metadata.conversation_id",
	KeyMetadataUser: "metadata.user_id", KeyPromptCacheKey: "prompt_cache_key", KeyOpening: "opening", KeyNone: "none",
	KeyHolder: "id",
}

func (k KeySource) String() string { return keySourceNames[k] }

const bodyKeys = int(KeyPromptCacheKey-KeySessionID) + 1

// keyHeaders are the header names in canonical form, as http.Header holds
// them, so that no look-up has to bring a name into that form.
var keyHeaders = [KeyGenericHeader]string{
	KeyPenstock: "X-Penstock-Key", KeyXSessionID: "X-Session-Id", KeyClaudeCode: "X-Claude-Code-Session-Id",
	KeySessionAffinity: "X-Session-Affinity", KeySessionIDDash: "Session-Id", KeySessionIDHeader: "Session_id",
	KeyThreadID: "Thread-Id", KeyDynamo: "X-Dynamo-Session-Id", KeySMG: "X-Smg-Routing-Key",
	KeyOpenWebUI: "X-Openwebui-Chat-Id", KeyConversationHeader: "X-Conversation-Id", KeyHelicone: "Helicone-Session-Id",
	KeyLiteLLMHeader: "X-Litellm-Session-Id",
}

// headerKey is the source that a canonical header name stands for; KeyNone
// for all others, request, trace and correlation ids among them: they change
// with every turn.
func headerKey(name string) KeySource {
	switch name[max(0, len(name)-1):] { // no other name ends so, and most end otherwise
	case "d", "y":
	default:
		return KeyNone
	}
	switch name {
	case "X-Penstock-Key":
		return KeyPenstock
	case "X-Session-Id":
		return KeyXSessionID
	case "X-Claude-Code-Session-Id":
		return KeyClaudeCode
	case "X-Session-Affinity":
		return KeySessionAffinity
	case "Session-Id":
		return KeySessionIDDash
	case "Session_id":
		return KeySessionIDHeader
	case "Thread-Id":
		return KeyThreadID
	case "X-Dynamo-Session-Id":
		return KeyDynamo
	case "X-Smg-Routing-Key":
		return KeySMG
	case "X-Openwebui-Chat-Id":
		return KeyOpenWebUI
	case "X-Conversation-Id":
		return KeyConversationHeader
	case "Helicone-Session-Id":
		return KeyHelicone
	case "X-Litellm-Session-Id":
		return KeyLiteLLMHeader
	}
	if genericSession(name) {
		return KeyGenericHeader
	}
	return KeyNone
}

// genericSession reports whether a canonical name has the shape
// x-*-session-id. A parent's session is another conversation.
func genericSession(name string) bool {
	middle, ok := strings.CutSuffix(name, "-Session-Id")
	return ok && len(middle) > len("X-") && strings.HasPrefix(middle, "X-") &&
		!strings.HasPrefix(middle, "X-Penstock-") && !strings.HasSuffix(middle, "-Parent") && middle != "X-Penstock"
}

// affinityKey finds the identity that keeps the conversation on one engine, in
// the order of KeySource, and counts the ids that were passed over as unfit.
// For KeyOpening the identity is env.Opening and id is empty.
func affinityKey(h http.Header, env *Envelope) (id string, source KeySource, unfit int) {
	unfit = env.InvalidKeys
	if env.API == APIEmbeddings || affinityOff(h) {
		return "", KeyNone, unfit
	}
	var present uint32 // bit per KeySource; one pass, and no look-up for names that are not there
	for name := range h {
		if k := headerKey(name); k != KeyNone {
			present |= 1 << k
		}
	}
	for k := KeyPenstock; present != 0 && k < KeyGenericHeader; k++ {
		if present&(1<<k) == 0 {
			continue
		}
		if id := firstValue(h, keyHeaders[k]); validKey(id) {
			return id, k, unfit
		}
		unfit++
	}
	if present&(1<<KeyGenericHeader) != 0 {
		id, more := genericKey(h)
		unfit += more
		if id != "" {
			return id, KeyGenericHeader, unfit
		}
	}
	switch {
	case env.Key != "":
		return env.Key, env.KeySource, unfit
	case env.HasOpening:
		return "", KeyOpening, unfit
	}
	return "", KeyNone, unfit
}

// openingKey is the source of the key where only the opening counts.
func (e *Envelope) openingKey() KeySource {
	if e.HasOpening {
		return KeyOpening
	}
	return KeyNone
}

func affinityOff(h http.Header) bool {
	v := h["X-Penstock-Affinity"]
	return len(v) > 0 && strings.EqualFold(strings.TrimSpace(v[0]), "off")
}

// genericKey is the valid id under the smallest x-*-session-id name: a map has
// no order, and the same request must find the same key.
func genericKey(h http.Header) (id string, unfit int) {
	smallest := ""
	for name, values := range h {
		if headerKey(name) != KeyGenericHeader {
			continue
		}
		if len(values) == 0 || !validKey(values[0]) {
			unfit++
		} else if smallest == "" || name < smallest {
			smallest, id = name, values[0]
		}
	}
	return id, unfit
}

func firstValue(h http.Header, canonical string) string {
	if v := h[canonical]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// maxKeyBytes bounds an affinity id.
const maxKeyBytes = 256

// validKey reports whether an id may be a key: 1 to maxKeyBytes bytes without
// control characters, C1 included.
func validKey[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > maxKeyBytes {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case c == 0xc2 && i+1 < len(id) && id[i+1]&^0x1f == 0x80:
			return false
		}
	}
	return true
}

// id reads a member of the body that may be a key. null is none; what is not
// a string is unfit.
func (s *Scanner) id(source KeySource) error {
	switch s.dec.PeekKind() {
	case '"':
		return s.str(&s.ids[source-KeySessionID])
	case 'n':
	default:
		s.env.InvalidKeys++
	}
	return s.skip()
}

// conversation reads the OpenAI form: an id, or an object with one.
func (s *Scanner) conversation() error {
	if s.dec.PeekKind() != '{' {
		return s.id(KeyConversation)
	}
	return s.object(func(name []byte) error {
		if string(name) != "id" {
			return s.skip()
		}
		return s.id(KeyConversation)
	})
}

func (s *Scanner) metadata() error {
	return s.object(func(name []byte) error {
		switch string(name) {
		case "session_id":
			return s.id(KeyMetadataSession)
		case "conversation_id":
			return s.id(KeyMetadataConversation)
		case "user_id":
			if s.env.API == APIMessages && s.dec.PeekKind() == '"' {
				return s.str(&s.ids[KeyMetadataUser-KeySessionID])
			}
		}
		return s.skip()
	})
}

// bodyKey chooses among the ids of the body.
func (s *Scanner) bodyKey() {
	env := s.env
	for i, raw := range s.ids {
		if raw == nil {
			continue
		}
		id, source := s.word(raw), KeySessionID+KeySource(i)
		switch source {
		case KeyRID:
			id = trimTurn(id)
		case KeyMetadataUser:
			if id = userSession(id); len(id) == 0 {
				continue
			}
		}
		if !validKey(id) {
			env.InvalidKeys++
		} else if env.Key == "" {
			env.Key, env.KeySource = string(id), source
		}
	}
}

// trimTurn takes request and turn numbers off an SGLang rid: conv_t2_r1 is a
// request of conv.
func trimTurn(rid []byte) []byte {
	return trimNumbered(trimNumbered(rid, "_r"), "_t")
}

func trimNumbered(id []byte, mark string) []byte {
	stem := bytes.TrimRight(id, "0123456789")
	if len(stem) == len(id) {
		return id
	}
	if cut, ok := bytes.CutSuffix(stem, []byte(mark)); ok && len(cut) > 0 {
		return cut
	}
	return id
}
