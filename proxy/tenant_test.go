package proxy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/protect"
	"penstock/selector"
)

// tenantsOf builds the look-up of some tenants, each with a key made of its name.
func tenantsOf(configs ...TenantConfig) *tenants {
	return newTenants(configs, "", newMetrics(nil, protect.NewMemory(-1), nil), nil, time.Now())
}

func withKeys(name string, keys ...string) TenantConfig {
	c := TenantConfig{Name: name}
	for _, k := range keys {
		c.KeyHash = append(c.KeyHash, HashKey(k))
	}
	return c
}

func TestTheKeySaysWhoseTheRequestIs(t *testing.T) {
	const other = "sk-unknown-0123456789abcdefghij"
	list := tenantsOf(withKeys("a", keyA, keyA+"-new"), withKeys("b", keyB))
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, c := range []struct {
		name string
		h    http.Header
		want string // tenant, or the message of the 401
	}{
		{"bearer", header("Authorization", "Bearer "+keyA), "a"},
		{"second key of the tenant", header("Authorization", "Bearer "+keyA+"-new"), "a"},
		{"x-api-key", header("X-Api-Key", keyB), "b"},
		{"scheme in another case, more spaces", header("Authorization", "bEARER   "+keyB), "b"},
		{"a token of somebody else's beside the key", header("Authorization", "Bearer "+other, "X-Api-Key", keyB), "b"},
		{"basic beside the key", header("Authorization", "Basic eA==", "X-Api-Key", keyB), "b"},
		{"both", header("Authorization", "Bearer "+keyA, "X-Api-Key", keyB), "a"},
		{"none", header("Content-Type", "x"), "wants an API key"},
		{"basic", header("Authorization", "Basic "+keyA), "wants an API key"},
		{"the key alone", header("Authorization", keyA), "wants an API key"},
		{"unknown", header("Authorization", "Bearer "+other), "not known"},
		{"empty", header("Authorization", "Bearer "), "not known"},
		{"another name", header("Api-Key", keyA), "wants an API key"},
		{"a tenant's name", header("X-Tenant", "a", "X-Penstock-Tenant", "a"), "wants an API key"},
		{"two headers", header("Authorization", "Bearer "+keyA, "Authorization", "Bearer "+keyA), "not known"},
		{"two x-api-keys", header("X-Api-Key", keyA, "X-Api-Key", keyA), "not known"},
		{"two keys in one", header("X-Api-Key", keyA+","+keyB), "not known"},
		{"a key with a space behind", header("X-Api-Key", keyA+" "), "not known"},
		{"the hash instead of the key", header("X-Api-Key", HashKey(keyA).String()), "not known"},
		{"case", header("X-Api-Key", strings.ToUpper(keyA)), "not known"},
		{"longer", header("X-Api-Key", keyA+"x"), "not known"},
		{"shorter", header("X-Api-Key", keyA[:len(keyA)-1]), "not known"},
		{"very long", header("X-Api-Key", strings.Repeat(keyA, 1000)), "not known"},
	} {
		one, fault := list.of(c.h, new(keyHasher))
		switch {
		case fault == nil:
			if one.name != c.want {
				t.Errorf("%s: tenant %s, want %s", c.name, one.name, c.want)
			}
		case one != list.none || fault.status != 401 || fault.code != "invalid_api_key" || !strings.Contains(fault.message, c.want):
			t.Errorf("%s: %+v, want %q", c.name, fault, c.want)
		case strings.Contains(fault.message, keyA) || strings.Contains(fault.message, keyB):
			t.Errorf("%s: the key is in %q", c.name, fault.message)
		}
	}
	open := tenantsOf()
	if one, fault := open.of(header("Authorization", "Bearer whatever"), new(keyHasher)); fault != nil || one.name != "default" || one.ceiling != protect.Critical || one.unasked != protect.Standard {
		t.Errorf("without tenants: %+v, %+v", one, fault)
	}
}

func TestTenThousandTenants(t *testing.T) {
	configs := make([]TenantConfig, 10_000)
	keys := make([]string, len(configs))
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range configs {
		keys[i] = fmt.Sprintf("sk-%016x%016x", rng.Uint64(), rng.Uint64())
		configs[i] = withKeys(fmt.Sprint("t", i), keys[i])
		limit := 5.0
		configs[i].Rate = &limit
	}
	list := tenantsOf(configs...)
	for i, key := range keys {
		if one := list.find(key, new(keyHasher)); one == nil || one.name != configs[i].Name {
			t.Fatalf("the key of %s finds %+v", configs[i].Name, one)
		}
		if list.find(key[:len(key)-1]+"x", new(keyHasher)) != nil {
			t.Fatalf("a key like that of %s is known", configs[i].Name)
		}
	}
	seen := map[selector.Keyer]bool{}
	for _, one := range list.list {
		seen[one.keyer] = true
	}
	if len(seen) != len(configs) {
		t.Errorf("%d affinity keys of %d tenants", len(seen), len(configs))
	}
	h := http.Header{"Authorization": {"Bearer " + keys[77]}}
	var hasher keyHasher
	if n := testing.AllocsPerRun(1000, func() {
		if _, fault := list.of(h, &hasher); fault != nil {
			t.Error("not known")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a look-up", n)
	}
}

func TestPriorityStaysUnderTheCeiling(t *testing.T) {
	for _, c := range []struct{ ceiling, asked, want string }{
		{"critical", "", "critical"}, {"critical", "critical", "critical"}, {"critical", "sheddable", "sheddable"},
		{"standard", "", "standard"}, {"standard", "critical", "standard"}, {"standard", "standard", "standard"}, {"standard", "sheddable", "sheddable"},
		{"sheddable", "", "sheddable"}, {"sheddable", "critical", "sheddable"}, {"sheddable", "standard", "sheddable"},
		{"", "", "standard"}, {"", "critical", "standard"},
		{"critical", "Critical", "error"}, {"critical", "high", "error"}, {"critical", " critical", "error"},
	} {
		config := withKeys("a", keyA)
		config.Priority = c.ceiling
		h := http.Header{}
		if c.asked != "" {
			h.Set("X-Penstock-Priority", c.asked)
		}
		p, err := tenantsOf(config).find(keyA, new(keyHasher)).priority(h)
		if got := p.String(); (err != nil) != (c.want == "error") || err == nil && got != c.want {
			t.Errorf("ceiling %q, asked %q: %s, %v; want %s", c.ceiling, c.asked, got, err, c.want)
		}
	}
	two := http.Header{"X-Penstock-Priority": {"standard", "critical"}}
	if p, err := tenantsOf().open.priority(two); err == nil || p != protect.Standard {
		t.Errorf("two priorities are %v, %v", p, err)
	}
}

// What a tenant demands cannot be lifted, only added to.
func TestDemandsAddUp(t *testing.T) {
	config := withKeys("a", keyA)
	config.Require = map[string][]string{"residency": {"eu"}, "site": {"b 2", "a"}}
	one := tenantsOf(config).find(keyA, new(keyHasher))
	for _, c := range []struct{ header, want string }{
		{"", "residency=eu,site=a,site=b 2"},
		{"residency=eu", "residency=eu,site=a,site=b 2"},
		{"gpu=h100", "gpu=h100,residency=eu,site=a,site=b 2"},
		{"residency=us", "residency=eu,residency=us,site=a,site=b 2"},
		{"zone=1,gpu=h100,zone=1", "gpu=h100,residency=eu,site=a,site=b 2,zone=1"},
		{"residency=", "error"}, {"residency", "error"}, {",", "error"},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set("X-Penstock-Require", c.header)
		}
		got, err := one.demand(h)
		if (err != nil) != (c.want == "error") || err == nil && got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.header, got, err, c.want)
		}
	}
	many := http.Header{"X-Penstock-Require": {strings.TrimSuffix(strings.Repeat("a=b,", maxRequireTerms), ",")}}
	if _, err := one.demand(many); err != nil {
		t.Errorf("the tenant's demands count against those of the request: %v", err)
	}
	if !slices.Equal(one.demands, []string{"residency=eu", "site=a", "site=b 2"}) {
		t.Errorf("a request changed its tenant's demands: %q", one.demands)
	}
}

func TestQuotasOutliveAReload(t *testing.T) {
	m, now := newMetrics(nil, protect.NewMemory(-1), nil), time.Now()
	rate := 1.0
	limited := func(name, key string) TenantConfig {
		c := withKeys(name, key)
		c.Rate = &rate
		return c
	}
	first := newTenants([]TenantConfig{limited("a", keyA), limited("b", keyB)}, "", m, nil, now)
	for _, key := range []string{keyA, keyB} {
		first.find(key, new(keyHasher)).quota.Admit(now)
	}
	// a gets another key and more labels, b goes and comes again, c is new.
	changed := limited("a", keyA+"-new")
	changed.Require = map[string][]string{"residency": {"eu"}}
	second := newTenants([]TenantConfig{limited("c", keyB+"-c"), changed}, "", m, first, now)
	third := newTenants([]TenantConfig{changed, limited("b", keyB)}, "", m, second, now)
	for _, c := range []struct {
		what  string
		one   *tenant
		spent protect.Spent
	}{
		{"a after a reload", second.find(keyA+"-new", new(keyHasher)), protect.SpentRequests},
		{"c, which is new", second.find(keyB+"-c", new(keyHasher)), protect.SpentNothing},
		{"b, which had gone", third.find(keyB, new(keyHasher)), protect.SpentNothing},
	} {
		if c.one == nil {
			t.Fatalf("%s: no such tenant", c.what)
		}
		if spent, _ := c.one.quota.Admit(now); spent != c.spent {
			t.Errorf("%s: %v", c.what, spent)
		}
	}
	if second.find(keyA, new(keyHasher)) != nil || second.find(keyB, new(keyHasher)) != nil {
		t.Error("a key that was taken out is still good")
	}
}

func BenchmarkTenantLookup(b *testing.B) {
	configs := make([]TenantConfig, 10_000)
	headers := make([]http.Header, len(configs))
	for i := range configs {
		key := fmt.Sprintf("sk-%032x", i*7919)
		configs[i] = withKeys(fmt.Sprint("t", i), key)
		headers[i] = http.Header{"Authorization": {"Bearer " + key}}
	}
	list := tenantsOf(configs...)
	b.Run("Known", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var hasher keyHasher
			for i := rand.IntN(len(headers)); pb.Next(); i = (i + 1) % len(headers) {
				if one, _ := list.of(headers[i], &hasher); one == nil {
					b.Error("not known")
				}
			}
		})
	})
	b.Run("Unknown", func(b *testing.B) {
		var hasher keyHasher
		b.ReportAllocs()
		for b.Loop() {
			list.find("sk-ffffffffffffffffffffffffffffffff", &hasher)
		}
	})
}

// BenchmarkTenantTiming is the test of security.md row 11: does the time of a
// failure tell how much of a key is right? It reports Welch's t between wrong
// keys that share all but the last character with a known one and wrong keys
// that share nothing; |t| < 4.5 over 100,000 samples each is no.
//
//	go test ./proxy -run '^$' -bench TenantTiming -benchtime 100000x
func BenchmarkTenantTiming(b *testing.B) {
	known := "sk-0123456789abcdef0123456789abcdef0123456789abcdef"
	list := tenantsOf(withKeys("a", known))
	near := known[:len(known)-1] + "0"
	var hasher keyHasher
	far := "sk-" + strings.Repeat("z", len(known)-3)
	var sum, squares [2]float64
	var n [2]float64
	for b.Loop() {
		which := rand.IntN(2)
		key := [2]string{near, far}[which]
		began := time.Now()
		found := list.find(key, &hasher)
		took := float64(time.Since(began))
		if found != nil {
			b.Fatal("known")
		}
		if took > 20_000 { // another process had the processor
			continue
		}
		n[which]++
		sum[which] += took
		squares[which] += took * took
	}
	mean := func(i int) float64 { return sum[i] / n[i] }
	variance := func(i int) float64 { return squares[i]/n[i] - mean(i)*mean(i) }
	b.ReportMetric((mean(0)-mean(1))/math.Sqrt(variance(0)/n[0]+variance(1)/n[1]), "t")
}
