package sim

import (
	"fmt"
	"strings"

	"penstock/balancer"
)

// Policy is one way to choose engines: one of ours, which the gateway's own
// code carries out, or a foreign one.
type Policy struct {
	Name    string
	ours    balancer.Policy
	foreign func(*world, *gateway) router // nil: ours
	retries int                           // of a foreign router, after a failed attempt

	fill     float64   // waterfall, tuned: engines count as full at that part of their capacity
	capacity []float64 // by engine, requests/s; with fill
}

// Ours reports whether the gateway's own code carries the policy out.
func (p Policy) Ours() bool { return p.foreign == nil }

// foreignPolicies are those of other products, with what they are called here.
var foreignPolicies = []struct {
	name, title string
	make        func(*world, *gateway) router
}{
	{"consistent-hash", "plain consistent hash, 256 points an engine", newConsistentHash},
	{"chwbl", "consistent hash with bounded loads, 1.25, 256 points (KubeAI)", newBoundedHash},
	{"cache-aware", "radix tree of prefixes, 0.3 / 64 / 1.5 (SGLang, SMG)", newCacheAware},
	{"queue-kv-prefix", "scorer of queue, KV and prefix, 2 / 2 / 3 (llm-d)", newScorer},
	{"selective-push", "push to engines with nothing pending, prefix trie per region (SkyWalker)", newSelectivePush},
	{"prequal", "hot-cold rule over probes (Prequal)", newPrequal},
}

// waterfallTuned is the waterfall with the threshold that serves best, found
// by trying them all on the same requests.
const waterfallTuned = "waterfall-tuned"

// PolicyNames are all that ParsePolicies knows, ours first.
func PolicyNames() (names []string) {
	for _, p := range balancer.Policies() {
		names = append(names, p.String())
	}
	names = append(names, waterfallTuned)
	for _, f := range foreignPolicies {
		names = append(names, f.name)
	}
	return names
}

// PolicyTitle says what a policy is, "" for one of ours.
func PolicyTitle(name string) string {
	for _, f := range foreignPolicies {
		if f.name == name {
			return f.title
		}
	}
	return ""
}

// ParsePolicies reads a list of names; "all" is all of them.
func ParsePolicies(list string) (all []Policy, err error) {
	names := strings.Split(list, ",")
	if list == "all" {
		names = PolicyNames()
	}
	for _, name := range names {
		p, ok := policyOf(strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("policy %q: want some of %s, or all", name, strings.Join(PolicyNames(), ", "))
		}
		all = append(all, p)
	}
	return all, nil
}

func policyOf(name string) (Policy, bool) {
	p := Policy{Name: name, retries: 1}
	for _, f := range foreignPolicies {
		if f.name == name {
			p.foreign = f.make
			return p, true
		}
	}
	if name == waterfallTuned {
		p.ours = balancer.Waterfall
		return p, true
	}
	return p, p.ours.UnmarshalText([]byte(name)) == nil
}
