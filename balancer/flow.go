package balancer

import (
	"math"
	"time"

	"penstock/route"
)

// flow is a rate of requests as it is told to those who plan. It is the average
// over as long as the rate has been the same: demand that stays is then known
// well, and plans for it stay too, while one that changes is known from when it
// changed. What lies within what chance makes of it is no change.
//
//   - A step up is believed once a window of the last seconds has more requests
//     than chance explains; the rate is from then on that of the window.
//   - A drift, either way, is believed once the average of rateMemory is further
//     from that of longMemory than chance explains; then the shorter one counts.
//   - What it surely was counts for some seconds more, and in a burst too short
//     for a step: a peak.
//
// Chance is a Poisson process whose counts scatter as they have lately. Zero
// value: nothing seen.
type flow struct {
	long, slow, fast ewma
	recent           [windows]struct{ events, seconds float64 } // the latest first
	scatter          ewma                                       // of counts, beside those of a Poisson process
	peak             float64
	held             time.Duration // since the peak
}

const (
	longMemory = 3 * time.Minute
	fastMemory = 2 * time.Second
	// windows are so many looks of windowLeast or more.
	windows     = 8
	windowLeast = 0.5 // s
	// stepSure, driftSure and peakSure are by how many standard deviations a
	// window, the average and the fast average must differ from the rate. By
	// chance a step is seen about once a day, a drift every few hours.
	stepSure  = 4.5
	driftSure = 3.5
	peakSure  = 3
	// driftLeast is how many requests within rateMemory are too few to say that
	// none of them is none by chance.
	driftLeast = 20
	// peakHold is how long a peak counts in full; then it falls to the average
	// with the time constant peakFall.
	peakHold = 10 * time.Second
	peakFall = 20 * time.Second
	// scatterMemory is the time constant of what is known of scatter, mostScatter
	// bounds what one look adds to it.
	scatterMemory = 2 * time.Minute
	mostScatter   = 16
)

func (f *flow) rate() float64 { return max(f.long.rate(), f.peak) }

func (f *flow) add(n float64, dt time.Duration) {
	before := f.long.rate()
	f.look(n, dt)
	f.long.add(n, dt, longMemory)
	f.slow.add(n, dt, rateMemory)
	f.fast.add(n, dt, fastMemory)
	f.held += dt
	if w := f.step(before); w != nil {
		f.long, f.slow = *w, *w
	} else {
		f.drift()
	}
	f.raise(dt)
}

// look notes a look for the windows. Several within windowLeast are one.
func (f *flow) look(n float64, dt time.Duration) {
	if f.recent[0].seconds >= windowLeast {
		f.scattered()
		copy(f.recent[1:], f.recent[:windows-1])
		f.recent[0].events, f.recent[0].seconds = 0, 0
	}
	f.recent[0].events += n
	f.recent[0].seconds += dt.Seconds()
}

// scattered compares the last two windows: how far counts are apart that follow
// each other does not depend on where the rate is going.
func (f *flow) scattered() {
	a, b := f.recent[0], f.recent[1]
	if all := a.events + b.events; all > 0 && b.seconds > 0 {
		apart := a.events/a.seconds - b.events/b.seconds
		off := apart * apart / (all / (a.seconds + b.seconds) * (1/a.seconds + 1/b.seconds))
		f.scatter.add(min(off, mostScatter)*a.seconds, time.Duration(a.seconds*1e9), scatterMemory)
	}
}

// drift lets the shorter average count where the longer one is off.
func (f *flow) drift() {
	rate := f.long.rate()
	switch off, sure := f.slow.rate()-rate, driftSure*f.deviation(&f.slow, rate); {
	case rate*rateMemory.Seconds() < driftLeast || off < -sure:
		f.long = f.slow
	case off > sure: // it is what the last seconds bring, not still on its way there
		f.long = f.window(windows)
		f.slow = f.long
	}
}

// window is the last n looks as an average.
func (f *flow) window(n int) (w ewma) {
	for _, look := range f.recent[:n] {
		w.events, w.seconds = w.events+look.events, w.seconds+look.seconds
	}
	w.squares, w.whole = w.seconds, w.seconds
	return w
}

// step is the window of the last seconds that shows most clearly that the rate
// has risen, less what chance has in a window that was chosen for being high;
// nil where none does.
func (f *flow) step(before float64) (found *ewma) {
	if f.long.whole < 2*rateLeast.Seconds() {
		return nil // it has just begun, and is known from its first second
	}
	most, risen := stepSure, 0.0
	for n := 1; n <= windows && f.recent[n-1].seconds > 0; n++ {
		w := f.window(n)
		if w.seconds < rateLeast.Seconds()-windowLeast/2 || w.seconds > rateMemory.Seconds()/2 {
			continue
		}
		expected := before * w.seconds
		// One request more or less is none too many of a rate near nothing.
		if z := (w.events - expected) / math.Sqrt(f.dispersion()*expected+1); z > most {
			most, found, risen = z, &w, expected
		}
	}
	if found != nil {
		found.events = max(risen, found.events-math.Sqrt(f.dispersion()*found.events))
	}
	return found
}

// lately is what came in the last 1, 2 and 4 s, beside the rate as it is told.
func (f *flow) lately() (told [route.LatelyWindows]route.Lately) {
	at := 0
	for n := 1; n <= windows; n++ {
		w := f.window(n)
		for ; at < len(told) && w.seconds >= float64(int(1)<<at)-windowLeast/2; at++ {
			expected := f.rate() * w.seconds
			told[at] = route.Lately{Requests: w.events, Expected: expected, Variance: f.dispersion() * expected}
		}
	}
	return told
}

// dispersion is the variance of counts over that of a Poisson process; no less
// than 1.
func (f *flow) dispersion() float64 {
	const alike = 10 // s that count as what is expected before anything was seen
	return max(1, (f.scatter.events+alike)/(f.scatter.seconds+alike))
}

// deviation is the standard deviation of an average at a rate.
func (f *flow) deviation(of *ewma, rate float64) float64 {
	return math.Sqrt(f.dispersion()) * of.deviation(rate)
}

// raise lets peaks come and go: what the rate surely was, the average's or that
// of the last seconds.
func (f *flow) raise(dt time.Duration) {
	rate, fast := f.long.rate(), f.fast.rate()
	if over := f.held - peakHold; over > 0 {
		f.peak = min(rate, f.peak) + max(0, f.peak-rate)*math.Exp(-min(over, dt).Seconds()/peakFall.Seconds())
	}
	sure := max(fast-peakSure*f.deviation(&f.fast, fast), rate-peakSure*f.deviation(&f.long, rate))
	if sure >= f.peak {
		f.peak, f.held = sure, 0
	}
}
