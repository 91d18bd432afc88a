package balancer

import (
	"strings"
	"testing"
)

// A name reads back as its policy where this build has it; else the error
// names those it has.
func TestPolicyNames(t *testing.T) {
	for p := range policies {
		var got Policy
		err := got.UnmarshalText([]byte(p.String()))
		if p.Built() != (err == nil) || err == nil && got != p {
			t.Errorf("%s reads as %s, %v", p, got, err)
		}
	}
	var p Policy
	if err := p.UnmarshalText([]byte("fastest")); err == nil || !strings.Contains(err.Error(), "capacity") {
		t.Errorf("a policy that does not exist: %v", err)
	}
}
