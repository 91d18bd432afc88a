package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"penstock/engine"
)

func parseProfile(t *testing.T, dir, value string) (*engine.Profile, error) {
	t.Helper()
	name := filepath.Join(dir, "p.toml")
	f, err := Parse(name, []byte("[[engine]]\nname = \"a1\"\nurl = \"http://h:1\"\nprofile = "+value+"\n"), noEnv)
	if err != nil {
		return nil, err
	}
	return f.Engines[0].Profile, nil
}

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	file := "# measured\nmodel = \"m\"\nstep_ms = 10\nper_seq_ms = 0.35\nper_token_ms = 0.06\nslots = 48\n"
	if err := os.WriteFile(filepath.Join(dir, "a1.toml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]engine.Profile{
		`{ base_ms = 0, slope_ms = 50, limit = 40 }`: {Slope: 50, Limit: 40},
		`{ points = [[0, 40], [40, 60.5]] }`:         {Points: [][2]float64{{0, 40}, {40, 60.5}}},
		`"a1.toml"`:                                  {Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Name: "a1"},
	} {
		got, err := parseProfile(t, dir, value)
		if err != nil || got == nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
	}
	if got, err := parseProfile(t, dir, `"llama-3.3-70b/h200x4"`); err != nil || got.PerSeq <= 0 || got.Name != "llama-3.3-70b/h200x4" {
		t.Errorf("shipped: %+v, %v", got, err)
	}
}

func TestProfileFaults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"form.toml":   "step_ms = 10\nlimit = 3\n",
		"value.toml":  "base_ms = 1\n\nslope_ms = \"x\"\nlimit = 3\n",
		"key.toml":    "base_ms = 1\nslope = 2\nlimit = 3\n",
		"syntax.toml": "base_ms = 1\nslope = = 2\n",
		"points.toml": "points = [[0, 40], [20, 60], [30, 61]]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for value, want := range map[string]string{
		`7`:                             "p.toml:4: engine.profile = 7: want a table like",
		`{}`:                            "p.toml:4: engine.profile: want either base_ms",
		`{ base_ms = -1, limit = 3 }`:   "p.toml:4: engine.profile.base_ms = -1: want a finite number, 0 or more",
		`{ base_ms = 1, limit = 0 }`:    "engine.profile.limit = 0: want the load",
		`{ base = 1 }`:                  "engine.profile.base = 1: unknown key; a profile has base_ms",
		`{ points = [[0, 1], [0, 2]] }`: "engine.profile.points = [0, 2]: want loads that grow",
		`{ points = [[1, 1], [2, 2]] }`: "engine.profile.points = [1, 1]: want a first point at load 0",
		`{ points = [[0, 1]] }`:         "want two or more",
		`{ points = [1, 2] }`:           "want pairs of load and latency",
		`{ step_ms = 1 }`:               "engine.profile.per_seq_ms = 0: want the time",
		`"llama-3.3-70b/h200"`:          "did you mean llama-3.3-70b/h200x4?",
		`"none.toml"`:                   "want a readable file",
		`"form.toml"`:                   "form.toml:1: want either base_ms",
		`"value.toml"`:                  `value.toml:3: slope_ms = "x": want a number`,
		`"key.toml"`:                    "key.toml:2: slope = 2: unknown key",
		`"syntax.toml"`:                 "syntax.toml:2: slope: not TOML",
		`"points.toml"`:                 "points.toml:1: points = [30, 61]: want times whose growth never slows",
		"{ base_ms = 1, limit = 3 }\ncapacity = 4": "p.toml:5: engine.capacity = 4: want at most the 3 requests/s for which profile has a latency",
	} {
		_, err := parseProfile(t, dir, value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", value, err, want)
		}
	}
}

// An engine whose model and GPU are told begins with the shipped profile of both.
func TestProfileByMatching(t *testing.T) {
	const engines = "[[engine]]\nname = \"a1\"\nurl = \"http://h:1\"\nmodels = [\"meta-llama/Llama-3.3-70B-Instruct\"]\n"
	for more, want := range map[string]string{
		"labels = { gpu = \"h200\" }\n": "llama-3.3-70b/h200x4", "": "", "labels = { gpu = \"a100\" }\n": "",
		"labels = { gpu = \"h200\" }\nprofile = { slope_ms = 1, limit = 2 }\n": "in place",
	} {
		f, err := Parse("p.toml", []byte(engines+more), noEnv)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if p := f.Engines[0].Profile; p != nil {
			if got = p.Name; got == "" {
				got = "in place"
			}
		}
		if got != want {
			t.Errorf("%q: profile %q, want %q", more, got, want)
		}
	}
}
