package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// 1,000 reloads in 60 s under load, a third of them invalid, with files and
// names of engines that change besides, and not one request may fail:
//
//	go test -run ReloadStorm -storm 60s -v .
var stormFor = flag.Duration("storm", 0, "spread 1,000 changes of TestReloadStorm over this time; 0: 300, one after the other")

// storm is a gateway whose configuration file, file_sd file and name change
// all the time.
type storm struct {
	*running
	dice    *rand.Rand
	scripts []*enginetest.Script // e00 and e01 are configured, the others found
	sd      string
	name    string
	port    string
	pods    []string

	good, refused, files, names int
}

// config writes a configuration: limits, labels and caps vary, one engine of
// the two is sometimes not there.
func (s *storm) config(invalid bool) string {
	var b strings.Builder
	b.WriteString(anyPorts)
	for i := range 2 {
		if i == 1 && s.dice.IntN(4) == 0 {
			continue
		}
		fmt.Fprintf(&b, "[[engine]]\nname = %q\nurl = %q\nmax_in_flight = %d\nlabels = { round = \"r%d\" }\n", nth(i), s.scripts[i].URL(), 100+s.dice.IntN(100), s.dice.IntN(10))
	}
	fmt.Fprintf(&b, "[limits]\nstall = \"%ds\"\n[discovery]\nfile_sd = [%q]\ndns = [\"%s:%s\"]\n", 30+s.dice.IntN(30), s.sd, s.name, s.port)
	if invalid {
		b.WriteString([]string{"[[engine\n", "[limits]\n", "[log]\nlevel = \"loud\"\n", "[[engine]]\nname = \"e00\"\nurl = \"http://127.0.0.1:1\"\n",
			"[discovery.engine]\nname = \"x\"\n", "[routng]\n"}[s.dice.IntN(6)])
	}
	return b.String()
}

// list writes the file_sd file: both of its engines, or one, in place or by
// renaming; sometimes it is at fault.
func (s *storm) list() {
	text := fmt.Sprintf(`[{"targets": [%q], "labels": {"name": "e02", "round": "r%d"}}`, strings.TrimPrefix(s.scripts[2].URL(), "http://"), s.dice.IntN(10))
	if s.dice.IntN(2) == 0 {
		text += fmt.Sprintf(`, {"targets": [%q], "labels": {"name": "e03"}}`, strings.TrimPrefix(s.scripts[3].URL(), "http://"))
	}
	if s.dice.IntN(3) > 0 {
		text += "]"
	}
	path := s.sd
	if s.dice.IntN(2) == 0 {
		path += ".new"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if path != s.sd {
		if err := os.Rename(path, s.sd); err != nil {
			s.t.Fatal(err)
		}
	}
}

// step makes one change: the file and a reload, and often a list of engines too.
func (s *storm) step() {
	switch s.dice.IntN(4) {
	case 0:
		s.list()
		s.files++
	case 1:
		switch hosts := slices.Clone(s.pods); s.dice.IntN(4) {
		case 0:
			testNames.Fail(s.name, enginetest.DNSServFail)
		case 1:
			testNames.SetHost(s.name) // an answer without addresses
			testNames.Fail(s.name, enginetest.DNSAnswers)
		default:
			testNames.SetHost(s.name, hosts[:1+s.dice.IntN(len(hosts))]...)
			testNames.Fail(s.name, enginetest.DNSAnswers)
		}
		s.names++
	}
	invalid := s.dice.IntN(3) == 0
	s.write(s.config(invalid))
	a := s.ask("POST", "/-/reload")
	switch {
	case a.status == 200 && !invalid:
		s.good++
	case a.status == 422 && invalid:
		s.refused++
	default:
		s.t.Errorf("reload: %d %s", a.status, a.body)
	}
}

// load sends requests of every kind until stop: with and without keys,
// streamed and whole, and streams that last for many changes.
func (s *storm) load(c *http.Client, workers int) (stop func() (sent, failed int64, faults []string)) {
	var all together
	var sent atomic.Int64
	done := make(chan struct{})
	for w := range workers {
		all.send(func() string {
			var faults []string
			for i := 0; ; i++ {
				select {
				case <-done:
					return strings.Join(faults, "\n")
				default:
				}
				content := fmt.Sprint("short ", w, i)
				if i%20 == 0 {
					content = "slow " + content
				}
				headers := []string{"x-penstock-affinity", "off"}
				if i%2 == 0 {
					headers = []string{"x-session-id", fmt.Sprint(w, i%5)}
				}
				sent.Add(1)
				if fault := s.post(c, "/v1/chat/completions", chatBody("m", content, i%3 != 0 || i%20 == 0), headers...).notWhole(); fault != "" {
					faults = append(faults, fault)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return func() (int64, int64, []string) {
		close(done)
		all.running.Wait()
		return sent.Load(), int64(len(all.faults)), all.faults
	}
}

// Not parallel: it is the load.
func TestReloadStorm(t *testing.T) {
	changes := 300
	if *stormFor > 0 {
		changes = 1000
	}
	play := func(x *enginetest.Exchange) {
		if strings.Contains(string(x.Body), "slow ") {
			x.StartStream()
			for range 20 {
				x.Token("one")
				if !x.Pause(50 * time.Millisecond) {
					return
				}
			}
			x.Finish()
			return
		}
		if x.Pause(2 * time.Millisecond) {
			playAnswer(x)
		}
	}
	s := &storm{dice: rand.New(rand.NewPCG(4, 2)), sd: filepath.Join(t.TempDir(), "engines.json"), name: "storm.test", pods: []string{"127.0.0.61", "127.0.0.62", "127.0.0.63"}}
	s.scripts = startScripts(t, 4, play)
	_, s.port = startScriptsAt(t, s.pods, play)
	testNames.SetHost(s.name, s.pods...)
	s.running = &running{t: t}
	s.list()
	s.running = startGateway(t, strings.TrimPrefix(s.config(false), anyPorts), "e00")
	c := client(t)
	s.await("all kinds of engines", func() bool { return len(s.engines()) >= 5 })
	stop := s.load(c, 8)
	began := time.Now()
	for i := range changes {
		s.step()
		if *stormFor > 0 {
			time.Sleep(time.Until(began.Add(*stormFor * time.Duration(i+1) / time.Duration(changes))))
		}
	}
	took := time.Since(began)
	sent, failed, faults := stop()
	t.Logf("%d changes in %.1f s: %d reloads taken, %d refused, %d changes of the file, %d of the name; %d requests, %d failed",
		changes, took.Seconds(), s.good, s.refused, s.files, s.names, sent, failed)
	for _, fault := range faults[:min(len(faults), 5)] {
		t.Error(fault)
	}
	if ok, rejected := s.metric(`penstock_config_reload_total{result="ok"}`), s.metric(`penstock_config_reload_total{result="rejected"}`); ok != float64(s.good) || rejected != float64(s.refused) {
		t.Errorf("%g and %g are counted", ok, rejected)
	}
	// What is left is the last good state of everything, with nothing in flight.
	testNames.SetHost(s.name, s.pods...)
	testNames.Fail(s.name, enginetest.DNSAnswers)
	s.write(s.config(false))
	if a := s.ask("POST", "/-/reload?force=1"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.await("nothing in flight", func() bool {
		for _, e := range s.fleet.Set().Engines {
			if e.InFlight() != 0 {
				return false
			}
		}
		return true
	})
	s.chat(c, chatBody("m", "after the storm", true))
}
