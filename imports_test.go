package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// room is one directory of the module: what it may import of ours, and why no more.
type room struct {
	may     []string
	because string
	// never lists packages from outside the module that would break the room's promise.
	never []string
}

// anyRoom stands for every package of the module.
const anyRoom = "*"

// rooms is the table of ARCHITECTURE.md. A package that is not in it fails the test: a new room is a decision, not an accident.
var rooms = map[string]room{
	".": {may: []string{anyRoom}, because: "main is the only wiring"},
	"config": {
		may:     []string{"admin", "balancer", "balancer/profile", "engine", "fleet", "protect", "proxy", "route", "selector", "telemetry"},
		because: "config composes the Config values of the packages that own one",
	},
	"engine": {because: "an engine is what both planes share: it knows neither of them"},
	"engine/enginetest": {
		may:     []string{"engine"},
		because: "a simulated engine that knew the gateway would agree with its faults",
	},
	"route": {
		may:     []string{"engine"},
		because: "the table is the one thing both planes know, so it knows neither of them",
	},
	"selector": {
		may:     []string{"engine", "route"},
		because: "the hot path reads the table; it never asks the control plane",
	},
	"balancer": {
		may:     []string{"engine", "route", "balancer/problem", "balancer/profile", "balancer/solve"},
		because: "the control plane publishes tables; it never sees a request",
	},
	"balancer/problem": {
		because: "a problem and its certificate are numbers: the proof knows neither the solver nor where the problem came from",
	},
	"balancer/profile": {
		may:     []string{"engine", "route", "balancer/problem"},
		because: "a profile is what measurements say of an engine: it knows no policy and asks nobody",
	},
	"balancer/solve": {
		may:     []string{"balancer/problem"},
		because: "the solver is a pure core: a problem in, a plan out, the same for the gateway, the command and the simulator",
	},
	"protect": {
		because: "protections are values with two or three methods: no HTTP, no engines",
		never:   []string{"net/http"},
	},
	"proxy": {
		may:     []string{"engine", "selector", "protect"},
		because: "HTTP in, HTTP out: tables, configuration and telemetry reach it only through the selector and its own small interfaces",
	},
	"fleet": {
		may:     []string{"route"},
		because: "gateways share demand and tables, nothing else",
	},
	"fleet/nats": {
		may:     []string{"fleet", "route"},
		because: "a driver carries what package fleet decides: it knows no engine and no policy",
	},
	"telemetry": {because: "metrics, traces and logs are used by all and know nobody"},
	"admin": {
		may:     []string{"balancer", "balancer/problem", "engine", "fleet", "protect", "proxy", "route", "selector", "telemetry"},
		because: "admin shows the other rooms; it owns no part of them and is wired by main",
	},
	"bench": {
		may:     []string{"engine/enginetest", "bench/sim"},
		because: "the load generator stands outside the gateway: what it measures it reaches as a client does",
	},
	"bench/child": {
		because: "a child process is a program, its output and its end: who starts it knows what it is",
	},
	"bench/behaviour": {
		may:     []string{"bench/child", "engine/enginetest"},
		because: "the behaviour harness is client and engine around a proxy that it does not know: it sees only HTTP",
	},
	"bench/fleet": {
		may:     []string{"bench/child", "engine/enginetest", "fleet", "fleet/nats", "route"},
		because: "gateways are processes that it reaches as clients and operators do; what it starts itself is the store, and members without a gateway",
	},
	"bench/chaos": {
		may:     []string{"bench/child", "bench/witness", "engine/enginetest"},
		because: "the gateway is a process that it reaches as clients and engines do; what it finds it compares with the metrics",
	},
	"bench/witness": {
		may:     []string{"engine/enginetest"},
		because: "what a client saw is judged by what the simulated engines promise of their answers, not by what the gateway says",
	},
	"bench/live": {
		may:     []string{"bench/child", "engine", "engine/enginetest", "route", "selector", "balancer/problem", "balancer/profile", "balancer/solve"},
		because: "gateway and engines are processes that it reaches as clients do; on virtual time it asks the gateway's own decisions, as a bound",
	},
	"bench/experiments": {
		may:     []string{"engine", "route", "selector", "balancer", "balancer/problem", "balancer/profile", "balancer/solve", "bench/sim"},
		because: "an experiment asks the gateway's own decisions, on numbers and on virtual time, without HTTP",
	},
	"bench/overload": {
		may:     []string{"protect"},
		because: "the overload model runs the gateway's own queue and pace on virtual time, before engines that are slots",
	},
	"bench/load": {
		may:     []string{"bench/report", "bench/trace"},
		because: "the load generator is a client: it knows what to send and what came back, and no gateway",
	},
	"bench/plot": {
		because: "a chart is lines and text: it knows no results",
	},
	"bench/report": {
		may:     []string{"bench/plot"},
		because: "results are data: who measures fills them in, and the pages know only them",
	},
	"bench/trace": {
		because: "a trace is data: who replays it knows the trace, not the other way round",
	},
	"bench/sim": {
		may:     []string{"engine", "engine/enginetest", "route", "selector", "balancer", "balancer/problem", "balancer/profile", "balancer/solve", "protect"},
		because: "the simulator runs the same decisions as the gateway on virtual time, without HTTP",
	},
}

// inTests is what the test files of every room may import beyond their room's own row.
var inTests = []string{"engine/enginetest"}

// goPackage is the part of `go list -json` that the tests of this file read.
type goPackage struct {
	ImportPath   string
	Module       struct{ Path string }
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestImportsFollowTheTable(t *testing.T) {
	// Files behind a build constraint are seen only under their own system.
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			packages := goList(t, goos)
			if len(packages) == 0 {
				t.Fatal("go list ./... found no package")
			}
			for _, p := range packages {
				for _, fault := range importFaults(p.Module.Path, p) {
					t.Error(fault)
				}
			}
		})
	}
}

// TestImportTableCatchesFaults proves that the check above can fail, on packages that break one rule each.
func TestImportTableCatchesFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		p    goPackage
		want string // part of the one fault; empty: none
	}{
		{"allowed", goPackage{ImportPath: "m/selector", Imports: []string{"m/engine", "m/route", "net/http"}}, ""},
		{"main imports all", goPackage{ImportPath: "m", Imports: []string{"m/proxy", "m/balancer"}}, ""},
		{"planes meet", goPackage{ImportPath: "m/selector", Imports: []string{"m/balancer"}}, "never asks the control plane"},
		{"proxy reads the table", goPackage{ImportPath: "m/proxy", Imports: []string{"m/route"}}, "proxy imports route"},
		{"unknown room", goPackage{ImportPath: "m/util"}, "no room"},
		{"HTTP in a protection", goPackage{ImportPath: "m/protect", Imports: []string{"net/http"}}, "no HTTP"},
		{"enginetest in shipped code", goPackage{ImportPath: "m/proxy", Imports: []string{"m/engine/enginetest"}}, "proxy imports engine/enginetest"},
		{"enginetest in a test", goPackage{ImportPath: "m/proxy", TestImports: []string{"m/engine/enginetest"}}, ""},
		{"external test of its own room", goPackage{ImportPath: "m/route", XTestImports: []string{"m/route"}}, ""},
		{"test beyond its room", goPackage{ImportPath: "m/route", XTestImports: []string{"m/proxy"}}, "route (its tests) imports proxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults := importFaults("m", c.p)
			switch {
			case c.want == "" && len(faults) > 0:
				t.Errorf("faults %q, want none", faults)
			case c.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.want)):
				t.Errorf("faults %q, want one with %q", faults, c.want)
			}
		})
	}
}

// importFaults returns one sentence for each import of p that its row of rooms does not allow.
func importFaults(module string, p goPackage) []string {
	name := roomName(module, p.ImportPath)
	r, known := rooms[name]
	if !known {
		return []string{fmt.Sprintf("%s is no room of the table in ARCHITECTURE.md: put its code where its second user is, or add a room with its reason", name)}
	}
	var faults []string
	check := func(imports []string, who string, may []string) {
		for _, path := range imports {
			if slices.Contains(r.never, path) {
				faults = append(faults, fmt.Sprintf("%s imports %s, but %s", who, path, r.because))
			}
			if !ours(module, path) || slices.Contains(may, anyRoom) {
				continue
			}
			if other := roomName(module, path); !slices.Contains(may, other) {
				faults = append(faults, fmt.Sprintf("%s imports %s, but %s; of ours it may import %s", who, other, r.because, list(may)))
			}
		}
	}
	tests := slices.Concat(r.may, inTests, []string{name})
	check(p.Imports, name, r.may)
	check(p.TestImports, name+" (its tests)", tests)
	check(p.XTestImports, name+" (its tests)", tests)
	return faults
}

func ours(module, path string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// roomName is the directory of a package below the module, "." for the module itself.
func roomName(module, path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// goList returns every package of the module as the go command sees it under the given system.
func goList(t *testing.T, goos string) []goPackage {
	t.Helper()
	dependOnTree(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Module,Imports,TestImports,XTestImports", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list ./...: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// dependOnTree reads every directory of the module, so that a cached result of a test that asks the go command is dropped
// when any file changes: what a child process reads is not part of the cache's key, what the test itself reads is.
func dependOnTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // left between the listing and the visit
			return nil
		case err != nil:
			return err
		case d.IsDir() && path == ".git":
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
