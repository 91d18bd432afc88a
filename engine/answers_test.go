package engine

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What is taken is what came, oldest first, none twice; where more came than
// are kept, the latest of them, and the rest are counted.
func TestAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLive(1)
		n, lost := 0, uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "cycles") {
			came := rapid.IntRange(0, 3*maxAnswers).Draw(t, "came")
			for range came {
				n++
				l.Answered(Answer{Output: int32(n), How: Ended(n % int(endedCount))})
			}
			want := min(came, maxAnswers)
			lost += uint64(came - want)
			got := l.TakeAnswers(nil)
			if len(got) != want {
				t.Fatalf("%d of %d answers", len(got), came)
			}
			for i, a := range got {
				if int(a.Output) != n-want+i+1 {
					t.Fatalf("answer %d is number %d of %d", i, a.Output, n)
				}
			}
		}
		hows, counted := l.Endings()
		if counted != lost {
			t.Fatalf("%d lost are counted, %d were", counted, lost)
		}
		sum := uint64(0)
		for _, c := range hows {
			sum += c
		}
		if sum != uint64(n) {
			t.Fatalf("%d endings of %d", sum, n)
		}
	})
}

func TestAnswersConcurrently(t *testing.T) {
	l := NewLive(1)
	var writers, reader sync.WaitGroup
	stop := make(chan struct{})
	taken := 0
	reader.Go(func() {
		for done := false; !done; {
			select {
			case <-stop:
				done = true
			default:
			}
			taken += len(l.TakeAnswers(nil))
		}
	})
	for range 4 {
		writers.Go(func() {
			for range 5000 {
				l.Answered(Answer{At: time.Unix(1, 0)})
			}
		})
	}
	writers.Wait()
	close(stop)
	reader.Wait()
	if _, lost := l.Endings(); uint64(taken)+lost != 20000 {
		t.Errorf("%d taken and %d lost of 20000", taken, lost)
	}
}
