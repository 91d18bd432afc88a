package proxy

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"penstock/protect"
)

// metered is an exchange of a tenant with these limits, in a bubble of its own
// time.
func meteredBy(t *testing.T, rate, tokensPerMinute float64, use func(x *exchange, left func() int64)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(nil, protect.NewMemory(-1), nil)
		m.keepTenants(map[string]bool{"a": true})
		one := &tenant{name: "a", metrics: m.forTenant("a"), quota: protect.NewQuota(rate, tokensPerMinute, nil, time.Now())}
		x := &exchange{h: &Handler{metrics: m}, tenant: one}
		use(x, func() int64 {
			_, tokens := one.quota.Buckets(time.Now())
			return tokens.Left
		})
	})
}

// What a request has cost at its end: what the engine counted, else what was
// seen of it, and nothing where nobody worked for the client.
func TestWhatARequestCosts(t *testing.T) {
	known := usage{Prompt: 120, Completion: 40, Total: 160, Cached: 100, Known: true}
	for _, c := range []struct {
		name     string
		attempts int
		outcome  Outcome
		events   int // content events of the stream
		usage    usage
		cost     int64
	}{
		{"usage told", 1, OutcomeOK, 38, known, 160},
		{"usage told is less than the estimate", 1, OutcomeOK, 0, usage{Prompt: 5, Completion: 1, Known: true}, 6},
		{"no usage: a quarter of the prompt's bytes and the events", 1, OutcomeOK, 38, usage{}, 100 + 38},
		{"no usage, many events", 1, OutcomeOK, 500, usage{}, 100 + 500},
		{"client left before any content", 1, OutcomeGone, 0, usage{}, 100},
		{"client left in mid-stream", 1, OutcomeGone, 70, usage{}, 170},
		{"broke off in mid-stream", 1, OutcomeCommitted, 70, usage{}, 170},
		{"engine failed", 1, OutcomeAmbiguous, 0, usage{}, 0},
		{"engine full", 2, OutcomeNotProcessed, 0, usage{}, 0},
		{"engine refused the request", 1, OutcomeClient, 0, usage{}, 0},
		{"no engine", 0, OutcomeNotProcessed, 0, usage{}, 0},
		{"client left before an engine was asked", 0, OutcomeGone, 0, usage{}, 0},
		{"usage told by an answer that broke off", 1, OutcomeCommitted, 70, known, 160},
	} {
		t.Run(c.name, func(t *testing.T) {
			meteredBy(t, 0, 60_000, func(x *exchange, left func() int64) {
				x.env.PromptBytes = 400
				if fault := x.meterIn(); fault != nil || left() != 900 {
					t.Fatalf("admitted with %+v, %d left", fault, left())
				}
				x.attempts = c.attempts
				for x.answer.tokens < c.events {
					x.answer.tokens++
					x.meterMore(time.Now())
				}
				if seen := 900 - left(); c.events > 0 && (seen <= 0 || seen > int64(c.events) || seen < int64(c.events)-meterTokens) {
					t.Errorf("%d of %d events are charged while they come", seen, c.events)
				}
				x.meterOut(c.outcome, c.usage)
				if got := 1000 - left(); got != c.cost {
					t.Errorf("it cost %d, want %d", got, c.cost)
				}
			})
		})
	}
}

// A slow stream is charged every second, a quick one in parts.
func TestOutputIsChargedAsItComes(t *testing.T) {
	meteredBy(t, 0, 60*10_000, func(x *exchange, left func() int64) {
		x.meterIn()
		charged := func(after int) int64 {
			x.answer.tokens += after
			x.meterMore(time.Now())
			return x.meter.charged
		}
		if n := charged(1); n != 1 {
			t.Errorf("the first token: %d charged", n)
		}
		if n := charged(meterTokens - 1); n != 1 {
			t.Errorf("%d charged within a part", n)
		}
		if n := charged(1); n != 1+meterTokens {
			t.Errorf("%d charged after a part", n)
		}
		time.Sleep(meterEvery)
		if n := charged(1); n != 2+meterTokens {
			t.Errorf("%d charged after a second", n)
		}
	})
}

func TestLimitedRequestsAreTold(t *testing.T) {
	meteredBy(t, 2, 60_000, func(x *exchange, left func() int64) {
		header := func() http.Header {
			h := http.Header{}
			x.meter.tell(h)
			return h
		}
		want := func(pairs ...string) {
			t.Helper()
			h := header()
			for i := 0; i < len(pairs); i += 2 {
				if got := h.Get(pairs[i]); got != pairs[i+1] || len(h[pairs[i]]) != 1 {
					t.Errorf("%s: %q, want %q", pairs[i], got, pairs[i+1])
				}
			}
		}
		x.env.PromptBytes = 2000
		if fault := x.meterIn(); fault != nil {
			t.Fatalf("%+v", fault)
		}
		want("X-Ratelimit-Limit-Requests", "2", "X-Ratelimit-Remaining-Requests", "1", "X-Ratelimit-Reset-Requests", "500ms",
			"X-Ratelimit-Limit-Tokens", "1000", "X-Ratelimit-Remaining-Tokens", "500", "X-Ratelimit-Reset-Tokens", "500ms")
		x.meter.reset()
		if len(header()) != 0 {
			t.Errorf("an exchange that is used again tells %v", header())
		}
		x.meterIn()
		fault := x.meterIn() // the third within a second
		if fault == nil || fault.status != 429 || fault.code != "rate_limit_exceeded" || fault.retryAfter != 1 {
			t.Fatalf("%+v", fault)
		}
		want("X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "1s")
		time.Sleep(time.Second)
		x.env.PromptBytes = 4 * 500_000
		if fault := x.meterIn(); fault != nil {
			t.Fatalf("a prompt larger than the bucket is refused: %+v", fault)
		}
		if fault := x.meterIn(); fault == nil || fault.retryAfter != 60 {
			t.Errorf("eight minutes of debt: %+v", fault)
		}
	})
	meteredBy(t, 0.5, 0, func(x *exchange, _ func() int64) {
		x.meterIn()
		if fault := x.meterIn(); fault == nil || fault.retryAfter != 2 {
			t.Errorf("one request in two seconds: %+v", fault)
		}
		h := http.Header{}
		x.meter.tell(h)
		if len(h) != 3 {
			t.Errorf("limits that there are not are told: %v", h)
		}
	})
}

func TestResetIsADuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0ms", 17 * time.Millisecond: "17ms", 999600 * time.Microsecond: "1s", time.Second: "1s",
		61500 * time.Millisecond: "61.5s", 10 * time.Second: "10s", 1234567 * time.Millisecond: "1234.567s", 1005 * time.Millisecond: "1.005s"} {
		got := string(appendReset(nil, d))
		if again, err := time.ParseDuration(got); got != want || err != nil || again != d.Round(time.Millisecond) {
			t.Errorf("%v: %q, want %q; %v", d, got, want, err)
		}
	}
}

// A tenant without limits pays nothing for those that have some.
func TestNoLimitCostsNothing(t *testing.T) {
	x := &exchange{tenant: &tenant{name: "a"}}
	h := http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		if x.meterIn() != nil {
			t.Error("refused")
		}
		x.meterMore(time.Now())
		x.meterOut(OutcomeOK, usage{Known: true})
		x.meter.tell(h)
		x.meter.reset()
	}); n != 0 || len(h) != 0 {
		t.Errorf("%v allocations, headers %v", n, h)
	}
}

func BenchmarkMeter(b *testing.B) {
	for name, quota := range map[string]*protect.Quota{"NoLimit": nil, "Requests": protect.NewQuota(protect.MaxRate, 0, nil, time.Now()),
		"Both": protect.NewQuota(protect.MaxRate, 60*protect.MaxRate, nil, time.Now())} {
		b.Run(name, func(b *testing.B) {
			x := &exchange{tenant: &tenant{name: "a", quota: quota}}
			x.env.PromptBytes = 1000
			h := make(http.Header, 8)
			b.ReportAllocs()
			for b.Loop() {
				x.meterIn()
				x.meter.tell(h)
				x.meterOut(OutcomeOK, usage{Prompt: 200, Completion: 10, Known: true})
				x.meter.reset()
			}
		})
	}
}
