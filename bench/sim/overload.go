package sim

import (
	"io"
	"math"
	"math/rand/v2"
	"time"

	"penstock/protect"
)

// Overload is a run at more than the engines carry, under clients that try
// again as SDKs do, and the time after it, before engines that are slots and
// nothing else.
type Overload struct {
	Times   float64 // of what the slots carry
	For     time.Duration
	After   time.Duration // at 0.7 of it
	Zombies bool          // engines compute on for clients that left
	Seed    uint64
}

// OverloadResult is what one policy came to.
type OverloadResult struct {
	Policy  string  `json:"policy"`
	Zombies bool    `json:"zombies,omitempty"`
	Times   float64 `json:"times"`
	// Goodput is the service that reached the clients of requests of the
	// overload, over what the slots could give in its time: the first requests
	// find idle engines, the last are served after it.
	Goodput float64 `json:"goodput"`
	// Settled is the service that reached its client from the second minute of
	// the overload to its end, over what the slots could give then.
	Settled    float64    `json:"settled"`
	Success    [3]float64 `json:"success"`          // of requests in the overload, by priority
	Refused    float64    `json:"refused"`          // part of requests in the overload that none served
	Recovery   float64    `json:"recovery_seconds"` // until 99 of 100 requests of the next half minute succeed; -1: not within After
	Dispatches float64    `json:"dispatches"`       // attempts at engines per request
	TTFT99     float64    `json:"ttft_p99_ms"`      // of those served in the overload
}

// The figures of the model.
const (
	overloadEngines = 8
	overloadSlots   = 16
	overloadService = 8.0 // s, mean
	overloadSigma   = 0.5
	overloadStep    = 10 * time.Millisecond
	overloadQueue   = 116         // requests that an engine keeps waiting under the router without admission
	overloadSettle  = time.Minute // of the overload, not counted

)

func overloadFleet(zombies, naive bool) *Fleet {
	f := &Fleet{Regions: []Region{{Name: "here", Share: 1}}, Engines: []EngineSpec{{Name: "e", Region: "here", Count: overloadEngines,
		Step: overloadStep.Seconds() * 1000, PrefillStep: overloadStep.Seconds() * 1000, PerSeq: 1e-4, Slots: overloadSlots, KVTokens: 1 << 20, Chunk: 1 << 10, Zombies: zombies}}}
	if naive {
		f.Engines[0].QueueLimit = overloadQueue
	}
	f.Network.RTT = map[string]map[string]float64{"here": {"here": 0}}
	if err := f.Complete(); err != nil {
		panic(err) // nothing of it comes from outside
	}
	return f
}

// overloadFeed is the model's requests: one rate, then another.
type overloadFeed struct {
	*Overload
	dice *rand.Rand
	now  time.Duration
}

// Next implements Feed.
func (f *overloadFeed) Next(r *Request) error {
	rate := float64(overloadEngines*overloadSlots) / overloadService
	if f.now < f.For {
		rate *= f.Times
	} else {
		rate *= 0.7
	}
	f.now += time.Duration(f.dice.ExpFloat64() / rate * float64(time.Second))
	if f.now >= f.For+f.After {
		return io.EOF
	}
	service := overloadService * math.Exp(overloadSigma*f.dice.NormFloat64()-overloadSigma*overloadSigma/2)
	*r = Request{At: f.now, Prompt: 1, Output: max(1, int(service/overloadStep.Seconds()))}
	switch p := f.dice.Float64(); {
	case p < 0.1:
		r.Priority = protect.Critical
	case p < 0.7:
		r.Priority = protect.Standard
	default:
		r.Priority = protect.Sheddable
	}
	return nil
}

// Play runs the policy, "five-retries" or one of ours.
func (o *Overload) Play(name string) (*OverloadResult, error) {
	p := retryingPolicy()
	if name != fiveRetries {
		p, _ = policyOf(name)
	}
	clients := &Clients{Streams: 0.5, StreamPatience: 20 * time.Second, WholePatience: 30 * time.Second, Retries: 2}
	r, err := Run(Options{Fleet: overloadFleet(o.Zombies, name == fiveRetries), Policy: p, Seed: o.Seed, Clients: clients},
		&overloadFeed{Overload: o, dice: rand.New(rand.NewPCG(o.Seed, 0x6f766572))})
	if err != nil {
		return nil, err
	}
	return o.judge(r), nil
}

func (o *Overload) judge(r *Result) *OverloadResult {
	res := &OverloadResult{Policy: r.policy.Name, Zombies: o.Zombies, Times: o.Times, Recovery: -1}
	from := min(overloadSettle, o.For/2)
	useful := 0.0
	var born, done [3]float64
	late := make([][2]int, int(o.After.Seconds()))
	var ttft []float64
	for i := range r.records {
		c := &r.records[i]
		ok := c.how == whole
		if ok {
			service := (time.Duration(c.out) * overloadStep).Seconds()
			end := c.at + ms(float64(c.wait)+float64(c.e2e))
			if c.at < o.For {
				res.Goodput += service
			}
			if d := min(end, o.For).Seconds() - max(end.Seconds()-service, from.Seconds()); d > 0 {
				useful += d
			}
		}
		if c.at >= from && c.at < o.For {
			born[c.priority]++
			if ok {
				done[c.priority]++
				ttft = append(ttft, float64(c.ttft))
			}
		}
		if s := int((c.at - o.For).Seconds()); c.at >= o.For && s < len(late) {
			late[s][0]++
			if ok {
				late[s][1]++
			}
		}
	}
	res.Goodput /= overloadEngines * overloadSlots * o.For.Seconds()
	res.Settled = useful / (overloadEngines * overloadSlots * (o.For - from).Seconds())
	sumBorn, sumDone := 0.0, 0.0
	for p := range born {
		res.Success[p] = done[p] / max(born[p], 1)
		sumBorn += born[p]
		sumDone += done[p]
	}
	res.Refused = 1 - sumDone/max(sumBorn, 1)
	res.Dispatches = float64(r.stats.dispatches) / float64(max(len(r.records), 1))
	res.TTFT99 = spreadOfAny(ttft).P99
	const over = 30
	for s := 0; s+over <= len(late); s++ {
		b, d := 0, 0
		for _, second := range late[s : s+over] {
			b, d = b+second[0], d+second[1]
		}
		if float64(d) >= 0.99*float64(b) {
			res.Recovery = float64(s)
			break
		}
	}
	return res
}
