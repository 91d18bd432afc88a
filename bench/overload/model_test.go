package main

import (
	"reflect"
	"testing"
	"time"
)

// At twice what the engines can serve they stay busy with what reaches
// clients, critical requests are served, and it is over soon after; without
// admission half of the work is for clients that have left.
func TestGoodputAtOverload(t *testing.T) {
	length := 5 * time.Minute
	if testing.Short() {
		length = 2 * time.Minute
	}
	for seed := range uint64(3) {
		good, bad := run(admitting, 2, length, nothing, seed), run(naive, 2, length, nothing, seed)
		if good.Goodput < 0.95 || good.Success[0] < 0.995 || good.Recovery > 30 || good.PerRequest > 1.02 {
			t.Errorf("seed %d: %+v", seed, good)
		}
		if good.Success[2] > good.Success[1] || good.Success[1] > good.Success[0] {
			t.Errorf("seed %d: what matters less is served more: %+v", seed, good)
		}
		if bad.Goodput > 0.7 {
			t.Errorf("seed %d: %+v: then admission is good for nothing", seed, bad)
		}
	}
}

// Below what the engines can serve nobody is refused.
func TestNobodyIsRefusedWithoutNeed(t *testing.T) {
	if r := run(admitting, 0.8, 2*time.Minute, nothing, 1); r.Success[0] < 0.99 || r.Success[1] < 0.99 || r.Success[2] < 0.99 || r.PerRequest > 1.05 {
		t.Errorf("%+v", r)
	}
}

// The same seed is the same run.
func TestRunsRepeat(t *testing.T) {
	if a, b := run(admitting, 1.5, time.Minute, killHalf, 7), run(admitting, 1.5, time.Minute, killHalf, 7); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v and %+v", a, b)
	}
}

// Whatever happens under whatever load, a minute after both have ended clients
// are served; without admission some loads last.
func TestNothingLasts(t *testing.T) {
	stuck := 0
	for _, load := range sweepLoads {
		for _, with := range triggers {
			if r := run(admitting, load, 2*time.Minute, with, 3); r.Recovery > degradedMost {
				t.Errorf("%g, %s: recovered after %g s", load, with, r.Recovery)
			}
			if run(naive, load, 2*time.Minute, with, 3).Recovery > degradedMost {
				stuck++
			}
		}
	}
	if stuck == 0 {
		t.Error("a router without admission recovers from everything: the triggers strike nothing")
	}
}

// A trigger strikes: service is lost to it.
func TestTriggersStrike(t *testing.T) {
	calm := run(admitting, 0.9, 2*time.Minute, nothing, 5)
	for _, with := range triggers[1:] {
		r := run(admitting, 0.9, 2*time.Minute, with, 5)
		if reflect.DeepEqual(r, calm) {
			t.Errorf("%s changes nothing", with)
		}
		if (with == killHalf || with == stall) && r.Goodput > calm.Goodput-0.05 {
			t.Errorf("%s: goodput %.3f, without it %.3f", with, r.Goodput, calm.Goodput)
		}
	}
}
