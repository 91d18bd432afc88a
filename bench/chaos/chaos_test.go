package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/bench/child"
	"penstock/bench/witness"
	"penstock/engine/enginetest"
)

// The short form: a real gateway before failing engines. What takes time or
// many requests to tell is left to the command.
func TestChaos(t *testing.T) {
	binary, err := child.Penstock(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	requests, sets := "8000", []string{"chaos,full", "tls,one"} // at the same time: they wait more than they work
	if testing.Short() {
		requests, sets = "4000", sets[:1]
	}
	for _, parts := range sets {
		t.Run(parts, func(t *testing.T) {
			t.Parallel()
			chaos(t, "--penstock", binary, "--requests", requests, "--parts", parts)
		})
	}
}

func chaos(t *testing.T, args ...string) {
	var out, errs bytes.Buffer
	err := run(t.Context(), append(args, "--quiet", "--json", "--keep", t.TempDir()), &out, &errs)
	var doc struct {
		Parts []report
		Goals []goal
	}
	if fault := json.Unmarshal(out.Bytes(), &doc); fault != nil {
		t.Fatalf("%v %v\n%s", err, fault, &errs)
	}
	struck, requests := 0, 0
	for i := range doc.Parts {
		r := &doc.Parts[i]
		requests += r.Requests
		for _, n := range r.Faults {
			struck += n
		}
		if r.Accounts.Checked < r.Requests || r.Saw[witness.Complete] == 0 {
			t.Errorf("%s: %d checks of %d requests, %v", r.Part, r.Accounts.Checked, r.Requests, r.Saw)
		}
		if r.Truncated+r.Wrong+r.Forbidden+r.Accounts.Failures > 0 {
			t.Errorf("%s: %d truncated, %d wrong, %d forbidden duplicates, accounts broken %d times:\n%s\n%s", r.Part, r.Truncated, r.Wrong, r.Forbidden,
				r.Accounts.Failures, strings.Join(r.Shown, "\n"), strings.Join(r.Accounts.Broken, "\n"))
		}
		if !r.End.backAt(&r.Base) {
			t.Errorf("%s: %+v at the end, %+v at the beginning", r.Part, r.End, r.Base)
		}
	}
	if struck*200 < requests || len(doc.Goals) < 5 {
		t.Errorf("%d faults struck, %d goals", struck, len(doc.Goals))
	}
	t.Logf("%d requests, %d faults", requests, struck)
}

func TestAmplification(t *testing.T) {
	var all []sample
	for i := range 31 {
		s := sample{at: time.Duration(i) * time.Second, attempts: float64(100 * i)}
		if s.dispatches = s.attempts; i > 15 { // ten seconds of a hundred repeats each
			s.retries = float64(50 * (min(i, 25) - 15))
			s.attempts += s.retries
			s.dispatches = s.attempts
		}
		all = append(all, s)
	}
	whole, worst := amplification(all)
	if math.Abs(whole-3500.0/3000) > 1e-9 || math.Abs(worst-1.5) > 1e-9 {
		t.Errorf("%g, worst %g", whole, worst)
	}
	if whole, worst := amplification(nil); whole != 0 || worst != 0 {
		t.Error("something of nothing")
	}
	if got := slope(all, func(s *sample) float64 { return 7 + 3*s.at.Hours() }); math.Abs(got-3) > 1e-6 {
		t.Errorf("slope %g, want 3", got)
	}
}

// A goal that is missed says so, each of them.
func TestGoalsCanBeMissed(t *testing.T) {
	good := func() *report {
		return &report{Part: "one0", Requests: 60_000, Seconds: 60, Cancels: 1000, CancelP99: 3, Amplification: 1.01, Worst: 1.02, Utilisation: 0.7,
			QuarterRSS: 40, End: resources{RSS: 41}, Faults: func() map[string]int {
				m := map[string]int{}
				for _, f := range storms {
					m[strings.SplitN(f, "=", 2)[0]] = 1
				}
				return m
			}(),
			Storms: []storm{{Fault: "html", Requests: 6000, Healed: 0.9}, {Fault: "silent", When: late, Requests: 6000, Healed: 1}}}
	}
	missed := func(r *report) (names []string) {
		for _, g := range goals([]*report{r}) {
			if !g.Met {
				names = append(names, g.Name)
			}
		}
		return names
	}
	if m := missed(good()); len(m) > 0 {
		t.Fatalf("missed: %q", m)
	}
	for name, spoil := range map[string]func(r *report){
		"truncated":                      func(r *report) { r.Truncated = 1 },
		"other wrong":                    func(r *report) { r.Wrong = 1 },
		"forbidden":                      func(r *report) { r.Forbidden = 1 },
		"accounts":                       func(r *report) { r.Accounts.Failures = 1 },
		"kinds":                          func(r *report) { r.Faults = map[string]int{"html": 9} },
		"worst ten seconds":              func(r *report) { r.Worst = 1.11 },
		"client leaves":                  func(r *report) { r.CancelP99 = 101 },
		"goroutines and files":           func(r *report) { r.End.Goroutines = 100 },
		"resident memory":                func(r *report) { r.End.RSS = 100 },
		"is out after":                   func(r *report) { r.Storms[0].OutAfter = 1.1 },
		"silent engine":                  func(r *report) { r.Storms[1].OutAfter = firstContent.Seconds() + 1 },
		"requests to it after":           func(r *report) { r.Storms[0].Later = 9 },
		"worst gateway":                  func(r *report) { r.Amplification = 1.06 },
		"while an engine failed at once": func(r *report) { r.Storms[0].Failed = 7 },
		"while an engine was silent":     func(r *report) { r.Storms[1].Failed = 7 },
		"healed":                         func(r *report) { r.Storms[0].Healed = 0.7 },
	} {
		r := good()
		spoil(r)
		if m := missed(r); len(m) != 1 || !strings.Contains(m[0], name) {
			t.Errorf("%s: missed %q", name, m)
		}
	}
	busy := good()
	busy.CancelP99, busy.Lag = 300, 50
	for _, g := range goals([]*report{busy}) {
		if strings.Contains(g.Name, "client leaves") && (!g.Untold || g.mark() != "untold") {
			t.Errorf("told on a busy machine: %+v", g)
		}
	}
}

func TestStormsAreKnownFaults(t *testing.T) {
	for _, text := range storms {
		if _, err := enginetest.ParseFault(text); err != nil {
			t.Error(err)
		}
	}
	for _, list := range ways {
		for _, w := range list {
			if _, err := enginetest.ParseFault(w.fault); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--requests", "5"}, {"--parts", "nothing"}, {"more"}, {"--for", "-1s"}} {
		var usage child.Usage
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); !errors.As(err, &usage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
