package proxy

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"penstock/engine"
	"penstock/protect"
)

// TenantConfig is one [[tenant]] table of the configuration file.
type TenantConfig struct {
	Name            string              `toml:"name"`
	KeyHash         []KeyHash           `toml:"key_hash,hidden"` // one, or several while a key is being changed
	Key             engine.SecretFile   `toml:"key,file"`        // the key itself, instead of its hash
	Priority        string              `toml:"priority"`        // ceiling, and what requests have that name none; "" = standard
	Require         map[string][]string `toml:"require"`         // labels; several values of one are all demanded
	Rate            *float64            `toml:"rate"`            // requests/s; nil: unlimited
	TokensPerMinute *float64            `toml:"tokens_per_minute"`
}

// Labels of metrics that no tenant may have for a name.
const (
	noTenant     = "none"  // requests without a known key
	otherTenants = "other" // tenants beyond maxTenantLabels
)

var tenantName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// Validate returns every fault, keyed relative to [[tenant]]. That names and
// keys occur once in a file is for the file's owner to check.
func (c TenantConfig) Validate() []engine.Fault {
	var faults []engine.Fault
	add := func(key, value, want string) {
		faults = append(faults, engine.Fault{Key: key, Value: value, Want: want})
	}
	switch {
	case !tenantName.MatchString(c.Name):
		add("name", strconv.Quote(c.Name), "1 to 63 of the characters A-Z a-z 0-9 . _ -")
	case c.Name == noTenant || c.Name == otherTenants:
		add("name", strconv.Quote(c.Name), "another name: metrics use this one for what belongs to no tenant or to many")
	}
	if c.Priority != "" {
		if _, err := protect.ParsePriority(c.Priority); err != nil {
			add("priority", strconv.Quote(c.Priority), strings.TrimPrefix(err.Error(), "want "))
		}
	}
	limit := func(key string, v *float64, most float64) {
		if v != nil && (math.IsNaN(*v) || *v <= 0 || *v > most) {
			add(key, strconv.FormatFloat(*v, 'g', -1, 64), fmt.Sprintf("a number above 0 and at most %.0f; leave it out for no limit", most))
		}
	}
	limit("rate", c.Rate, protect.MaxRate)
	limit("tokens_per_minute", c.TokensPerMinute, 60*protect.MaxRate)
	return append(append(faults, c.keyFaults()...), c.requireFaults()...)
}

// keyFaults checks that there is one kind of key, and that the one in the
// file is a key. Its length is told, never its text.
func (c TenantConfig) keyFaults() []engine.Fault {
	path := strconv.Quote(c.Key.Path)
	switch {
	case c.Key.Path != "" && len(c.KeyHash) > 0:
		return []engine.Fault{{Key: "key_file", Value: path, Want: "either tenant.key_hash or tenant.key_file"}}
	case c.Key.Path != "":
		if err := CheckKey(string(c.Key.Text)); err != nil {
			return []engine.Fault{{Key: "key_file", Value: path, Want: strings.TrimPrefix(err.Error(), "want ")}}
		}
	case c.KeyHash != nil && len(c.KeyHash) == 0:
		return []engine.Fault{{Key: "key_hash", Value: "[]", Want: "at least one hash"}}
	case c.KeyHash == nil:
		return []engine.Fault{{Want: "key_hash (`penstock hash-key` prints it) or key_file: a tenant without a key cannot come in"}}
	}
	return nil
}

// requireFaults: a list that is there and empty would look like a demand and
// be none.
func (c TenantConfig) requireFaults() (faults []engine.Fault) {
	for _, name := range slices.Sorted(maps.Keys(c.Require)) {
		if !engine.PlainWord(name) {
			faults = append(faults, engine.Fault{Key: "require", Value: strconv.Quote(name), Want: engine.WantWord})
		}
		if len(c.Require[name]) == 0 {
			faults = append(faults, engine.Fault{Key: "require." + name, Value: "[]", Want: "at least one value"})
		}
		for _, v := range c.Require[name] {
			if !engine.PlainWord(v) {
				faults = append(faults, engine.Fault{Key: "require." + name, Value: strconv.Quote(v), Want: engine.WantWord})
			}
		}
	}
	return faults
}

// ceiling is Priority with its default.
func (c TenantConfig) ceiling() protect.Priority {
	if c.Priority == "" {
		return protect.Standard
	}
	p, err := protect.ParsePriority(c.Priority)
	if err != nil {
		panic("proxy: unvalidated priority " + c.Priority)
	}
	return p
}

// Hashes are those of all keys of the tenant.
func (c TenantConfig) Hashes() []KeyHash {
	if c.Key.Text == "" {
		return c.KeyHash
	}
	return []KeyHash{HashKey(string(c.Key.Text))}
}

// HideKey puts the hash of the key that was read from a file in the key's
// place. Validate comes first.
func (c *TenantConfig) HideKey() { c.KeyHash, c.Key.Text = c.Hashes(), "" }

// demands are the labels in canonical terms, sorted.
func (c TenantConfig) demands() []string {
	var terms []string
	for name, values := range c.Require {
		for _, v := range values {
			terms = append(terms, name+"="+v)
		}
	}
	slices.Sort(terms)
	return slices.Compact(terms)
}
