package fleet

import (
	"math"

	"penstock/route"
)

// pressingFactor is how much an engine's capacity has to change, as one gateway
// sees it, for that not to wait for the next report; pressingHeld the same of
// what an engine held when it refused more, relatively.
const (
	pressingFactor = 0.1
	pressingHeld   = 0.25
)

// Pressing reports whether what a gateway tells now says of an engine what it
// did not say before and others should know at once: that it carries less, or
// again what it did.
func Pressing(was, now *route.Demand) bool {
	if was == nil || now == nil {
		return false
	}
	var before map[string]*route.Sighting
	for i := range now.Engines {
		s := &now.Engines[i]
		var b *route.Sighting
		if i < len(was.Engines) && was.Engines[i].Engine == s.Engine {
			b = &was.Engines[i]
		} else {
			if before == nil {
				before = make(map[string]*route.Sighting, len(was.Engines))
				for k := range was.Engines {
					before[was.Engines[k].Engine] = &was.Engines[k]
				}
			}
			b = before[s.Engine]
		}
		if b != nil && pressing(b, s) {
			return true
		}
	}
	return false
}

func pressing(was, now *route.Sighting) bool {
	return math.Abs(now.Factor-was.Factor) > pressingFactor || (now.Factor == 0) != (was.Factor == 0) ||
		math.Abs(now.Held-was.Held) > pressingHeld*max(now.Held, was.Held)
}
