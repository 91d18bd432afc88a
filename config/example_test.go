package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const examplePath = "../config.toml.example"

func readExample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestExampleListsEveryKeyAndNoOther(t *testing.T) {
	listed := map[string]bool{}
	table := ""
	header, setting := regexp.MustCompile(`^#?\[+([a-z_.]+)\]+$`), regexp.MustCompile(`^#?([a-z_]+) = `)
	for line := range strings.Lines(readExample(t)) {
		line = strings.TrimSuffix(line, "\n")
		if m := header.FindStringSubmatch(line); m != nil {
			table = m[1]
			listed[table] = true
		} else if m := setting.FindStringSubmatch(line); m != nil {
			listed[table+"."+m[1]] = true
		}
	}
	for _, key := range keys() {
		if !listed[key] {
			t.Errorf("%s is not in %s", key, examplePath)
		}
		delete(listed, key)
	}
	for key := range listed {
		t.Errorf("%s is in %s and is no key", key, examplePath)
	}
}

func TestExampleIsTheDefaults(t *testing.T) {
	f, err := Parse(examplePath, []byte(readExample(t)), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Engines) != 2 || f.Engines[0].Name != "a1" || f.Engines[1].Name != "b1" {
		t.Errorf("engines %+v, want a1 and b1", f.Engines)
	}
	for _, e := range f.Engines {
		bare := e
		bare.Name, bare.URL, bare.Cluster = "", "", ""
		if !reflect.DeepEqual(bare, reflect.Zero(reflect.TypeOf(e)).Interface()) {
			t.Errorf("engine %s has more than name and url: %+v", e.Name, e)
		}
	}
	f.Engines = nil
	if !reflect.DeepEqual(f, Default()) {
		t.Errorf("got  %+v\nwant %+v", f, Default())
	}
}

// What is commented out is right too: each such line can be set as it stands.
func TestExampleWithEverythingSet(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(readExample(t), "$1")
	text = strings.Replace(text, "/var/lib/penstock", t.TempDir(), 1)
	text = strings.Replace(text, "hash_key_file =", "#hash_key_file =", 1) // either this or hash_key
	fleet := strings.Index(text, "\n[fleet]\n")
	text = text[:fleet] + strings.NewReplacer("key = \"${PEN", "#key = \"${PEN", "nkey =", "#nkey =").Replace(text[fleet:]) // either key_file and credentials, or these
	engine, tenant, _ := strings.Cut(text, "[[tenant]]")
	text = strings.Replace(engine, "/run/secrets/a1", "config/testdata/engine.key", 1) + "[[tenant]]" +
		strings.Replace(tenant, "key_file =", "#key_file =", 1) // either this or key_hash
	text = strings.Replace(text, "url = \"http:", "url = \"https:", 1) // what some keys are for
	text = strings.ReplaceAll(text, "/etc/penstock/", tlsFiles(t)+"/")
	f, err := Parse(examplePath, []byte(text), env("PENSTOCK_HASH_KEY", "k"))
	if err != nil {
		t.Fatal(err)
	}
	if e := f.Engines[0]; e.Capacity == nil || e.MaxInFlight == 0 || len(e.Labels) != 2 || string(f.Routing.HashKey) != "k" ||
		string(e.Key.Text) != "an-example-of-an-engine-key" || len(f.Tenants) != 1 || len(f.Tenants[0].KeyHash) != 1 ||
		!f.Listen.TLS() || !f.Fleet.Joined() || len(f.Fleet.Key) < 32 || f.Fleet.TLSCert == "" || f.Fleet.Credentials == "" || e.CAFile == "" || f.Admin.MetricsAddress == "" {
		t.Errorf("not everything is set: %+v", f)
	}
}

func TestExampleFitsATerminal(t *testing.T) {
	for line := range strings.Lines(readExample(t)) {
		if len(line) > 81 || strings.ContainsAny(line, "\t\r") {
			t.Errorf("%q is longer than 80 columns or has tabs", line)
		}
	}
}
