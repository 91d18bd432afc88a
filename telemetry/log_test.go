package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink records what arrives and when; it can be made to block or to fail.
type sink struct {
	mu      sync.Mutex
	text    bytes.Buffer
	last    time.Time
	take    int           // >= 0: bytes of the next write taken before it fails
	blocked chan struct{} // non-nil: writes wait until it is closed
}

func newSink() *sink { return &sink{take: -1} }

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	blocked := s.blocked
	s.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if s.take >= 0 {
		n := min(s.take, len(p))
		s.take = -1
		s.text.Write(p[:n])
		return n, errors.New("disk full")
	}
	return s.text.Write(p)
}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.TrimSuffix(s.text.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (s *sink) block() (unblock func()) {
	c := make(chan struct{})
	s.mu.Lock()
	s.blocked = c
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.blocked = nil
		s.mu.Unlock()
		close(c)
	}
}

// running starts b in the test's bubble; the returned function ends it in order.
func running(b *LineBuffer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.Run(ctx) })
	synctest.Wait()
	return func() { cancel(); wg.Wait() }
}

func TestLinesAreFlushedWithinATenthOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		b := NewLineBuffer(s, 1<<10)
		defer running(b)()
		start := time.Now()
		fmt.Fprintln(b, "one")
		time.Sleep(60 * time.Millisecond)
		fmt.Fprintln(b, "two")
		synctest.Wait()
		if got := s.lines(); len(got) != 0 {
			t.Fatalf("written before its time: %q", got)
		}
		time.Sleep(time.Second)
		if got := s.lines(); len(got) != 2 || s.last.Sub(start) != flushEvery {
			t.Fatalf("got %q after %v, want both lines in one write after %v", got, s.last.Sub(start), flushEvery)
		}
	})
}

func TestWarningsAreFlushedAtOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		b := NewLineBuffer(s, 1<<10)
		defer running(b)()
		log := NewLogger(b, new(slog.LevelVar)).With("gateway", "gw-1").WithGroup("request")
		start := time.Now()
		log.Info("first", "id", "a\nb\u2028c\x1b")
		log.Warn("second", "id", 2)
		synctest.Wait()
		got := s.lines()
		if len(got) != 2 || !time.Now().Equal(start) {
			t.Fatalf("got %d lines after %v, want 2 at once: %q", len(got), time.Since(start), got)
		}
		for i, want := range []string{"first", "second"} {
			var line struct{ Msg, Level, Gateway string }
			if err := json.Unmarshal([]byte(got[i]), &line); err != nil || line.Msg != want || line.Gateway != "gw-1" {
				t.Errorf("line %d = %q (%v), want msg %s", i, got[i], err, want)
			}
		}
	})
}

func TestLevelChangesWhileRunning(t *testing.T) {
	s := newSink()
	level := new(slog.LevelVar)
	log := NewLogger(NewLineBuffer(s, 1<<10), level)
	log.Debug("unheard")
	level.Set(Level(slog.LevelDebug).Level())
	log.Debug("heard")
	level.Set(Level(slog.LevelError).Level())
	log.Warn("unheard")
	if got := s.lines(); len(got) != 1 || !strings.Contains(got[0], `"msg":"heard"`) {
		t.Fatalf("got %q, want the one line said at debug", got)
	}
}

func TestBlockedSinkDropsAndSaysHowMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		const line, kept = "0123456789\n", 8
		b := NewLineBuffer(s, kept*len(line))
		stop := running(b)
		unblock := s.block()
		b.Write([]byte(line))
		time.Sleep(time.Second) // the flush of this line now hangs in the sink
		start := time.Now()
		for range kept + 5 {
			b.Write([]byte(line))
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("writers waited %v for the sink", took)
		}
		if b.Lost() != 5 {
			t.Errorf("lost %d lines, want 5", b.Lost())
		}
		unblock()
		time.Sleep(time.Second)
		b.Write([]byte("after\n"))
		stop()
		got := s.lines()
		if len(got) != 1+kept+1+1 || got[len(got)-1] != "after" {
			t.Fatalf("got %d lines, want %d: %q", len(got), 1+kept+1+1, got)
		}
		var report struct {
			Level string
			Lines int
		}
		if err := json.Unmarshal([]byte(got[1+kept]), &report); err != nil || report.Level != "WARN" || report.Lines != 5 {
			t.Errorf("report %q (%v), want 5 lines at WARN", got[1+kept], err)
		}
	})
}

func TestFailingSinkIsCountedAndNoLineIsGluedToATornOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		b := NewLineBuffer(s, 1<<10)
		stop := running(b)
		s.take = 6 // "one\ntw" arrives
		fmt.Fprint(b, "one\n")
		fmt.Fprint(b, "two\n")
		fmt.Fprint(b, "three\n")
		time.Sleep(time.Second)
		fmt.Fprint(b, "four\n")
		stop()
		got := s.lines()
		if len(got) != 4 || got[0] != "one" || got[1] != "tw" || !strings.Contains(got[2], `"lines":2`) || got[3] != "four" {
			t.Fatalf("got %q, want one, the torn two, a report of 2 lines, four", got)
		}
		if b.Lost() != 2 {
			t.Errorf("lost %d, want 2", b.Lost())
		}
	})
}

func TestNothingIsLostAroundShutdown(t *testing.T) {
	for round := range 20 {
		s := newSink()
		b := NewLineBuffer(s, 1<<20)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var run, writers sync.WaitGroup
		run.Go(func() { b.Run(ctx) })
		const each = 200
		for w := range 4 {
			writers.Go(func() {
				for i := range each {
					fmt.Fprintf(b, "%d %d\n", w, i)
					if w == 0 && i == each/2 {
						cancel()
					}
				}
			})
		}
		writers.Wait()
		run.Wait()
		next := map[int]int{}
		for _, line := range s.lines() {
			var w, i int
			fmt.Sscan(line, &w, &i)
			if i != next[w] {
				t.Fatalf("round %d: writer %d: line %d where %d was due", round, w, i, next[w])
			}
			next[w]++
		}
		for w := range 4 {
			if next[w] != each {
				t.Fatalf("round %d: writer %d: %d lines arrived of %d", round, w, next[w], each)
			}
		}
	}
}

func TestLevelNames(t *testing.T) {
	for _, known := range levels {
		var l Level
		if err := l.UnmarshalText([]byte(known.name)); err != nil || l != known.level || l.String() != known.name {
			t.Errorf("%s reads as %v (%v)", known.name, l, err)
		}
	}
	for _, bad := range []string{"", "INFO", "info+1", "trace", "warning"} {
		var l Level
		if err := l.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %v", bad, l)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	lines := NewLineBuffer(discard{}, LineBytes)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { lines.Run(ctx) })
	log := NewLogger(lines, new(slog.LevelVar))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			log.LogAttrs(ctx, slog.LevelInfo, "request", slog.String("id", "0123456789abcdef"), slog.Int("status", 200))
		}
	})
	cancel()
	wg.Wait()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
