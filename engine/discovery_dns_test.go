package engine

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/engine/enginetest"
)

func startDNS(t *testing.T) *enginetest.DNS {
	t.Helper()
	d, err := enginetest.StartDNS(enginetest.NewZone())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func describePlaces(a dnsAnswer) string {
	var parts []string
	for _, p := range a.places {
		parts = append(parts, p.name+"="+p.url)
	}
	for _, r := range a.leftOut {
		parts = append(parts, "not "+r)
	}
	return strings.Join(parts, " ")
}

// One look-up of everything that a name server can say, over real sockets.
func TestLookup(t *testing.T) {
	d := startDNS(t)
	d.SetHost("pods.test", "10.0.0.9", "10.0.0.10", "10.0.0.9")
	d.SetHost("both.test", "10.0.0.9", "fd00::9")
	d.SetHost("six.test", "fd00::9", "fd00::a")
	d.SetHost("none.test")
	d.SetHost("odd.test", "169.254.169.254", "10.0.0.9", "0.0.0.0", "224.0.0.1")
	d.SetHost("oddsix.test", "fe80::1", "fd00:ec2::254", "::", "fd00::9")
	srv := func(target string, port, priority, weight uint16) net.SRV {
		return net.SRV{Target: target, Port: port, Priority: priority, Weight: weight}
	}
	d.SetSRV("_http._tcp.pods.test", srv("Pod-1.Pods.test.", 8001, 5, 10), srv("pod-0.pods.test.", 8000, 5, 90))
	d.SetSRV("_http._tcp.tiers.test", srv("pod-0.test.", 8000, 10, 1), srv("cloud.test.", 8000, 20, 1))
	d.SetSRV("_https._tcp.pods.test", srv("pod-0.pods.test.", 8443, 0, 0))
	d.SetSRV("_http._tcp.off.test", srv(".", 0, 0, 0))
	d.SetSRV("_http._tcp.odd.test", srv("a.test.", 0, 0, 0), srv("b.test.", 1, 0, 0))
	hundreds, want := []string{}, []string{}
	for i := range 900 {
		hundreds = append(hundreds, fmt.Sprintf("10.1.%d.%d", 100+i/100, 100+i%100))
		want = append(want, fmt.Sprintf("%s-80=http://%s:80", hundreds[i], hundreds[i]))
	}
	d.SetHost("many.test", hundreds...)
	for name, how := range map[string]enginetest.DNSFailure{"fault.test": enginetest.DNSServFail, "refused.test": enginetest.DNSRefuses,
		"silent.test": enginetest.DNSSilent, "garbage.test": enginetest.DNSGarbage} {
		d.SetHost(name, "10.0.0.9")
		d.Fail(name, how)
	}
	for _, c := range []struct{ entry, want string }{
		{"pods.test:8000", "10.0.0.10-8000=http://10.0.0.10:8000 10.0.0.9-8000=http://10.0.0.9:8000"},
		{"pods.test.:8000", "10.0.0.10-8000=http://10.0.0.10:8000 10.0.0.9-8000=http://10.0.0.9:8000"},
		{"both.test:80", "10.0.0.9-80=http://10.0.0.9:80"},
		{"six.test:80", "fd00--9-80=http://[fd00::9]:80 fd00--a-80=http://[fd00::a]:80"},
		{"none.test:80", ""},
		{"unknown.test:80", ""},
		{"odd.test:80", "10.0.0.9-80=http://10.0.0.9:80 not 0.0.0.0 is no address for engines not 169.254.169.254 is no address for engines not 224.0.0.1 is no address for engines"},
		{"oddsix.test:80", "fd00--9-80=http://[fd00::9]:80 not :: is no address for engines not fd00:ec2::254 is no address for engines not fe80::1 is no address for engines"},
		{"many.test:80", strings.Join(want, " ")},
		{"_http._tcp.pods.test", "pod-0.pods.test-8000=http://pod-0.pods.test:8000 pod-1.pods.test-8001=http://pod-1.pods.test:8001"},
		{"_http._tcp.tiers.test", "pod-0.test-8000=http://pod-0.test:8000 not cloud.test. has priority 20, others a lower one"},
		{"_https._tcp.pods.test", "pod-0.pods.test-8443=https://pod-0.pods.test:8443"},
		{"_http._tcp.off.test", ""},
		{"_http._tcp.odd.test", "b.test-1=http://b.test:1 not a.test. port 0 is no address for engines"},
		{"_http._tcp.unknown.test", ""},
		{"fault.test:80", "error: server misbehaving"},
		{"refused.test:80", "error: server misbehaving"},
		{"silent.test:80", "error: no answer in time"},
		{"garbage.test:80", "error: no answer in time"},
	} {
		e, fault := parseDNSEntry(c.entry)
		if fault != "" {
			t.Fatalf("%s: want %s", c.entry, fault)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		a, err := lookup(ctx, d.Resolver(), e)
		cancel()
		got := describePlaces(a)
		if err != nil {
			got = "error: " + reasonOf(err)
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.entry, got, c.want)
		}
	}
}

// discovering runs a Discovery on a synctest clock, with a zone for a network.
func discovering(t *testing.T, configured []Config, c DiscoveryConfig, prepare func(*enginetest.Zone), test func(*enginetest.Zone, *Discovery, *logLines)) {
	synctest.Test(t, func(t *testing.T) {
		zone, log := enginetest.NewZone(), new(logLines)
		prepare(zone)
		d := NewDiscovery(NewFleet(), log.logger(), "here", t.TempDir())
		d.Resolver = zone.Resolver()
		if err := d.Configure(configured, c, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		after(0)
		test(zone, d, log)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// names lists the engines of the fleet.
func (d *Discovery) names() string {
	var names []string
	for _, e := range d.fleet.Set().Engines {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// held counts the engines that are held.
func (d *Discovery) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.holds)
}

// failures counts those of a source.
func (d *Discovery) failures(s source) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[s].failures
}

// inUse is the configuration.
func (d *Discovery) inUse() DiscoveryConfig {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.use.config
}

const lookupMost = lookupEvery * 6 / 5 // until the next look-up has been, whatever the dice say

func TestC22_DNSFailsWhileAnEngineGoes(t *testing.T) {
	config := DiscoveryConfig{DNS: []string{"pods.test:80"}, Engine: Config{Dialect: "vllm", Labels: map[string][]string{"residency": {"eu"}}}}
	discovering(t, nil, config, func(z *enginetest.Zone) { z.SetHost("pods.test", "10.0.0.1", "10.0.0.2", "10.0.0.3") },
		func(z *enginetest.Zone, d *Discovery, log *logLines) {
			want := func(when, names string) {
				t.Helper()
				if got := d.names(); got != names {
					t.Errorf("%s: engines %s, want %s", when, got, names)
				}
			}
			want("at start", "10.0.0.1-80 10.0.0.2-80 10.0.0.3-80")
			e := d.fleet.Set().Engines[0]
			if e.Cluster != "here" || e.Dialect != "vllm" || !e.Satisfies("residency", "eu") || e.FoundBy() != "dns pods.test:80" {
				t.Errorf("%+v, found by %s", e.Config, e.FoundBy())
			}
			for _, how := range []enginetest.DNSFailure{enginetest.DNSServFail, enginetest.DNSRefuses, enginetest.DNSSilent, enginetest.DNSGarbage} {
				z.Fail("pods.test", how)
				z.SetHost("pods.test", "10.0.0.2", "10.0.0.3")
				after(time.Minute)
				want("while the server fails", "10.0.0.1-80 10.0.0.2-80 10.0.0.3-80")
				if n := len(log.with("discovery fails")); n != 1 {
					t.Errorf("%d lines on the failure", n)
				}
				if n := d.failures(source{kindDNS, "pods.test:80"}); n < 5 {
					t.Errorf("%d failures are counted in a minute", n)
				}
			}
			z.Fail("pods.test", enginetest.DNSAnswers)
			after(lookupMost + discoverTimeout)
			want("within one interval", "10.0.0.2-80 10.0.0.3-80")
			if len(log.with("discovery works again")) != 1 || len(log.with("removed=10.0.0.1-80")) != 1 {
				t.Errorf("%s", log.with(""))
			}
		})
}

func TestDNSIsAskedNowAndThen(t *testing.T) {
	discovering(t, nil, DiscoveryConfig{DNS: []string{"pods.test.:80", "_http._tcp.pods.test."}}, func(z *enginetest.Zone) { z.SetHost("pods.test", "10.0.0.1") },
		func(z *enginetest.Zone, d *Discovery, log *logLines) {
			after(time.Minute)
			if n := z.Asked("pods.test"); n < 10 || n > 16 {
				t.Errorf("asked %d times in a minute", n)
			}
			set := d.fleet.Set()
			after(time.Minute)
			if d.fleet.Set() != set || len(log.with("engines")) != 1 {
				t.Error("an answer as before made a new set")
			}
			if n := len(log.with("finds no engine")); n != 1 {
				t.Errorf("%d lines about the name without records", n)
			}
		})
}

// An answer that leaves nothing, or takes more than half of the capacity, is
// believed when it has stood for holdFor.
func TestSuddenLossIsHeld(t *testing.T) {
	two := 2.0
	static := []Config{{Name: "a", URL: "http://a", Capacity: &two}}
	all := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	begin := func(z *enginetest.Zone) { z.SetHost("pods.test.", all...) }
	const whole = "10.0.0.1-80 10.0.0.2-80 10.0.0.3-80 10.0.0.4-80 a"
	discovering(t, static, DiscoveryConfig{DNS: []string{"pods.test.:80"}}, begin, func(z *enginetest.Zone, d *Discovery, log *logLines) {
		step := func(when, names string, held int) {
			t.Helper()
			if got := d.names(); got != names || d.held() != held {
				t.Errorf("%s: engines %s, %d held; want %s, %d held", when, got, d.held(), names, held)
			}
		}
		step("at start", whole, 0)
		z.SetHost("pods.test.", all[:2]...) // two of five
		after(lookupMost)
		step("less than half", "10.0.0.1-80 10.0.0.2-80 a", 0)
		z.SetHost("pods.test.", all...)
		after(lookupMost)
		step("back", whole, 0)

		z.Remove("pods.test.") // an accident
		after(lookupMost)
		step("nothing", whole, 4)
		after(holdFor - 2*lookupMost)
		step("still nothing", whole, 4)
		begin(z)
		after(lookupMost)
		step("repaired", whole, 0)
		if n := len(log.with("no longer listed")); n != 1 {
			t.Errorf("%d lines", n)
		}

		z.SetHost("pods.test.", all[0]) // three of five: meant
		after(lookupMost)
		step("more than half", whole, 3)
		after(holdFor)
		step("more than half, for long", "10.0.0.1-80 a", 0)
		if len(log.with("removed=\"10.0.0.2-80, 10.0.0.3-80, 10.0.0.4-80\"")) == 0 {
			t.Errorf("%s", log.with("removed"))
		}
		z.SetHost("pods.test.")
		after(lookupMost)
		step("the last one", "10.0.0.1-80 a", 1)
		if err := d.Configure(static, d.inUse(), true); err != nil {
			t.Fatal(err)
		}
		step("forced", "a", 0)
		after(time.Minute)
		step("forced, later", "a", 0)
	})
}

// A rolling replacement of every pod: at no moment are there fewer engines.
func TestReplacedPodsOverlap(t *testing.T) {
	discovering(t, nil, DiscoveryConfig{DNS: []string{"pods.test.:80"}}, func(z *enginetest.Zone) { z.SetHost("pods.test.", "10.0.0.1", "10.0.0.2") },
		func(z *enginetest.Zone, d *Discovery, log *logLines) {
			z.SetHost("pods.test.", "10.0.0.3", "10.0.0.4")
			after(lookupMost)
			if got := d.names(); got != "10.0.0.1-80 10.0.0.2-80 10.0.0.3-80 10.0.0.4-80" {
				t.Errorf("%s", got)
			}
			after(holdFor)
			if got := d.names(); got != "10.0.0.3-80 10.0.0.4-80" {
				t.Errorf("%s", got)
			}
		})
}

func TestReloadOfDiscovery(t *testing.T) {
	a, b := Config{Name: "a", URL: "http://a"}, Config{Name: "b", URL: "http://b"}
	pods := DiscoveryConfig{DNS: []string{"pods.test.:80"}}
	discovering(t, []Config{a}, pods, func(z *enginetest.Zone) { z.SetHost("pods.test.", "10.0.0.1", "10.0.0.2") },
		func(z *enginetest.Zone, d *Discovery, log *logLines) {
			var sets []*Set
			d.OnChange = func(s *Set) { sets = append(sets, s) }
			live := d.fleet.Set().ByName("10.0.0.1-80").Live
			live.Acquire(1)
			refuse := func(what string, engines []Config, c DiscoveryConfig, gone string) {
				t.Helper()
				before := d.fleet.Set()
				err := d.Configure(engines, c, false)
				if err == nil || !strings.Contains(err.Error(), gone) || d.fleet.Set() != before {
					t.Errorf("%s: %v", what, err)
				}
			}
			refuse("without the name", []Config{a}, DiscoveryConfig{}, "drops 10.0.0.1-80, 10.0.0.2-80, 67 % of the capacity")
			refuse("another name", []Config{a}, DiscoveryConfig{DNS: []string{"other.test.:80"}}, "67 %")
			if err := d.Configure([]Config{b}, pods, false); err != nil { // one of three
				t.Fatal(err)
			}
			if got := d.names(); got != "10.0.0.1-80 10.0.0.2-80 b" {
				t.Errorf("engines %s", got)
			}
			pods.Engine = Config{Cluster: "there", Labels: map[string][]string{"gpu": {"h100"}}}
			if err := d.Configure([]Config{b}, pods, false); err != nil {
				t.Fatal(err)
			}
			if e := d.fleet.Set().ByName("10.0.0.1-80"); e.Cluster != "there" || !e.Satisfies("gpu", "h100") || e.Live != live || e.InFlight() != 1 {
				t.Errorf("%+v, in flight %d", e.Config, e.InFlight())
			}
			if err := d.Configure([]Config{b}, DiscoveryConfig{}, true); err != nil || d.names() != "b" {
				t.Errorf("%v, engines %s", err, d.names())
			}
			after(0) // what Configure asked for before
			n := z.Asked("pods.test.")
			after(time.Minute)
			if z.Asked("pods.test.") != n {
				t.Error("a name that is no longer configured is looked up")
			}
			if err := d.Configure([]Config{b}, pods, false); err != nil {
				t.Fatal(err)
			}
			after(0)
			if e := d.fleet.Set().ByName("10.0.0.1-80"); e == nil || e.Live != live || e.InFlight() != 1 {
				t.Errorf("%s: the engine that came back is another", d.names())
			}
			if len(sets) == 0 || sets[len(sets)-1] != d.fleet.Set() {
				t.Error("the last set was not told")
			}
		})
}

// Configured engines stand before those of files, those before names; each
// server and each name is in use once, and what is left out is said once.
func TestMerge(t *testing.T) {
	file := func(name, url string) Config { return Config{Name: name, URL: url, foundBy: "file_sd x.json"} }
	dns := func(name, url string) Config { return Config{Name: name, URL: url, foundBy: "dns pods:80"} }
	all, skips := merge([]Config{{Name: "a", URL: "http://1"}}, [][]Config{
		{file("b", "http://1"), file("a", "http://2"), file("c", "http://3")},
		{dns("1", "http://1"), dns("3", "http://3"), dns("c", "http://4"), dns("5", "http://5")},
	})
	var names, texts []string
	for _, c := range all {
		names = append(names, c.Name+"="+c.URL)
	}
	for _, s := range skips {
		texts = append(texts, s.why.String()+": "+s.text)
	}
	if got := strings.Join(names, " "); got != "a=http://1 c=http://3 5=http://5" {
		t.Errorf("%s", got)
	}
	want := `duplicate: http://1 of file_sd x.json is a of config
name_taken: http://2 of file_sd x.json: the name a belongs to http://1 of config
duplicate: http://1 of dns pods:80 is a of config
duplicate: http://3 of dns pods:80 is c of file_sd x.json
name_taken: http://4 of dns pods:80: the name c belongs to http://3 of file_sd x.json`
	if got := strings.Join(texts, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLost(t *testing.T) {
	c := func(name string, capacity float64) Config {
		e := Config{Name: name}
		if capacity >= 0 {
			e.Capacity = &capacity
		}
		return e
	}
	for _, x := range []struct {
		old, next []Config
		gone      string
		share     float64
	}{
		{nil, nil, "", 0},
		{[]Config{c("a", -1), c("b", -1)}, []Config{c("a", 0)}, "b", 0.5},
		{[]Config{c("a", 30), c("b", 10)}, []Config{c("b", 10)}, "a", 0.75},
		{[]Config{c("a", 30), c("b", -1), c("c", 10)}, []Config{c("a", 1)}, "b, c", 0.5}, // b counts as the mean, 20
		{[]Config{c("a", 0), c("b", 0)}, nil, "a, b", 0},
	} {
		gone, share := Lost(x.old, x.next)
		if strings.Join(gone, ", ") != x.gone || share != x.share {
			t.Errorf("%v %g, want %s %g", gone, share, x.gone, x.share)
		}
	}
}
