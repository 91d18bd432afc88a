package balancer

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"penstock/route"
)

// follower is a gateway that does not lead, with a plan of a given age.
type follower struct {
	alone
	age time.Duration
}

func (f *follower) Leads() (uint64, bool)  { return 7, false }
func (f *follower) PlanAge() time.Duration { return f.age }

func TestTrustInAPlanFallsWithItsAge(t *testing.T) {
	last := 2.0
	for _, c := range []struct {
		age  time.Duration
		want float64 // but for the step
	}{{0, 1}, {10 * time.Second, 1}, {11 * time.Second, 1}, {30 * time.Second, math.Exp(-20. / 60)}, {time.Minute, math.Exp(-50. / 60)},
		{5 * time.Minute, math.Exp(-290. / 60)}, {10 * time.Minute, math.Exp(-590. / 60)}, {10*time.Minute + 1, 0}} {
		got := trust(c.age)
		if got < c.want || got > c.want+1.0/trustSteps || got > last {
			t.Errorf("trust at %s is %g, want %g", c.age, got, c.want)
		}
		last = got
	}
}

// Nobody leads any more: weights go over to the engines that are near, and
// come back with the next word of a leader.
func TestAgedPlansGoOverToLocalWeights(t *testing.T) {
	fleet := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"m"}})
	for _, e := range fleet.Set().Engines {
		if e.Name != "c" {
			e.Cluster = "here"
		}
	}
	key := route.ClassKey{Model: "m"}
	peers := &follower{}
	peers.plan = &route.Plan{Epoch: 7, Version: 1, Policy: "optimal", Rows: []route.PlanRow{
		{Source: "here", Class: key, Weights: []route.PlanWeight{{Engine: "a", Weight: 0.2, InFlight: 2}, {Engine: "c", Weight: 0.8, InFlight: 8}}, Shed: [route.Priorities]float64{2: 0.4}},
		{Source: "there", Class: key, Weights: []route.PlanWeight{{Engine: "c", Weight: 1}}},
	}}
	l := NewLoop(Options{Fleet: fleet, Tables: route.NewPublished("here"), Policy: Optimal, Gateway: "gw", Peers: peers, Log: slog.New(slog.DiscardHandler)})
	weights := func(age time.Duration) map[string]float64 {
		peers.age = age
		l.Cycle(time.Now())
		all := map[string]float64{}
		for _, c := range l.tables.Load().Classes[key].Candidates {
			all[c.Engine.Name] = c.Weight
		}
		return all
	}
	near := func(what string, got map[string]float64, a, b, c float64) {
		t.Helper()
		if math.Abs(got["a"]-a) > 1e-6 || math.Abs(got["b"]-b) > 1e-6 || math.Abs(got["c"]-c) > 1e-6 {
			t.Errorf("%s: %v, want %g %g %g", what, got, a, b, c)
		}
	}
	near("confirmed", weights(time.Second), 0.2, 0, 0.8)
	share := trust(time.Minute)
	near("after a minute", weights(time.Minute), share*0.2+(1-share)/2, (1-share)/2, share*0.8)
	if shed := l.tables.Load().Classes[key].Shed[2]; math.Abs(shed-share*0.4) > 1e-9 {
		t.Errorf("after a minute %g is refused", shed)
	}
	near("after an hour", weights(time.Hour), 0.5, 0.5, 0)
	near("confirmed again", weights(0), 0.2, 0, 0.8)
	if peers.plan.Rows[0].Weights[0].Weight != 0.2 {
		t.Error("the plan itself was changed")
	}
}
