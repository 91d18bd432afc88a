package proxy

import (
	"slices"
	"testing"
	"time"
)

func TestTries(t *testing.T) {
	idle := terms{stateless: true, harmless: true, working: true, utilisation: 0.3}
	with := func(f func(*terms)) terms { now := idle; f(&now); return now }
	full := with(func(n *terms) { n.utilisation = 0.95 })
	for _, c := range []struct {
		name   string
		now    terms
		causes []Cause
		want   []nextTry
	}{
		{"refused, as often as there are engines, three at most", idle, []Cause{CauseDial, CauseRefusedStream, CauseDial}, []nextTry{tryOtherEngine, tryOtherEngine, tryNothing}},
		{"refused of a full fleet: another engine, when it has room", full, []Cause{CauseDial, CauseDial, CauseDial}, []nextTry{tryOtherEngine, tryOtherEngine, tryNothing}},
		{"C09: stale once", idle, []Cause{CauseStaleConnection, CauseStaleConnection}, []nextTry{trySameEngineFresh, tryNothing}},
		{"stale, engine went away, stale there: it may have arrived twice by now", idle, []Cause{CauseStaleConnection, CauseDial, CauseStaleConnection},
			[]nextTry{trySameEngineFresh, tryOtherEngine, tryNothing}},
		{"stale, then delivered", idle, []Cause{CauseStaleConnection, CauseReset}, []nextTry{trySameEngineFresh, tryNothing}},
		{"delivered, then stale", idle, []Cause{CauseReset, CauseStaleConnection}, []nextTry{tryOtherByBudget, tryNothing}},
		{"C19: not there, nor there", idle, []Cause{CauseModelGone, CauseModelGone, CauseModelGone}, []nextTry{tryOtherEngine, tryOtherEngine, tryNothing}},
		{"full engines", idle, []Cause{CauseBusy, CauseBusy, CauseBusy}, []nextTry{tryOtherByBudget, tryOtherByBudget, tryNothing}},
		{"a full engine of a full fleet", full, []Cause{CauseBusy, CauseBusy, CauseBusy}, []nextTry{tryQueue, tryQueue, tryNothing}},
		{"a full engine where others wait", with(func(n *terms) { n.crowded = true }), []Cause{CauseBusy}, []nextTry{tryQueue}},
		{"a full engine of a full fleet, and nothing of ours there", with(func(n *terms) { n.utilisation, n.working = 1, false }), []Cause{CauseBusy}, []nextTry{tryNothing}},
		{"a full engine, for what may not be done twice", with(func(n *terms) { n.stateless = false }), []Cause{CauseBusy}, []nextTry{tryNothing}},
		{"refused, for what may not be done twice", with(func(n *terms) { n.stateless = false }), []Cause{CauseDial, CauseUnsent}, []nextTry{tryOtherEngine, tryOtherEngine}},
		{"a gateway before repeats", with(func(n *terms) { n.inner = true }), []Cause{CauseStaleConnection, CauseDial}, []nextTry{trySameEngineFresh, tryNothing}},
		{"a gateway before repeats, reset", with(func(n *terms) { n.inner = true }), []Cause{CauseReset}, []nextTry{tryNothing}},
		{"reset once", idle, []Cause{CauseReset, CauseReset}, []nextTry{tryOtherByBudget, tryNothing}},
		{"reset, then refused", idle, []Cause{CauseReset, CauseDial}, []nextTry{tryOtherByBudget, tryNothing}},
		{"refused, then reset", idle, []Cause{CauseDial, CauseReset}, []nextTry{tryOtherEngine, tryNothing}},
		{"reset at 0.8", with(func(n *terms) { n.utilisation = 0.8 }), []Cause{CauseReset}, []nextTry{tryNothing}},
		{"stale, for what may not be done twice: an engine may have read it", with(func(n *terms) { n.stateless, n.harmless = false, false }), []Cause{CauseStaleConnection}, []nextTry{tryNothing}},
		{"reset of what may not be done twice", with(func(n *terms) { n.stateless = false }), []Cause{CauseReset}, []nextTry{tryNothing}},
		{"500 while others wait", with(func(n *terms) { n.crowded = true }), []Cause{CauseEngineStatus}, []nextTry{tryNothing}},
	} {
		var tr tries
		for i, cause := range c.causes {
			var got nextTry
			if got, tr = tr.after(causes[cause].outcome, cause, c.now); got != c.want[i] {
				t.Errorf("%s, attempt %d: %v, want %v", c.name, i+1, got, c.want[i])
			}
		}
	}
}

// Whatever happens to an attempt: after content nothing is tried again, and
// what may not be done twice only where no engine has seen it.
func TestNothingElseIsTriedAgain(t *testing.T) {
	var twice []Cause
	for e := range endFailed + 1 {
		for _, status := range []int{0, 200, 302, 400, 404, 429, 500, 501, 502, 503, 504} {
			for bits := range 64 {
				f := attemptFacts{End: e, Status: status, Reused: bits&1 > 0, BodySent: bits&2 > 0, ModelListed: bits&4 > 0, Committed: bits&8 > 0}
				o, c := classify(f)
				now := terms{stateless: bits&16 > 0, harmless: bits&16 > 0, utilisation: float64(bits&32) / 32}
				next, _ := tries{}.after(o, c, now)
				if next == tryNothing || next == trySameEngineFresh && c == CauseStaleConnection && now.harmless {
					continue
				}
				if f.Committed || o != OutcomeNotProcessed && o != OutcomeAmbiguous {
					t.Errorf("%+v is tried again", f)
				}
				if !now.stateless && !slices.Contains(twice, c) {
					twice = append(twice, c)
				}
				if o == OutcomeAmbiguous && (now.utilisation >= unsureBelow || next != tryOtherByBudget) {
					t.Errorf("%+v is %v at %g", f, next, now.utilisation)
				}
			}
		}
	}
	slices.Sort(twice)
	if want := []Cause{CauseDial, CauseRefusedStream, CauseUnsent, CauseModelGone}; !slices.Equal(twice, want) {
		t.Errorf("sent again though it may not be done twice: %v, want %v", twice, want)
	}
}

func TestBackoff(t *testing.T) {
	if d := (tries{moves: 1}).backoff(); d != 0 {
		t.Errorf("%v before the first move", d)
	}
	for range 200 {
		if d := (tries{moves: 1, unsure: true}).backoff(); d < 0 || d >= 50*time.Millisecond {
			t.Errorf("%v before doing it twice", d)
		}
		if d := (tries{moves: 9}).backoff(); d < 0 || d >= backoffAtMost {
			t.Errorf("%v", d)
		}
	}
}

func TestRetryAfterStaysBelowAMinute(t *testing.T) {
	for n, most := range map[int]int{0: 6, 1: 12, 2: 18, 1000: 59} {
		least := min(2*(n+1), 59)
		for range 300 {
			if s := retryAfter(n); s < least || s > most {
				t.Errorf("%d s at retry %d", s, n)
			}
		}
	}
}
