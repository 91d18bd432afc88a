package profile

import (
	"time"

	"penstock/engine"
)

// signals are what an engine tells of itself, as far as it bears on its speed.
type signals struct {
	last     engine.Sample
	inFlight float64 // of this gateway at that sample

	all, own float64 // requests in the engine, and those of this gateway, lately

	told   float64 // slots as the engine tells them
	most   float64 // most that it ever worked on at once
	pinned int     // samples with that many, and more waiting
}

const (
	// An engine that works on the most it ever did while others wait, so many
	// times, has no more slots.
	pinnedEnough = 3
	// latest is the weight of one sample in what is there lately.
	latest = 1.0 / 16
)

// Sample takes in what the engine told of itself; inFlight is the number of
// this gateway's attempts there at that time.
func (l *Learner) Sample(s *engine.Sample, inFlight float64) {
	g := &l.signals
	if s == nil || !s.At.After(g.last.At) {
		return
	}
	if s.Has&engine.FieldSlots != 0 && s.Slots >= 1 {
		g.told = s.Slots
	}
	if s.Has&engine.FieldRunning != 0 {
		waiting := 0.0
		if s.Has&engine.FieldWaiting != 0 {
			waiting = s.Waiting
		}
		g.seenSlots(s.Running, waiting)
		g.seenOthers(s.Running+waiting, inFlight)
	}
	if row, ok := g.between(s); ok && s.At.Sub(l.last) > silent {
		if l.epoch.IsZero() {
			l.epoch = s.At
		}
		l.batchAt(s.At)
		l.rows.add(row, l.estimated(), 1)
		l.seen = min(l.seen+row.weight, l.rows.weight*2)
		l.estimate()
	}
	g.last, g.inFlight = *s, inFlight
}

// silent is how long no answer told anything before the engine's counters are
// believed instead: they leave open what happened between two looks.
const silent = 10 * time.Second

// between is the row of what the engine counted since its last sample, where it
// was busy all the time.
func (g *signals) between(s *engine.Sample) (row, bool) {
	const need = engine.FieldRunning | engine.FieldGeneratedTokens
	span := float64(s.At.Sub(g.last.At)) / 1e6
	running := (s.Running + g.last.Running) / 2
	tokens := s.GeneratedTokens - g.last.GeneratedTokens
	// Less than two at either end: it may have had nothing to do in between.
	if s.Has&g.last.Has&need != need || span > 60_000 || min(s.Running, g.last.Running) < 2 || tokens <= 0 {
		return row{}, false
	}
	prompts := 0.0
	if s.Has&g.last.Has&engine.FieldPromptTokens != 0 {
		prompts = s.PromptTokens - g.last.PromptTokens
		if s.Has&g.last.Has&engine.FieldCachedTokens != 0 {
			prompts -= s.CachedTokens - g.last.CachedTokens
		}
	}
	return row{vector{tokens / running, tokens, max(0, prompts)}, span, 0.3}, true
}

func (g *signals) seenSlots(running, waiting float64) {
	switch {
	case running > g.most:
		g.most, g.pinned = running, 0
		if waiting > 0 {
			g.pinned = 1
		}
	case running == g.most && waiting > 0 && running > 0:
		g.pinned++
	}
}

// seenOthers compares what the engine has with what this gateway has there. A
// sample is older than the count of attempts, so only their means compare.
func (g *signals) seenOthers(all, own float64) {
	if g.all == 0 {
		g.all, g.own = all, own
		return
	}
	g.all += (min(all, 1e6) - g.all) * latest
	g.own += (min(own, 1e6) - g.own) * latest
}

// others is the factor from this gateway's work on the engine to all of it. A
// small difference is none.
func (g *signals) others() float64 {
	if g.own < 1 || g.all < g.own+1 || g.all < 1.25*g.own {
		return 1
	}
	return min(g.all/g.own, 100)
}

func (g *signals) slots() float64 {
	switch {
	case g.told > 0:
		return g.told
	case g.pinned >= pinnedEnough:
		return g.most
	}
	return 0
}
