package balancer

import (
	"math"
	"time"
)

const (
	// rateMemory is the time constant of rates.
	rateMemory = 20 * time.Second
	// rateLeast is the least time that a rate is taken over: one request just
	// after the start is not a hundred a second.
	rateLeast = time.Second
)

// ewma is an exponentially weighted average of a rate, unbiased from the start:
// events and the time they took are forgotten alike. Zero value: nothing seen.
type ewma struct {
	events, seconds float64 // weighted
	squares         float64 // integral of the squared weights, in seconds
	whole           float64 // seconds since the start, not weighted
}

// add takes n events that came evenly within dt.
func (e *ewma) add(n float64, dt, memory time.Duration) {
	d, tau := dt.Seconds(), memory.Seconds()
	keep := math.Exp(-d / tau)
	e.events = e.events*keep + n*tau/d*(1-keep)
	e.seconds = e.seconds*keep + tau*(1-keep)
	e.squares = e.squares*keep*keep + tau/2*(1-keep*keep)
	e.whole += d
}

// rate is events per second.
func (e *ewma) rate() float64 {
	if e.whole == 0 {
		return 0
	}
	return e.events / e.over()
}

// over is the time that the rate is taken over.
func (e *ewma) over() float64 { return e.seconds * max(1, rateLeast.Seconds()/e.whole) }

// deviation is the standard deviation of rate where events come at random with
// that rate.
func (e *ewma) deviation(rate float64) float64 {
	return math.Sqrt(rate*e.squares) / e.over()
}

const (
	// lengthMemory is the time constant of what is learned of the length of
	// requests, lengthKeeps how many answers' worth no pause makes forget.
	lengthMemory = 10 * time.Minute
	lengthKeeps  = 20
	// classCounts is how many answers the mean of a whole class counts for
	// beside those of one priority, guessCounts the same of a guess.
	classCounts = 20
	guessCounts = 4
	// unknownOutput and unknownPrompt are the lengths of a request of which
	// nothing is known, in tokens.
	unknownOutput = 256
	unknownPrompt = 512
)

// lengths are sums over the answers of a class, older ones counting less.
type lengths struct{ answers, prompt, cached, output float64 }

func (l *lengths) add(o lengths, dt time.Duration) {
	if l.answers > lengthKeeps {
		keep := max(math.Exp(-dt.Seconds()/lengthMemory.Seconds()), lengthKeeps/l.answers)
		l.scale(keep)
	}
	l.answers += o.answers
	l.prompt += o.prompt
	l.cached += o.cached
	l.output += o.output
}

func (l *lengths) scale(by float64) {
	l.answers, l.prompt, l.cached, l.output = l.answers*by, l.prompt*by, l.cached*by, l.output*by
}

// with is the mean answer where guess counts as a number of answers.
func (l lengths) with(guess lengths, counts float64) lengths {
	n := l.answers + counts
	return lengths{answers: l.answers, prompt: (l.prompt + counts*guess.prompt) / n,
		cached: (l.cached + counts*guess.cached) / n, output: (l.output + counts*guess.output) / n}
}

// asks are what requests say of themselves when they come in, as sums, older
// ones counting less.
type asks struct{ offered, prompt, limited, limit float64 }

func (a *asks) add(o asks, dt time.Duration) {
	keep := math.Exp(-dt.Seconds() / lengthMemory.Seconds())
	if a.offered > 0 {
		keep = min(1, max(keep, lengthKeeps/a.offered))
	}
	a.offered = a.offered*keep + o.offered
	a.prompt = a.prompt*keep + o.prompt
	a.limited = a.limited*keep + o.limited
	a.limit = a.limit*keep + o.limit
}

// guess is the mean answer as far as requests themselves tell.
func (a *asks) guess() lengths {
	g := lengths{prompt: unknownPrompt, output: unknownOutput}
	if a.offered > 0 && a.prompt > 0 {
		g.prompt = a.prompt / a.offered
	}
	if a.limited > 0 {
		bounded := a.limited / a.offered
		g.output = bounded*min(unknownOutput, a.limit/a.limited) + (1-bounded)*unknownOutput
	}
	return g
}

// allLimited is the share of requests with a bound on their answer from which
// the mean bound holds for the mean answer.
const allLimited = 0.99

// bound is the most that the mean answer can have, infinite where requests do
// not say.
func (a *asks) bound() float64 {
	if a.offered > 0 && a.limited >= allLimited*a.offered {
		return a.limit / a.limited
	}
	return math.Inf(1)
}
