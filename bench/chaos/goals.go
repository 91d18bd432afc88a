package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// goal is a promise, what came of it and whether it was kept.
type goal struct {
	Name   string `json:"goal"`
	Aim    string `json:"aim"`
	Figure string `json:"figure"`
	Met    bool   `json:"met"`
	// Untold: the machine was too busy for the figure to mean anything.
	Untold bool `json:"untold,omitempty"`
}

func (g *goal) mark() string {
	switch {
	case g.Untold:
		return "untold"
	case g.Met:
		return "✓"
	}
	return "✗"
}

// The aims of test-plan.md's suites A, B, C and G.
const (
	aimKinds         = 14
	aimAmplification = 1.10
	aimFull          = 1.02
	aimOne           = 1.05
	fullFrom         = 0.9
	aimCancel        = 100 // ms, p99
	lagMost          = 20  // ms, p99: a machine that is later by itself tells nothing of it
	aimOut           = 1.0 // s, of an engine that fails at once
	aimLater         = 8   // requests in 10 s to an engine that is out
	aimFailed        = 0.001
	aimHealed        = 0.8
	aimRSS           = 1.25 // of what it was after a quarter of the load
	spareRSS         = 16   // MiB
	aimSlope         = 1.0  // MiB/h
)

// goals says how the promises fared over all parts. Those that need time or
// numbers are left out where the run was too short for them.
func goals(reports []*report) (all []goal) {
	add := func(met bool, name, aim, figure string, args ...any) {
		all = append(all, goal{Name: name, Aim: aim, Figure: fmt.Sprintf(figure, args...), Met: met})
	}
	kinds := map[string]bool{}
	requests, truncated, wrong, forbidden, twice, checked, broken, cancels := 0, 0, 0, 0, 0, 0, 0, 0
	worst, p99, lag := 0.0, 0.0, 0.0
	for _, r := range reports {
		requests += r.Requests
		truncated += r.Truncated
		wrong += r.Wrong
		forbidden += r.Forbidden
		twice += r.Twice
		checked += r.Accounts.Checked
		broken += r.Accounts.Failures
		cancels += r.Cancels
		worst, p99, lag = max(worst, r.Worst), max(p99, r.CancelP99), max(lag, r.Lag)
		for kind := range r.Faults {
			kinds[kind] = true
		}
	}
	add(truncated == 0, "truncated answers that look complete", "0", "%d of %d requests", truncated, requests)
	add(wrong == 0, "other wrong answers: of another request, tokens twice, errors that are none of ours", "0", "%d", wrong-truncated)
	add(forbidden == 0, "forbidden duplicates", "0", "%d (%d allowed ones)", forbidden, twice-forbidden)
	add(broken == 0, "accounts: clients, log, metrics and engines agree", "0 broken", "%d broken of %d checked", broken, checked)
	if requests >= 50_000 {
		add(len(kinds) >= aimKinds, "kinds of fault that struck", fmt.Sprint(">= ", aimKinds), "%d", len(kinds))
	}
	add(worst <= aimAmplification, "deliveries per request let in, worst ten seconds", fmt.Sprint("<= ", aimAmplification), "%.3f", worst)
	if cancels >= 100 {
		add(p99 <= aimCancel, "client leaves: engine knows, p99 of the worst part", fmt.Sprint("<= ", aimCancel, " ms"), "%.1f ms (%d; the machine's own lag %.1f ms)", p99, cancels, lag)
		all[len(all)-1].Untold = p99 > aimCancel && lag > lagMost
	}
	for _, r := range reports {
		back := r.End.backAt(&r.Base)
		add(back, r.Part+": goroutines and files at the end", "as at the beginning", "%g and %g, at the beginning %g and %g", r.End.Goroutines, r.End.Files, r.Base.Goroutines, r.Base.Files)
		if r.Seconds >= 30 {
			add(r.End.RSS <= aimRSS*r.QuarterRSS+spareRSS, r.Part+": resident memory at the end", fmt.Sprintf("<= %g x after a quarter + %d MiB", aimRSS, spareRSS),
				"%.0f MiB, %.0f after a quarter", r.End.RSS, r.QuarterRSS)
		}
		switch r.Part {
		case "full":
			add(r.Amplification <= aimFull && r.Utilisation >= fullFrom, "full: deliveries per request let in", fmt.Sprintf("<= %g at a utilisation of %g or more", aimFull, fullFrom),
				"%.4f at %.2f (%.0f good answers/s)", r.Amplification, r.Utilisation, r.Goodput)
		case "soak":
			add(r.RSSPerHour <= aimSlope, "soak: resident memory, second half", fmt.Sprintf("<= %g MiB/h", aimSlope), "%+.1f MiB/h, %+.1f files/h, %+.1f goroutines/h over %.0f s",
				r.RSSPerHour, r.FilesHour, r.GoroutHour, r.Seconds)
		}
	}
	return append(all, goalsOfOne(reports)...)
}

// goalsOfOne are those of suite B.
func goalsOfOne(reports []*report) (all []goal) {
	out, outLate, later, laterOf, requests, failed, hung, hungOf := 0.0, 0.0, 0.0, "", 0, 0, 0, 0
	whole, busy, healed := 0.0, 0.0, []float64{}
	for _, r := range reports {
		if len(r.Storms) == 0 {
			continue
		}
		whole, busy = max(whole, r.Amplification), max(busy, r.Utilisation)
		for i := range r.Storms {
			s := &r.Storms[i]
			switch s.When {
			case atOnce:
				out = max(out, s.OutAfter)
				requests, failed = requests+s.Requests, failed+s.Failed
			case late:
				outLate = max(outLate, s.OutAfter)
				hung, hungOf = hung+s.Failed, hungOf+s.Requests
			}
			if s.Later > later {
				later, laterOf = s.Later, " ("+s.Fault+")"
			}
			if s.Healed > 0 {
				healed = append(healed, s.Healed)
			}
		}
	}
	if whole == 0 {
		return nil
	}
	add := func(met bool, name, aim, figure string, args ...any) {
		all = append(all, goal{Name: "one: " + name, Aim: aim, Figure: fmt.Sprintf(figure, args...), Met: met})
	}
	add(out <= aimOut, "engine that fails at once is out after", fmt.Sprintf("<= %g s", aimOut), "%.2f s", out)
	add(outLate <= firstContent.Seconds(), "silent engine is out after", "<= "+firstContent.String()+" (its first-content limit)", "%.2f s", outLate)
	add(later <= aimLater, "requests to it after that, in 10 s", fmt.Sprint("<= ", aimLater), "%.1f%s", later, laterOf)
	add(whole <= aimOne, "deliveries per request let in, worst gateway", fmt.Sprint("<= ", aimOne), "%.3f at a utilisation of up to %.2f", whole, busy)
	if requests >= 5000 {
		share := float64(failed) / float64(requests)
		add(share <= aimFailed, "repeatable requests that failed while an engine failed at once", fmt.Sprintf("<= %g %%", 100*aimFailed), "%.2f %% (%d of %d)", 100*share, failed, requests)
		share = float64(hung) / float64(hungOf)
		add(share <= aimFailed, "the same while an engine was silent", fmt.Sprintf("<= %g %%", 100*aimFailed), "%.2f %% (%d of %d)", 100*share, hung, hungOf)
	}
	if len(healed) > 0 {
		slices.Sort(healed)
		add(healed[0] >= aimHealed, "healed engine's share after 45 s", fmt.Sprintf(">= %g of its equal share", aimHealed), "%.2f to %.2f", healed[0], healed[len(healed)-1])
	}
	return all
}

// print writes what happened and the goals as text.
func print(out io.Writer, reports []*report, all []goal) {
	for _, r := range reports {
		fmt.Fprintf(out, "%s: %d requests in %.0f s, utilisation %.2f, %.3f deliveries per request let in\n", r.Part, r.Requests, r.Seconds, r.Utilisation, r.Amplification)
		fmt.Fprintf(out, "  clients saw:  %s\n  faults:       %s\n", counted(r.Saw), counted(r.Faults))
		for _, w := range r.Shown {
			fmt.Fprintf(out, "  wrong:        %s\n", strings.ReplaceAll(w, "\n", "\n    "))
		}
		for _, b := range r.Accounts.Broken {
			fmt.Fprintf(out, "  accounts:     %s\n", b)
		}
		if len(r.Storms) > 0 {
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "  fault\tmet until out\tout after\tlater in 10 s\trequests meanwhile\tfailed\thealed share\t")
			for _, s := range r.Storms {
				fmt.Fprintf(w, "  %s\t%d\t%.2f s\t%.1f\t%d\t%d\t%.2f\t\n", s.Fault, s.Met, s.OutAfter, s.Later, s.Requests, s.Failed, s.Healed)
			}
			w.Flush()
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "| goal | aim | figure | |\n|---|---|---|---|")
	for _, g := range all {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", g.Name, g.Aim, g.Figure, g.mark())
	}
}

// counted lists what there was, the most first.
func counted(of map[string]int) string {
	names := slices.Collect(maps.Keys(of))
	slices.SortFunc(names, func(a, b string) int {
		if of[a] != of[b] {
			return of[b] - of[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", name, of[name])
	}
	return b.String()
}
