package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Two engines of this many slots and this service time carry 80 requests a
// second; twice that is offered.
const (
	engineSlots = 16
	serviceTime = 400 * time.Millisecond
	capacity    = 2 * engineSlots * float64(time.Second) / float64(serviceTime)
	offered     = 2 * capacity
	// servedWanted is the share of the possible that counts as all of it.
	servedWanted = 0.95
	// recoveryWatch is how long a proxy is given to serve again after an overload.
	recoveryWatch = 75 * time.Second
)

// overloads are the rows about more requests than the engines can take.
func overloads() []*row {
	goodput := fmt.Sprintf(">= %.0f %% of the possible (about 78 of %.0f ok/s), <= 1.1 deliveries per request", servedWanted*100, capacity)
	return []*row{
		{
			name: "2x overload, full engines answer 503", wanted: goodput,
			pace: alone,
			run:  overloadRow(http.StatusServiceUnavailable), say: saysOverload, right: servesAll,
		},
		{
			name: "2x overload, full engines answer 429", wanted: goodput,
			pace: alone,
			run:  overloadRow(http.StatusTooManyRequests), say: saysOverload, right: servesAll,
		},
		{
			name: "after that load (503) stops: time without any answer", wanted: "0 s",
			pace: alone,
			run:  recovery,
			say: func(f folded) string {
				if f.label != "" {
					return fmt.Sprintf("%s after %s s", f.label, f.numbers[0])
				}
				return fmt.Sprintf("%s s", f.numbers[0])
			},
			right: func(f folded, _ limits) bool { return f.label == "" && f.numbers[0].high <= 1 },
		},
	}
}

func saysOverload(f folded) string {
	return fmt.Sprintf("%s %%: %s ok/s, %s deliveries", f.numbers[0], f.numbers[1], f.numbers[2].digits(1))
}

func servesAll(f folded, l limits) bool {
	return f.numbers[0].mid >= l.least(100*servedWanted) && f.numbers[2].high <= 1.1
}

// offer is what an overload came to, per second and per request.
type offer struct{ served, possible, perRequest float64 }

// overload offers twice the capacity, evenly spaced, whether or not answers
// come. Answers that come only because the load has ended do not count.
func overload(t *trial, full int, length time.Duration) offer {
	rooms := [2]*room{}
	for i, e := range t.pair {
		rooms[i] = &room{slots: engineSlots, service: serviceTime, full: full}
		e.setPlay(rooms[i].play)
	}
	before := t.pair.total()
	var ok atomic.Int64
	var requests sync.WaitGroup
	n := int(offered * length.Seconds())
	sent := make([]time.Duration, n)
	start := time.Now()
	for i := range n {
		t.sleep(time.Until(start.Add(time.Duration(float64(i) / offered * float64(time.Second)))))
		requests.Go(func() {
			sent[i] = time.Since(start)
			a := t.chatFor(false, 10*time.Second)
			if a.ok() && a.ended.Before(start.Add(length+serviceTime)) {
				ok.Add(1)
			}
		})
	}
	requests.Wait()
	return offer{
		served:     float64(ok.Load()) / length.Seconds(),
		possible:   float64(possible(sent, meanService(rooms), length)) / length.Seconds(),
		perRequest: float64(t.pair.total()-before) / float64(n),
	}
}

// possible is how many of these requests a placement could serve that always
// finds the free slot. It takes the instants of sending and the time in a slot
// as they were: on a busy machine both differ from what was meant.
func possible(sent []time.Duration, service, length time.Duration) (n int) {
	slices.Sort(sent)
	var busy []time.Duration // until when, ascending: every service takes the same time
	for _, now := range sent {
		for len(busy) > 0 && busy[0] <= now {
			busy = busy[1:]
		}
		if len(busy) == 2*engineSlots {
			continue
		}
		busy = append(busy, now+service)
		if now+service < length+serviceTime {
			n++
		}
	}
	return n
}

// meanService is the time that a request spent in a slot.
func meanService(rooms [2]*room) time.Duration {
	spent, n := int64(0), int64(0)
	for _, r := range rooms {
		spent += r.spent.Load()
		n += r.served.Load()
	}
	if n == 0 {
		return serviceTime
	}
	return time.Duration(spent / n)
}

func overloadRow(full int) func(t *trial) (observation, error) {
	return func(t *trial) (observation, error) {
		o := overload(t, full, t.limits.overload)
		return observation{"", []float64{100 * o.served / o.possible, o.served, o.perRequest}}, t.ctx.Err()
	}
}

// recovery overloads, stops, and asks ten times a second until an answer comes.
// Number: seconds from the end of the load to that answer.
func recovery(t *trial) (observation, error) {
	overload(t, http.StatusServiceUnavailable, t.limits.overload/2)
	start := time.Now()
	for time.Since(start) < recoveryWatch {
		if t.chatFor(false, 2*time.Second).ok() {
			// The first answer takes its service time in any case.
			return observation{"", []float64{max(0, (time.Since(start) - 2*serviceTime).Seconds())}}, nil
		}
		if !t.sleep(100 * time.Millisecond) {
			return observation{}, t.ctx.Err()
		}
	}
	return observation{"none", []float64{recoveryWatch.Seconds()}}, nil
}
