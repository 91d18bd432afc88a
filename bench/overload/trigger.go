package main

import "slices"

// trigger is what happens in the last half minute of the load: it ends with it.
type trigger string

const (
	nothing    trigger = "nothing"
	killOne    trigger = "kill one"
	killHalf   trigger = "kill half"
	stall      trigger = "stall"       // of all engines
	cacheFlush trigger = "cache flush" // every prompt is computed again
	retryStorm trigger = "retry storm" // ten seconds of requests come again in one
)

var triggers = []trigger{nothing, killOne, killHalf, stall, cacheFlush, retryStorm}

// sweepLoads are those of the sweep, as multiples of what the engines can serve.
var sweepLoads = []float64{0.8, 0.9, 1, 1.2, 1.5, 2, 3, 5}

const (
	triggerLasts = 30.0 // s
	uncached     = 1.5  // times the service, while nothing is cached
	stormSeconds = 10.0
	degradedMost = 60 // s after trigger and load have ended
)

// strike begins the trigger.
func (m *model) strike() {
	switch m.trigger {
	case killOne:
		m.kill(1)
	case killHalf:
		m.kill(engines / 2)
	case retryStorm:
		for range int(stormSeconds * engines * slots / meanService) {
			m.at(m.random.Float64(), m.come)
		}
	}
}

// kill ends engines and what they hold; they are back when the trigger is over.
func (m *model) kill(n int) {
	for _, e := range m.engines[:n] {
		e.dead = true
	}
	for i, e := range m.engines[:n] {
		for _, x := range append(slices.Clone(e.works), e.queue...) {
			m.leave(x)
			m.again(x, 0)
		}
		m.at(triggerLasts, func() {
			m.engines[i].dead = false
			m.next(m.engines[i])
		})
	}
}

// slowness is by what service that begins now takes longer.
func (m *model) slowness() float64 {
	if from := m.overload - triggerLasts; m.trigger == cacheFlush && m.now >= from && m.now < m.overload {
		return uncached
	}
	return 1
}

// stillness is for how long engines have stood still since, or will have.
func (m *model) stillness(since float64) float64 {
	if from := m.overload - triggerLasts; m.trigger == stall && m.now > from && since < m.overload {
		return m.overload - max(since, from)
	}
	return 0
}
