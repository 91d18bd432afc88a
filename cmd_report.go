package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"penstock/bench/report"
)

const reportHelp = `Turn results of penstock bench and penstock simulate into a page: who won, by how much,
and how sure that is.

Any number of result files goes in. Runs of the same scenario are compared; of those with
the same seed the difference is taken, which cancels what chance did to both, and the
spread of the differences over seeds gives the 95 % intervals. With one seed nothing can
be said about chance, and the page says so.

-o is one HTML file with all charts in it, which needs nothing else: differences with
their intervals, a heat map of policies and measures, distributions of latency, figures
over time, and where requests went. --markdown is the tables as text, on standard output
where neither is asked for. --svg and --png write each chart into a directory.`

const reportExamples = `  penstock report results.json -o report.html
  penstock report monday.json tuesday.json -o report.html --markdown report.md --png charts/
  penstock report results.json`

type reportFlags struct {
	html, markdown, svg, png, title string
}

func newReportCommand() *cobra.Command {
	var o reportFlags
	cmd := &cobra.Command{
		Use:     "report RESULTS.json... -o REPORT.html",
		Short:   "Show results of bench and simulate: who won, by how much, how surely",
		Long:    reportHelp,
		Example: reportExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want result files, as penstock bench --output writes them")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runReport(cmd, args, &o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.html, "output", "o", "", "write the page to a `FILE.html`")
	f.StringVar(&o.markdown, "markdown", "", "write tables to a `FILE.md`; - is standard output")
	f.StringVar(&o.svg, "svg", "", "write every chart as SVG into a `DIRECTORY`")
	f.StringVar(&o.png, "png", "", "write every chart as PNG into a `DIRECTORY`")
	f.StringVar(&o.title, "title", "", "title of the page")
	_ = cmd.MarkFlagFilename("output", "html")
	_ = cmd.MarkFlagFilename("markdown", "md")
	_ = cmd.MarkFlagDirname("svg")
	_ = cmd.MarkFlagDirname("png")
	return cmd
}

func runReport(cmd *cobra.Command, paths []string, o *reportFlags) error {
	var files []*report.Results
	for _, path := range paths {
		r, err := report.Read(path)
		if err != nil {
			return err
		}
		files = append(files, r)
	}
	all, err := report.Compare(files)
	if err != nil {
		return err
	}
	if o.html != "" {
		page, err := report.HTML(o.heading(files), files, all)
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.html, []byte(page), 0o644); err != nil {
			return fmt.Errorf("writing the page: %w", err)
		}
	}
	if err := writeCharts(all, o.svg, ".svg", func(c report.Chart) ([]byte, error) { return []byte(c.Canvas.SVG()), nil }); err != nil {
		return err
	}
	if err := writeCharts(all, o.png, ".png", func(c report.Chart) ([]byte, error) { return c.Canvas.PNG(2) }); err != nil {
		return err
	}
	text := report.Markdown(files, all)
	switch {
	case o.markdown != "" && o.markdown != "-":
		if err := os.WriteFile(o.markdown, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing the tables: %w", err)
		}
	case o.markdown == "-" || o.html+o.svg+o.png == "":
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	for _, c := range all {
		fmt.Fprintln(cmd.OutOrStdout(), plainText(join(": ", c.Scenario, c.Sentence())))
	}
	return nil
}

// heading is the page's title.
func (o *reportFlags) heading(files []*report.Results) string {
	if o.title != "" {
		return o.title
	}
	for _, f := range files {
		if f.Title != "" {
			return f.Title
		}
	}
	return "Penstock: results"
}

// writeCharts writes each chart into a directory; with several scenarios their
// number leads the name.
func writeCharts(all []*report.Comparison, dir, ext string, draw func(report.Chart) ([]byte, error)) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing charts: %w", err)
	}
	for i, c := range all {
		for _, chart := range c.Charts() {
			image, err := draw(chart)
			if err != nil {
				return fmt.Errorf("chart %s: %w", chart.Name, err)
			}
			name := chart.Name
			if len(all) > 1 {
				name = fmt.Sprintf("%d-%s", i+1, name)
			}
			if err := os.WriteFile(filepath.Join(dir, strings.Trim(name, "-")+ext), image, 0o644); err != nil {
				return fmt.Errorf("writing charts: %w", err)
			}
		}
	}
	return nil
}
