package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// sample is a run of two rows behind three proxies, one of which is not here.
func sample() []*table {
	rows := []*row{
		{name: "engine resets", wanted: "error event", rightLabel: "error event"},
		{name: "one engine fails", wanted: "0 fail", waits: "retries", rightLabel: "0 fail"},
	}
	t := newTable("Behaviour", rows, []*target{
		{peer: penstock, policy: &policy{title: "default"}}, {peer: nginx, policy: &policy{title: "round robin"}},
		{peer: envoy, policy: &policy{}, skip: "not installed"},
	})
	for i, label := range []string{"error event", "body cut", "", "30 fail", "30 fail", ""} {
		if label != "" {
			t.cells[i].seen = []observation{{Label: label}}
		}
		t.cells[i].judge(limits{slack: 1})
	}
	return []*table{t}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	tables := sample()
	if err := writeMarkdown(&b, tables[0].title, tables[0].grid(false)); err != nil {
		t.Fatal(err)
	}
	const want = `### Behaviour

| row | wanted | Penstock | nginx | Envoy |
|---|---|---|---|---|
| engine resets | error event | ✓ error event | ✗ body cut | not here |
| one engine fails | 0 fail | ~ 30 fail | ✗ 30 fail | not here |
| right | 2 rows | 1, 1 wait | 0 |  |

`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

func TestTurnedText(t *testing.T) {
	var b bytes.Buffer
	tables := sample()
	if err := writeText(&b, "A title", tables[0].grid(true)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A title\n\npolicy", "Penstock, default", "✗ body cut", "wanted"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestWrap(t *testing.T) {
	lines := wrap("one two three aVeryLongWordThatDoesNotFit end", 9)
	if got := strings.Join(lines, "|"); got != "one two|three|aVeryLongWordThatDoesNotFit|end" {
		t.Error(got)
	}
}

// The run fails for what is wrong with Penstock, not for its peers, and names what waits.
func TestFaultsAndNotes(t *testing.T) {
	tables := sample()
	if list := faults(tables); len(list) != 0 {
		t.Errorf("faults of a good run: %q", list)
	}
	if list := notes(tables); len(list) != 1 || !strings.Contains(list[0], "one engine fails: retries") {
		t.Errorf("notes: %q", list)
	}
	ours := tables[0].cell(0, 0)
	ours.seen = []observation{{Label: "body cut"}}
	ours.judge(limits{slack: 1})
	if list := faults(tables); len(list) != 1 || !strings.Contains(list[0], "engine resets: body cut (wanted: error event)") {
		t.Errorf("faults: %q", list)
	}
}

func TestReport(t *testing.T) {
	doc := &report{Date: "2026-01-01"}
	doc.add(sample()[0])
	var b bytes.Buffer
	if err := doc.write(&b); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	c := back.Rows[1].Cells[0]
	if c.Target != "penstock" || c.Verdict != "waiting" || c.Waits != "retries" || len(c.Seen) != 1 {
		t.Errorf("%+v", c)
	}
	if back.Rows[0].Cells[2].Verdict != "skipped" {
		t.Errorf("%+v", back.Rows[0].Cells[2])
	}
}
