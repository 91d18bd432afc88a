package proxy

import (
	"bytes"
	"unicode/utf8"

	"penstock/engine"
)

// memberNames are the top-level names that are read of every body, apiMembers
// those that are read of one kind beside them.
var memberNames = []string{
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
	"messages", "prompt", "input", "tools", "functions", "response_format", "modalities",
	"session_id", "conversation", "rid", "litellm_session_id", "metadata", "prompt_cache_key", "cache_salt",
}

var apiMembers = [...][]string{
	APIChat:       {"store", "reasoning_control"},
	APIResponses:  {"store", "previous_response_id", "instructions", "text", "max_output_tokens"},
	APIMessages:   {"system", "output_format", "output_config"},
	APIGenerate:   {"text", "input_ids", "inputs", "image_data", "video_data", "audio_data", "sampling_params", "parameters", "session_params"},
	APICompletion: {"input_prefix", "n_predict", "n_cmpl", "json_schema"},
	APITokens:     {"token_ids", "sampling_params"},
	APIItems:      {"images"},
	APIBound:      {"id"},
}

// ownMember reads a member that one kind of body has and others do not, or
// that means something else there. read is false where it is none of them.
func (s *Scanner) ownMember(name []byte) (read bool, err error) {
	switch s.env.API {
	case APIChat:
		return s.chatMember(name)
	case APIResponses:
		return s.responsesMember(name)
	case APIMessages:
		return s.messagesMember(name)
	case APIGenerate:
		return s.generateMember(name)
	case APICompletion:
		return s.completionMember(name)
	case APITokens:
		return s.tokensMember(name)
	case APIItems:
		if string(name) == "images" {
			return true, s.media(engine.Vision)
		}
	case APIBound:
		switch string(name) {
		case "id":
			return true, s.str(&s.held)
		case "session_id":
			return true, s.str(&s.session)
		}
	}
	return false, nil
}

// caseVariant is the name that an engine which ignores case would take name
// for; "" if there is none. A second model must not be smuggled past the
// gateway under another spelling.
func caseVariant(api API, name []byte) string {
	plain := true
	for _, c := range name {
		if c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			plain = false
			break
		}
	}
	if plain {
		return ""
	}
	var own []string
	if int(api) < len(apiMembers) {
		own = apiMembers[api]
	}
	for _, names := range [...][]string{memberNames, own} {
		for _, known := range names {
			if bytes.EqualFold(name, []byte(known)) {
				return known
			}
		}
	}
	return ""
}
