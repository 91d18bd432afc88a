package experiments

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"penstock/bench/sim"
)

// A8: goodput, priorities and tails at overload, with clients that try again
// as SDKs do, on engines of slots; beside it a router without admission.

type a8Result struct {
	Rows  []*sim.OverloadResult `json:"rows"`
	full  float64               // TTFT p99 at just what the slots carry
	short bool
}

const (
	a8Goodput  = 0.98
	a8Shed     = 0.01
	a8Critical = 0.995
	a8Tail     = 1.2
)

func runA8(o Options) (result, error) {
	length := 300 * time.Second
	if o.Short {
		length = 150 * time.Second
	}
	r := &a8Result{short: o.Short}
	for k, c := range []struct {
		policy string
		times  float64
	}{{"optimal", 1}, {"optimal", 1.2}, {"optimal", 2}, {"five-retries", 1.2}, {"five-retries", 2}} {
		o.progress(float64(k)/5, c.policy)
		run := &sim.Overload{Times: c.times, For: length, After: 120 * time.Second, Seed: 1}
		row, err := run.Play(c.policy)
		if err != nil {
			return nil, err
		}
		if c.times == 1 {
			r.full = row.TTFT99
		}
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

func (r *a8Result) missed() (bad []string) {
	for _, row := range r.Rows {
		if row.Policy != "optimal" || row.Times <= 1 {
			continue
		}
		aim := func(ok bool, text string, got float64) {
			if !ok {
				bad = append(bad, fmt.Sprintf("%s at %.1f times the capacity: %.4f", text, row.Times, got))
			}
		}
		aim(row.Settled >= a8Goodput, "goodput >= 0.98", row.Settled)
		aim(row.Success[0] >= a8Critical, "critical served >= 0.995", row.Success[0])
		aim(row.Recovery >= 0 && row.Recovery <= 30, "over within 30 s", row.Recovery)
		aim(row.Dispatches <= 1.02, "attempts per request <= 1.02", row.Dispatches)
		if !r.short { // a short overload is all beginning and end
			aim(math.Abs(row.Refused-(1-1/row.Times)) <= a8Shed, "not served is the excess within 0.01", row.Refused)
			aim(row.TTFT99 <= a8Tail*r.full, "TTFT p99 at most 1.2 times that at the capacity, ms", row.TTFT99)
		}
	}
	return bad
}

func (r *a8Result) print(w io.Writer) {
	fmt.Fprintln(w, "8 engines of 16 slots, services of 8 s, half of the requests stream; clients try again twice")
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\ttimes\tgoodput\tcritical\tstandard\tsheddable\tnot served\texcess\tTTFT p99 s\trecovery s\tattempts\t")
	for _, row := range r.Rows {
		excess := max(0, 1-1/row.Times)
		fmt.Fprintf(t, "%s\t%.1f\t%.1f%%\t%.2f%%\t%.1f%%\t%.1f%%\t%.1f%%\t%.1f%%\t%.1f\t%.0f\t%.2f\t\n", row.Policy, row.Times, 100*row.Settled, 100*row.Success[0],
			100*row.Success[1], 100*row.Success[2], 100*row.Refused, 100*excess, row.TTFT99/1000, row.Recovery, row.Dispatches)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "\nexcess is what cannot be served; the tail at 1.0 is %.1f s\n", r.full/1000)
}
