package engine

import (
	"fmt"
	"strings"
	"testing"
)

// describeConfigs writes engines one a line, for comparison.
func describeConfigs(configs []Config) string {
	var b strings.Builder
	for _, c := range configs {
		fmt.Fprintf(&b, "%s %s", c.Name, c.URL)
		if c.Cluster != "" {
			b.WriteString(" in " + c.Cluster)
		}
		if c.Dialect != "" {
			b.WriteString(" is " + c.Dialect)
		}
		if c.Models != nil {
			fmt.Fprintf(&b, " serves %q", c.Models)
		}
		if c.Capabilities != nil {
			fmt.Fprintf(&b, " can %q", c.Capabilities)
		}
		if c.Capacity != nil {
			fmt.Fprintf(&b, " carries %g", *c.Capacity)
		}
		if c.MaxInFlight != 0 {
			fmt.Fprintf(&b, " at most %d", c.MaxInFlight)
		}
		if len(c.Labels) > 0 {
			fmt.Fprintf(&b, " %v", c.Labels)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestFileSDIsRead(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"as Prometheus writes it", "x.json", `[{"targets": ["10.0.0.8:8000", "10.0.0.7:8000"], "labels": {"job": "vllm", "__meta_pod": "p", "empty": ""}}]`,
			"10.0.0.7-8000 http://10.0.0.7:8000 in here map[job:[vllm]]\n10.0.0.8-8000 http://10.0.0.8:8000 in here map[job:[vllm]]\n"},
		{"keys", "x.json", `[{"targets": ["h:1"], "labels": {"name": "a1", "cluster": "eu", "dialect": "vllm", "models": "m, org/b:7b", "capabilities": "tools,vision", "capacity": "12.5", "max_in_flight": "64", "gpu": "h100,h200"}}]`,
			"a1 http://h:1 in eu is vllm serves [\"m\" \"org/b:7b\"] can [\"tools\" \"vision\"] carries 12.5 at most 64 map[gpu:[h100 h200]]\n"},
		{"YAML", "x.yml", "# engines\n- targets: ['[fd00::1]:8000', vLLM-0.svc:8000]\n  labels:\n    capacity: 0\n    tier: 1\n- targets:\n  labels:\n- labels: {a: b}\n",
			"fd00--1-8000 http://[fd00::1]:8000 in here carries 0 map[tier:[1]]\nvllm-0.svc-8000 http://vllm-0.svc:8000 in here carries 0 map[tier:[1]]\n"},
		{"JSON is YAML", "x.yaml", `[{"targets":["h:1"]}]`, "h-1 http://h:1 in here\n"},
		{"URLs", "x.json", `[{"targets": ["http://h:1/engines/a/", "http://h:1/engines/b"]}]`,
			"h-1-engines-a http://h:1/engines/a in here\nh-1-engines-b http://h:1/engines/b in here\n"},
		{"none", "x.json", "[]\n", ""},
		{"no targets", "x.json", `[{"targets": []}, {"labels": {"name": "e1"}}, {"targets": null, "labels": null}, {}]`, ""},
		{"the same twice", "x.json", `[{"targets": ["h:1", "h:1"]}, {"targets": ["H:1"]}]`, "h-1 http://h:1 in here\n"},
		{"a long name", "x.json", `[{"targets": ["a-very-long-name-of-a-pod-in-a-stateful-set-0.service.namespace.svc.cluster.local:8000"]}]`,
			"a-very-long-name-of-a-pod-in-a-stateful-set-0.service.-1c318842 http://a-very-long-name-of-a-pod-in-a-stateful-set-0.service.namespace.svc.cluster.local:8000 in here\n"},
	} {
		found, faults := parseFileSD(c.file, []byte(c.text), Config{Cluster: "here"})
		if got := describeConfigs(found); got != c.want || faults != nil {
			t.Errorf("%s: %v, got\n%swant\n%s", c.name, faults, got, c.want)
		}
	}
}

func TestFileSDTemplate(t *testing.T) {
	template := Config{Cluster: "here", Dialect: "vllm", Labels: map[string][]string{"residency": {"eu"}, "gpu": {"h100"}}, MaxInFlight: 9, foundBy: "file_sd x.json"}
	found, faults := parseFileSD("x.json", []byte(`[{"targets": ["h:1"], "labels": {"gpu": "h200", "cluster": "there"}}, {"targets": ["h:2"]}]`), template)
	want := "h-1 http://h:1 in there is vllm at most 9 map[gpu:[h200] residency:[eu]]\nh-2 http://h:2 in here is vllm at most 9 map[gpu:[h100] residency:[eu]]\n"
	if got := describeConfigs(found); got != want || faults != nil {
		t.Errorf("%v, got\n%swant\n%s", faults, got, want)
	}
	if found[0].FoundBy() != "file_sd x.json" {
		t.Errorf("found by %q", found[0].FoundBy())
	}
}

// A file with a fault gives no engine, and every fault is named.
func TestFileSDFaults(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		want             []string
	}{
		{"empty", "x.json", "", []string{`x.json:1: want a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}; it is empty`}},
		{"empty YAML", "x.yml", "# nothing\n", []string{`x.yml:1: want a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}; it is empty`}},
		{"cut off", "x.json", "[{\"targets\": [\"h:1\"]},\n", []string{`x.json:2: not JSON: unexpected EOF`}},
		{"not a list", "x.json", `{"targets": ["h:1"]}`, []string{`x.json:1: want a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}`}},
		{"not a list, YAML", "x.yml", "targets: [h:1]\n", []string{`x.yml:1: want a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}`}},
		{"another name", "x.json", "[{\"targets\": [\"h:1\"],\n \"lables\": {}}]", []string{`x.json:2: want only "targets" and "labels"`}},
		{"a name twice", "x.json", `[{"targets": ["h:1"], "targets": ["h:2"]}]`, []string{`x.json:1: not JSON: duplicate object member name`}},
		{"a name twice, YAML", "x.yml", "- targets: [h:1]\n  targets: [h:2]\n", []string{"x.yml:2: want each name once"}},
		{"text after it", "x.json", "[]\n[]", []string{"x.json:2: want nothing after the list"}},
		{"two documents", "x.yml", "[]\n---\n[]\n", []string{"x.yml:1: want one document"}},
		{"an anchor", "x.yml", "- &a {targets: [h:1]}\n- *a\n", []string{`x.yml:2: want a list of {"targets": ["HOST:PORT"], "labels": {"name": "value"}}`}},
		{"a number for a label", "x.json", `[{"targets": ["h:1"], "labels": {"capacity": 3}}]`, []string{"x.json:1: want labels: names with a text each"}},
		{"many", "x.json", "[{\"targets\": [\n\"h\",\n\"h:0\",\n\"169.254.169.254:80\",\n\"http://u:secret@h/v1\",\n\"h:1/x\"], \"labels\": {\n\"dialect\": \"vlm\",\n\"capacity\": \"lots\", \"max_in_flight\": \"0\"}}]", []string{
			`x.json:8: capacity = "lots": want a number`,
			`x.json:8: max_in_flight = "0": want a whole number, 1 or more`,
			`x.json:2: targets = "h": want HOST:PORT, [IPV6]:PORT, or a URL`,
			`x.json:3: targets = "http://h:0": want a port from 1 to 65535`,
			`x.json:7: dialect = "vlm": want one of ` + strings.Join(DialectNames(), ", "),
			`x.json:4: targets = "http://169.254.169.254:80": want an address that is not link-local: those belong to the machine and its metadata service`,
			`x.json:5: targets = "http://u:xxxxx@h/v1": want no user and password in the URL`,
			`x.json:5: targets = "http://u:xxxxx@h/v1": want the engine's root, without /v1`,
			`x.json:6: targets = "h:1/x": want HOST:PORT, [IPV6]:PORT, or a URL`}},
		{"a name for two", "x.json", `[{"targets": ["h:1", "h:2"], "labels": {"name": "a"}}]`, []string{`x.json:1: name = "a": want one target in a group with a name, or no name: there are 2`}},
		{"two of a name", "x.yml", "- targets: [h:1]\n  labels: {name: a}\n- targets: [h:2]\n  labels: {name: a}\n", []string{`x.yml:4: name = "a": want a name of its own: http://h:1 on line 1 has this one`}},
		{"derived names collide", "x.yml", "- targets: ['http://h:1/a-b', 'http://h:1/a/b']\n", []string{`x.yml:1: name = "h-1-a-b": want a name of its own: http://h:1/a-b on line 1 has this one`}},
		{"a target twice", "x.yml", "- targets: [h:1]\n- targets: [h:1]\n  labels: {gpu: h100}\n", []string{`x.yml:2: targets = "h:1": want each target once: line 1 has it with other labels`}},
		{"keys of the operator", "x.yml", "- targets: [h:1]\n  labels: {url: 'http://x', labels: y}\n", []string{
			`x.yml:2: url = "http://x": want no such label: this key of [[engine]] stands in the configuration alone ([discovery.engine])`,
			`x.yml:2: labels = "y": want no such label: this key of [[engine]] stands in the configuration alone ([discovery.engine])`}},
		{"a label that cannot be demanded", "x.yml", "- targets: [h:1]\n  labels:\n    gpu: a=b\n", []string{`x.yml:3: labels.gpu = "a=b": want 1 to 128 bytes without '=', ',' and control characters`}},
	} {
		found, faults := parseFileSD(c.file, []byte(c.text), Config{})
		var got []string
		for _, f := range faults {
			got = append(got, f.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") || found != nil {
			t.Errorf("%s: %d engines, got\n%s\nwant\n%s", c.name, len(found), strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	many := `[{"targets":["h:1"` + strings.Repeat(`,"h:1"`, maxTargets) + "]}]"
	if found, faults := parseFileSD("x.json", []byte(many), Config{}); found != nil || len(faults) != 1 || !strings.Contains(faults[0].Want, "at most 10000 targets") {
		t.Errorf("%d engines, %v", len(found), faults)
	}
}

// Whatever a file holds: engines that pass the checks with names and places of
// their own, or faults, and never both.
func FuzzFileSD(f *testing.F) {
	f.Add(`[{"targets": ["10.0.0.7:8000", "http://h:1/a"], "labels": {"name": "a", "models": "m,n", "__scheme__": "http", "capacity": "1e3"}}]`, true)
	f.Add("- targets: ['[fd00::1]:8000', a:1]\n  labels: {gpu: 'h100,h200', max_in_flight: 3}\n-\n", false)
	f.Add("&a [*a, {<<: *a}]\n--- !!x\n", false)
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		file := "x.yml"
		if isJSON {
			file = "x.json"
		}
		found, faults := parseFileSD(file, []byte(text), Config{Cluster: "here"})
		if found != nil && faults != nil {
			t.Fatalf("%d engines and %v", len(found), faults)
		}
		lines := strings.Count(text, "\n") + 2
		if !isJSON { // YAML has these besides
			for _, brk := range []string{"\r", "\u0085", "\u2028", "\u2029"} {
				lines += strings.Count(text, brk)
			}
		}
		for _, f := range faults {
			if f.Want == "" || f.Line < 0 || f.Line > lines {
				t.Fatalf("%+v", f)
			}
		}
		names, urls := map[string]bool{}, map[string]bool{}
		for _, c := range found {
			if v := c.Validate(); v != nil || names[c.Name] || urls[c.URL] || c.Cluster == "" {
				t.Fatalf("%+v: %v", c, v)
			}
			names[c.Name], urls[c.URL] = true, true
		}
	})
}
