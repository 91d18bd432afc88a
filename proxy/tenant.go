package proxy

import (
	"crypto/subtle"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"penstock/protect"
	"penstock/selector"
)

// tenant is one tenant as its requests need it. Immutable; what it counts
// lives in quota and metrics, which outlast a reload.
type tenant struct {
	name    string
	ceiling protect.Priority
	unasked protect.Priority // of a request that names none
	demands []string         // canonical terms that no request can lift, sorted
	require string           // the same, joined
	keyer   selector.Keyer
	quota   *protect.Quota // nil: unlimited
	metrics *tenantMetrics
}

// tenants finds the tenant of a request. Immutable: a reload makes another one.
type tenants struct {
	open *tenant // everybody's, where none is configured; else nil
	none *tenant // of requests without a known key
	keys map[uint64][]tenantKey
	list map[string]*tenant
}

// tenantKey is one known key. The first eight bytes of its hash are where it
// is found.
type tenantKey struct {
	hash   KeyHash
	tenant *tenant
}

// openTenant is the name of the tenant that all requests belong to where none
// is configured.
const openTenant = "default"

// newTenants builds the look-up of validated tenants. Those that old has under
// the same name keep what they have used of their quota.
func newTenants(configs []TenantConfig, hashKey string, m *metrics, old *tenants, now time.Time) *tenants {
	m.keepTenants(labelledTenants(configs))
	t := &tenants{none: &tenant{name: noTenant, unasked: protect.Standard, metrics: m.forTenant(noTenant)}}
	if len(configs) == 0 {
		t.open = &tenant{name: openTenant, ceiling: protect.Critical, unasked: protect.Standard,
			keyer: selector.NewKeyer(hashKey, ""), metrics: m.forTenant(openTenant)}
		return t
	}
	t.keys = make(map[uint64][]tenantKey, len(configs))
	t.list = make(map[string]*tenant, len(configs))
	for _, c := range configs {
		one := &tenant{name: c.Name, ceiling: c.ceiling(), unasked: c.ceiling(), demands: c.demands(),
			keyer: selector.NewKeyer(hashKey, c.Name), metrics: m.forTenant(c.Name)}
		one.require = strings.Join(one.demands, ",")
		var before *protect.Quota
		if old != nil && old.list[c.Name] != nil {
			before = old.list[c.Name].quota
		}
		one.quota = protect.NewQuota(valueOf(c.Rate), valueOf(c.TokensPerMinute), before, now)
		t.list[c.Name] = one
		for _, hash := range c.Hashes() {
			at := binary.LittleEndian.Uint64(hash[:])
			t.keys[at] = append(t.keys[at], tenantKey{hash, one})
		}
	}
	return t
}

// labelledTenants are the tenants with a label of their own in metrics.
func labelledTenants(configs []TenantConfig) map[string]bool {
	labels := map[string]bool{noTenant: true, otherTenants: true}
	if len(configs) == 0 {
		labels[openTenant] = true
	}
	for _, c := range configs[:min(len(configs), maxTenantLabels)] {
		labels[c.Name] = true
	}
	return labels
}

func valueOf(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// single reports whether there is one party only, so that what an engine holds
// can be nobody else's.
func (t *tenants) single() bool { return t.open != nil || len(t.list) == 1 }

// of finds the tenant whose key the request carries; a fault comes with none.
func (t *tenants) of(h http.Header, hasher *keyHasher) (*tenant, *apiError) {
	if t.open != nil {
		return t.open, nil
	}
	given := false
	for i := range keySources {
		values := h[keySources[i].header]
		if len(values) == 0 {
			continue
		}
		key, ok := keySources[i].key(values)
		given = given || ok || len(values) > 1
		if !ok {
			continue
		}
		if one := t.find(key, hasher); one != nil {
			return one, nil
		}
	}
	return t.none, errNoTenant(given)
}

// find looks a key up by its hash: what it compares byte by byte is not the
// key, and it compares all of it, so that the time of a failure tells nothing
// about the keys that are known.
func (t *tenants) find(key string, hasher *keyHasher) *tenant {
	if len(key) < MinKey || len(key) > MaxKey {
		return nil
	}
	hash := hasher.sum(key)
	var found *tenant
	for _, k := range t.keys[binary.LittleEndian.Uint64(hash[:])] {
		if subtle.ConstantTimeCompare(k.hash[:], hash[:]) == 1 {
			found = k.tenant
		}
	}
	return found
}

// keySources are where a key may stand, in the order in which they are tried.
var keySources = [...]struct {
	header string
	key    func(values []string) (string, bool)
}{
	{"Authorization", bearer},
	{"X-Api-Key", plainKey},
}

// bearer reads "Bearer KEY". Two headers are no key: which of them another
// program on the way has looked at cannot be known.
func bearer(values []string) (key string, ok bool) {
	const scheme = "bearer "
	if len(values) != 1 || len(values[0]) < len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimLeft(values[0][len(scheme):], " "), true
}

func plainKey(values []string) (key string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// priority is what the request asks for, within its tenant's ceiling. One that
// cannot be read is an error.
func (t *tenant) priority(h http.Header) (protect.Priority, error) {
	v := h["X-Penstock-Priority"]
	if len(v) == 0 {
		return t.unasked, nil
	}
	if len(v) == 1 {
		if p, err := protect.ParsePriority(v[0]); err == nil {
			return p.Under(t.ceiling), nil
		}
	}
	return t.unasked, badRequest("x-penstock-priority", "x-penstock-priority is critical, standard or sheddable")
}
