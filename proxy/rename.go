package proxy

import (
	"bytes"
)

// renamer copies the JSON text of an answer and puts another text in the place
// of the values that name its model: the member model of the object, of its
// member response or message, and of each entry where the answer is a list.
// Every other byte stays, as does text that happens to hold the name. It takes
// the answer in pieces, cut anywhere.
type renamer struct {
	name []byte // the value, quoted

	depth     int
	watched   [3]bool // at depths 1 and 2: the container is an object whose model is replaced
	list      bool    // the container at depth 1 is an array
	member    member  // whose value is at hand
	named     bool    // the next string is a member's name, in a watched object
	inString  bool
	isName    bool // the string at hand is one
	escaped   bool
	replacing bool // the string at hand is left out
	key       [8]byte
	keyLen    int
}

// member is what the name of a member means to a renamer.
type member uint8

const (
	memberOther  member = iota
	memberModel         // names the model
	memberHolder        // holds an object with a model of its own
)

// begin starts on an answer of the model that the client calls name.
func (r *renamer) begin(name string) {
	quoted := appendJSONString(r.name[:0], name)
	*r = renamer{name: quoted}
}

// append appends the next piece of the answer to dst.
func (r *renamer) append(dst, in []byte) []byte {
	from := 0 // what is before has been copied
	for i := 0; i < len(in); i++ {
		if r.inString {
			if !r.isName && !r.escaped { // the bulk of an answer
				n := bytes.IndexByte(in[i:], '"')
				if n < 0 {
					n = len(in) - i
				}
				if slash := bytes.IndexByte(in[i:i+n], '\\'); slash >= 0 {
					n = slash
				}
				if i += n; i == len(in) {
					break
				}
			}
			if r.stringByte(in[i]) && r.replacing {
				r.replacing = false
				from = i + 1
			}
			continue
		}
		switch c := in[i]; c {
		case '"':
			r.inString, r.isName, r.keyLen = true, r.named, 0
			if !r.isName && r.depth <= 2 && r.watched[r.depth] && r.member == memberModel {
				dst = append(append(dst, in[from:i]...), r.name...)
				r.replacing = true
			}
		case '{', '[':
			r.open(c == '{')
		case '}', ']':
			r.depth = max(0, r.depth-1)
			r.named = false
		case ',':
			r.member = memberOther
			r.named = r.depth <= 2 && r.watched[r.depth]
		case ':':
			r.named = false
		}
	}
	if r.replacing {
		return dst
	}
	return append(dst, in[from:]...)
}

// stringByte takes one byte of a string; it reports whether that ended it.
func (r *renamer) stringByte(c byte) (ended bool) {
	switch {
	case r.escaped:
		r.escaped = false
	case c == '\\':
		r.escaped = true
		r.keyLen = len(r.key) + 1 // an engine that escapes a name of ours is none we know
	case c == '"':
		r.inString = false
		if r.isName {
			r.member = memberOf(r.key[:min(r.keyLen, len(r.key))], r.keyLen)
		}
		return true
	default:
		if r.isName {
			if r.keyLen < len(r.key) {
				r.key[r.keyLen] = c
			}
			r.keyLen++
		}
	}
	return false
}

func memberOf(key []byte, length int) member {
	switch {
	case length > len(key):
	case string(key) == "model":
		return memberModel
	case string(key) == "response", string(key) == "message":
		return memberHolder
	}
	return memberOther
}

// open steps into a container.
func (r *renamer) open(object bool) {
	r.depth++
	r.named = false
	switch r.depth {
	case 1:
		r.list, r.watched[1] = !object, object
		r.named = object
	case 2:
		r.watched[2] = object && (r.list || r.member == memberHolder)
		r.named = r.watched[2]
	}
	if r.named {
		r.member = memberOther
	}
}

// appendRenamed appends an event with the alias in the model's place.
func appendRenamed(dst []byte, ev sseEvent, alias string, r *renamer) []byte {
	r.begin(alias)
	raw := ev.Raw
	for first := true; len(raw) > 0; {
		end := bytes.IndexAny(raw, "\r\n")
		if end < 0 {
			end = len(raw)
		}
		from := 0
		if bytes.HasPrefix(raw, utf8BOM) {
			from = len(utf8BOM)
		}
		if !isField(raw[from:end], "data") {
			dst = append(dst, raw[:end]...)
		} else {
			v := value(raw, from+len("data"), end)
			dst = append(dst, raw[:v.from]...)
			if !first {
				r.append(nil, []byte("\n"))
			}
			dst = r.append(dst, raw[v.from:v.to])
			first = false
		}
		for end < len(raw) && (raw[end] == '\r' || raw[end] == '\n') {
			dst = append(dst, raw[end])
			end++
		}
		raw = raw[end:]
	}
	return dst
}

// replaceName puts the alias in the place of the model's name in an engine's
// error, where it stands there as a whole: errors name the model in words.
func replaceName(body []byte, model, alias string) []byte {
	if model == "" || !bytes.Contains(body, []byte(model)) {
		return body
	}
	quoted := appendJSONString(nil, alias)
	in := quoted[1 : len(quoted)-1]
	var out []byte
	rest := body
	for {
		i := nameIndex(rest, model)
		if i < 0 {
			return append(out, rest...)
		}
		out = append(append(out, rest[:i]...), in...)
		rest = rest[i+len(model):]
	}
}
