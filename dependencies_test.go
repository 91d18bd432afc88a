package main

import (
	"encoding/json"
	"fmt"
	"go/version"
	"os/exec"
	"runtime"
	"slices"
	"testing"
)

// reviewed lists the modules that the project imports itself, each with what it is better at than code of ours would be.
// A new row is a decision that ARCHITECTURE.md records; a module that is no longer imported leaves both.
var reviewed = map[string]string{
	"github.com/BurntSushi/toml":              "TOML with the position of every key, so that a fault names its line",
	"github.com/HdrHistogram/hdrhistogram-go": "latencies over eight orders of magnitude to three digits in bounded memory, mergeable",
	"github.com/cespare/xxhash/v2":            "fast 64-bit hash of prompts and openings, in assembly",
	"github.com/dchest/siphash":               "keyed hash of affinity keys: clients cannot choose the engine they hit",
	"github.com/fsnotify/fsnotify":            "files of engines are read when they change, on every system",
	"github.com/go-json-experiment/json":      "jsontext: one strict pass over a body; duplicate names and bad UTF-8 are refused",
	"github.com/nats-io/nats-server/v2":       "the fleet's store in this process, for one box and for tests",
	"github.com/nats-io/nats.go":              "the fleet's messages, lease and last table: fan-out to 1,000 gateways at a quarter of etcd's CPU, and it crosses regions",
	"github.com/prometheus/client_golang":     "the metrics registry and its exposition",
	"github.com/prometheus/client_model":      "in tests: what that reference parser returns",
	"github.com/prometheus/common":            "in tests: the reference parser that our bounded one is compared with",
	"github.com/sony/gobreaker/v2":            "when an engine's breaker trips and when trials close it: a rolling window, two steps, excluded results",
	"github.com/spf13/pflag":                  "the flags in cobra's own functions",
	"github.com/spf13/cobra":                  "commands, GNU flags, help and shell completion",
	"go.yaml.in/yaml/v3":                      "YAML with the line of every node, as Prometheus reads it",
	"golang.org/x/image":                      "charts as PNG: anti-aliased shapes, and text with a font in the program",
	"golang.org/x/net":                        "in tests: DNS messages of their name server; http2.Framer, frames by hand: floods, and engines that refuse",
	"golang.org/x/sys":                        "epoll on client sockets: a departed client is seen at once",
	"golang.org/x/time":                       "token buckets of tenants' limits, exact under concurrency and testable by the instant",
	"pgregory.net/rapid":                      "in tests: properties with shrinking",
}

// Versions below these have published faults in what the gateway exposes: HTTP/2 crashes and response smuggling.
const (
	safeGo126  = "go1.26.9"
	safeGo127  = "go1.27.3"
	safeNetMod = "v0.62.0"
)

// goMod is the part of `go mod edit -json` that the tests of this file read.
type goMod struct {
	Toolchain string
	Require   []struct {
		Path, Version string
		Indirect      bool
	}
}

func TestDirectDependenciesAreReviewed(t *testing.T) {
	direct := map[string]bool{}
	for _, r := range readGoMod(t).Require {
		if r.Indirect {
			continue
		}
		direct[r.Path] = true
		if reviewed[r.Path] == "" {
			t.Errorf("go.mod requires %s, which is not reviewed: say in ARCHITECTURE.md and here what it does better than code of ours, or take it out", r.Path)
		}
	}
	named := reviewedRows(t)
	for path, reason := range reviewed {
		if !slices.Contains(named, path) {
			t.Errorf("%s is reviewed, but the table of ARCHITECTURE.md does not name it", path)
		}
		if !direct[path] {
			t.Errorf("%s (%s) is reviewed, but go.mod does not require it directly: take it out of the list and of ARCHITECTURE.md", path, reason)
		}
	}
}

func TestVersionsAreAtTheSafeBase(t *testing.T) {
	mod := readGoMod(t)
	t.Logf("go.mod names toolchain %s; this test was built with %s", mod.Toolchain, runtime.Version())
	if fault := toolchainFault(mod.Toolchain); fault != "" {
		t.Error(fault)
	}
	if fault := toolchainFault(runtime.Version()); fault != "" {
		t.Logf("for a release build take go.mod's toolchain: here %s", fault)
	}
	for _, r := range mod.Require {
		if r.Path != "golang.org/x/net" {
			continue
		}
		t.Logf("golang.org/x/net %s", r.Version)
		if older(t, r.Version, safeNetMod) {
			t.Errorf("golang.org/x/net %s is older than %s", r.Version, safeNetMod)
		}
	}
}

// TestSafeBaseCatchesOldVersions proves that the check above can fail.
func TestSafeBaseCatchesOldVersions(t *testing.T) {
	for toolchain, safe := range map[string]bool{
		"go1.26.8": false, "go1.26.9": true, "go1.27.0": false, "go1.27.2": false, "go1.27.3": true, "go1.28.0": true, "": false, "default": false,
	} {
		if fault := toolchainFault(toolchain); (fault == "") != safe {
			t.Errorf("toolchain %q: fault %q, want safe = %v", toolchain, fault, safe)
		}
	}
	for v, old := range map[string]bool{"v0.61.9": true, "v0.62.0": false, "v0.100.0": false, "v1.0.0": false} {
		if older(t, v, safeNetMod) != old {
			t.Errorf("older(%s, %s) = %v", v, safeNetMod, !old)
		}
	}
}

// toolchainFault says why a Go release is not safe to release with; empty where it is.
func toolchainFault(toolchain string) string {
	switch {
	case !version.IsValid(toolchain):
		return fmt.Sprintf("toolchain %q is no Go release", toolchain)
	case version.Compare(toolchain, safeGo126) < 0:
		return fmt.Sprintf("toolchain %s is older than %s", toolchain, safeGo126)
	case version.Lang(toolchain) == version.Lang(safeGo127) && version.Compare(toolchain, safeGo127) < 0:
		return fmt.Sprintf("toolchain %s is older than %s", toolchain, safeGo127)
	}
	return ""
}

// older compares two versions of the form vMAJOR.MINOR.PATCH.
func older(t *testing.T, a, b string) bool {
	t.Helper()
	return slices.Compare(numbers(t, a), numbers(t, b)) < 0
}

func numbers(t *testing.T, v string) []int {
	t.Helper()
	n := make([]int, 3)
	if _, err := fmt.Sscanf(v, "v%d.%d.%d", &n[0], &n[1], &n[2]); err != nil {
		t.Fatalf("version %q: %v", v, err)
	}
	return n
}

func readGoMod(t *testing.T) goMod {
	t.Helper()
	dependOnTree(t)
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("output of go mod edit -json: %v", err)
	}
	return mod
}
