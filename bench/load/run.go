package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Target is a server under test.
type Target struct {
	Name   string
	Client *Client
	Model  string
}

// Play is how a plan is played.
type Play struct {
	Warm      time.Duration // of the run's begin, not measured
	Length    time.Duration // of the run; later turns are not sent
	Grace     time.Duration // after it, for answers to end
	Limit     time.Duration // of one answer
	InFlight  int           // at most; beyond it requests are not sent, and counted
	Sessions  bool          // X-Session-Id names the conversation
	IgnoreEOS bool
}

// Round plays one plan at one target.
type Round struct {
	Play
	Target *Target
	Plan   *Plan
	Seed   uint64
	Done   func(Result) // hears of every measured request; from many goroutines

	began  time.Time
	flight atomic.Int64
	// Progress, for who watches.
	Sent, Ended, Bad atomic.Int64
}

// Result is one request. Times in ms count from when it was due.
type Result struct {
	Target   string  `json:"target"`
	Seed     uint64  `json:"seed"`
	Talk     uint64  `json:"conversation"`
	Turn     int     `json:"turn"`
	Due      float64 `json:"due_s"` // from the start of the run
	Lag      float64 `json:"lag_ms"`
	Outcome  string  `json:"outcome"`
	Status   int     `json:"status,omitempty"`
	Why      string  `json:"why,omitempty"`
	Engine   string  `json:"engine,omitempty"`
	Attempts int     `json:"attempts,omitempty"`
	TTFT     float64 `json:"ttft_ms,omitempty"`
	TBOT     float64 `json:"tbot_ms,omitempty"` // mean; 0 where the answer has one token
	E2E      float64 `json:"e2e_ms,omitempty"`
	Prompt   int     `json:"prompt_tokens"`
	Cached   int     `json:"cached_tokens"`
	Output   int     `json:"output_tokens"`

	outcome Outcome
	gaps    []time.Duration
}

// Run sends the plan and waits for the answers. It returns early only where ctx ends.
func (r *Round) Run(ctx context.Context) {
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	var talks sync.WaitGroup
	r.began = time.Now()
	for i := range r.Plan.Talks {
		t := &r.Plan.Talks[i]
		if !r.until(all, t.Begin) {
			break
		}
		talks.Go(func() { r.converse(all, t) })
	}
	over := time.AfterFunc(max(0, r.Length-time.Since(r.began))+r.Grace, cancel)
	defer over.Stop()
	talks.Wait()
}

// until waits for an instant of the run; false: ctx ended before.
func (r *Round) until(ctx context.Context, at time.Duration) bool {
	wait := time.Until(r.began.Add(at))
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// converse says a conversation's turns. A turn that failed is not said again;
// the next one goes on without its answer.
func (r *Round) converse(ctx context.Context, t *Talk) {
	if t.Turns[0].Total > 0 {
		r.replay(ctx, t)
		return
	}
	said := t.opening(r.Seed)
	for n, turn := range t.Turns {
		due := turn.At
		if n > 0 {
			said = append(said, message{"user", Text(r.Seed^t.ID*0x9e3779b97f4a7c15+uint64(n), turn.User)})
			due = time.Since(r.began) + turn.Think
		}
		if due >= r.Length || !r.until(ctx, due) {
			return
		}
		a := r.ask(ctx, t, n, due, said)
		if a.Outcome == Cut {
			return
		}
		if a.Outcome == OK {
			said = append(said, message{"assistant", a.Text})
		}
	}
}

// replay says the turns of a trace at the trace's times, also where the answer
// before is not there yet: what it was is not known, text of that length stands
// for it.
func (r *Round) replay(ctx context.Context, t *Talk) {
	var turns sync.WaitGroup
	defer turns.Wait()
	said := t.opening(r.Seed)
	have := t.Turns[0].Total
	for n, turn := range t.Turns {
		if turn.At >= r.Length || !r.until(ctx, turn.At) {
			return
		}
		if n > 0 {
			seed := r.Seed ^ t.ID*0x9e3779b97f4a7c15 + uint64(n)
			before := t.Turns[n-1].Output
			if fresh := turn.Total - have - before; fresh > 0 {
				said = append(said, message{"assistant", Text(seed+1<<32, before)}, message{"user", Text(seed, fresh)})
			} else { // the conversation was cut down, or is another one
				said = []message{{"user", Text(seed, turn.Total)}}
			}
			have = turn.Total
		}
		body := said[:len(said):len(said)]
		turns.Go(func() { r.ask(ctx, t, n, turn.At, body) })
	}
}

// ask sends one turn that was due at an instant of the run.
func (r *Round) ask(ctx context.Context, t *Talk, n int, due time.Duration, said []message) Answer {
	r.Sent.Add(1)
	defer r.Ended.Add(1)
	res := Result{Target: r.Target.Name, Seed: r.Seed, Talk: t.ID, Turn: n, Due: due.Seconds()}
	var a Answer
	if r.flight.Add(1) > int64(r.InFlight) {
		a.Outcome, a.Why = Unsent, fmt.Sprintf("%d requests in flight", r.InFlight)
	} else {
		q := Ask{Model: r.Target.Model, Messages: said, MaxTokens: t.Turns[n].Output, Stream: true, Options: &streamOptions{true}, IgnoreEOS: r.IgnoreEOS}
		session := ""
		if r.Sessions {
			session = fmt.Sprintf("bench-%d-%d", r.Seed, t.ID)
		}
		body := q.body()
		limit, cancel := context.WithTimeout(ctx, r.Limit)
		res.Lag = ms(time.Since(r.began) - due)
		a = r.Target.Client.Stream(limit, body, session, t.Turns[0].Total == 0, true)
		cancel()
	}
	r.flight.Add(-1)
	if a.Outcome != OK && a.Outcome != Cut {
		r.Bad.Add(1)
	}
	res.fill(&a, r.began.Add(due))
	if due >= r.Warm {
		r.Done(res)
	}
	return a
}

func (res *Result) fill(a *Answer, due time.Time) {
	res.outcome, res.Outcome, res.Status, res.Why = a.Outcome, a.Outcome.String(), a.Status, bounded(a.Why)
	res.Engine, res.Attempts = a.Engine, a.Attempts
	res.Prompt, res.Cached, res.Output = a.Prompt, a.Cached, a.Output
	if a.Outcome != OK {
		return
	}
	res.TTFT, res.E2E, res.gaps = ms(a.First.Sub(due)), ms(a.Last.Sub(due)), a.Gaps
	if a.Output > 1 {
		res.TBOT = ms(a.Last.Sub(a.First)) / float64(a.Output-1)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// bounded keeps a message short.
func bounded(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most]
	}
	return s
}
