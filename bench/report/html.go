package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// part is what the page shows of a comparison.
type part struct {
	Scenario, Sentence, First string
	Sure                      bool
	Notes                     []string
	Head, PairHead            []string
	Rows, Pairs, Settings     [][]string
	Seeds, SLO                string
	Charts                    []pageChart
}

type pageChart struct {
	Name, Heading, Note string
	Wide                bool
	SVG                 template.HTML
}

// HTML is the comparisons as one page that needs nothing else.
func HTML(title string, files []*Results, all []*Comparison) (string, error) {
	var data struct {
		Title, Origin string
		Parts         []part
	}
	data.Title, data.Origin = title, Origin(files)
	for i, c := range all {
		p := part{Scenario: orName(c.Scenario), Sentence: c.Sentence(), First: c.Winner.First, Sure: c.Winner.Sure, Notes: c.Winner.Notes, PairHead: pairHead}
		p.Head, p.Rows = c.Table()
		for _, pair := range c.Winner.Pairs {
			p.Pairs = append(p.Pairs, pair.cells())
		}
		p.Seeds = fmt.Sprintf("%d seeds", len(c.Seeds))
		if len(c.Seeds) == 1 {
			p.Seeds = "one seed"
		}
		p.SLO = c.slo()
		p.Settings = c.settings()
		for _, chart := range c.Charts() {
			// Every shape is ours and every text in it escaped: see plot.SVG.
			p.Charts = append(p.Charts, pageChart{fmt.Sprintf("%s-%d", chart.Name, i), chart.Heading, chart.Note, chart.Canvas.W > chartWide, template.HTML(chart.Canvas.SVG())})
		}
		data.Parts = append(data.Parts, p)
	}
	var b strings.Builder
	if err := page.Execute(&b, data); err != nil {
		return "", err
	}
	return b.String(), nil
}

// slo is the bound of good answers in words, where all runs have the same.
func (c *Comparison) slo() string {
	s := c.runs[c.Names[0]][0].SLO
	if s == nil {
		return ""
	}
	var parts []string
	for _, x := range []struct {
		what string
		ms   float64
	}{{"its first token within", s.TTFT}, {"between tokens on average at most", s.TBOT}, {"its last token within", s.E2E}} {
		if x.ms > 0 {
			parts = append(parts, fmt.Sprintf("%s %s ms", x.what, figure(x.ms)))
		}
	}
	return strings.Join(parts, ", ")
}

// settings are those that runs were told, each once.
func (c *Comparison) settings() (rows [][]string) {
	values := map[string][]string{}
	for _, name := range c.Names {
		for _, r := range c.runs[name] {
			for k, v := range r.Settings {
				if !slices.Contains(values[k], v) {
					values[k] = append(values[k], v)
				}
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		rows = append(rows, []string{k, strings.Join(values[k], "; ")})
	}
	return append(rows, []string{"seeds", strings.Trim(fmt.Sprint(c.Seeds), "[]")})
}
