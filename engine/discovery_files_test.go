package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watching runs a Discovery of file_sd patterns on real files.
func watching(t *testing.T, dir string, patterns ...string) (*Discovery, *logLines) {
	t.Helper()
	log := new(logLines)
	d := NewDiscovery(NewFleet(), log.logger(), "here", dir)
	if err := d.Configure(nil, DiscoveryConfig{FileSD: patterns}, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return d, log
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace renames a new file over path.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// targets is a file_sd text of the hosts' port 80.
func targets(hosts ...string) string {
	for i := range hosts {
		hosts[i] = fmt.Sprintf("%q", hosts[i]+":80")
	}
	return `[{"targets": [` + strings.Join(hosts, ", ") + "]}]\n"
}

// state reads what the metrics tell of a pattern.
func (d *Discovery) state(entry string) (failures uint64, failing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.use.patterns {
		if p.entry == entry {
			return d.counts[p.source].failures, p.fails()
		}
	}
	return 0, false
}

func TestC44_FilesOfEnginesAreRefusedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "engines", "x.json")
	write(t, path, targets("a", "b"))
	d, log := watching(t, dir, "engines/*.json")
	is := func(names string) {
		t.Helper()
		eventually(t, names, func() bool { return d.names() == names })
	}
	is("a-80 b-80") // when Configure has returned
	e := d.fleet.Set().Engines[0]
	if e.FoundBy() != "file_sd "+path || e.Cluster != "here" {
		t.Errorf("%+v, found by %s", e.Config, e.FoundBy())
	}
	replace(t, path, targets("a", "b", "c"))
	is("a-80 b-80 c-80")
	write(t, path, targets("a", "b", "d"))
	is("a-80 b-80 d-80")
	refused := uint64(0)
	for _, bad := range []struct{ text, reason string }{
		{`[{"targets": ["a:80", "e:80"]`, "x.json:1: not JSON: unexpected EOF"},
		{"[{\"targets\": [\"e:80\"]},\n {\"targets\": [\"f:0\"]}]", `x.json:2: targets = \"http://f:0\": want a port`},
		{`[{"targets": ["e:80"], "labels": {"max_in_flight": "many"}}]`, `max_in_flight = \"many\"`},
	} {
		write(t, path, bad.text)
		refused++
		eventually(t, bad.reason, func() bool {
			return len(log.with(strings.ReplaceAll(bad.reason, `"`, `\"`)))+len(log.with(bad.reason)) > 0
		})
		for range 3 {
			ring(d.reread)
			time.Sleep(20 * time.Millisecond)
		}
		if n, failing := d.state("engines/*.json"); n != refused || !failing || d.names() != "a-80 b-80 d-80" {
			t.Errorf("%s: %d are counted, failing %v, engines %s", bad.text, n, failing, d.names())
		}
		if n := len(log.with("cannot be used")); n != int(refused) {
			t.Errorf("%d lines on %d bad contents: %s", n, refused, log.with("cannot be used"))
		}
	}
	replace(t, path, targets("a", "b", "d", "e"))
	is("a-80 b-80 d-80 e-80")
	if n := len(log.with("works again")); n != 1 {
		t.Errorf("%d lines on its repair", n)
	}
	// Written in steps: what is read in between is no fault to speak of.
	for range 3 {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		text := targets("a", "b", "e")
		f.WriteString(text[:10])
		time.Sleep(30 * time.Millisecond)
		f.WriteString(text[10:])
		f.Close()
	}
	is("a-80 b-80 e-80")
	if n, _ := d.state("engines/*.json"); n != refused {
		t.Errorf("a file that was being written counts as a fault: %s", log.with("cannot be used"))
	}
}

func TestFilesComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, log := watching(t, dir, filepath.Join(dir, "late", "*.yml"), "late/one.json")
	eventually(t, "a missing directory to be said", func() bool { return len(log.with("cannot be used")) == 2 })
	late := filepath.Join(dir, "late")
	write(t, filepath.Join(late, "x.yml"), "- targets: [a:80]\n")
	ring(d.reread) // every 5 s at the latest
	eventually(t, "a", func() bool { return d.names() == "a-80" })
	write(t, filepath.Join(late, "y.yml"), "- targets: [b:80, a:80]\n") // a is x.yml's
	eventually(t, "b", func() bool { return d.names() == "a-80 b-80" })
	write(t, filepath.Join(late, "one.json"), targets("c", "d", "e"))
	eventually(t, "c, d and e", func() bool { return d.names() == "a-80 b-80 c-80 d-80 e-80" })
	if n := len(log.with("leaves engines out")); n != 1 {
		t.Errorf("%d lines about the target that is listed twice", n)
	}
	// A file that is gone lists nothing, which is held.
	if err := os.Remove(filepath.Join(late, "y.yml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b to be held", func() bool { return len(log.with("no longer listed")) == 1 })
	if d.names() != "a-80 b-80 c-80 d-80 e-80" {
		t.Errorf("engines %s", d.names())
	}
	write(t, filepath.Join(late, "y.yml"), "- targets: [b:80]\n")
	eventually(t, "b not to be held", func() bool { return d.held() == 0 })
	if err := os.Remove(filepath.Join(late, "y.yml")); err != nil {
		t.Fatal(err)
	}
	if err := d.Configure(nil, d.inUse(), true); err != nil || d.names() != "a-80 c-80 d-80 e-80" {
		t.Errorf("forced: %v, engines %s", err, d.names())
	}
}

// C22 by file: the directory is lost, or the file cannot be read, while an
// engine is taken out.
func TestC22_FileCannotBeReadWhileAnEngineGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "sd", "x.json")
	write(t, path, targets("a", "b", "c"))
	d, log := watching(t, dir, "sd/x.json")
	failing := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { ring(d.reread); _, failing := d.state("sd/x.json"); return failing })
		if d.names() != "a-80 b-80 c-80" {
			t.Errorf("%s: engines %s", what, d.names())
		}
	}
	if err := os.Rename(filepath.Join(dir, "sd"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	failing("the directory to be lost")
	write(t, filepath.Join(path, "a directory, not a file"), "")
	failing("no file")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Repeat(" ", maxSDFile+1))
	failing("too large a file")
	eventually(t, "the log to say so", func() bool { return len(log.with("at most 4 MiB")) == 1 })
	replace(t, path, targets("b", "c"))
	ring(d.reread)
	eventually(t, "a to be gone", func() bool { return d.names() == "b-80 c-80" })
	// An entry that has lost its address is no engine.
	replace(t, path, `[{"targets": ["b:80"]}, {"targets": [], "labels": {"name": "c"}}]`)
	eventually(t, "c to be gone", func() bool { return d.names() == "b-80" })
}

// A ConfigMap changes by a link beside the file, which itself stays.
func TestConfigMapSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name+".tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".tmp"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "..2026_1", "x.json"), targets("a", "b"))
	link("..2026_1", "..data")
	link("..data/x.json", "x.json")
	d, log := watching(t, dir, "*.json")
	for i := range 5 {
		version := fmt.Sprintf("..2026_%d", i+2)
		write(t, filepath.Join(dir, version, "x.json"), targets("a", "b", fmt.Sprint("c", i)))
		link(version, "..data")
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1))); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("a-80 b-80 c%d-80", i)
		eventually(t, want, func() bool { return d.names() == want })
	}
	if n, failing := d.state("*.json"); n != 0 || failing {
		t.Errorf("%d failures: %s", n, log.with("cannot be used"))
	}
}

// With a changed [discovery.engine] the files are read again as they are, and
// one that is at fault now keeps its last good content.
func TestTemplateOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	write(t, path, targets("a"))
	d, _ := watching(t, dir, "x.json")
	write(t, path, "[")
	eventually(t, "the fault", func() bool { n, _ := d.state("x.json"); return n == 1 })
	c := d.inUse()
	c.Engine.Dialect = "vllm"
	if err := d.Configure(nil, c, false); err != nil {
		t.Fatal(err)
	}
	if e := d.fleet.Set().ByName("a-80"); e == nil || e.Dialect != "vllm" {
		t.Errorf("engines %s", d.names())
	}
	if n, failing := d.state("x.json"); n != 1 || !failing {
		t.Errorf("%d failures, failing %v", n, failing)
	}
}

// Every label that may be a key of an engine can be read as one.
func TestLabelsThatAreKeys(t *testing.T) {
	for _, key := range sdKeys {
		if _, ok := engineFields[key]; ok {
			b := &sdBuilder{}
			b.key(&Config{}, sdLabel{key, sdText{text: "1"}})
			if len(b.faults) != 0 {
				t.Errorf("%s: %v", key, b.faults)
			}
		}
	}
}
