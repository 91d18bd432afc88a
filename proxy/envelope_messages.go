package proxy

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// messagesMember reads what only Anthropic's Messages API has.
func (s *Scanner) messagesMember(name []byte) (read bool, err error) {
	switch string(name) {
	case "system":
		return true, s.systemText()
	case "output_format":
		return true, s.responseFormat()
	case "output_config":
		return true, s.formatIn("format")
	}
	return false, nil
}

// billing reports whether a text of the system prompt is one that some clients
// put before it, different for every request. No engine shows it to the model.
func billing(text []byte) bool {
	return bytes.HasPrefix(text, []byte("x-anthropic-billing-header"))
}

// userSession is the session in a metadata.user_id: after "_session_", or the
// member session_id of an object written as text. "" where it names a user
// only, who has many conversations.
func userSession(userID []byte) []byte {
	if at := bytes.LastIndex(userID, []byte("_session_")); at >= 0 {
		return userID[at+len("_session_"):]
	}
	var j jsonReader
	j.begin(userID)
	if j.kind() != '{' {
		return nil
	}
	j.enter()
	var session []byte
	for {
		name, err := j.next()
		if err != nil || name == nil {
			break
		}
		found := string(name) == "session_id"
		if j.value() != nil {
			return nil
		}
		if found && j.raw.Kind() == jsontext.KindString {
			session, _ = jsontext.AppendUnquote(nil, j.raw)
		}
	}
	return session
}
