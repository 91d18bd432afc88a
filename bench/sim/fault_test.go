package sim

import (
	"testing"
	"time"
)

// Engines that refuse, of which the polls tell only half a minute later: who gets
// there is sent on, under the budget, and nobody fails that has had no token yet.
func TestRefusedAttemptsGoElsewhere(t *testing.T) {
	f := threeRegions(t)
	f.SignalDelay = Duration(30 * time.Second)
	f.Faults = []Fault{{At: Duration(20050 * time.Millisecond), Region: "us-east-1", Kind: "down"}}
	if err := f.Complete(); err != nil {
		t.Fatal(err)
	}
	p, _ := ParsePolicies("optimal")
	r, err := Run(Options{Fleet: f, Policy: p[0], Seed: 7}, chat(300, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summarise(SLO{}, 0)
	if r.stats.dispatches <= len(r.records) {
		t.Errorf("%d attempts for %d requests: nobody was sent on", r.stats.dispatches, len(r.records))
	}
	for i := range r.records {
		c := &r.records[i]
		if c.how != whole && c.at > 20050*time.Millisecond {
			t.Errorf("a request of %v ended with %v", c.at, c.how)
		}
		if c.how == whole && c.at > 52*time.Second && f.Engines[c.server].Region == "us-east-1" {
			t.Errorf("a request of %v was served by an engine that is down", c.at)
		}
	}
	if s.Dispatches > 1.1 {
		t.Errorf("%.3f attempts per request", s.Dispatches)
	}
}

// What is bound to its region is served there or not at all, under every policy.
func TestBoundRequestsStayInTheirRegion(t *testing.T) {
	for _, name := range PolicyNames() {
		if name == waterfallTuned {
			continue
		}
		f := threeRegions(t)
		f.Regions[1].Bound = true
		f.Faults = []Fault{{At: Duration(15 * time.Second), For: Duration(5 * time.Second), Region: "eu-west-1", Kind: "down"}}
		if err := f.Complete(); err != nil {
			t.Fatal(err)
		}
		p, _ := ParsePolicies(name)
		r, err := Run(Options{Fleet: f, Policy: p[0], Seed: 7}, chat(400, 10, 1))
		if err != nil {
			t.Fatal(err)
		}
		bound := 0
		for i := range r.records {
			c := &r.records[i]
			if c.flags&flagBound == 0 {
				continue
			}
			bound++
			if c.how == whole && f.Engines[c.server].Region != "eu-west-1" {
				t.Errorf("%s: a request that is bound to eu-west-1 was served by %s", name, f.Engines[c.server].Name)
			}
		}
		if bound == 0 || len(r.records) != 400 {
			t.Errorf("%s: %d bound of %d requests", name, bound, len(r.records))
		}
	}
}
