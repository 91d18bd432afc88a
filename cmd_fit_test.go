package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/config"
)

// measuredFile is a CSV of T(y) = 120 + 80/(1 - y/20), with columns to leave alone.
func measuredFile(t *testing.T, dir string) string {
	t.Helper()
	text := "# taken at night\nrun,latency_ms,RPS\n"
	for i := range 10 {
		y := 2 * float64(i)
		text += fmt.Sprintf("%d,%v,%v\n", i, 120+80/(1-y/20), y)
	}
	path := filepath.Join(dir, "m.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFit(t *testing.T) {
	dir := t.TempDir()
	in, out := measuredFile(t, dir), filepath.Join(dir, "a1.toml")
	code, stdout, stderr := penstock(t, "fit", in, "--output", out, "--json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var r struct {
		Form    string
		Latency struct {
			Base  float64 `json:"base_ms"`
			Slope float64 `json:"slope_ms"`
			Limit float64
		}
		MAPE  float64
		Table []struct{ Load, Measured_ms, Fitted_ms, Off float64 }
		Plot  string
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.Latency.Base-120) > 0.01 || math.Abs(r.Latency.Slope-80) > 0.01 || math.Abs(r.Latency.Limit-20) > 0.001 || r.Form != "curve" || r.MAPE > 1e-5 || len(r.Table) != 10 {
		t.Errorf("%s", stdout)
	}

	// The plot is an XML document beside the input, with a mark for each measurement.
	plot, err := os.ReadFile(filepath.Join(dir, "m.svg"))
	if err != nil || r.Plot != filepath.Join(dir, "m.svg") {
		t.Fatalf("%q, %v", r.Plot, err)
	}
	marks := 0
	for d := xml.NewDecoder(strings.NewReader(string(plot))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			marks++
		}
	}
	if marks != 10 || strings.Contains(string(plot), "NaN") || strings.Contains(string(plot), "Inf") {
		t.Errorf("%d marks: %s", marks, plot)
	}

	// The profile is one that a configuration takes.
	toml := "[[engine]]\nname = \"a\"\nurl = \"http://h:1\"\nprofile = \"a1.toml\"\n"
	f, err := config.Parse(filepath.Join(dir, "penstock.toml"), []byte(toml), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	if p := f.Engines[0].Profile; math.Abs(p.Base-120) > 0.01 || math.Abs(p.Limit-20) > 0.001 {
		t.Errorf("%+v", p)
	}
}

// What is printed for people names the curve and has a line to paste.
func TestFitForPeople(t *testing.T) {
	dir := t.TempDir()
	in := measuredFile(t, dir)
	code, stdout, stderr := penstock(t, "fit", in, "--plot", "")
	if code != 0 || !strings.Contains(stdout, "/(1 - load/20) ms") || !strings.Contains(stdout, "18/s") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "m.svg")); err == nil {
		t.Error("a plot although none was wanted")
	}
	_, line, _ := strings.Cut(stdout, "In the configuration:\n\n")
	if _, err := config.Parse("p.toml", []byte("[[engine]]\nname = \"a\"\nurl = \"http://h:1\"\n"+line), os.LookupEnv); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	if strings.Contains(stdout, "beware") {
		t.Errorf("a good fit is warned of: %s", stdout)
	}
	if _, stdout, _ = penstock(t, "fit", writeFile(t, "falls.csv", "load,latency\n1,500\n5,300\n10,200\n"), "--plot", ""); !strings.Contains(stdout, "beware  ") {
		t.Errorf("nothing is said of a fit that is far off: %s", stdout)
	}
	// A bend is no curve of that form; its points are taken too.
	bend := filepath.Join(dir, "bend.csv")
	text := ""
	for i := range 21 {
		text += fmt.Sprintf("%d,%d\n", i, 100+200*max(0, i-15))
	}
	if err := os.WriteFile(bend, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = penstock(t, "fit", bend)
	_, line, _ = strings.Cut(stdout, "In the configuration:\n\n")
	if code != 0 || !strings.Contains(stdout, "why points") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	if _, err := config.Parse("p.toml", []byte("[[engine]]\nname = \"a\"\nurl = \"http://h:1\"\n"+line), os.LookupEnv); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	// A plot that nobody asked for and that has no place is no reason to fail.
	if err := os.Remove(filepath.Join(dir, "bend.svg")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bend.svg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr = penstock(t, "fit", bend); code != 0 || !strings.Contains(stdout, "why points") || !strings.Contains(stderr, "no plot") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, stdout, _ = penstock(t, "fit", "--shipped"); code != 0 || !strings.Contains(stdout, "llama-3.3-70b/h200x4") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

func TestFitFaults(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		text string
		args []string
		code int
		want string
	}{
		{"load,latency\n1,2\n2,x\n", nil, 1, "in.csv:3:3: latency = \"x\": want a number"},
		{"load,latency\n1,2\n-2,3\n", nil, 1, "in.csv:3:1: load = -2"},
		{"load,latency\n1,0\n", nil, 1, "in.csv:2:3: latency = 0"},
		{"load,latency\n1\n", nil, 1, "in.csv:2:1: no latency"},
		{"load,other\n1,2\n", nil, 1, "in.csv:1: no column latency"},
		{"1,2\n3,\"4\n", nil, 1, "not CSV"},
		{"", nil, 1, "no measurements"},
		{"load,latency\n", nil, 1, "no measurements"},
		{"1,2\n2,3\n1,3\n", nil, 1, "2 different loads"},
		{"1,2\n1,3\n", nil, 1, "there is one load only"},
		{"load;latency\n1;2\n", nil, 1, "want commas between the columns"},
		{"1,2\n2,3\n3,NaN\n", nil, 1, "in.csv:3:3"},
		{"1,2\n2,3\n3,4\n", []string{"--output", "a.json"}, 2, "ends in .toml"},
		{"1,2\n2,3\n3,4\n", []string{"--plot", "a.png"}, 2, "ends in .svg"},
		{"1,2\n2,3\n3,4\n", []string{"--shipped"}, 2, "want no argument"},
		{"1,2\n2,3\n3,4\n", []string{"--plot", "/nowhere/a.svg"}, 1, "writing the plot"},
	} {
		path := filepath.Join(dir, "in.csv")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := penstock(t, append([]string{"fit", path}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%d: exit %d, stdout %q, stderr %q; want %q", i, code, stdout, stderr, c.want)
		}
	}
	if code, _, stderr := penstock(t, "fit"); code != 2 || !strings.Contains(stderr, "want a CSV file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
