package engine

import "strconv"

// Secret is a configured text that no log, fault or dump shows. string(s) is
// the text itself.
type Secret string

const hidden = "(hidden)"

func (Secret) String() string               { return hidden }
func (Secret) GoString() string             { return hidden }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(hidden)), nil }

// SecretFile is a secret as it was last read from the file that a
// configuration names for it. The zero value is none.
type SecretFile struct {
	Path string
	Text Secret
}

// MarshalText writes where the secret is, never what it is.
func (s SecretFile) MarshalText() ([]byte, error) { return []byte(s.Path), nil }
