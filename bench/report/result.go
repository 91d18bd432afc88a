package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// Version is the form of a results file.
const Version = "penstock-results/1"

// Results is a results file. Its JSON fields are the outward interface.
type Results struct {
	Version string   `json:"version"`
	Tool    string   `json:"tool"` // bench or simulate
	Title   string   `json:"title,omitempty"`
	Commit  string   `json:"commit,omitempty"`
	Date    string   `json:"date,omitempty"` // of real time; a simulation has none
	Machine *Machine `json:"machine,omitempty"`
	// Policies sums up the runs for who wants no more than a figure; comparisons
	// and charts are made of Runs alone.
	Policies []Policy `json:"policies,omitempty"`
	Runs     []Run    `json:"runs"`
}

// Policy is all runs of one name in one scenario: counts of all of them, times
// as means over the seeds.
type Policy struct {
	Name     string `json:"name"`
	Scenario string `json:"scenario"`
	Requests int    `json:"requests"` // all that arrived, shed ones included
	OK       int    `json:"ok"`       // whole answers: times are of these, 0 where there is none
	Shed     int    `json:"shed"`
	TTFT     Spread `json:"ttft_ms"`
	E2E      Spread `json:"e2e_ms"`
}

// Spread is a distribution in a few numbers, in ms.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Machine is where something was measured in real time.
type Machine struct {
	OS    string `json:"os"` // with the architecture
	CPUs  int    `json:"cpus"`
	Model string `json:"model,omitempty"` // of the CPU
	Go    string `json:"go"`
}

// Run is one policy or target in one scenario with one seed.
type Run struct {
	Name     string            `json:"name"`     // what is compared: the policy, the target
	Scenario string            `json:"scenario"` // what it is compared in: trace, load, fleet
	Seed     uint64            `json:"seed"`
	Settings map[string]string `json:"settings,omitempty"` // as the command was told
	Seconds  float64           `json:"seconds"`            // of traffic

	Requests   int            `json:"requests"` // all that arrived in the measured time
	OK         int            `json:"ok"`       // whole answers
	Good       int            `json:"good"`     // whole answers within the SLO
	Shed       int            `json:"shed"`     // refused on purpose: 429 or 503 from the load balancer
	Errors     int            `json:"errors"`
	Unfinished int            `json:"unfinished,omitempty"` // cut off when the run ended; in no other count
	Outcomes   map[string]int `json:"outcomes,omitempty"`   // errors and sheds by what they were
	SLO        *SLO           `json:"slo,omitempty"`

	PromptTokens int `json:"prompt_tokens"` // of whole answers
	CachedTokens int `json:"cached_tokens"`
	OutputTokens int `json:"output_tokens"`

	TTFT *Histogram `json:"ttft_ms,omitempty"` // of whole answers
	TBOT *Histogram `json:"tbot_ms,omitempty"` // mean time between the tokens of an answer
	E2E  *Histogram `json:"e2e_ms,omitempty"`
	ITL  *Histogram `json:"itl_ms,omitempty"` // every gap between two content events
	Lag  *Histogram `json:"lag_ms,omitempty"` // how late the generator itself was

	Extra  []Metric `json:"extra,omitempty"`  // what only some tools know: KV hits, moves, spill
	Series []Series `json:"series,omitempty"` // over the time of the run
	Flows  []Flow   `json:"flows,omitempty"`
}

// SLO is what makes an answer a good one; 0: no bound.
type SLO struct {
	TTFT float64 `json:"ttft_ms,omitempty"`
	TBOT float64 `json:"tbot_ms,omitempty"`
	E2E  float64 `json:"e2e_ms,omitempty"`
}

// Holds reports whether an answer with these times, in ms, is a good one.
func (s *SLO) Holds(ttft, tbot, e2e float64) bool {
	return s == nil || (s.TTFT == 0 || ttft <= s.TTFT) && (s.TBOT == 0 || tbot <= s.TBOT) && (s.E2E == 0 || e2e <= s.E2E)
}

// Metric is a figure of a run. Better is "lower", "higher", or empty where
// neither is.
type Metric struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit,omitempty"`
	Value  float64 `json:"value"`
	Better string  `json:"better,omitempty"`
}

// Series is a figure over time, one value for every Step seconds from Start.
type Series struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit,omitempty"`
	Start  float64 `json:"start_s"`
	Step   float64 `json:"step_s"`
	Values Values  `json:"values"`
}

// Values are numbers of which some may not be there: NaN, null in JSON.
type Values []float64

// MarshalJSON writes NaN as null, and no more digits than a chart can show.
func (v Values) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
		} else {
			b = fmt.Appendf(b, "%.6g", x)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads null as NaN.
func (v *Values) UnmarshalJSON(text []byte) error {
	var all []*float64
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*v = make(Values, len(all))
	for i, x := range all {
		if (*v)[i] = math.NaN(); x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}

// Flow is what went from a source to an engine.
type Flow struct {
	Source   string  `json:"source"`
	Engine   string  `json:"engine"`
	Requests int     `json:"requests"`
	Mean     float64 `json:"e2e_ms_mean,omitempty"`
}

// Read reads a results file.
func Read(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Parse reads the text of a results file. What it does not know is an error: a
// figure that nobody shows would look as if it were not there.
func Parse(text []byte) (*Results, error) {
	var r Results
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		var kind *json.UnmarshalTypeError
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("line %d: %w", lineAt(text, syntax.Offset), err)
		case errors.As(err, &kind):
			if kind.Field == "" {
				return nil, fmt.Errorf("line %d: the document is no object (%s): want results as penstock bench and penstock simulate write them", lineAt(text, kind.Offset), kind.Value)
			}
			return nil, fmt.Errorf("line %d: %s is a %s: want %s", lineAt(text, kind.Offset), kind.Field, kind.Value, kind.Type)
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("the file ends too early: no whole JSON document")
		}
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: something follows the document", lineAt(text, dec.InputOffset()))
	}
	return &r, r.check()
}

func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte{'\n'})
}

// longestName is what fits on a chart, and more.
const longestName = 200

// check looks that the results can be compared and shown.
func (r *Results) check() error {
	if r.Version != Version {
		return fmt.Errorf("version = %q: want %q, as penstock bench and penstock simulate write it", r.Version, Version)
	}
	if len(r.Runs) == 0 {
		return errors.New("runs: none")
	}
	for i := range r.Runs {
		run, where := &r.Runs[i], fmt.Sprintf("runs[%d]", i)
		switch {
		case run.Name == "":
			return fmt.Errorf("%s.name: missing", where)
		case len(run.Name) > longestName || len(run.Scenario) > 10*longestName:
			return fmt.Errorf("%s: want a name of at most %d bytes, and a scenario of %d", where, longestName, 10*longestName)
		case !(run.Seconds >= 0) || run.Requests < 0 || run.OK < 0 || run.Good < 0 || run.Shed < 0 || run.Errors < 0:
			return fmt.Errorf("%s: a count or time below 0", where)
		case run.OK+run.Shed+run.Errors > run.Requests:
			return fmt.Errorf("%s: ok %d + shed %d + errors %d are more than the %d requests", where, run.OK, run.Shed, run.Errors, run.Requests)
		case run.Good > run.OK:
			return fmt.Errorf("%s: %d good answers of %d", where, run.Good, run.OK)
		}
		for j, s := range run.Series {
			if !(s.Step > 0) {
				return fmt.Errorf("%s.series[%d].step_s = %g: want more than 0", where, j, s.Step)
			}
		}
		for j, m := range run.Extra {
			if m.Better != "" && m.Better != Lower && m.Better != Higher {
				return fmt.Errorf("%s.extra[%d].better = %q: want lower, higher or nothing", where, j, m.Better)
			}
		}
	}
	return nil
}

// Which way a metric is better.
const (
	Lower  = "lower"
	Higher = "higher"
)
