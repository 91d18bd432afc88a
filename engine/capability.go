package engine

import (
	"fmt"
	"math/bits"
	"strings"
)

// Capability is a set of things a request can need and an engine can do
// beyond plain text generation, as a bit mask.
type Capability uint16

const (
	Tools            Capability = 1 << iota // tool and function calls
	Vision                                  // image and video parts
	Audio                                   // audio parts, audio output
	StructuredOutput                        // response_format json_object and json_schema
	Embeddings                              // the embeddings endpoint
)

// AllCapabilities is every capability there is.
const AllCapabilities = Tools | Vision | Audio | StructuredOutput | Embeddings

var capabilityNames = [...]string{"tools", "vision", "audio", "structured_output", "embeddings"}

// CapabilityNames lists the words a configuration may use, in bit order.
func CapabilityNames() []string { return capabilityNames[:] }

// ParseCapability turns a configured word into its bit.
func ParseCapability(name string) (Capability, error) {
	for i, n := range capabilityNames {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("unknown capability %q, known are %s", name, strings.Join(capabilityNames[:], ", "))
}

// capabilities is the mask of a validated list; nil means all.
func capabilities(names []string) Capability {
	if names == nil {
		return AllCapabilities
	}
	var set Capability
	for _, n := range names {
		c, _ := ParseCapability(n)
		set |= c
	}
	return set
}

// String lists the capabilities in the set, comma separated.
func (c Capability) String() string {
	var names []string
	for rest := uint16(c & AllCapabilities); rest != 0; rest &= rest - 1 {
		names = append(names, capabilityNames[bits.TrailingZeros16(rest)])
	}
	return strings.Join(names, ",")
}
