package profile

import (
	"math"
	"testing"

	"penstock/balancer/problem"
	"penstock/engine"
	"penstock/route"
)

func TestShippedProfiles(t *testing.T) {
	names := map[string]bool{}
	for _, d := range Defaults {
		p, ok := Shipped(d.Name)
		if !ok || names[d.Name] {
			t.Errorf("%s: found %v, twice %v", d.Name, ok, names[d.Name])
		}
		names[d.Name] = true
		if faults := p.Validate(); len(faults) > 0 {
			t.Errorf("%s: %v", d.Name, faults)
		}
		if d.Source == "" || d.Licence == "" || d.MAPE > 0.2 || d.Points < 3 || d.GPUs < 1 || d.GPUs > 9 {
			t.Errorf("%s: %+v", d.Name, d)
		}
		var known Known
		known.Tell(p, 1)
		curve, capacity, calibrated := Curve(route.Speed{}, Request{Prompt: 1000, Output: 200}, known)
		if !calibrated || capacity < 0.3 || capacity > 300 || curve.Zero() < 500 || curve.Zero() > 15_000 {
			t.Errorf("%s: %+v, %v/s", d.Name, curve, capacity)
		}
	}
	if len(names) < 12 {
		t.Errorf("%d profiles", len(names))
	}
	if _, ok := Shipped("nothing/h200"); ok {
		t.Error("a profile of nothing")
	}
}

// Published load points that the profiles were fitted to (sources in
// shipped.json), computed by hand: what a step takes with so many sequences.
func TestShippedProfilesAreNearTheirPoints(t *testing.T) {
	for _, c := range []struct {
		name           string
		rate, isl, osl float64 // throughput in requests/s
		tbot, within   float64
	}{
		{"llama-3.3-70b/h200x4", 3515.019 / 515, 510, 515, 70.763, 0.1},
		{"llama-3.3-70b-fp8/h100x2", 814.37 / 500, 5000, 500, 59.73, 0.03},
		{"llama-3.1-8b/rtxpro6000", 2964.0 / 653, 857, 653, 29.802, 0.06},
	} {
		p, _ := Shipped(c.name)
		n, prompts := c.rate/1000*(c.osl-1)*c.tbot, c.rate/1000*c.isl*c.tbot
		got := p.Step + p.PerSeq*n + p.PerToken*prompts
		if got < c.tbot*(1-c.within) || got > c.tbot*(1+c.within) {
			t.Errorf("%s: %v ms, measured %v", c.name, got, c.tbot)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		model string
		gpu   []string
		gpus  []string
		want  string
	}{
		{"meta-llama/Llama-3.3-70B-Instruct", []string{"NVIDIA-H200-141GB-HBM3e"}, nil, "llama-3.3-70b/h200x4"},
		{"meta-llama/Llama-3.3-70B-Instruct", []string{"h100"}, nil, "llama-3.3-70b-fp8/h100x2"},
		{"meta-llama/Llama-3.3-70B-Instruct", []string{"h1000"}, nil, ""},
		{"meta-llama/Llama-3.3-70B-Instruct", []string{"h200"}, []string{"8"}, ""},
		{"meta-llama/Llama-3.3-70B-Instruct", nil, nil, ""},
		{"other", []string{"h200"}, nil, ""},
		{"llama-3.1-8b", []string{"rtx-pro-6000"}, []string{"1"}, "llama-3.1-8b/rtxpro6000"},
		{"MiniMaxAI/MiniMax-M2.5", []string{"mi355x"}, []string{"1"}, ""}, // fp4 or fp8: nobody says
		{"MiniMaxAI/MiniMax-M2.5", []string{"mi355x"}, []string{"2"}, "minimax-m2.5-fp8/mi355x2"},
	} {
		got := ""
		if p := Match([]string{"x", c.model}, map[string][]string{"gpu": c.gpu, "gpus": c.gpus}); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestTell(t *testing.T) {
	var k Known
	k.Tell(nil, 1)
	k.Tell(&engine.Profile{Points: [][2]float64{{0, 10}, {5, 20}}}, 0)
	if k.Profile == nil || len(k.Profile.Points) != 2 || k.Profile.Points[1] != (problem.Point{Load: 5, Time: 20}) {
		t.Errorf("points: %+v", k.Profile)
	}
	k = Known{}
	k.Tell(&engine.Profile{Slope: 50, Limit: 40}, 3)
	if k.Profile == nil || k.Profile.Slope != 50 || k.Profile.Limit != 40 || k.Speed.PerSeq != 0 {
		t.Errorf("a curve: %+v", k)
	}
	k = Known{}
	k.Tell(&engine.Profile{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48}, 1)
	mean := Request{Prompt: 1100, Cached: 894, Output: 100}
	want, capacity, _ := Curve(route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 99}, mean, Known{})
	if got, c, calibrated := Curve(route.Speed{Step: 99, PerSeq: 99, Answers: 2}, mean, k); got.Zero() != want.Zero() || c != capacity || !calibrated {
		t.Errorf("steps: %+v, %v, want %+v, %v", got, c, want, capacity)
	}
	if got, _, _ := Curve(route.Speed{Step: 20, PerSeq: 0.7, PerToken: 0.12, Slots: 48, Answers: 99}, mean, k); got.Zero() < 1.9*want.Zero() {
		t.Errorf("what was learned does not count: %+v", got)
	}
	double := Known{}
	double.Tell(&engine.Profile{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48}, 2)
	if _, c, _ := Curve(route.Speed{}, mean, double); math.Abs(c/capacity-2) > 1e-6 {
		t.Errorf("two replicas carry %v, one %v", c, capacity)
	}
}
