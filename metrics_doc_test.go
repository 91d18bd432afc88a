package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// documentedMetrics are the rows of admin/METRICS.md: labels and text by name.
func documentedMetrics(t *testing.T) map[string][2]string {
	text, err := os.ReadFile("admin/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(penstock_[a-z0-9_]+)(?:\\{([a-z_,]+)\\})?` \\| (.+) \\|$").FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s is documented twice", m[1])
		}
		rows[m[1]] = [2]string{m[2], m[3]}
	}
	return rows
}

// Every metric that the code can make is in admin/METRICS.md and nothing else,
// with the words and labels that the page has.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	rows := documentedMetrics(t)
	inCode := map[string]bool{}
	name := regexp.MustCompile(`"(penstock_[a-z0-9_]+)"`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bench" || d.Name() == "enginetest" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			inCode[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Sorted(maps.Keys(inCode)) {
		if _, ok := rows[n]; !ok {
			t.Errorf("%s is not in admin/METRICS.md", n)
		}
	}
	for n := range rows {
		if !inCode[n] {
			t.Errorf("admin/METRICS.md has %s, which nothing makes", n)
		}
	}
	e1 := startPlayed(t, good)
	g := startCase(t, "", e1)
	if a := g.post(client(t), "/v1/chat/completions", chatBody("m", "hi", true)); !a.looksComplete() {
		t.Fatalf("%d %s", a.status, a.body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(g.ask("GET", "/metrics").body))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for n, f := range families {
		row, ok := rows[n]
		if !ok {
			continue
		}
		seen++
		if text := strings.ReplaceAll(row[1], `\|`, "|"); text != f.GetHelp() {
			t.Errorf("%s is documented as %q, the page says %q", n, text, f.GetHelp())
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		want := strings.FieldsFunc(row[0], func(r rune) bool { return r == ',' })
		slices.Sort(want)
		if !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %q, documented are %q", n, labels, want)
		}
	}
	if seen < 50 {
		t.Errorf("only %d of %d metrics are on the page", seen, len(rows))
	}
}
