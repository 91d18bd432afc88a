package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/config"
)

// The README's configuration is one that serve takes, and its table of
// commands has every command.
func TestReadmeIsRight(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	files := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(files) != 2 {
		t.Fatalf("%d configurations, want one to begin with and one with TLS", len(files))
	}
	dir := t.TempDir()
	writePair(t, dir, time.Hour)
	swapFile(t, filepath.Join(dir, "engines-ca.pem"), authority().PEM)
	secure, err := config.Parse(filepath.Join(dir, "penstock.toml"), []byte(files[1][1]), func(string) (string, bool) { return "", false })
	if err != nil || !secure.Listen.TLS() || secure.Engines[0].CAFile == "" {
		t.Errorf("the configuration with TLS: %v", err)
	}
	file, err := config.Parse("README.md", []byte(files[0][1]), func(string) (string, bool) { return "", false })
	if err != nil || len(file.Engines) != 2 {
		t.Errorf("%v", err)
	}
	if lines := strings.Count(files[0][1], "\n"); lines > 10 {
		t.Errorf("the configuration has %d lines, more than ten", lines)
	}
	for _, name := range commandNames(newRootCommand(io.Discard, io.Discard)) {
		if name != "help" && !strings.Contains(readme, "\n| `"+name) {
			t.Errorf("the command %s is not in its table", name)
		}
	}
	for _, row := range reviewedRows(t) {
		if reviewed[row] == "" {
			t.Errorf("ARCHITECTURE.md has the dependency %s, which is not reviewed", row)
		}
	}
}

// reviewedRows are the modules of ARCHITECTURE.md's table.
func reviewedRows(t *testing.T) (modules []string) {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ((?:github\.com|go\.yaml\.in|golang\.org|pgregory\.net)/\S+) \|`).FindAllStringSubmatch(string(text), -1) {
		modules = append(modules, m[1])
	}
	if len(modules) < 8 {
		t.Errorf("%d dependencies in ARCHITECTURE.md: %q", len(modules), modules)
	}
	return modules
}
