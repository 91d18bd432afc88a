package engine

import "strconv"

// credentials is what shows an engine who asks. It stands behind a pointer, so
// that an Engine that is printed does not show it.
type credentials struct {
	authorization []string // as http.Header holds it
}

func newCredentials(key SecretFile) *credentials {
	if key.Text == "" {
		return nil
	}
	return &credentials{authorization: []string{"Bearer " + string(key.Text)}}
}

// Authorization is the value of the header of that name for requests of the
// gateway's own and, unless PassCredentials, of its clients; nil where the
// engine has no key. Not to be changed.
func (e *Engine) Authorization() []string {
	if e.creds == nil {
		return nil
	}
	return e.creds.authorization
}

// maxKeyBytes is longer than any API key, signed tokens included.
const maxKeyBytes = 8 << 10

// keyFault is what is wrong with the key that was read from key_file; the
// value shown is the file's path. A key that was not configured has no fault.
func keyFault(key SecretFile) (Fault, bool) {
	if key.Path == "" && key.Text == "" || len(key.Text) > 0 && len(key.Text) <= maxKeyBytes && visibleASCII(string(key.Text)) {
		return Fault{}, false
	}
	return Fault{Key: "key_file", Value: strconv.Quote(key.Path),
		Want: "a file with one key in it, of at most 8 KiB and visible ASCII characters: it is sent in a header"}, true
}

// visibleASCII reports whether s has no space, control or other character that
// a header would not carry as it is.
func visibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
