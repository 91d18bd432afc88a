package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"penstock/config"
)

// tool runs a program that may not be here; the test is skipped then.
func tool(t *testing.T, stdin io.Reader, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// drainSeconds is how long a process told to stop may take, and a little more.
const drainSeconds = int((drainDelay+drainTimeout)/time.Second) + 5

// unitKeys are the settings of a unit's section, the last of each.
func unitKeys(t *testing.T, path string) map[string]string {
	t.Helper()
	keys := map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile(path)))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			keys[name] = value
		}
	}
	return keys
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	const path = "deploy/penstock.service"
	keys := unitKeys(t, path)
	if keys["Type"] != "notify" || keys["WatchdogSec"] == "" { // TestServiceManagerIsTold shows that both are true
		t.Errorf("Type=%s, WatchdogSec=%s", keys["Type"], keys["WatchdogSec"])
	}
	stop, err := time.ParseDuration(keys["TimeoutStopSec"] + "s")
	if err != nil || int(stop.Seconds()) < drainSeconds {
		t.Errorf("TimeoutStopSec=%s: the drain takes up to %d s", keys["TimeoutStopSec"], drainSeconds)
	}
	// serve names every fault of the file itself; check before it would also
	// refuse a start for files of discovery that serve can do without.
	if keys["ExecStartPre"] != "" {
		t.Errorf("ExecStartPre=%s", keys["ExecStartPre"])
	}
	if code, _, stderr := penstock(t, append(strings.Fields(keys["ExecStart"])[1:2], "--help")...); code != exitDone {
		t.Errorf("ExecStart=%s: %s", keys["ExecStart"], stderr)
	}
	// The binary stands where the unit has it.
	dir := t.TempDir()
	text := strings.ReplaceAll(string(must(os.ReadFile(path))), "/usr/local/bin/penstock", must(os.Executable()))
	unit := filepath.Join(dir, "penstock.service")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := tool(t, nil, "systemd-analyze", "verify", "--man=no", unit); strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
}

// manifests are the documents of a YAML file.
func manifests(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(must(os.ReadFile(path))))
	for {
		var doc map[string]any
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, doc)
	}
}

// at walks a document by member names and, in lists, by the first element.
func at(doc any, path ...string) any {
	for _, name := range path {
		if list, ok := doc.([]any); ok && len(list) > 0 {
			doc = list[0]
		}
		m, _ := doc.(map[string]any)
		doc = m[name]
	}
	return doc
}

func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	byKind := map[string]map[string]any{}
	for _, doc := range manifests(t, "deploy/kubernetes/penstock.yaml") {
		kind := doc["kind"].(string) + "/" + at(doc, "metadata", "name").(string)
		if byKind[kind] != nil {
			t.Errorf("%s twice", kind)
		}
		byKind[kind] = doc
	}
	pod := at(byKind["Deployment/penstock"], "spec", "template", "spec")
	container := at(pod, "containers")
	grace, sleep := at(pod, "terminationGracePeriodSeconds").(int), at(container, "lifecycle", "preStop", "sleep", "seconds").(int)
	if grace < sleep+drainSeconds {
		t.Errorf("%d s to stop: preStop and the drain take up to %d s", grace, sleep+drainSeconds)
	}
	if at(byKind["Service/vllm"], "spec", "clusterIP") != "None" {
		t.Error("the engines' Service is not headless")
	}
	// The configuration is one that this build takes, with the secrets where they are mounted.
	dir := t.TempDir()
	writePair(t, dir, time.Hour)
	if err := os.WriteFile(filepath.Join(dir, "hash-key"), []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := at(byKind["ConfigMap/penstock"], "data", "penstock.toml").(string)
	for _, mount := range []string{"/etc/penstock/tls/", "/etc/penstock/routing/"} {
		if !strings.Contains(text, mount) || !hasMount(container, strings.TrimSuffix(mount, "/")) {
			t.Errorf("%s is not mounted, or not used", mount)
		}
		text = strings.ReplaceAll(text, mount, dir+"/")
	}
	f, err := config.Parse("penstock.toml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]bool{}
	for _, p := range at(container, "ports").([]any) {
		ports[":"+jsonOf(at(p, "containerPort"))] = true
	}
	if !ports[f.Listen.Address] || !ports[f.Admin.MetricsAddress] || !f.Listen.TLS() || len(f.Discovery.DNS) != 1 {
		t.Errorf("ports %v; %+v, %+v, %+v", ports, f.Listen, f.Admin, f.Discovery)
	}
	if name := "vllm.default.svc.cluster.local:" + jsonOf(at(byKind["Service/vllm"], "spec", "ports", "port")); f.Discovery.DNS[0] != name {
		t.Errorf("engines are looked for at %s, the Service is %s", f.Discovery.DNS[0], name)
	}
	tool(t, nil, "kubectl", "kustomize", "deploy/kubernetes")
}

func hasMount(container any, path string) bool {
	mounts, _ := at(container, "volumeMounts").([]any)
	return slices.ContainsFunc(mounts, func(m any) bool { return at(m, "mountPath") == path })
}

func jsonOf(v any) string { return string(must(json.Marshal(v))) }

// instruction is a line of a Dockerfile.
type instruction struct{ name, rest string }

func TestDockerfile(t *testing.T) {
	t.Parallel()
	var all []instruction
	for line := range strings.Lines(string(must(os.ReadFile("deploy/Dockerfile")))) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if !slices.Contains(strings.Fields("FROM WORKDIR COPY RUN USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"), name) || rest == "" {
			t.Errorf("instruction %q", line)
		}
		all = append(all, instruction{name, rest})
	}
	last := map[string]string{} // of the final stage
	stages := map[string]bool{}
	for _, i := range all {
		switch i.name {
		case "FROM":
			last = map[string]string{}
			if _, stage, ok := strings.Cut(i.rest, " AS "); ok {
				stages[stage] = true
				if !strings.HasPrefix(i.rest, "golang:"+strings.TrimPrefix(readGoMod(t).Toolchain, "go")+"-") {
					t.Errorf("built by %s, go.mod says %s", i.rest, readGoMod(t).Toolchain)
				}
			}
		case "COPY":
			if m := regexp.MustCompile(`^--from=(\S+) `).FindStringSubmatch(i.rest); m != nil && !stages[m[1]] {
				t.Errorf("copies from %s, which is no stage", m[1])
			}
		case "RUN":
			if last["FROM"] == "scratch" {
				t.Error("there is no shell to RUN anything")
			}
		}
		last[i.name] = i.rest
	}
	if last["FROM"] != "scratch" || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(last["USER"]) {
		t.Errorf("FROM %s, USER %s", last["FROM"], last["USER"])
	}
	for _, key := range []string{"ENTRYPOINT", "CMD", "HEALTHCHECK"} {
		_, form, _ := strings.Cut(" "+last[key], "[")
		var words []string
		if err := json.Unmarshal([]byte("["+form), &words); err != nil {
			t.Errorf("%s %s: without a shell it takes a list of words", key, last[key])
			continue
		}
		if words = slices.DeleteFunc(words, func(w string) bool { return w == "/penstock" }); len(words) > 0 {
			if code, _, stderr := penstock(t, words[0], "--help"); code != exitDone {
				t.Errorf("%s %s: %s", key, last[key], stderr)
			}
		}
	}
}

// build makes the program as the Dockerfile does, once for all tests that run
// it; TestMain removes it.
var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "penstock-built-"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "penstock"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

var builds atomic.Bool // build was called

func builtBinary(t *testing.T) string {
	t.Helper()
	builds.Store(true)
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "penstock")
}

// The binary as the image has it: static, in an empty root, as a user without a
// name. It serves there, and its health check is content.
func TestStaticBinaryNeedsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an empty root takes a superuser")
	}
	t.Parallel()
	root := t.TempDir()
	if err := os.Link(builtBinary(t), filepath.Join(root, "penstock")); err != nil {
		t.Fatal(err)
	}
	for dir := root; dir != filepath.Dir(dir) && strings.HasPrefix(dir, os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e1 := startPlayed(t, good)
	if err := os.WriteFile(filepath.Join(root, "penstock.toml"), []byte(anyPorts+engineTOML("e1", e1.URL())), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/penstock", args...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return cmd
	}
	p := &process{running: &running{t: t, logs: &logBook{}}, cmd: inside("serve", "--config", "/penstock.toml"), exit: make(chan int, 1)}
	p.cmd.Stderr = p.logs
	if err := p.cmd.Start(); err != nil {
		t.Skipf("cannot run in another root here: %v", err)
	}
	go func() { _ = p.cmd.Wait(); p.exit <- p.cmd.ProcessState.ExitCode() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	p.awaitReady()
	p.awaitServing(client(t))
	if out, err := inside("engines", "--json", "--admin", strings.TrimPrefix(p.admin, "http://")).CombinedOutput(); err != nil || !bytes.Contains(out, []byte(`"e1"`)) {
		t.Errorf("health check: %v\n%s", err, out)
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGTERM)
	p.awaitExit(0)
}

// Rules and their tests are well formed, and ask for metrics that there are.
func TestPrometheusRules(t *testing.T) {
	t.Parallel()
	_, text := metricsAfterTraffic(t)
	rules := string(must(os.ReadFile("deploy/prometheus/alerts.yml")))
	for _, name := range regexp.MustCompile(`\bpenstock_[a-z_0-9]+`).FindAllString(rules, -1) {
		if !strings.Contains(text, "# TYPE "+name+" ") && !slices.Contains([]string{"penstock_shed_total"}, name) { // which comes with the first shed
			t.Errorf("an alert asks for %s, which is not on /metrics", name)
		}
	}
	for _, args := range [][]string{{"check", "config", "scrape.yml"}, {"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		args[2] = filepath.Join("deploy/prometheus", args[2])
		tool(t, nil, "promtool", args...)
	}
}

// metricsAfterTraffic is the metrics page of a gateway that has served, failed
// and refused requests.
func metricsAfterTraffic(t *testing.T) (g *running, text string) {
	t.Helper()
	e1 := startPlayed(t, good)
	g = startGateway(t, listenWith(tlsKeys(t), engineTOML("e1", e1.URL())), "e1")
	c := over1(t)
	g.post(c, "/v1/chat/completions", chatBody("m", "hi", true))
	g.post(c, "/v1/chat/completions", chatBody("unknown", "hi", true))
	g.post(c, "/v1/chat/completions", "{")
	g.get(c, "/nowhere")
	return g, do(c, must(http.NewRequest(http.MethodGet, g.admin+"/metrics", nil))).body
}

func TestPromtoolFindsNothing(t *testing.T) {
	t.Parallel()
	_, text := metricsAfterTraffic(t)
	if out := tool(t, strings.NewReader(text), "promtool", "check", "metrics"); strings.TrimSpace(out) != "" {
		t.Errorf("promtool check metrics:\n%s", out)
	}
}
