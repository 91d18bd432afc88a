package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// anyPorts are the listeners of a gateway on free ports.
const anyPorts = "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n"

// ask sends a request to the admin listener; headers are name, value pairs,
// of which Host is the request's own.
func (r *running) ask(method, path string, headers ...string) answered {
	req, err := http.NewRequest(method, r.admin+path, nil)
	if err != nil {
		return answered{err: err}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	return do(http.DefaultClient, req)
}

// write puts text into the gateway's configuration file.
func (r *running) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// streams begins n streams for which headers are set, and waits until all
// have reached an engine of these. wait tells of every one that did not end well.
func (r *running) streams(c *http.Client, engines []*enginetest.Script, n int, headers ...string) (wait func()) {
	r.t.Helper()
	before := sum(played(engines))
	all := new(together)
	for i := range n {
		all.send(func() string {
			return r.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("long ", i), true), headers...).notWhole()
		})
	}
	r.await("the streams to begin", func() bool { return sum(played(engines)) >= before+n })
	return func() { r.t.Helper(); all.wait(r.t) }
}

// playHeld holds streams until release closes and answers all else at once.
func playHeld(release <-chan struct{}) enginetest.Play {
	held := playUntil(release)
	return func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "long ") {
			held(x)
			return
		}
		playAnswer(x)
	}
}

// pin is a label by which a request can name its engine.
func pin(i int) string { return fmt.Sprintf("labels = { pin = %q }", nth(i)) }

func TestC13_FailedProbesEndNewRequestsNotStreams(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 2, playHeld(release))
	g := startGateway(t, fleetTOML(engines, pin(0), pin(1)), nths(2)...)
	c := client(t)
	wait := g.streams(c, engines, 10, "x-penstock-require", "pin=e00")
	e1 := g.fleet.Set().ByName("e00")
	engines[0].SetHealth(503)
	hits := engines[0].PageHits("/health")
	g.await("a failed probe", func() bool { e1.Suspect(); return engines[0].PageHits("/health") > hits })
	g.await("e00 to be out", func() bool { e1.Suspect(); return g.engineState("e00") == "down" && g.weight("e00") == 0 })
	if n := engines[0].PageHits("/health") - hits; n < 3 {
		t.Errorf("it took %d failed probes to take the engine out, not three", n)
	}
	before := len(engines[0].Exchanges())
	for i := range 50 {
		if e := g.chat(c, chatBody("m", fmt.Sprint("new ", i), i%2 == 0)); e != "e01" {
			t.Fatalf("a new request was served by %s", e)
		}
	}
	if n := len(engines[0].Exchanges()) - before; n != 0 {
		t.Errorf("e00 got %d new requests", n)
	}
	if n := g.metric(`penstock_inflight{engine="e00"}`); n != 10 {
		t.Errorf("%g streams are in flight on e00", n)
	}
	close(release)
	wait()
}

func TestC44_BadFilesAreReportedAndForgotten(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	g := startGateway(t, fleetTOML(engines[:1]), "e00")
	c := client(t)
	good, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	version := g.metric("penstock_table_version")
	rejected := 0.0
	reject := func(what, reason string) {
		t.Helper()
		rejected++
		a := g.ask("POST", "/-/reload")
		if a.status < 400 || a.status > 499 || !strings.Contains(a.body, reason) {
			t.Errorf("%s: %d, want a 4xx with %q: %s", what, a.status, reason, a.body)
		}
		g.await("the log to name the reason", func() bool {
			return strings.Count(g.logs.String(), "reload rejected") == int(rejected) && strings.Contains(g.logs.String(), reason)
		})
		if n := g.metric(`penstock_config_reload_total{result="rejected"}`); n != rejected {
			t.Errorf("%s: %g rejected reloads are counted, not %g", what, n, rejected)
		}
		if g.metric("penstock_config_last_reload_successful") != 0 {
			t.Errorf("%s: the last reload counts as successful", what)
		}
		if e := g.chat(c, chatBody("m", what, true)); e != "e00" {
			t.Errorf("%s: served by %q", what, e)
		}
	}
	accept := func(what string, names ...string) {
		t.Helper()
		if a := g.ask("POST", "/-/reload"); a.status != 200 {
			t.Fatalf("%s: %d %s", what, a.status, a.body)
		}
		for _, n := range names {
			g.await(n+" to be ready", func() bool { return g.weight(n) > 0 })
		}
		if g.metric("penstock_config_last_reload_successful") != 1 {
			t.Errorf("%s: the last reload does not count as successful", what)
		}
	}
	g.write("[[engine\nname = ")
	reject("broken syntax", "penstock.toml:2: not TOML")
	// The second engine is good and must not come in by itself.
	g.write(anyPorts + engineTOML("e00", engines[0].URL(), "max_in_flight = -3") + engineTOML("e01", engines[1].URL()) + "[limits]\nbody = \"1KiB\"\n")
	reject("an impossible value", "max_in_flight")
	if g.engineState("e01") != "" {
		t.Error("a file was taken in parts")
	}
	if a := g.post(c, "/v1/chat/completions", chatBody("m", strings.Repeat("long ", 1000), false)); a.status != 200 {
		t.Errorf("the body limit of a rejected file holds: %d", a.status)
	}
	g.write(string(good) + "[gateway]\nsauce = \"x\"\n")
	reject("an unknown key", "sauce")
	if err := os.Remove(g.file); err != nil {
		t.Fatal(err)
	}
	reject("no file", "no such file")
	g.write(string(good))
	accept("the original file", "e00")
	if v := g.metric("penstock_table_version"); v != version {
		t.Errorf("the table went from version %g to %g although nothing changed", version, v)
	}
	more := string(good) + engineTOML("e01", engines[1].URL())
	g.write(more)
	accept("an engine more, written in place", "e00", "e01")
	g.write(string(good))
	accept("the original file again", "e00")
	g.await("e01 to be gone", func() bool { return g.weight("e01") == 0 })
	if err := os.WriteFile(g.file+".new", []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(g.file+".new", g.file); err != nil {
		t.Fatal(err)
	}
	accept("an engine more, renamed into place", "e00", "e01")
	if n := g.metric(`penstock_config_reload_total{result="ok"}`); n != 4 {
		t.Errorf("%g reloads are counted as ok", n)
	}
}

func TestReloadIsInUseWhenItReturns(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	both := fleetTOML(engines)
	g := startGateway(t, both, nths(2)...)
	c := client(t)
	for round := range 15 {
		gone := round % 2
		text := fleetTOML(engines, slices.Insert([]string{""}, gone, "capacity = 0")...)
		if round%3 == 0 {
			text = engineTOML(nth(1-gone), engines[1-gone].URL())
		}
		g.write(anyPorts + text)
		if a := g.ask("POST", "/-/reload?force=1"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for i := range 5 {
			if e := g.chat(c, chatBody("m", fmt.Sprint(round, i), false), "x-penstock-affinity", "off"); e != nth(1-gone) {
				t.Fatalf("round %d: request %d after the reload returned went to %s, which the new file takes out", round, i, e)
			}
		}
		g.write(anyPorts + both)
		if a := g.ask("POST", "/-/reload"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		g.await("both to be ready", func() bool { return g.weight("e00") > 0 && g.weight("e01") > 0 })
	}
}

func TestC45_StreamsOutliveReloads(t *testing.T) { // counts goroutines: not parallel
	release := make(chan struct{})
	engines := startScripts(t, 2, playHeld(release))
	both := fleetTOML(engines, pin(0), pin(1))
	g := startGateway(t, both, nths(2)...)
	c := client(t)
	g.chat(c, chatBody("m", "warm", false), "x-penstock-require", "pin=e00")
	g.chat(c, chatBody("m", "warm", false), "x-penstock-require", "pin=e01")
	before := runtime.NumGoroutine()
	reload := func(text string) {
		t.Helper()
		if err := g.rewrite(text); err != nil {
			t.Fatal(err)
		}
	}
	waitA := g.streams(c, engines, 5, "x-penstock-require", "pin=e00")
	waitB := g.streams(c, engines, 5, "x-penstock-require", "pin=e01")
	reload(both + "[log]\nlevel = \"info\"\n[limits]\nstall = \"40s\"\n")
	reload(fleetTOML(engines[:1], pin(0)))
	g.await("e01 to be gone", func() bool { return g.engineState("e01") == "" && g.weight("e01") == 0 })
	for i := range 20 {
		if e := g.chat(c, chatBody("m", fmt.Sprint("new ", i), true)); e != "e00" {
			t.Fatalf("a new request was served by %s", e)
		}
	}
	for i := range 10 {
		reload(fmt.Sprintf("%s[limits]\nstall = \"%ds\"\n", fleetTOML(engines[:1], pin(0)), 31+i))
	}
	if n := g.metric(`penstock_inflight{engine="e00"}`); n != 5 {
		t.Errorf("%g streams are in flight on e00", n)
	}
	close(release)
	waitA()
	waitB()
	reload(both)
	g.await("e01 to be back", func() bool { return g.weight("e01") > 0 })
	g.chat(c, chatBody("m", "warm", false), "x-penstock-require", "pin=e01")
	g.await("in-flight counts to be zero", func() bool {
		return g.metric(`penstock_inflight{engine="e00"}`) == 0 && g.metric(`penstock_inflight{engine="e01"}`) == 0
	})
	// Idle connections of clients and to engines go by themselves.
	c.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	g.handler.CloseIdle()
	after := 0
	g.await("the goroutines of old configurations to end", func() bool {
		after = runtime.NumGoroutine()
		return after <= before
	})
}

// process is the built binary serving, as an operator runs it.
type process struct {
	*running // its files, ports and log; there is no gateway inside
	cmd      *exec.Cmd
	exit     chan int
}

// startProcess runs "serve" on a file and waits for its ready line.
func startProcess(t *testing.T, binary, text string) *process {
	t.Helper()
	path := writeFile(t, "penstock.toml", anyPorts+text)
	p := launch(t, binary, path)
	p.awaitReady()
	return p
}

func launch(t *testing.T, binary, path string) *process {
	t.Helper()
	p := &process{running: &running{t: t, file: path, logs: &logBook{}}, cmd: exec.Command(binary, "serve", "--config", path), exit: make(chan int, 1)}
	p.cmd.Stderr = p.logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		p.exit <- p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

func (p *process) awaitReady() {
	p.t.Helper()
	p.await("the ready line", func() bool {
		var line struct{ Msg, Address, Admin string }
		for text := range strings.Lines(p.logs.String()) {
			if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "ready" {
				p.url, p.admin = "http://"+line.Address, "http://"+line.Admin
				return true
			}
		}
		return false
	})
}

// awaitExit waits for the process to end with that code.
func (p *process) awaitExit(code int) {
	p.t.Helper()
	select {
	case got := <-p.exit:
		if got != code {
			p.t.Errorf("exit %d instead of %d\n%s", got, code, p.logs)
		}
	case <-time.After(60 * time.Second):
		p.t.Fatalf("did not end\n%s", p.logs)
	}
}

func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

// awaitServing waits until a request is served.
func (p *process) awaitServing(c *http.Client) {
	p.t.Helper()
	p.await("an engine", func() bool { return p.get(c, "/readyz").status == 200 })
	p.chat(c, chatBody("m", "hello", true))
}

// TestC46 runs the binary: it is the only test of the signals' whole way.
func TestC46_ServeEndsCleanly(t *testing.T) {
	t.Parallel()
	binary := builtBinary(t)
	for name, test := range map[string]func(*testing.T, string){
		"SIGTERM drains":          serveDrains,
		"second SIGTERM ends now": serveEndsNow,
		"SIGTERM at start-up":     serveEndsEarly,
		"POST drain":              serveIsToldToDrain,
		"SIGHUP reloads":          serveReloads,
		"cannot start":            serveCannotStart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, binary)
		})
	}
}

func serveDrains(t *testing.T, binary string) {
	release := make(chan struct{})
	e := startScript(t, playHeld(release))
	p := startProcess(t, binary, "[limits]\nstall = \"10m\"\n"+engineTOML("e1", e.URL())) // the streams are held for as long as this takes
	c := client(t)
	p.awaitServing(c)
	wait := p.streams(c, []*enginetest.Script{e}, 3)
	waitH2 := p.streams(h2cClient(t), []*enginetest.Script{e}, 2)
	p.signal(syscall.SIGTERM)
	told := time.Now()
	p.await("readiness to end", func() bool { return p.get(c, "/readyz").status == 503 })
	if a := p.ask("GET", "/readyz"); a.status != 503 {
		t.Errorf("admin /readyz is %d", a.status)
	}
	p.chat(c, chatBody("m", "late", true))
	resp, err := c.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", "last", false)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !resp.Close {
		t.Errorf("a request during the delay: %d, told to close the connection: %t", resp.StatusCode, resp.Close)
	}
	p.await("the listener to close", func() bool {
		if a := p.get(c, "/livez"); a.err == nil {
			if a.status != 200 {
				t.Errorf("/livez is %d while it serves", a.status)
			}
			return false
		}
		return true
	})
	if d := time.Since(told); d < 4500*time.Millisecond {
		t.Errorf("the listener closed after %s: whoever sends requests had no time to see readiness end", d)
	}
	if a := p.ask("GET", "/livez"); a.status != 200 {
		t.Errorf("admin /livez is %d during the drain: %v", a.status, a.err)
	}
	close(release)
	wait()
	waitH2()
	p.awaitExit(0)
}

func serveEndsNow(t *testing.T, binary string) {
	e := startScript(t, playHeld(nil))
	p := startProcess(t, binary, engineTOML("e1", e.URL()))
	c := client(t)
	p.awaitServing(c)
	done := make(chan answered, 1)
	go func() { done <- p.post(c, "/v1/chat/completions", chatBody("m", "long ", true)) }()
	p.await("the stream to begin", func() bool { return len(e.Exchanges()) == 2 })
	p.signal(syscall.SIGTERM)
	p.await("the drain", func() bool { return strings.Contains(p.logs.String(), `"msg":"draining"`) })
	p.signal(syscall.SIGTERM)
	if a := <-done; a.looksComplete() || a.err == nil {
		t.Errorf("the cut stream looks complete: %v\n%s", a.err, a.body)
	}
	p.awaitExit(0)
}

// serveEndsEarly holds the start-up where it reads its configuration.
func serveEndsEarly(t *testing.T, binary string) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	p := launch(t, binary, path)
	w, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the process has opened it to read
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	fmt.Fprint(w, anyPorts, engineTOML("e1", "http://"+freeAddress(t)))
	w.Close()
	p.awaitExit(0)
}

func serveIsToldToDrain(t *testing.T, binary string) {
	p := startProcess(t, binary, engineTOML("e1", startScript(t, playAnswer).URL()))
	c := client(t)
	p.awaitServing(c)
	if a := p.ask("GET", "/-/drain"); a.status != 405 && a.status != 404 || p.get(c, "/readyz").status != 200 {
		t.Errorf("GET drains: %d", a.status)
	}
	if a := p.ask("POST", "/-/drain"); a.status != 202 {
		t.Errorf("POST /-/drain: %d", a.status)
	}
	p.await("readiness to end", func() bool { return p.get(c, "/readyz").status == 503 })
	p.chat(c, chatBody("m", "during the delay", true))
	p.awaitExit(0)
}

func serveReloads(t *testing.T, binary string) {
	engines := startScripts(t, 2, playAnswer)
	p := startProcess(t, binary, fleetTOML(engines[:1]))
	c := client(t)
	p.awaitServing(c)
	p.write(anyPorts + fleetTOML(engines))
	p.signal(syscall.SIGHUP)
	p.await("the engine that was added", func() bool {
		return p.chat(c, chatBody("m", "x", false), "x-penstock-affinity", "off") == "e01"
	})
	for text, reason := range map[string]string{"[[engine]": "not TOML", "[log]\nlevel = \"loud\"\n" + fleetTOML(engines): "log.level",
		engineTOML("x", engines[0].URL()): "force=1"} {
		p.write(anyPorts + text)
		p.signal(syscall.SIGHUP)
		p.await("the log to tell of "+reason, func() bool {
			for line := range strings.Lines(p.logs.String()) {
				if strings.Contains(line, "reload rejected") && strings.Contains(line, reason) {
					return true
				}
			}
			return false
		})
	}
	p.chat(c, chatBody("m", "still served", true))
	p.signal(syscall.SIGINT) // as SIGTERM
	p.await("the drain", func() bool { return p.get(c, "/readyz").status == 503 })
	p.signal(syscall.SIGINT)
	p.awaitExit(0)
}

func serveCannotStart(t *testing.T, binary string) {
	taken := startScript(t, playAnswer)
	busy := strings.TrimPrefix(taken.URL(), "http://")
	for text, reason := range map[string]string{
		"[[engine]": "not TOML",
		"[listen]\naddress = \"" + busy + "\"\n[admin]\naddress = \"127.0.0.1:0\"\n" + engineTOML("e1", taken.URL()): "listen.address",
		"[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"" + busy + "\"\n" + engineTOML("e1", taken.URL()): "admin.address",
	} {
		p := launch(t, binary, writeFile(t, "penstock.toml", text))
		p.awaitExit(1)
		if !strings.Contains(p.logs.String(), reason) {
			t.Errorf("want %q on stderr:\n%s", reason, p.logs)
		}
	}
}
