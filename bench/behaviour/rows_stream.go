package main

import (
	"fmt"
	"time"

	"penstock/engine/enginetest"
)

// brokenStreams are the rows about answers that an engine does not finish.
func brokenStreams() []*row {
	return []*row{
		{
			name: "engine resets after 5 events", wanted: "error event, then abort; no [DONE]",
			run:   brokenStream(resetAfter(5), 5),
			say:   saysEnding,
			right: endsAsWanted(5),
		},
		{
			name: "body ends properly, without finish_reason and [DONE]", wanted: "error event, then abort; no [DONE]",
			run:   brokenStream(endAfter(5), 5),
			say:   saysEnding,
			right: endsAsWanted(5),
		},
		{
			name: "first event is an error, under 200 (one engine of two, 40 requests)", wanted: "0 errors under 200: the first event is read before the status is sent",
			run: firstEventError,
			say: func(f folded) string {
				return fmt.Sprintf("%s ok, %s errors under 200, %s told by status", f.numbers[0], f.numbers[1], f.numbers[2])
			},
			right: func(f folded, _ limits) bool { return f.numbers[1].high == 0 },
		},
		{
			name: "engine silent in mid-stream", wanted: "ends visibly at its stall limit",
			run: silentStream,
			say: func(f folded) string {
				if f.label == nothing || f.label == onlyComments {
					return fmt.Sprintf("%s for %s s", f.label, f.numbers[0])
				}
				return fmt.Sprintf("%s, after %s s", f.label, f.numbers[0])
			},
			right: func(f folded, l limits) bool {
				return (f.label == endsRight || f.label == endsCut) && within(f.numbers[0].high, l.stall)
			},
		},
	}
}

const (
	nothing      = "nothing"
	onlyComments = "comments that hide it"
)

// brokenStream sends a stream to engines that break off after n events.
// Numbers: content events that arrived, seconds from the last one to the end.
func brokenStream(play enginetest.Play, n int) func(t *trial) (observation, error) {
	return func(t *trial) (observation, error) {
		t.pair.setPlay(play)
		a := t.chat(true)
		if a.gaveUp {
			return observation{"no end", []float64{float64(contentEvents(a.body)), patience.Seconds()}}, nil
		}
		return observation{a.ending(), []float64{float64(contentEvents(a.body)), a.ended.Sub(a.lastText).Seconds()}}, nil
	}
}

// late is when an end is told that the engine had told long before.
const late = 500 * time.Millisecond

func saysEnding(f folded) string {
	text := f.label
	if f.numbers[0].low < 5 {
		text += fmt.Sprintf(", %s of 5 events", f.numbers[0])
	}
	if f.numbers[1].mid > late.Seconds() {
		text += fmt.Sprintf(", %s s late", f.numbers[1])
	}
	return text
}

func endsAsWanted(events float64) func(f folded, _ limits) bool {
	return func(f folded, _ limits) bool {
		return f.label == endsRight && f.numbers[0].low == events
	}
}

// firstEventError sends 40 streams; one engine's first event is an error.
// Numbers: whole answers, errors under 200, errors told by the status.
func firstEventError(t *trial) (observation, error) {
	t.pair[1].setPlay(errorUnder200)
	before := len(t.pair[1].deliveries())
	var ok, under200, told float64
	for range 40 {
		switch a := t.chat(true); {
		case a.ok():
			ok++
		case a.status == 200:
			under200++
		default:
			told++
		}
	}
	if len(t.pair[1].deliveries()) == before {
		return observation{}, errNotMet
	}
	return observation{"", []float64{ok, under200, told}}, nil
}

// silentStream watches a stream whose engines fall silent after 3 events.
// Number: seconds from the last event to the end, or for which it was watched.
func silentStream(t *trial) (observation, error) {
	t.pair.setPlay(silentAfter(3))
	a := t.chatFor(true, t.limits.watch())
	quiet := a.ended.Sub(a.lastText).Seconds()
	switch {
	case !a.gaveUp:
		return observation{a.ending(), []float64{quiet}}, nil
	case comments(a.body) > 0:
		return observation{onlyComments, []float64{quiet}}, nil
	}
	return observation{nothing, []float64{quiet}}, nil
}
