package balancer

import (
	"reflect"
	"time"

	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/route"
)

// corrections are what the capacities of configured profiles are multiplied
// with, by the name of the engine. The zero value corrects nothing. It belongs
// to the loop of the gateway that plans; another that takes over begins anew.
type corrections struct {
	at time.Time // of the last look
	of map[string]*corrected
}

type corrected struct {
	profile.Correction
	told *engine.Profile // that it is of
}

// apply puts an engine's correction into its view. A profile that was changed
// is not corrected for what the one before got wrong.
func (c *corrections) apply(e *engine.Engine, v *EngineView) {
	k := c.of[e.Name]
	switch {
	case k == nil || e.Profile == k.told:
	case e.Profile == nil || !reflect.DeepEqual(*e.Profile, *k.told):
		delete(c.of, e.Name)
		return
	default: // the same, read again
		k.told = e.Profile
	}
	if k != nil {
		v.Told.Correction = k.Factor()
	}
}

// observe takes what engines have shown at the loads of the last plan, the one
// in use until now.
func (c *corrections) observe(set *engine.Set, s *Situation) {
	over := s.At.Sub(c.at)
	first := c.at.IsZero()
	c.at = s.At
	if s.Last == nil || first {
		return
	}
	for name := range c.of {
		if set.ByName(name) == nil {
			delete(c.of, name)
		}
	}
	planned := make(map[string]*route.PlanEngine, len(s.Last.Engines))
	for i := range s.Last.Engines {
		planned[s.Last.Engines[i].Name] = &s.Last.Engines[i]
	}
	for j := range s.Engines {
		v := &s.Engines[j]
		e, p := set.ByName(v.Name), planned[v.Name]
		if e == nil || e.Profile == nil || p == nil || v.Shown <= 0 || !(p.Capacity > 0) {
			continue
		}
		if c.of == nil {
			c.of = make(map[string]*corrected)
		}
		k := c.of[v.Name]
		if k == nil {
			k = &corrected{told: e.Profile}
			c.of[v.Name] = k
		}
		k.Observe(v.Shown, p.Load/p.Capacity, over)
	}
}
