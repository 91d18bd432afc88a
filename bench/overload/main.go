// Command overload runs the gateway's queue, pace and priorities on virtual
// time before engines of slots, under clients that try again as SDKs do, and
// beside it a router that admits everything and tries five times.
//
//	go run ./bench/overload [--load 2] [--for 5m] [--seed 1] [--json]
//	go run ./bench/overload --sweep [--for 5m] [--seed 1] [--json]
//
// The sweep is over loads and what may happen in their last half minute: an
// engine dies, half of them do, all stand still, caches are lost, clients come
// again all at once. It fails where the gateway is still degraded a minute after
// load and trigger have ended.
//
// It is a slot model: no prefill, no KV cache, service times lognormal with a
// mean of 8 s, eight engines of 16 slots. Half of the requests stream and wait
// at most 20 s for their first token, the others at most 30 s for the whole.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	load := flag.Float64("load", 2, "offered, as a multiple of what the engines can serve")
	length := flag.Duration("for", 5*time.Minute, "length of the overload; then 0.7 of what they can serve")
	seed := flag.Uint64("seed", 1, "of all random numbers")
	asJSON := flag.Bool("json", false, "print one JSON document")
	sweep := flag.Bool("sweep", false, "all loads and triggers")
	flag.Parse()
	if flag.NArg() > 0 || !(*load > 0) || *length <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *sweep {
		os.Exit(sweepAll(*length, *seed, *asJSON))
	}
	var all []result
	for _, p := range []policy{naive, admitting} {
		all = append(all, run(p, *load, *length, nothing, *seed))
	}
	if *asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
			fmt.Fprintln(os.Stderr, "overload:", err)
			os.Exit(1)
		}
		return
	}
	fmt.Printf("%-12s %10s %10s %10s %10s %12s %10s\n", "policy", "goodput", "critical", "standard", "sheddable", "recovery s", "per request")
	for _, r := range all {
		fmt.Printf("%-12s %9.1f%% %9.2f%% %9.1f%% %9.1f%% %12.0f %10.2f\n", r.Policy, 100*r.Goodput, 100*r.Success[0], 100*r.Success[1], 100*r.Success[2], r.Recovery, r.PerRequest)
	}
}

// cell is one load with one trigger.
type cell struct {
	Load     float64 `json:"load"`
	Trigger  trigger `json:"trigger"`
	Naive    result  `json:"five_retries"`
	Penstock result  `json:"penstock"`
}

// sweepAll prints the seconds until clients are served again, by load and
// trigger, and returns the exit code.
func sweepAll(length time.Duration, seed uint64, asJSON bool) (code int) {
	var all []cell
	for _, load := range sweepLoads {
		for _, with := range triggers {
			c := cell{load, with, run(naive, load, length, with, seed), run(admitting, load, length, with, seed)}
			if all = append(all, c); c.Penstock.Recovery > degradedMost {
				code = 1
			}
		}
	}
	if asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
			fmt.Fprintln(os.Stderr, "overload:", err)
			return 1
		}
		return code
	}
	fmt.Printf("seconds from the end of load and trigger until 99 in 100 requests of the next half minute succeed (%.0f: not by then)\n%s, beside %s in brackets\n\n| load |", after, admitting, naive)
	for _, with := range triggers {
		fmt.Printf(" %s |", with)
	}
	fmt.Print("\n|---|---|---|---|---|---|---|\n")
	for i, c := range all {
		if i%len(triggers) == 0 {
			fmt.Printf("| %g |", c.Load)
		}
		fmt.Printf(" %.0f (%.0f) |", c.Penstock.Recovery, c.Naive.Recovery)
		if i%len(triggers) == len(triggers)-1 {
			fmt.Println()
		}
	}
	return code
}
