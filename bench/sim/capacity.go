package sim

import (
	"penstock/balancer/problem"
	"penstock/balancer/profile"
	"penstock/route"
)

// Load is what a set of requests asks of a fleet, on average.
type Load struct {
	Rate                   float64 // requests/s
	Prompt, Cached, Output float64 // tokens of the mean request
}

// Mean reads a feed to its end. Cached is the part of prompts that the fleet
// could have had in its caches: of text that comes again before as much other
// text came as half of its KV memory holds.
func (f *Fleet) Mean(feed Feed) (l Load, n int, err error) {
	room := 0
	for i := range f.Engines {
		room += f.Engines[i].KVTokens / 2
	}
	var r Request
	seen := make(map[uint64]int)
	last, passed := 0.0, 0 // tokens
	for {
		if err = feed.Next(&r); err != nil {
			break
		}
		n++
		last = r.At.Seconds()
		l.Prompt += float64(r.Prompt)
		l.Output += float64(r.Output)
		hit, whole := 0, true
		for _, b := range r.Blocks {
			at, ok := seen[b]
			whole = whole && ok && passed-at < room
			if whole {
				hit++
			} else {
				passed += r.BlockTokens
			}
			seen[b] = passed
		}
		passed += r.Output
		l.Cached += float64(max(0, min(hit*r.BlockTokens, r.Prompt-1)))
	}
	k := float64(max(n, 1))
	l.Prompt, l.Cached, l.Output = l.Prompt/k, l.Cached/k, l.Output/k
	if last > 0 {
		l.Rate = k / last
	}
	return l, n, eof(err)
}

// Capacities are what each engine carries of the mean request, in requests/s,
// by the gateway's own reckoning with all speeds known.
func (f *Fleet) Capacities(l Load) (each []float64, sum float64) {
	_, each = f.Curves(l)
	for _, c := range each {
		sum += c
	}
	return each, sum
}

// Curves are the latencies of the engines against load, by the same reckoning.
func (f *Fleet) Curves(l Load) (curves []problem.Latency, each []float64) {
	for i := range f.Engines {
		e := &f.Engines[i]
		speed := route.Speed{Step: e.Step, PerSeq: e.PerSeq, PerToken: e.PerToken, Slots: float64(e.Slots), Answers: 1000}
		if room := float64(e.KVTokens) / (l.Prompt + l.Output); room < speed.Slots {
			speed.Slots = max(1, room)
		}
		curve, c, _ := profile.Curve(speed, profile.Request{Prompt: l.Prompt, Cached: l.Cached, Output: l.Output}, profile.Known{})
		curves, each = append(curves, curve), append(each, c)
	}
	return curves, each
}
