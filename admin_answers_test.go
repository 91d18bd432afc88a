package main

import (
	"os"
	"strings"
	"testing"
)

// A page asked for in the wrong way is not one that is missing.
func TestAdminNamesTheMethod(t *testing.T) {
	t.Parallel()
	g := startGateway(t, engineTOML("e00", startScript(t, playAnswer).URL()), "e00")
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/-/reload", "POST"}, {"GET", "/-/drain", "POST"}, {"GET", "/engines/e00/cordon", "POST"},
		{"POST", "/engines", "GET"}, {"DELETE", "/requests/x", "GET"}, {"PUT", "/metrics", "GET"},
	} {
		if a := g.ask(c.method, c.path); a.status != 405 || a.header.Get("Allow") != c.allow || !strings.Contains(a.body, "want "+c.allow) {
			t.Errorf("%s %s: %d, Allow %q: %s", c.method, c.path, a.status, a.header.Get("Allow"), a.body)
		}
	}
	if a := g.ask("POST", "/nothing"); a.status != 404 || a.header.Get("Allow") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// Whoever reloads is told which keys the process cannot take over, each time
// until it is restarted or the file has the old value again.
func TestReloadTellsWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	g := startGateway(t, engineTOML("e00", startScript(t, playAnswer).URL()), "e00")
	old, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ text, want string }{
		{string(old), "reloaded\n"},
		{"[gateway]\nname = \"another\"\nsource = \"moon\"\n" + string(old), "reloaded; these keys need a restart, their old values stay: gateway.name, gateway.source\n"},
		{"[gateway]\nname = \"another\"\nsource = \"moon\"\n#\n" + string(old), "reloaded; these keys need a restart, their old values stay: gateway.name, gateway.source\n"},
		{string(old), "reloaded\n"},
	} {
		if err := os.WriteFile(g.file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := g.ask("POST", "/-/reload"); a.status != 200 || a.body != step.want {
			t.Errorf("%d %q, want %q", a.status, a.body, step.want)
		}
	}
}
