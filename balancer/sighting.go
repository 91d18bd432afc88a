package balancer

import (
	"math"
	"time"

	"penstock/engine"
)

// DataRule says how far an engine's own word about itself is taken. Closed;
// where several hold, the first of Missing, Distrusted, Stale, Lying, Frozen,
// Joined.
type DataRule uint8

const (
	Fresh      DataRule = iota // its page is young, and fits what we see
	Missing                    // it has no page, or none that says anything we know: our own attempts are all there is
	Joined                     // in service for so short that little can be concluded
	Stale                      // its page is old: our own attempts count
	Distrusted                 // so old that its capacity is doubted too
	Lying                      // it tells what cannot be: our own attempts count
	Frozen                     // it has work and does none of it: capacity 0
	dataRules
)

func (r DataRule) String() string {
	return [...]string{"fresh", "missing", "joined", "stale", "distrusted", "lying", "frozen"}[r]
}

const (
	staleAfter    = 3 * time.Second
	distrustAfter = 30 * time.Second
	joinedFor     = 10 * time.Second
	// frozenAfter is how long work may stand still. An engine moves several
	// times a second; together with the poll and the cycle it is out in 10 s.
	frozenAfter = 6 * time.Second
	// liesToTell is how many polls in a row must tell less than half of what we
	// have there, liesFor how long an engine caught lying is not listened to.
	liesToTell = 3
	liesFor    = 30 * time.Second
	liesLeast  = 4 // attempts of ours below which a poll can miss them all
	// backwardsTwice: a counter that went back once has been started again; twice
	// within this time is another engine's page, or nonsense.
	backwardsTwice = time.Minute
	// mostAtWork and mostTokens bound what an engine can have at once, and do in
	// a second.
	mostAtWork = 1e6
	mostTokens = 1e8
	// cachedSlack is how much the counter of cached tokens may be ahead of that of
	// all prompt tokens: pages are not read in one instant.
	cachedSlack = 1.01
	// foreignFor is how long an engine has to run more than we sent it until
	// somebody else is seen to feed it: more than foreignLeast, and than foreignShare
	// of what is ours, which may have come or gone since its page was written.
	foreignFor   = 10 * time.Second
	foreignLeast = 4
	foreignShare = 0.25
	// distrustedLeft is what is left of the capacity of an engine that has not
	// told anything for long.
	distrustedLeft = 0.8
	// seenMemory is the time constant of what answers show lately.
	seenMemory = 5 * time.Second
)

// glance is one look at an engine: all that Facts are made of.
type glance struct {
	at        time.Time
	sample    *engine.Sample // the last one; nil: never any
	status    engine.Status
	inFlight  float64       // attempts of this gateway
	onTheWire float64       // of those, not in the engine: on their way to it or back
	progress  time.Duration // since a part of an answer came from it
	slots     float64       // requests that it works on at once, as far as that is known
	elsewhere float64       // attempts of other gateways
	// replicas is how many engines are behind the URL. Of several, each page is
	// of another one: its levels stand for all, its counters for nothing.
	replicas float64
	seen     []engine.Answer // since the last look
}

// Facts are what a look at an engine comes to.
type Facts struct {
	Rule    DataRule
	Since   time.Time // it holds
	Signals Signals
	// Foreign is what runs or waits in the engine beyond what this gateway and
	// those like it sent there: somebody else's requests, taken as load.
	Foreign float64
	// Left is what is left of the engine's capacity: 0 while frozen, less
	// while it tells nothing or others use it, else 1.
	Left float64
}

// track is what looks at an engine have shown so far. Its zero value has
// seen nothing.
type track struct {
	rule  DataRule
	since time.Time
	looks int

	last     engine.Sample // read
	moved    time.Time     // its work last moved, or there was none
	moves    bool          // its counter of steps was seen to move: not every engine's does for every work
	lies     int           // polls in a row that told too little
	liesTill time.Time
	back     time.Time // a counter last went back
	foreign  ewma      // requests beyond ours, by time
	more     time.Time // since when without a break more than ours ran
	prompt   ewma      // tokens/s by the engine's counters
	cached   ewma

	ttft, tbot, failed average
	at                 time.Time // of the last look
}

// average is a mean of values that came one by one, older ones counting less.
type average struct{ sum, n float64 }

func (a *average) add(v float64) { a.sum, a.n = a.sum+v, a.n+1 }

func (a *average) fade(keep float64) { a.sum, a.n = a.sum*keep, a.n*keep }

// mean is NaN where nothing came lately.
func (a *average) mean() float64 {
	if a.n < 0.05 {
		return math.NaN()
	}
	return a.sum / a.n
}

// look takes a glance in and says what is known now.
func (h *track) look(g *glance) Facts {
	dt := g.at.Sub(h.at)
	if h.looks++; h.looks == 1 {
		dt, h.since, h.moved = 0, g.at, g.at
	}
	h.at = g.at
	h.takeAnswers(g, dt)
	if s := g.sample; s != nil && s.At.After(h.last.At) {
		h.read(s, g)
		h.last = *s
	}
	if rule := h.decide(g); rule != h.rule {
		h.rule, h.since = rule, g.at
	}
	f := Facts{Rule: h.rule, Since: h.since, Left: 1}
	h.signals(g, &f)
	h.foreigners(g, dt, &f)
	switch h.rule {
	case Frozen:
		f.Left = 0
	case Distrusted:
		f.Left *= distrustedLeft
	}
	return f
}

// takeAnswers takes what attempts showed since the last look.
func (h *track) takeAnswers(g *glance, dt time.Duration) {
	keep := math.Exp(-max(0, dt.Seconds()) / seenMemory.Seconds())
	h.ttft.fade(keep)
	h.tbot.fade(keep)
	h.failed.fade(keep)
	for i := range g.seen {
		a := &g.seen[i]
		if a.TTFT > 0 {
			h.ttft.add(a.TTFT.Seconds() * 1000)
		}
		if a.TBOT > 0 {
			h.tbot.add(a.TBOT.Seconds() * 1000)
		}
		switch a.How {
		case engine.EndedWhole:
			h.failed.add(0)
			h.moved = g.at
		case engine.EndedFault:
			h.failed.add(1)
		}
	}
}

// read takes a new sample into account.
func (h *track) read(s *engine.Sample, g *glance) {
	if h.impossible(s) {
		h.liesTill = g.at.Add(liesFor)
	}
	atWork := s.Running + s.Waiting
	if s.Has&engine.FieldRunning != 0 && g.replicas == 1 {
		if ours := g.inFlight - g.onTheWire; ours >= liesLeast && atWork < ours/2 {
			if h.lies++; h.lies >= liesToTell {
				h.liesTill = g.at.Add(liesFor)
			}
		} else {
			h.lies = 0
		}
	}
	if h.last.At.IsZero() || g.replicas > 1 {
		h.moved = g.at
		return
	}
	both := s.Has & h.last.Has
	dt := s.At.Sub(h.last.At)
	if h.wentBack(s, both) {
		if !h.back.IsZero() && g.at.Sub(h.back) < backwardsTwice {
			h.liesTill = g.at.Add(liesFor)
		}
		h.back, h.moved, h.moves = g.at, g.at, false
		return
	}
	const prompts = engine.FieldPromptTokens | engine.FieldCachedTokens
	if both&prompts == prompts {
		h.prompt.add(s.PromptTokens-h.last.PromptTokens, dt, rateMemory)
		h.cached.add(s.CachedTokens-h.last.CachedTokens, dt, rateMemory)
		if h.prompt.rate() > mostTokens {
			h.liesTill, h.prompt, h.cached = g.at.Add(liesFor), ewma{}, ewma{}
		}
	}
	// Without both figures nobody can say that it stands still.
	const work = engine.FieldRunning | engine.FieldSteps
	h.moves = h.moves || both&work == work && s.Steps != h.last.Steps
	if both&work != work || s.Running == 0 || s.Steps != h.last.Steps || !h.moves || g.progress < s.At.Sub(h.last.At) {
		h.moved = g.at
	}
}

// impossible reports a sample that no engine can mean.
func (h *track) impossible(s *engine.Sample) bool {
	const prompts = engine.FieldPromptTokens | engine.FieldCachedTokens
	return s.Running > mostAtWork || s.Waiting > mostAtWork ||
		s.Has&prompts == prompts && s.CachedTokens > cachedSlack*s.PromptTokens+mostInPage
}

// mostInPage is how many tokens may be counted while a page is written.
const mostInPage = 1 << 17

// wentBack reports whether a counter is lower than it was.
func (h *track) wentBack(s *engine.Sample, both engine.Field) bool {
	for _, c := range []struct {
		field    engine.Field
		now, was float64
	}{
		{engine.FieldPromptTokens, s.PromptTokens, h.last.PromptTokens},
		{engine.FieldGeneratedTokens, s.GeneratedTokens, h.last.GeneratedTokens},
		{engine.FieldCachedTokens, s.CachedTokens, h.last.CachedTokens},
		{engine.FieldSteps, s.Steps, h.last.Steps},
	} {
		if both&c.field != 0 && c.now < c.was {
			return true
		}
	}
	return false
}

// decide finds the rule that holds.
func (h *track) decide(g *glance) DataRule {
	age := g.at.Sub(h.last.At)
	switch {
	case h.last.At.IsZero() || h.last.Has == 0:
		return Missing
	case age > distrustAfter:
		return Distrusted
	case age > staleAfter:
		return Stale
	case g.at.Before(h.liesTill):
		return Lying
	case g.at.Sub(h.moved) >= frozenAfter:
		return Frozen
	case g.status.State == engine.Ready && g.at.Sub(g.status.Since) < joinedFor:
		return Joined
	}
	return Fresh
}

// believed reports whether the engine's own figures of its load count.
func (r DataRule) believed() bool { return r == Fresh || r == Joined || r == Frozen }

// signals are the engine's figures where they are believed, else what the
// gateways' own attempts say: unknown is never idle.
func (h *track) signals(g *glance, f *Facts) {
	running, waiting, kv := g.inFlight+g.elsewhere, math.NaN(), 0.0
	if h.rule.believed() {
		if h.last.Has&engine.FieldRunning != 0 {
			running = h.last.Running * g.replicas
		}
		if h.last.Has&engine.FieldWaiting != 0 {
			waiting = h.last.Waiting * g.replicas
		}
		if h.last.Has&engine.FieldKVUsed != 0 {
			kv = h.last.KVUsed
		}
	}
	f.Signals = Signals{TTFT: h.ttft.mean(), TBOT: h.tbot.mean(), Errors: h.failed.mean(), Waiting: waiting, Utilisation: kv}
	if g.slots > 0 {
		f.Signals.Utilisation = max(kv, running/g.slots)
	}
}

// foreigners finds what others have in the engine. A page of one of several
// replicas does not tell.
func (h *track) foreigners(g *glance, dt time.Duration, f *Facts) {
	known := h.rule == Fresh && g.replicas == 1 && h.last.Has&engine.FieldRunning != 0
	ours := g.inFlight + g.elsewhere
	over := h.last.Running + h.last.Waiting - ours
	if !known || over <= max(foreignLeast, foreignShare*ours) {
		h.foreign, h.more = ewma{}, time.Time{}
		return
	}
	if h.more.IsZero() {
		h.more = g.at
	}
	if dt > 0 {
		h.foreign.add(over*dt.Seconds(), dt, seenMemory)
	}
	if g.at.Sub(h.more) < foreignFor {
		return
	}
	f.Foreign = h.foreign.rate()
	if g.slots > 0 {
		f.Left = max(0, 1-f.Foreign/g.slots)
	}
}
