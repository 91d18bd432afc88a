package balancer

import (
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// A profile that tells twice what the engine carries is corrected by a quarter,
// over minutes; not by what an engine near its capacity shows, nor for what a
// profile that was replaced got wrong.
func TestProfilesAreCorrected(t *testing.T) {
	set := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m"}}).Set()
	for _, e := range set.Engines {
		e.Profile = &engine.Profile{Base: 500, Slope: 500, Limit: 30}
	}
	models, _ := modelsOf(set)
	var c corrections
	var last *route.Plan
	speed := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 500} // 14 requests/s
	now := time.Unix(1000, 0)
	run := func(d time.Duration, rate float64) (capacity float64) {
		for range int(d / time.Second) {
			now = now.Add(time.Second)
			demand := told("g", "here", 1, route.DemandRow{Class: route.ClassKey{Model: "m"}, Priority: 1, Rate: rate, Prompt: 1000, Cached: 800, Output: 100})
			demand.At = now
			in := &Inputs{At: now, Source: "here", Models: models, Last: last, Demands: []*route.Demand{demand}}
			for _, e := range set.Engines {
				v := viewOf(e)
				c.apply(e, &v)
				in.Engines = append(in.Engines, v)
				demand.Engines = append(demand.Engines, route.Sighting{Engine: e.Name, RTT: 1, Factor: 1, Speed: speed})
			}
			s := Assemble(in)
			c.observe(set, s)
			last = PlanOptimal(s)
			capacity = s.Engines[0].Capacity
		}
		return capacity
	}
	told := run(time.Second, 10)
	if now := run(time.Hour, 1.99*0.95*told); now < 0.998*told { // one second of it was planned with little load
		t.Errorf("near saturation a capacity of %v became %v", told, now)
	}
	if now := run(10*time.Second, 10); now < 0.97*told || now >= told {
		t.Errorf("after ten seconds a capacity of %v is %v", told, now)
	}
	if now := run(20*time.Minute, 10); !near(now, 0.75*told, 0.01) {
		t.Errorf("after twenty minutes a capacity of %v is %v", told, now)
	}
	for _, e := range set.Engines {
		again := *e.Profile
		e.Profile = &again // as a reload does
	}
	if now := run(time.Second, 10); !near(now, 0.75*told, 0.01) {
		t.Errorf("read again, a capacity of %v is %v", told, now)
	}
	for _, e := range set.Engines {
		e.Profile = &engine.Profile{Base: 500, Slope: 500, Limit: 15}
	}
	if now := run(time.Second, 10); !near(now, told/2, 0.01) {
		t.Errorf("a new profile of half of that tells %v, not %v", now, told/2)
	}
	speed.Answers = 2
	if now := run(time.Minute, 10); !near(now, told/2, 0.01) {
		t.Errorf("two answers made %v of %v", now, told/2)
	}
}
