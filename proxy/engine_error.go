package proxy

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxErrorText bounds what is kept of an engine's error, in bytes per field.
const maxErrorText = 4 << 10

// engineFault is an engine's error object in any of the shapes engines use. Status is the HTTP
// status that the object itself tells, by number or by a known type; 0 when it tells none.
type engineFault struct {
	Status  int
	Message string
	Type    string
	Code    string
	Param   string
}

// engineError reads an engine's error body or error event: OpenAI's nested object, vLLM's with an
// integer code, SGLang's flat one, TGI's string with error_type, Anthropic's, FastAPI's detail.
// What is no JSON object becomes the message.
func engineError(body []byte) engineFault {
	body = bytes.TrimSpace(body)
	var r faultReader
	if r.json.readWhole(body) != nil || r.json.raw.Kind() != jsontext.KindBeginObject {
		return engineFault{Message: clip(string(body[:min(len(body), maxErrorText)]))}
	}
	r.json.begin(body)
	r.read(&r.outer)
	f, in := r.outer, r.inner
	f = engineFault{
		Status:  in.Status,
		Message: first(in.Message, f.Message),
		Type:    first(in.Type, f.Type),
		Code:    first(in.Code, f.Code),
		Param:   first(in.Param, f.Param),
	}
	if f.Status == 0 {
		f.Status = r.outer.Status
	}
	if f.Status == 0 {
		f.Status = typeStatus(f.Type)
	}
	if f.Status == 0 {
		f.Status = typeStatus(f.Code)
	}
	return f
}

type faultReader struct {
	json         jsonReader
	outer, inner engineFault
}

// read takes the members of a valid object into f, and those of its error object into inner.
func (r *faultReader) read(f *engineFault) {
	r.json.enter()
	for {
		name, err := r.json.next()
		if err != nil || name == nil {
			return
		}
		switch string(name) {
		case "error":
			if f == &r.outer && r.json.kind() == '{' {
				r.read(&r.inner)
				continue
			}
			r.text(&f.Message)
		case "response": // of the Responses API's own event for a failure
			if r.json.kind() == '{' {
				r.read(f)
				continue
			}
			err = r.json.value()
		case "message", "detail":
			r.text(&f.Message)
		case "type", "error_type":
			r.text(&f.Type)
		case "param":
			r.text(&f.Param)
		case "code":
			r.text(&f.Code)
			setStatus(f, f.Code)
		case "status", "status_code", "http_status_code":
			var s string
			r.text(&s)
			setStatus(f, s)
		default:
			err = r.json.value()
		}
		if err != nil {
			return
		}
	}
}

// text reads a value as text, null and false as none, an object or array as it is written.
func (r *faultReader) text(s *string) {
	if r.json.value() != nil || !present(r.json.raw) {
		return
	}
	raw := []byte(r.json.raw)
	if r.json.raw.Kind() == jsontext.KindString {
		raw, _ = jsontext.AppendUnquote(nil, raw) // on invalid UTF-8 with replacements
	}
	*s = clip(string(raw[:min(len(raw), maxErrorText)]))
}

func setStatus(f *engineFault, s string) {
	if n, err := strconv.Atoi(s); err == nil && n >= 400 && n <= 599 {
		f.Status = n
	}
}

// typeStatus is the status behind the types and codes of errors that come without one.
func typeStatus(name string) int {
	switch name {
	case "invalid_request_error", "BadRequestError", "Bad Request", "exceed_context_size_error",
		"context_length_exceeded", "invalid_request", "invalid_prompt":
		return 400
	case "authentication_error", "invalid_api_key":
		return 401
	case "permission_error":
		return 403
	case "not_found_error", "NotFoundError", "model_not_found":
		return 404
	case "UnprocessableEntityError", "validation": // validation: TGI
		return 422
	case "rate_limit_error", "rate_limit_exceeded", "RateLimitError", "overloaded": // overloaded: TGI
		return 429
	case "InternalServerError", "server_error", "api_error":
		return 500
	case "not_supported_error", "NotImplementedError":
		return 501
	case "unavailable_error", "overloaded_error", "Service Unavailable", "ServiceUnavailableError":
		return 503
	}
	return 0
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// clip makes s valid UTF-8 of at most maxErrorText bytes.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for i := maxErrorText; len(s) > maxErrorText; i-- {
		if utf8.RuneStart(s[i]) {
			s = s[:i]
		}
	}
	return s
}

// namesModel reports whether the body of an engine's 404 is about the model, by the name under
// which it was asked for, and not about the route.
func namesModel(body []byte, model string) bool {
	f := engineError(body)
	return f.Code == "model_not_found" || f.Param == "model" ||
		model != "" && containsName(f.Message, model) && strings.Contains(strings.ToLower(f.Message), "model ")
}

// containsName finds name as a whole: not as a part of a longer model name.
func containsName(s, name string) bool { return nameIndex([]byte(s), name) >= 0 }

// nameIndex is where name stands as a whole for the first time, -1 if nowhere.
func nameIndex(s []byte, name string) int {
	for at := 0; ; {
		i := bytes.Index(s[at:], []byte(name))
		if i < 0 {
			return -1
		}
		from, to := at+i, at+i+len(name)
		if (from == 0 || !inName(s[from-1])) && endsName(s[to:]) {
			return from
		}
		at = from + 1
	}
}

// endsName reports whether a name before rest is at its end: a full stop or a
// colon that nothing of a name follows is the sentence's.
func endsName(rest []byte) bool {
	if len(rest) > 0 && (rest[0] == '.' || rest[0] == ':') {
		rest = rest[1:]
	}
	return len(rest) == 0 || !inName(rest[0])
}

func inName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./:", c) >= 0 || c >= utf8.RuneSelf
}

func appendJSONString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error is about invalid UTF-8, which is replaced
	return dst
}

// missingMember reports whether an engine's error says that the request lacks
// a member: llama.cpp answers so with a 500 under /v1/messages.
func missingMember(body []byte) bool {
	message := engineError(body).Message
	return strings.HasPrefix(message, "'") && strings.HasSuffix(message, "' is required")
}
