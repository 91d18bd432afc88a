package load

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/bench/trace"
)

func workload(t *testing.T, rate, turns float64, arrivals string) *Workload {
	t.Helper()
	a, err := ParseArrivals(arrivals)
	if err != nil {
		t.Fatal(err)
	}
	return &Workload{Rate: rate, Arrivals: a, Turns: turns, Think: time.Second, Shared: 50, Prefixes: 3, Prompt: Fixed(100), Later: Fixed(20), Output: Fixed(10)}
}

func TestPlanIsOfItsSeed(t *testing.T) {
	w := workload(t, 50, 3, "gamma:2")
	var plans [3]*Plan
	for i, seed := range []uint64{7, 7, 8} {
		p, err := w.Make(seed, 20*time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		plans[i] = p
	}
	if !reflect.DeepEqual(plans[0], plans[1]) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(plans[0], plans[2]) {
		t.Error("plans of two seeds are the same")
	}
}

// TestPlanRates: as many requests as were asked for, in conversations of the
// mean number of turns, with gaps of the wanted variation.
func TestPlanRates(t *testing.T) {
	for _, c := range []struct {
		arrivals string
		cv       float64
	}{{"poisson", 1}, {"constant", 0}, {"gamma:0.5", 0.5}, {"gamma:3", 3}} {
		p, err := workload(t, 100, 4, c.arrivals).Make(1, 2000*time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		if rate := float64(p.Requests) / 2000; rate < 93 || rate > 107 {
			t.Errorf("%s: %.1f requests/s, want 100", c.arrivals, rate)
		}
		if turns := float64(p.Requests) / float64(len(p.Talks)); turns < 3.9 || turns > 4.1 {
			t.Errorf("%s: %.2f turns, want 4", c.arrivals, turns)
		}
		var sum, squares float64
		for i := 1; i < len(p.Talks); i++ {
			g := (p.Talks[i].Begin - p.Talks[i-1].Begin).Seconds()
			sum, squares = sum+g, squares+g*g
		}
		n := float64(len(p.Talks) - 1)
		if cv := math.Sqrt(max(0, squares/n-sum/n*sum/n)) / (sum / n); math.Abs(cv-c.cv) > 0.06*max(1, c.cv) {
			t.Errorf("%s: coefficient of variation %.2f, want %g", c.arrivals, cv, c.cv)
		}
	}
}

func TestPlanBounds(t *testing.T) {
	w := workload(t, 100, 4, "poisson")
	if p, err := w.Make(1, time.Minute, 33); err != nil || p.Requests != 33 {
		t.Errorf("%v, %v: want 33 requests", p, err)
	}
	if _, err := w.Make(1, time.Nanosecond, 0); err == nil || !strings.Contains(err.Error(), "no request begins within 1ns") {
		t.Errorf("a plan without a request: %v", err)
	}
	w.Rate = 1e5
	if _, err := w.Make(1, 24*time.Hour, 0); err == nil || !strings.Contains(err.Error(), "more than 5000000") {
		t.Errorf("a plan of billions: %v", err)
	}
}

func TestLengths(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for text, mean := range map[string]float64{"400": 400, "fixed:7": 7, "exp:300": 300, "uniform:100:300": 200, "lognormal:200:0.5": 200 * math.Exp(0.125)} {
		l, err := ParseLengths(text)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for range 40_000 {
			n := l.draw(dice)
			if n < 1 {
				t.Fatalf("%s: a length of %d", text, n)
			}
			sum += float64(n)
		}
		if got := sum / 40_000; math.Abs(got/mean-1) > 0.02 {
			t.Errorf("%s: mean %.1f, want %.1f", text, got, mean)
		}
		if again, err := ParseLengths(l.String()); err != nil || again != l {
			t.Errorf("%s is written as %s", text, l)
		}
	}
	for _, text := range []string{"", "x", "0", "-4", "1e9", "NaN", "exp:", "exp:1:2", "uniform:5", "uniform:9:5", "lognormal:10:9", "pareto:1", "exp:0"} {
		if l, err := ParseLengths(text); err == nil {
			t.Errorf("%q is taken for %v", text, l)
		}
	}
	for _, text := range []string{"", "gamma", "gamma:0", "gamma:x", "poisson:2", "uniform", "gamma:1000"} {
		if a, err := ParseArrivals(text); err == nil {
			t.Errorf("%q is taken for %v", text, a)
		}
	}
}

// TestPlanOfTrace: times, lengths, conversations and common prefixes are the file's.
func TestPlanOfTrace(t *testing.T) {
	r, err := trace.NewReader(strings.NewReader(`{"timestamp":1000,"input_length":1100,"output_length":5,"hash_ids":[7,1,2]}
{"timestamp":2000,"input_length":600,"output_length":6,"hash_ids":[7,9]}
{"timestamp":3000,"input_length":1700,"output_length":8,"hash_ids":[7,1,3,4]}
{"timestamp":90000,"input_length":17,"output_length":7,"hash_ids":[8]}
`), "f", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := OfTrace(r, 2, 10*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.Requests != 3 || len(p.Talks) != 2 || len(p.Talks[0].Turns) != 2 || p.Talks[0].Turns[1].At != time.Second || p.Talks[1].Begin != 500*time.Millisecond {
		t.Fatalf("%+v", p)
	}
	one, other := p.Talks[0].opening(1)[0].Content, p.Talks[1].opening(1)[0].Content
	if n := len(strings.Fields(one)); n != 1100 {
		t.Errorf("a prompt of %d words, want 1100", n)
	}
	if n := len(strings.Fields(other)); n != 600 {
		t.Errorf("a prompt of %d words, want 600", n)
	}
	common := 0
	for common < len(other) && one[common] == other[common] {
		common++
	}
	if tokens := common / 4; tokens < 512 || tokens > 520 {
		t.Errorf("%d tokens are common, want the 512 of block 7", tokens)
	}
}
