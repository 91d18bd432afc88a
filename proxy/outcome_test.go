package proxy

import (
	"slices"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		name    string
		facts   attemptFacts
		outcome Outcome
		cause   Cause
	}{
		{"complete", attemptFacts{End: endComplete, Status: 200, BodySent: true, Committed: true}, OutcomeOK, CauseNone},
		{"refused", attemptFacts{End: endDialFailed}, OutcomeNotProcessed, CauseDial},
		{"REFUSED_STREAM", attemptFacts{End: endRefusedStream, BodySent: true}, OutcomeNotProcessed, CauseRefusedStream},
		{"C09: idle connection closed", attemptFacts{End: endNoResponse, Reused: true}, OutcomeNotProcessed, CauseStaleConnection},
		{"C09: idle connection reset, body written", attemptFacts{End: endNoResponse, Reused: true, BodySent: true}, OutcomeNotProcessed, CauseStaleConnection},
		{"write failed at once", attemptFacts{End: endNoResponse}, OutcomeNotProcessed, CauseUnsent},
		{"C06 b: closed after the body", attemptFacts{End: endNoResponse, BodySent: true}, OutcomeAmbiguous, CauseReset},
		{"no headers", attemptFacts{End: endHeaderTimeout, BodySent: true}, OutcomeAmbiguous, CauseHeaderTimeout},
		{"no content", attemptFacts{End: endContentTimeout, Status: 200, BodySent: true}, OutcomeAmbiguous, CauseContentTimeout},
		{"400", attemptFacts{End: endStatus, Status: 400}, OutcomeClient, CauseClientError},
		{"401", attemptFacts{End: endStatus, Status: 401}, OutcomeClient, CauseClientError},
		{"404 for the route", attemptFacts{End: endStatus, Status: 404}, OutcomeClient, CauseClientError},
		{"C19: 404 for a listed model", attemptFacts{End: endStatus, Status: 404, ModelListed: true}, OutcomeNotProcessed, CauseModelGone},
		{"400 that names the model", attemptFacts{End: endStatus, Status: 400, ModelListed: true}, OutcomeClient, CauseClientError},
		{"C11: 503", attemptFacts{End: endStatus, Status: 503}, OutcomeNotProcessed, CauseBusy},
		{"C11 b: 429", attemptFacts{End: endStatus, Status: 429}, OutcomeNotProcessed, CauseBusy},
		{"500", attemptFacts{End: endStatus, Status: 500}, OutcomeAmbiguous, CauseEngineStatus},
		{"501", attemptFacts{End: endStatus, Status: 501}, OutcomeClient, CauseClientError},
		{"502", attemptFacts{End: endStatus, Status: 502}, OutcomeAmbiguous, CauseEngineStatus},
		{"529", attemptFacts{End: endStatus, Status: 529}, OutcomeAmbiguous, CauseEngineStatus},
		{"C05: first event is a 400", attemptFacts{End: endErrorEvent, Status: 400}, OutcomeClient, CauseClientError},
		{"C05 b: first event is a 500", attemptFacts{End: endErrorEvent, Status: 500}, OutcomeAmbiguous, CauseErrorEvent},
		{"first event is a 503", attemptFacts{End: endErrorEvent, Status: 503}, OutcomeNotProcessed, CauseBusy},
		{"first event is an error of no kind", attemptFacts{End: endErrorEvent}, OutcomeAmbiguous, CauseErrorEvent},
		{"error event after content", attemptFacts{End: endErrorEvent, Status: 500, Committed: true}, OutcomeCommitted, CauseErrorEvent},
		{"400 event after content", attemptFacts{End: endErrorEvent, Status: 400, Committed: true}, OutcomeCommitted, CauseClientError},
		{"503 event after content", attemptFacts{End: endErrorEvent, Status: 503, Committed: true}, OutcomeCommitted, CauseBusy},
		{"garbage first", attemptFacts{End: endMalformed}, OutcomeAmbiguous, CauseMalformed},
		{"garbage after content", attemptFacts{End: endMalformed, Committed: true}, OutcomeCommitted, CauseMalformed},
		{"event too large", attemptFacts{End: endTooLarge}, OutcomeAmbiguous, CauseTooLarge},
		{"C65 b: empty", attemptFacts{End: endEmpty, Status: 200}, OutcomeAmbiguous, CauseEmpty},
		{"redirect", attemptFacts{End: endBadAnswer, Status: 302}, OutcomeAmbiguous, CauseBadAnswer},
		{"cut before content", attemptFacts{End: endBroken}, OutcomeAmbiguous, CauseInterrupted},
		{"C02: cut after content", attemptFacts{End: endBroken, Committed: true}, OutcomeCommitted, CauseInterrupted},
		{"stalled", attemptFacts{End: endStalled, Committed: true}, OutcomeCommitted, CauseStalled},
		{"deadline before content", attemptFacts{End: endDeadline}, OutcomeAmbiguous, CauseDeadline},
		{"C12: client gone before content", attemptFacts{End: endClientGone, BodySent: true}, OutcomeGone, CauseClientGone},
		{"C12: client gone after content", attemptFacts{End: endClientGone, Committed: true}, OutcomeGone, CauseClientGone},
		{"drained before content", attemptFacts{End: endDraining}, OutcomeGone, CauseDraining},
		{"drained after content", attemptFacts{End: endDraining, Committed: true}, OutcomeCommitted, CauseDraining},
	} {
		if o, cause := classify(c.facts); o != c.outcome || cause != c.cause {
			t.Errorf("%s: %v %v, want %v %v", c.name, o, cause, c.outcome, c.cause)
		}
	}
}

func TestEnumsAreClosed(t *testing.T) {
	var names []string
	for _, o := range Outcomes {
		names = append(names, o.String())
	}
	if want := []string{"ok", "client", "not_processed", "ambiguous", "committed", "gone"}; !slices.Equal(names, want) {
		t.Errorf("outcomes %v, want %v", names, want)
	}
	seen := map[string]bool{}
	for c := range CauseDraining + 1 {
		if name := c.String(); name == "" || seen[name] {
			t.Errorf("cause %d is named %q", c, name)
		} else {
			seen[name] = true
		}
	}
	ends := map[Cause]bool{}
	for e := range endDraining + 1 {
		_, c := classify(attemptFacts{End: e, Status: 500, BodySent: true})
		if ends[c] {
			t.Errorf("end %d shares the cause %v with another", e, c)
		}
		ends[c] = true
	}
}
