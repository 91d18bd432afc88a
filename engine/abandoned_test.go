package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What an engine still works on for nobody is its load beyond what we wait for.
func TestStillWorkedOn(t *testing.T) {
	for _, c := range []struct {
		what                string
		abandoned, inflight int64
		load                float64
		want                int64
	}{
		{"the engine works on all of them", 2, 2, 2, 2},
		{"on one, the other is done", 2, 2, 1, 1},
		{"on none", 2, 2, 0, 0},
		{"on ours alone", 2, 5, 3, 0},
		{"on ours and one of them", 2, 5, 4, 1},
		{"others send to it too", 2, 5, 40, 2},
		{"ours are not there yet", 2, 5, 1, 0},
		{"nothing was given up", 0, 3, 9, 0},
	} {
		if got := stillWorkedOn(c.abandoned, c.inflight, c.load); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		abandoned := rapid.Int64Range(0, 300).Draw(t, "abandoned")
		inflight := abandoned + rapid.Int64Range(0, 300).Draw(t, "waited for")
		load := rapid.Float64Range(0, 1000).Draw(t, "load")
		keep := stillWorkedOn(abandoned, inflight, load)
		if keep < 0 || keep > abandoned {
			t.Fatalf("keeps %d", keep)
		}
		if more := stillWorkedOn(abandoned, inflight, load+1); more < keep {
			t.Fatalf("keeps %d at load %v, %d at more", keep, load, more)
		}
	})
}

// A place is given back once, whoever gives it back, and never waited for without end.
func TestAbandonedPlacesAreGivenBack(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	sample := func(d time.Duration, running float64) *Sample {
		return &Sample{At: at(d), Has: FieldRunning, Running: running}
	}
	ready := func() *Live {
		l := NewLive(1)
		l.SetDetected(&Detected{Dialect: DialectLlamaCpp})
		l.SetStatus(Ready, ReasonHealthy, start)
		l.SetSample(sample(0, 2))
		l.abandoned.watch(true)
		for range 3 {
			l.Acquire(10)
		}
		return l
	}
	holds := func(t *testing.T, l *Live, inflight, abandoned int64) {
		t.Helper()
		if l.InFlight() != inflight || l.Abandoned() != abandoned {
			t.Errorf("%d in flight, %d of them given up; want %d, %d", l.InFlight(), l.Abandoned(), inflight, abandoned)
		}
	}
	give := func(t *testing.T, l *Live, d time.Duration) {
		t.Helper()
		if !l.Abandon(at(d)) {
			t.Fatal("the place is not kept")
		}
	}
	t.Run("by gauges that are younger than the departure", func(t *testing.T) {
		l := ready()
		give(t, l, 2*time.Second)
		l.SetSample(sample(time.Second, 0))
		l.freeAbandoned(at(2 * time.Second))
		holds(t, l, 3, 1)
		l.SetSample(sample(3*time.Second, 3))
		l.freeAbandoned(at(3 * time.Second))
		holds(t, l, 3, 1)
		l.SetSample(sample(4*time.Second, 2))
		l.freeAbandoned(at(4 * time.Second))
		holds(t, l, 2, 0)
		l.freeAbandoned(at(5 * time.Second))
		holds(t, l, 2, 0)
	})
	t.Run("when the gauges have been silent for long", func(t *testing.T) {
		l := ready()
		give(t, l, time.Second)
		l.freeAbandoned(at(blindAfter))
		holds(t, l, 3, 1)
		l.freeAbandoned(at(blindAfter + 1))
		holds(t, l, 2, 0)
	})
	t.Run("when the load of others hides it for long", func(t *testing.T) {
		l := ready()
		give(t, l, 0)
		l.SetSample(sample(abandonedAtMost, 50))
		l.freeAbandoned(at(abandonedAtMost))
		holds(t, l, 3, 1)
		l.SetSample(sample(abandonedAtMost+1, 50))
		l.freeAbandoned(at(abandonedAtMost + 1))
		holds(t, l, 2, 0)
	})
	t.Run("when the engine goes down", func(t *testing.T) {
		l := ready()
		give(t, l, 0)
		l.SetStatus(Down, ReasonRefused, at(1))
		l.freeAbandoned(at(time.Second))
		holds(t, l, 2, 0)
	})
	t.Run("when nobody watches any more", func(t *testing.T) {
		l := ready()
		give(t, l, 0)
		l.dropAbandoned()
		holds(t, l, 2, 0)
		if l.Abandon(at(1)) {
			t.Error("a place is kept that nobody will give back")
		}
	})
}
