package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// penstock runs one command line in this process.
func penstock(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// adminAnswering answers like a gateway's admin listener and returns its HOST:PORT.
func adminAnswering(t *testing.T, answers map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.EscapedPath()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func TestWrongUsageIsExit2WithReasonAndHint(t *testing.T) {
	for _, c := range []struct{ args, reason, hint string }{
		{"", "want a command: bench, check, ", "penstock --help"},
		{"chek", `unknown command "chek"; did you mean check?`, "penstock --help"},
		{"juggle", `unknown command "juggle"; there are bench, check, `, "penstock --help"},
		{"help fly", `unknown command "fly"`, "penstock help --help"},
		{"--fly", "unknown flag: --fly", "penstock --help"},
		{"check", "check needs a configuration: --config FILE", "penstock check --help"},
		{"check p.toml", `want no argument, got "p.toml"`, "penstock check --help"},
		{"check --config", "flag needs an argument: --config", "penstock check --help"},
		{"check --json=perhaps --config x", "invalid argument", "penstock check --help"},
		{"version 2", "want no argument", "penstock version --help"},
		{"engines --admin 8081", `--admin "8081": want HOST:PORT`, "penstock engines --help"},
		{"engines --admin a/b:1", "want HOST:PORT", "penstock engines --help"},
		{"engines juggle", `unknown command "juggle"; there are cordon, drain, uncordon`, "penstock engines --help"},
		{"engines drain a --wait -5s", "must be a duration like 30ms, not below 0", "penstock engines drain --help"},
		{"sim --model=", "--model: want the name of a model", "penstock sim --help"},
		{"explain", "want one REQUEST-ID", "penstock explain --help"},
		{"explain a b", "want one REQUEST-ID", "penstock explain --help"},
		{"explain a --table", "want either REQUEST-ID or --table", "penstock explain --help"},
		{"completion", "want one of bash, fish, zsh", "penstock completion --help"},
		{"completion powershell", "want one of bash, fish, zsh", "penstock completion --help"},
		{"completion bash x", `unknown command "x"`, "penstock completion bash --help"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := penstock(t, strings.Fields(c.args)...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit %d, stdout %q; want 2 and nothing", code, stdout)
			}
			if !strings.HasPrefix(stderr, "penstock: ") || !strings.Contains(stderr, c.reason) || strings.Contains(stderr, "Usage:") {
				t.Errorf("stderr %q, want the reason %q and no usage dump", stderr, c.reason)
			}
			if want := "Try '" + c.hint + "'.\n"; !strings.HasSuffix(stderr, want) {
				t.Errorf("stderr %q, want the hint %q", stderr, want)
			}
		})
	}
}

func TestEveryCommandTeaches(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		code, stdout, stderr := penstock(t, append(path, "--help")...)
		if code != exitDone || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%s --help: exit %d, stderr %q, stdout %q", cmd.CommandPath(), code, stderr, stdout)
		}
		ours := cmd.Name() != "help" && !strings.Contains(cmd.CommandPath(), "completion")
		if ours && (cmd.Long == "" || cmd.Example == "" && cmd.HasParent()) {
			t.Errorf("%s has no long help or no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long) {
			if table := strings.HasPrefix(line, "  "); ours && (!table && len(line) > 90 || strings.Contains(line, "\t")) {
				t.Errorf("%s: %q is long for a terminal", cmd.CommandPath(), line)
			}
		}
		if ours {
			examplesParse(t, cmd)
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRootCommand(io.Discard, io.Discard))
}

// examplesParse fails on an example with a flag that its command does not have.
func examplesParse(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for line := range strings.Lines(cmd.Example) {
		line, isOurs := strings.CutPrefix(strings.TrimSpace(line), "penstock ")
		if !isOurs {
			continue
		}
		line, _, _ = strings.Cut(line, " | ")
		line, _, _ = strings.Cut(line, " && ")
		line, _, _ = strings.Cut(line, " < ")
		line, _, _ = strings.Cut(line, " > ")
		named, rest, err := newRootCommand(io.Discard, io.Discard).Find(strings.Fields(line))
		if err != nil || named.CommandPath() != cmd.CommandPath() && !strings.HasPrefix(named.CommandPath(), cmd.CommandPath()) {
			t.Errorf("%s: the example %q is of another command: %v", cmd.CommandPath(), line, err)
		} else if err := named.ParseFlags(rest); err != nil {
			t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
		} else if err := named.ValidateArgs(named.Flags().Args()); err != nil {
			t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
		}
	}
}

// A shell offers files where a file is wanted, and nowhere else.
func TestCompletionOffers(t *testing.T) {
	const files, toml, nothing = ":0", ":8", ":4" // cobra's directives
	for line, want := range map[string]string{
		"serve --config ": toml, "check --config ": toml, "demo --log ": files,
		"serve ": nothing, "check ": nothing, "sim ": nothing, "sim --listen ": nothing, "sim --ttft ": nothing, "demo ": nothing,
		"version ": nothing, "explain ": nothing, "engines --admin ": nothing, "engines drain --wait ": nothing, "help ": nothing,
	} {
		words := strings.Split(line, " ")
		code, stdout, _ := penstock(t, append([]string{"__complete"}, words...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if got := lines[len(lines)-1]; code != exitDone || got != want {
			t.Errorf("%q: exit %d, %q, want %s", line, code, stdout, want)
		}
	}
	_, stdout, _ := penstock(t, "__complete", "serve", "--")
	if !strings.Contains(stdout, "--config") {
		t.Errorf("flags of serve: %q", stdout)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, stdout, stderr := penstock(t, "completion", shell); code != exitDone || stderr != "" || !strings.Contains(stdout, "__penstock") {
			t.Errorf("%s: exit %d, stderr %q, %d bytes", shell, code, stderr, len(stdout))
		}
	}
	if _, stdout, _ := penstock(t, "__complete", "ch"); !strings.HasPrefix(stdout, "check\t") {
		t.Errorf("completing ch gives %q", stdout)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestResultThatCannotBeWrittenIsAFailure(t *testing.T) {
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"version"}, fullDisk{}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := penstock(t, "version", "--json")
	var v struct{ Version, Go, Platform string }
	if err := json.Unmarshal([]byte(stdout), &v); code != exitDone || err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || v.Platform == "" {
		t.Errorf("exit %d, %v, %q", code, err, stdout)
	}
	if _, plain, _ := penstock(t, "version"); !strings.HasPrefix(plain, "penstock "+v.Version) || strings.Count(plain, "\n") != 1 {
		t.Errorf("printed %q", plain)
	}
	if code, plain, stderr := penstock(t, "--version"); code != exitDone || stderr != "" || !strings.HasPrefix(plain, "penstock "+v.Version) {
		t.Errorf("--version: exit %d, %q, %q", code, plain, stderr)
	}
	built := readVersion(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-30T12:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}, true)
	if want := "penstock v1.2.3 (0123456789ab, modified, 2026-11-30T12:00:00Z) "; !strings.HasPrefix(built.String(), want) {
		t.Errorf("printed %q, want %q first", built.String(), want)
	}
	if unknown := readVersion(nil, false); unknown.Version != "unknown" {
		t.Errorf("without build information: %+v", unknown)
	}
}

func TestCheckNamesEveryFault(t *testing.T) {
	path := writeFile(t, "p.toml", "[limits]\nstall = \"abc\"\n[[engine]]\nname = \"a1\"\nurl = \"h\"\ncapactiy = 3\n")
	code, stdout, stderr := penstock(t, "check", "--config", path)
	if code != exitFailed || stdout != "" {
		t.Errorf("exit %d, stdout %q; want 1 and nothing", code, stdout)
	}
	want := "penstock: " + path + " has 3 faults:\n" +
		path + `:2: limits.stall = "abc": want a duration like "30s"` + "\n" +
		path + `:5: engine.url = "h": want an absolute URL such as http://10.0.0.1:8000` + "\n" +
		path + `:6: engine.capactiy = 3: unknown key; the nearest is engine.capacity` + "\n"
	if stderr != want {
		t.Errorf("stderr\n%swant\n%s", stderr, want)
	}

	code, stdout, _ = penstock(t, "check", "--config", path, "--json")
	var report struct {
		OK     bool
		File   string
		Faults []struct {
			File, Key, Value, Reason string
			Line                     int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitFailed || report.OK || report.File != path || len(report.Faults) != 3 {
		t.Fatalf("exit %d, %v, %s", code, err, stdout)
	}
	if f := report.Faults[0]; f.File != path || f.Line != 2 || f.Key != "limits.stall" || f.Value != `"abc"` || f.Reason == "" {
		t.Errorf("first fault %+v", f)
	}
}

func TestCheckSumsUpAGoodFile(t *testing.T) {
	path := writeFile(t, "p.toml", `
gateway = { name = "gw-1", source = "us-east" }
[[engine]]
name = "a1"
url = "http://127.0.0.1:8001"
[[engine]]
name = "b1"
url = "http://127.0.0.1:8002"
cluster = "eu-west"
dialect = "vllm"
models = ["m", "n"]
capacity = 0
max_in_flight = 64
`)
	code, stdout, stderr := penstock(t, "check", "--config", path)
	want := `gateway gw-1 in us-east
clients at http://127.0.0.1:8080, operators at http://127.0.0.1:8081

ENGINE  URL                    CLUSTER  DIALECT  MODELS         CAPACITY   MAX IN FLIGHT
a1      http://127.0.0.1:8001  us-east  auto     asked from it  not given  learned
b1      http://127.0.0.1:8002  eu-west  vllm     m,n            0/s        64
`
	if code != exitDone || stderr != "" || stdout != want {
		t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
	}
	code, stdout, _ = penstock(t, "check", "--config", path, "--json")
	var report struct {
		OK      bool
		Faults  []any
		Engines []struct {
			Name, Dialect string
			Models        []string
			Capacity      *float64
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitDone || !report.OK || report.Faults == nil || len(report.Engines) != 2 {
		t.Fatalf("exit %d, %v, %s", code, err, stdout)
	}
	if a, b := report.Engines[0], report.Engines[1]; a.Capacity != nil || a.Models != nil || a.Dialect != "auto" || b.Capacity == nil || *b.Capacity != 0 {
		t.Errorf("engines %+v, %+v", a, b)
	}
}

func TestCheckNotesOneServerTwice(t *testing.T) {
	path := writeFile(t, "p.toml", engineTOML("a1", "http://h:1")+engineTOML("b1", "http://H:1/")+engineTOML("c1", "http://h:2"))
	const note = "a1 and b1 have the same url: what that server carries counts twice"
	if code, stdout, _ := penstock(t, "check", "--config", path); code != exitDone || strings.Count(stdout, "note: ") != 1 || !strings.Contains(stdout, "note: "+note+"\n") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if _, stdout, _ := penstock(t, "check", "--config", path, "--json"); !strings.Contains(stdout, `"notes": [
    "`+note+`"
  ]`) {
		t.Errorf("%s", stdout)
	}
}

func TestCheckTakesTheExample(t *testing.T) {
	if code, _, stderr := penstock(t, "check", "--config", "config.toml.example"); code != exitDone {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestCheckOfAFileThatIsNotThere(t *testing.T) {
	code, stdout, stderr := penstock(t, "check", "--config", filepath.Join(t.TempDir(), "none.toml"), "--json")
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, "no such file") || strings.Contains(stderr, "Try ") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestEngines(t *testing.T) {
	now := time.Now().UTC()
	since := func(d time.Duration) string { return now.Add(-d).Format(time.RFC3339Nano) }
	document := `[
  {"name": "a1", "url": "http://h:1", "cluster": "us", "dialect": "vllm", "dialect_by": "configured", "version": "0.32.0", "models": ["m"], "state": "ready", "reason": "healthy",
   "since": "` + since(75*time.Minute+time.Second) + `", "in_flight": 7, "of_a_later_build": {"x": 1}},
  {"name": "b1", "url": "http://h:2", "cluster": "us", "models": ["a", "b\u001b[2Jc", "c", "d", "e"], "state": "down", "reason": "connection refused",
   "since": "` + since(5*time.Second+time.Millisecond) + `", "in_flight": 0},
  {"name": "c1", "url": "http://h:3", "models": null, "state": "starting", "in_flight": 0}
]`
	addr := adminAnswering(t, map[string]string{"/engines": document})
	code, stdout, stderr := penstock(t, "engines", "--admin", addr)
	want := `ENGINE  STATE     REASON              SINCE  IN FLIGHT  MODELS                  URL         DIALECT      KNOWN BY
a1      ready     healthy             1h 15m 7          m                       http://h:1  vllm 0.32.0  configured
b1      down      connection refused  5s     0          a,b?[2Jc,c and 2 more   http://h:2  -            -
c1      starting  -                   -      0          -                       http://h:3  -            -

1 of 3 ready
`
	squeeze := func(s string) string { // the widths of columns are not the point
		var lines []string
		for line := range strings.Lines(s) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return strings.Join(lines, "\n")
	}
	if code != exitDone || stderr != "" || squeeze(stdout) != squeeze(want) {
		t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
	}
	code, stdout, _ = penstock(t, "engines", "--admin", addr, "--json")
	if code != exitDone || strings.TrimSpace(stdout) != document {
		t.Errorf("--json changed the document: exit %d,\n%s", code, stdout)
	}
}

func TestAskingTheWrongPlace(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "starting\x1b[31m\nmore", http.StatusServiceUnavailable)
	}))
	defer broken.Close()
	other := adminAnswering(t, nil)
	notJSON := adminAnswering(t, map[string]string{"/engines": "<html>", "/table": "[1]", "/requests/r": `{"candidates": 3}`})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"engines", "--admin", closed}, []string{closed, "connection refused", "penstock serve", "--admin"}},
		{[]string{"explain", "r", "--admin", closed}, []string{closed, "connection refused"}},
		{[]string{"explain", "--table", "--admin", closed}, []string{closed, "connection refused"}},
		{[]string{"engines", "--admin", broken.Listener.Addr().String()}, []string{"503", "starting?[31m"}},
		{[]string{"engines", "--admin", other}, []string{"not a gateway's admin listener"}},
		{[]string{"explain", "--table", "--admin", other}, []string{"not a gateway's admin listener"}},
		{[]string{"engines", "--admin", notJSON}, []string{"not a gateway's admin listener"}},
		{[]string{"explain", "--table", "--admin", notJSON, "--json"}, []string{"not a gateway's admin listener"}},
		{[]string{"explain", "r", "--admin", notJSON}, []string{"not a gateway's admin listener"}},
		{[]string{"explain", "r\x1b1", "--admin", other}, []string{"no record of request r?1", "latest requests only"}},
	} {
		code, stdout, stderr := penstock(t, c.args...)
		if code != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want 1 and one line on stderr", c.args, code, stdout, stderr)
		}
		for _, part := range c.want {
			if !strings.Contains(stderr, part) {
				t.Errorf("%q: %q does not say %q", c.args, stderr, part)
			}
		}
	}
}
