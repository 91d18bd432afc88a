package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// silences are the rows about engines that accept and do not answer.
func silences() []*row {
	return []*row{
		{
			name: "engines accept and never answer", wanted: "an error at its first-byte limit",
			run: func(t *trial) (observation, error) {
				t.pair.setPlay(silent)
				a := t.chatFor(false, t.limits.watch())
				return observation{a.outcome(), []float64{a.took.Seconds()}}, nil
			},
			say: func(f folded) string {
				if f.label == "no answer" {
					return fmt.Sprintf("nothing for %s s", f.numbers[0])
				}
				return fmt.Sprintf("%s after %s s", f.label, f.numbers[0])
			},
			right: func(f folded, l limits) bool {
				return f.label >= "500" && f.label <= "599" && within(f.numbers[0].high, l.firstByte)
			},
		},
		{
			name: "one engine of two never answers: requests that hang (of 60 in 6 s)", wanted: "few (<= 6)",
			pace:  alone,
			run:   oneSilent,
			say:   func(f folded) string { return f.numbers[0].String() },
			right: func(f folded, _ limits) bool { return f.numbers[0].high <= 6 },
		},
	}
}

// oneSilent sends 60 requests, ten a second. Number: those that have no good
// answer after 3 s.
func oneSilent(t *trial) (observation, error) {
	t.pair[1].setPlay(silent)
	before := len(t.pair[1].deliveries())
	var hung atomic.Int64
	var requests sync.WaitGroup
	for range 60 {
		requests.Go(func() {
			if !t.chatFor(false, 3*time.Second).ok() {
				hung.Add(1)
			}
		})
		if !t.sleep(100 * time.Millisecond) {
			break
		}
	}
	requests.Wait()
	if len(t.pair[1].deliveries()) == before {
		return observation{}, errNotMet
	}
	return observation{"", []float64{float64(hung.Load())}}, t.ctx.Err()
}
