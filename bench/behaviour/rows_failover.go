package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"penstock/engine/enginetest"
)

const (
	// slowBeyond is how much longer than the median a request may take before
	// it counts as slowed: less than the shortest back-off of any peer.
	slowBeyond = 40 * time.Millisecond
	// returnWatch is how long an engine that is back is waited for.
	returnWatch = 75 * time.Second
)

// failover are the rows about one engine of two that fails.
func failover() []*row {
	return []*row{
		{
			name: "engine refuses connections (100 requests)", wanted: "0 fail, none slowed: the other engine at once",
			pace: alone,
			run:  refusing,
			say:  func(f folded) string { return fmt.Sprintf("%s fail, %s slowed", f.numbers[0], f.numbers[1]) },
			right: func(f folded, l limits) bool {
				return f.numbers[0].high == 0 && f.numbers[1].mid <= l.quick(2)
			},
		},
		{
			name: "engine accepts, then resets (60 requests)", wanted: "0 fail",
			run:   accepting,
			say:   saysFail,
			right: noneFails,
		},
		{
			name: "engine is back: first request after", wanted: "seconds (<= 10)",
			run: returning,
			say: func(f folded) string {
				if f.label == "" {
					return fmt.Sprintf("%s s", f.numbers[0])
				}
				return fmt.Sprintf("%s after %s s", f.label, f.numbers[0])
			},
			right: func(f folded, _ limits) bool { return f.label == "" && f.numbers[0].high <= 10 },
		},
		{
			name: "one engine answers 500 (60 requests)", wanted: "0 fail",
			run: oneFails(http.StatusInternalServerError), say: saysFailAndHits, right: noneFails,
		},
		{
			name: "one engine answers 503 (60 requests)", wanted: "0 fail",
			run: oneFails(http.StatusServiceUnavailable), say: saysFailAndHits, right: noneFails,
		},
		{
			name: "one reset at each engine, then 20 requests", wanted: "0 fail",
			run: oneResetEach, say: saysFail, right: noneFails,
		},
	}
}

func saysFail(f folded) string { return fmt.Sprintf("%s fail", f.numbers[0]) }
func saysFailAndHits(f folded) string {
	return fmt.Sprintf("%s fail, %s hits", f.numbers[0], f.numbers[1])
}

func noneFails(f folded, _ limits) bool { return f.numbers[0].high == 0 }

// failures sends n requests, one after the other.
func (t *trial) failures(n int) (failed float64) {
	for range n {
		if !t.chat(false).ok() {
			failed++
		}
	}
	return failed
}

// refusing takes an engine away. Numbers: failed requests, slowed requests.
func refusing(t *trial) (observation, error) {
	t.pair[1].down()
	var failed, slow float64
	var took []time.Duration
	for range 100 {
		a := t.chat(false)
		if !a.ok() {
			failed++
		}
		took = append(took, a.took)
	}
	slices.Sort(took)
	for _, d := range took {
		if d > took[len(took)/2]+slowBeyond {
			slow++
		}
	}
	return observation{"", []float64{failed, slow}}, nil
}

// accepting lets one engine reset every connection. Number: failed requests.
func accepting(t *trial) (observation, error) {
	if err := t.pair[1].resetAll(); err != nil {
		return observation{}, err
	}
	failed := t.failures(60)
	if t.pair[1].resetConnections() == 0 {
		return observation{}, errNotMet
	}
	return observation{"", []float64{failed}}, nil
}

// returning takes an engine away for 6 s under light load and brings it back.
// Number: seconds until it has its first request.
func returning(t *trial) (observation, error) {
	const every = 50 * time.Millisecond
	engine := t.pair[1]
	engine.down()
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		t.chat(false)
		if !t.sleep(every) {
			return observation{}, t.ctx.Err()
		}
	}
	before := len(engine.deliveries())
	if err := engine.up(); err != nil {
		return observation{}, err
	}
	start := time.Now()
	for time.Since(start) < returnWatch {
		t.chat(false)
		if list := engine.deliveries(); len(list) > before {
			return observation{"", []float64{list[before].Arrived.Sub(start).Seconds()}}, nil
		}
		if !t.sleep(every) {
			return observation{}, t.ctx.Err()
		}
	}
	return observation{"not yet", []float64{returnWatch.Seconds()}}, nil
}

// oneFails lets one engine answer with a status, while its health is good.
// Numbers: failed requests, requests that the engine got.
func oneFails(status int) func(t *trial) (observation, error) {
	return func(t *trial) (observation, error) {
		t.pair[1].setPlay(answerStatus(status))
		before := len(t.pair[1].deliveries())
		failed := t.failures(60)
		hits := len(t.pair[1].deliveries()) - before
		if hits == 0 {
			return observation{}, errNotMet
		}
		return observation{"", []float64{failed, float64(hits)}}, nil
	}
}

// oneResetEach lets each engine break one connection. Number: failures of the
// 20 requests that follow.
func oneResetEach(t *trial) (observation, error) {
	var reset [2]func() bool
	for i, e := range t.pair {
		before := len(e.deliveries())
		e.setPlay(resetOnce(answerAs(e.name)))
		reset[i] = func() bool { return len(e.deliveries()) > before }
	}
	for n := 0; !reset[0]() || !reset[1](); n++ {
		if n == 100 {
			return observation{}, errNotMet
		}
		t.chat(false)
	}
	return observation{"", []float64{t.failures(20)}}, nil
}

// deliveryRows are the rows about how often one request reaches an engine.
func deliveryRows() []*row {
	return []*row{
		{
			name: "both engines fail: deliveries per request (500 / 503 / 429)", wanted: "<= 2, under a budget",
			run: bothFail,
			say: func(f folded) string {
				return fmt.Sprintf("%s / %s / %s", f.numbers[0], f.numbers[1], f.numbers[2])
			},
			right: func(f folded, _ limits) bool {
				return max(f.numbers[0].high, f.numbers[1].high, f.numbers[2].high) <= 2
			},
		},
		{
			name: "POST delivered, engines reset without an answer: most deliveries of one request", wanted: "1 (2 at most, by policy)",
			run: func(t *trial) (observation, error) {
				_, most, err := deliveredUnder(t, reset)
				return observation{"", []float64{most}}, err
			},
			say:   func(f folded) string { return f.numbers[0].String() },
			right: func(f folded, _ limits) bool { return f.numbers[0].high <= 2 },
		},
	}
}

// bothFail: numbers are the mean deliveries per request under each status.
func bothFail(t *trial) (o observation, err error) {
	for i, status := range []int{500, 503, 429} {
		if i > 0 {
			if err := t.restart(); err != nil {
				return o, err
			}
		}
		mean, _, err := deliveredUnder(t, answerStatus(status))
		if err != nil {
			return o, err
		}
		o.Numbers = append(o.Numbers, mean)
	}
	return o, nil
}

// deliveredUnder sends four requests to engines that fail, and counts how
// often each reached one. Few requests, so that no breaker ends the count.
func deliveredUnder(t *trial, play enginetest.Play) (mean, most float64, err error) {
	t.pair.setPlay(play)
	const n = 4
	total := 0
	for range n {
		prompt := t.prompt()
		t.post(chatBody(prompt, false), patience)
		got := len(t.pair.carrying(prompt))
		total += got
		most = max(most, float64(got))
	}
	if total == 0 {
		return 0, 0, errNotMet
	}
	return float64(total) / n, most, nil
}
