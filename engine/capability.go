package engine

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Capability is a set of things a request can need and an engine can do
// beyond plain text generation, as a bit mask: the words of a configuration,
// then one bit for each API path that only some kinds of engine serve.
type Capability uint64

const (
	Tools            Capability = 1 << iota // tool and function calls
	Vision                                  // image and video parts
	Audio                                   // audio parts, audio output
	StructuredOutput                        // response_format json_object and json_schema
	Embeddings                              // the embeddings endpoint
	firstPath                               // bit of paths[0]
)

// words are the capabilities that a configuration names.
const words = firstPath - 1

var capabilityNames = [...]string{"tools", "vision", "audio", "structured_output", "embeddings"}

// CapabilityNames lists the words a configuration may use, in bit order.
func CapabilityNames() []string { return capabilityNames[:] }

// ParseCapability turns a configured word into its bit.
func ParseCapability(name string) (Capability, error) {
	if i := slices.Index(capabilityNames[:], name); i >= 0 {
		return 1 << i, nil
	}
	return 0, fmt.Errorf("unknown capability %q, known are %s", name, strings.Join(capabilityNames[:], ", "))
}

// AllCapabilities is every capability there is.
var AllCapabilities = firstPath<<len(paths) - 1

// capabilities is the mask of a validated list; nil means all words.
func capabilities(names []string) Capability {
	if names == nil {
		return words
	}
	var set Capability
	for _, n := range names {
		c, _ := ParseCapability(n)
		set |= c
	}
	return set
}

// Words are those of the set that a configuration could name.
func (c Capability) Words() Capability { return c & words }

// Paths are those of the set that are API paths.
func (c Capability) Paths() Capability { return c &^ words }

// Names lists the set, words first.
func (c Capability) Names() []string {
	names := []string{}
	for rest := uint64(c & AllCapabilities); rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); i < len(capabilityNames) {
			names = append(names, capabilityNames[i])
		} else {
			names = append(names, paths[i-len(capabilityNames)].path)
		}
	}
	return names
}

// String lists the capabilities in the set, comma separated.
func (c Capability) String() string { return strings.Join(c.Names(), ",") }

// Can is what the engine may be asked for beyond plain text: the words that
// the configuration gives it, else all that its dialect can do, and the API
// paths that its dialect serves. While its kind is not known that is
// everything: its own refusal tells best.
func (e *Engine) Can() Capability {
	can := AllCapabilities
	if d := e.Detected(); d != nil {
		can = d.Can
	} else if d := dialectByName(e.Dialect); d != nil {
		can = d.can()
	}
	if e.Capabilities != nil {
		can = can&^words | e.caps
	}
	return can
}
