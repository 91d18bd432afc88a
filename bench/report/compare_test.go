package report

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// run is a run of 100 requests with a mean latency.
func run(name string, seed uint64, mean float64) Run {
	r := Run{Name: name, Scenario: "s", Seed: seed, Seconds: 10, Requests: 100, OK: 98, Good: 90, Shed: 1, Errors: 1, SLO: &SLO{TTFT: 500},
		OutputTokens: 980, PromptTokens: 9800, CachedTokens: 4900, E2E: &Histogram{}, TTFT: &Histogram{}, TBOT: &Histogram{},
		Outcomes: map[string]int{"shed": 1, "broken": 1}, Settings: map[string]string{"rate": "10"},
		Series: []Series{{Name: "E2E", Unit: "ms", Start: 0, Step: 5, Values: Values{mean, math.NaN(), mean * 1.1}}},
		Flows:  []Flow{{Source: "us", Engine: "a1", Requests: 60}, {Source: "us", Engine: "b1", Requests: 8}, {Source: "eu", Engine: "b1", Requests: 30}}}
	for i := range 98 {
		spread := 1 + 0.5*(float64(i)/48.5-1)
		r.E2E.RecordMS(mean * spread)
		r.TTFT.RecordMS(mean / 10 * spread)
		r.TBOT.RecordMS(mean / 50 * spread)
	}
	return r
}

func results(runs ...Run) []*Results {
	return []*Results{{Version: Version, Tool: "bench", Commit: "abc", Date: "2026-11-30", Machine: &Machine{OS: "linux/amd64", CPUs: 2, Go: "go1.26"}, Runs: runs}}
}

// TestPairs: the differences are taken seed by seed, and their interval is
// Student's: -10, -12 and -8 ms are -10 +- 4.3027 x 2/sqrt(3).
func TestPairs(t *testing.T) {
	all, err := Compare(results(run("b", 1, 110), run("a", 1, 100), run("a", 2, 200), run("b", 2, 212), run("b", 3, 308), run("a", 3, 300), run("b", 4, 5)))
	if err != nil {
		t.Fatal(err)
	}
	c := all[0]
	p := c.pair(measures[0], "a", "b")
	if p.N != 3 || p.Ahead != 3 || math.Abs(p.Diff.Mean+10) > 1e-3 || math.Abs(p.Diff.Half-4.9683) > 1e-3 || !p.Diff.sure() {
		t.Errorf("%+v", p)
	}
}

// TestVerdicts: who has the lowest mean wins only where chance would not do it.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		runs []Run
		want string
		sure bool
	}{
		{"sure", []Run{run("b", 1, 110), run("a", 1, 100), run("a", 2, 200), run("b", 2, 212)}, "a: the lowest mean end-to-end latency, 11.0 ± 12.7 ms less", false},
		{"sure over three", []Run{run("b", 1, 110), run("a", 1, 100), run("a", 2, 200), run("b", 2, 212), run("a", 3, 300), run("b", 3, 311)},
			"a wins: the lowest mean end-to-end latency, 11.0 ± 2.48 ms less (5.2 ± 1.2 %, better in 3 of 3 seeds) against b, and that is sure against every other.", true},
		{"chance", []Run{run("b", 1, 110), run("a", 1, 100), run("a", 2, 200), run("b", 2, 150), run("a", 3, 100), run("b", 3, 150)}, "which is within chance", false},
		{"one seed", []Run{run("b", 1, 110), run("a", 1, 100)}, "with one seed nobody can say how sure that is", false},
		{"the same", []Run{run("b", 1, 100), run("a", 1, 100)}, "b and a have the same mean end-to-end latency in every seed", false},
		{"two the same", []Run{run("c", 1, 120), run("b", 1, 100), run("a", 1, 100), run("c", 2, 121), run("b", 2, 100), run("a", 2, 100)},
			"b and a, with the same figures, win: the lowest mean end-to-end latency, 20.5 ± 6.35 ms less", true},
		{"alone", []Run{run("a", 1, 100)}, "a alone: there is nothing to compare it with", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Compare(results(c.runs...))
			if err != nil {
				t.Fatal(err)
			}
			if got := all[0].Sentence(); !strings.Contains(got, c.want) || all[0].Winner.Sure != c.sure {
				t.Errorf("%s (sure: %v), want %q", got, all[0].Winner.Sure, c.want)
			}
		})
	}
}

// TestNotes: latencies of who serves fewer, and of a late generator, are not
// left without a word.
func TestNotes(t *testing.T) {
	fewer, late := run("a", 1, 100), run("b", 1, 120)
	fewer.OK, fewer.Good, fewer.Shed = 50, 50, 49
	late.Lag = &Histogram{}
	late.Lag.RecordMS(90)
	all, err := Compare(results(fewer, late))
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(all[0].Winner.Notes, "\n")
	for _, want := range []string{"One seed", "a answered 50.0 % of its requests, b 98.0 %", "b: the generator itself was late in 1 of 1 runs, up to 90 ms"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes\n%s\nwant %q", notes, want)
		}
	}
}

func TestTwoRunsOfTheSame(t *testing.T) {
	if _, err := Compare(results(run("a", 1, 100), run("a", 1, 101))); err == nil || !strings.Contains(err.Error(), `a, scenario "s", seed 1: two runs of the same`) {
		t.Errorf("error %v", err)
	}
}

func TestStudent(t *testing.T) {
	for n, want := range map[int]float64{1: 12.706, 4: 2.776, 10: 2.228, 11: 2.201, 15: 2.131, 20: 2.086, 30: 2.042, 100: 1.984} {
		if got := t975(n); math.Abs(got-want) > 0.002 {
			t.Errorf("%d degrees of freedom: %.4f, want %.3f", n, got, want)
		}
	}
}

// TestHeat: the best is green, twice as far is red, and a share goes by points.
func TestHeat(t *testing.T) {
	lower := Row{Better: Lower, Unit: "ms", Best: 0, Cells: []Estimate{{N: 1, Mean: 10}, {N: 1, Mean: 20}, {N: 1, Mean: 40}, {}}}
	if heat(lower, lower.Cells[0]) == heat(lower, lower.Cells[1]) || heat(lower, lower.Cells[1]) != heat(lower, lower.Cells[2]) || heat(lower, lower.Cells[3]) != "#f3f5f7" {
		t.Error("colours do not follow the distance from the best")
	}
	share := Row{Better: Higher, Unit: "%", Best: 0, Cells: []Estimate{{N: 1, Mean: 99}, {N: 1, Mean: 98}, {N: 1, Mean: 70}}}
	if heat(share, share.Cells[1]) == heat(share, share.Cells[2]) {
		t.Error("98 % is as red as 70 %")
	}
}

// hostile are results with names that would be markup.
func hostile() []*Results {
	var runs []Run
	for seed := range uint64(3) {
		for i, name := range []string{"optimal", "<script>alert(1)</script>", "a|b*c"} {
			r := run(name, seed+1, 100+20*float64(i)+float64(seed)*float64(1+i))
			r.Extra = []Metric{{Name: "moved", Unit: "%", Value: float64(i), Better: Lower}}
			runs = append(runs, r)
		}
	}
	return results(runs...)
}

func TestMarkdown(t *testing.T) {
	files := hostile()
	all, err := Compare(files)
	if err != nil {
		t.Fatal(err)
	}
	got := Markdown(files, all)
	const golden = "testdata/results.md"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFileAndBack: what is written is read as it was.
func TestFileAndBack(t *testing.T) {
	files := hostile()
	text, err := json.Marshal(files[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Compare(files)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Compare([]*Results{again})
	if err != nil {
		t.Fatal(err)
	}
	if x, y := Markdown(files, a), Markdown([]*Results{again}, b); x != y {
		t.Errorf("written\n%s\nread\n%s", x, y)
	}
}
