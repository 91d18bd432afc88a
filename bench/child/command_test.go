package child

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"testing"
)

func TestExitCodes(t *testing.T) {
	f := flag.NewFlagSet("x", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	for want, errs := range map[int][]error{
		0: {nil, Parse(f, nil), Parse(f, []string{"--help"}), fmt.Errorf("told: %w", flag.ErrHelp)},
		1: {errors.New("a goal was missed")},
		2: {Parse(f, []string{"--nothing"}), Wrong("--for %d", -1), fmt.Errorf("x: %w", Wrong("no"))},
	} {
		for _, err := range errs {
			if got := exitCode(err); got != want {
				t.Errorf("%v: exit code %d, want %d", err, got, want)
			}
		}
	}
}
