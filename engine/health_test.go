package engine

import (
	"testing"
	"time"
)

// step is a verdict and what the engine must be after it.
type step struct {
	v      verdict
	state  State
	reason Reason
}

func play(t *testing.T, from Status, steps []step) *health {
	t.Helper()
	now := time.Unix(1000, 0)
	h := newHealth(from, now)
	for i, s := range steps {
		now = now.Add(time.Second)
		h.observe(s.v, now)
		if h.state != s.state || h.reason != s.reason {
			t.Errorf("step %d, %v: got %v (%v), want %v (%v)", i, s.v, h.state, h.reason, s.state, s.reason)
		}
	}
	return &h
}

func TestHealthTransitions(t *testing.T) {
	starting := Status{State: Starting, Reason: ReasonNoAnswerYet}
	ready := Status{State: Ready, Reason: ReasonHealthy}
	cases := []struct {
		name  string
		from  Status
		steps []step
	}{
		{"first success", starting, []step{{healthy, Ready, ReasonHealthy}}},
		{"refused at first, then up at once", starting, []step{{refused, Down, ReasonRefused}, {refused, Down, ReasonRefused}, {healthy, Ready, ReasonHealthy}}},
		{"slow start", starting, []step{{timedOut, Starting, ReasonNoAnswerYet}, {timedOut, Starting, ReasonNoAnswerYet}, {timedOut, Down, ReasonTimeout}, {healthy, Ready, ReasonHealthy}}},
		{"refusal is definite, return takes two", ready, []step{{refused, Down, ReasonRefused}, {healthy, Down, ReasonRefused}, {healthy, Ready, ReasonHealthy}}},
		{"return interrupted", ready, []step{{refused, Down, ReasonRefused}, {healthy, Down, ReasonRefused}, {unhealthy, Down, ReasonUnhealthy}, {healthy, Down, ReasonUnhealthy},
			{healthy, Ready, ReasonHealthy}}},
		{"three failures", ready, []step{{timedOut, Ready, ReasonHealthy}, {unhealthy, Ready, ReasonHealthy}, {broken, Down, ReasonBroken}}},
		{"failures are counted in a row", ready, []step{{timedOut, Ready, ReasonHealthy}, {timedOut, Ready, ReasonHealthy}, {healthy, Ready, ReasonHealthy},
			{timedOut, Ready, ReasonHealthy}, {timedOut, Ready, ReasonHealthy}, {timedOut, Down, ReasonTimeout}}},
		{"excused probes mean nothing", ready, []step{{timedOut, Ready, ReasonHealthy}, {timedOut, Ready, ReasonHealthy}, {excused, Ready, ReasonHealthy}, {timedOut, Down, ReasonTimeout},
			{excused, Down, ReasonTimeout}}},
		{"an unknown name is not definite", ready, []step{{unreachable, Ready, ReasonHealthy}, {unreachable, Ready, ReasonHealthy}, {unreachable, Down, ReasonUnreachable}}},
		{"C21 loading from the start", starting, []step{{loading, Starting, ReasonLoading}, {loading, Starting, ReasonLoading}, {loading, Starting, ReasonLoading}, {loading, Starting, ReasonLoading},
			{healthy, Ready, ReasonHealthy}}},
		{"C21 loading after a restart takes the traffic away at once", ready, []step{{loading, Starting, ReasonLoading}, {healthy, Ready, ReasonHealthy}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { play(t, tc.from, tc.steps) })
	}
}

func TestHealthCadence(t *testing.T) {
	start := time.Unix(1000, 0)
	h := newHealth(Status{State: Starting}, start)
	check := func(what string, now time.Time, r float64, want time.Duration) {
		t.Helper()
		if got := h.next(now, r); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("starting", start, 0.5, freshEvery)
	h.observe(refused, start)
	check("refused before it was ever ready", start.Add(29*time.Second), 0.5, freshEvery)
	check("starting for long", start.Add(30*time.Second), 0.5, downEvery)
	h.observe(healthy, start)
	check("ready, least", start, 0, 4*time.Second)
	check("ready, middle", start, 0.5, 5*time.Second)
	h.observe(refused, start)
	check("down", start, 0.5, downEvery)
	h.observe(healthy, start)
	check("to be confirmed", start, 0.5, confirmAfter)
}

func TestWorkingEngineIsExcused(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name     string
		inflight int
		progress time.Duration // ago
		dialect  string
		slots    int
		want     bool
	}{
		{"idle", 0, time.Second, DialectLlamaCpp, 0, false},
		{"streaming", 1, 4 * time.Second, DialectVLLM, 0, true},
		{"silent", 1, 5 * time.Second, DialectVLLM, 0, false},
		{"more than its slots", 5, time.Minute, DialectLlamaCpp, 4, true},
		{"its slots", 4, time.Minute, DialectLlamaCpp, 4, false},
		{"more than its slots, with a health page of its own", 5, time.Minute, DialectNIM, 4, false},
	} {
		l := NewLive(1)
		for range tc.inflight {
			l.Acquire(100)
		}
		l.Progress(now.Add(-tc.progress))
		l.SetDetected(&Detected{Dialect: tc.dialect, Slots: tc.slots})
		if got := l.working(now); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
