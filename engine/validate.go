package engine

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fault is one thing wrong with a Config.
type Fault struct {
	Key   string // of the configuration file, within its [[engine]] table
	Value string // as configured, without secrets
	Want  string // what would be right
}

func (f Fault) String() string { return fmt.Sprintf("%s = %s: want %s", f.Key, f.Value, f.Want) }

const (
	maxLabelBytes = 128
	wantURL       = "an absolute URL such as http://10.0.0.1:8000"
)

var engineName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// Validate reports every fault of the table, none if it can be used. That a
// name occurs once in a file is for the file's owner to check.
func (c Config) Validate() []Fault {
	var faults []Fault
	add := func(key string, value any, want string) {
		text := fmt.Sprint(value)
		if s, ok := value.(string); ok {
			text = strconv.Quote(s)
		}
		faults = append(faults, Fault{key, text, want})
	}
	if !engineName.MatchString(c.Name) {
		add("name", c.Name, "1 to 63 of the characters A-Z a-z 0-9 . _ -")
	}
	for _, f := range urlFaults(c.URL) {
		add("url", f.Value, f.Want)
	}
	if c.Cluster != "" && !PlainWord(c.Cluster) {
		add("cluster", c.Cluster, WantWord)
	}
	if names := DialectNames(); c.Dialect != "" && !slices.Contains(names, c.Dialect) {
		add("dialect", c.Dialect, "one of "+strings.Join(names, ", "))
	}
	if v := c.Capacity; v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0) || *v < 0) {
		add("capacity", *v, "a finite number of requests/s, 0 or more")
	}
	if p := c.Profile; p != nil {
		found := p.Validate()
		for _, f := range found {
			f.Key = strings.TrimSuffix("profile."+f.Key, ".")
			faults = append(faults, f)
		}
		if len(found) == 0 && c.Capacity != nil && *c.Capacity > p.Most() {
			add("capacity", *c.Capacity, fmt.Sprintf("at most the %v requests/s for which profile has a latency", p.Most()))
		}
	}
	if c.MaxInFlight < 0 {
		add("max_in_flight", c.MaxInFlight, "1 or more")
	}
	if c.Replicas < 0 || c.Replicas > MaxEngines {
		add("replicas", c.Replicas, "1 to "+strconv.Itoa(MaxEngines))
	}
	if f, bad := keyFault(c.Key); bad {
		faults = append(faults, f)
	}
	for _, pattern := range c.PassHeaders {
		if want := passFault(pattern); want != "" {
			add("pass_headers", pattern, want)
		}
	}
	c.listFaults(add)
	c.secureFaults(add)
	return faults
}

// secureFaults checks what is for https engines only.
func (c Config) secureFaults(add func(key string, value any, want string)) {
	plain := c.plain()
	if c.CAFile != "" {
		if err := readCA(c.CAFile, x509.NewCertPool()); err != nil {
			if p, ok := errors.AsType[*os.PathError](err); ok {
				err = p.Err
			}
			add("ca_file", c.CAFile, "a readable file of PEM certificates: "+err.Error())
		} else if plain {
			add("ca_file", c.CAFile, "no such key beside an http:// url: nothing would be checked")
		}
	}
	switch {
	case c.TLSServerName == "":
	case !hostName(c.TLSServerName):
		add("tls_server_name", c.TLSServerName, "a host name or an IP address, without a port")
	case plain:
		add("tls_server_name", c.TLSServerName, "no such key beside an http:// url: nothing would be checked")
	}
}

func (c Config) plain() bool { return strings.HasPrefix(strings.ToLower(c.URL), "http:") }

// fromTemplate is an engine made of a template that holds for engines with TLS
// and without.
func (c Config) fromTemplate() Config {
	if c.plain() {
		c.CAFile, c.TLSServerName = "", ""
	}
	return c
}

func hostName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && dnsName.MatchString(s)
}

// listFaults checks models, capabilities and labels. A list that is there and
// empty is a fault: it would mean the opposite of a list that is not there.
func (c Config) listFaults(add func(key string, value any, want string)) {
	if c.Models != nil && len(c.Models) == 0 {
		add("models", "[]", "at least one model; without the key the engine is asked")
	}
	for i, m := range c.Models {
		switch {
		case m == "":
			add("models", m, "a model's name")
		case slices.Contains(c.Models[:i], m):
			add("models", m, "each model once")
		}
	}
	for _, name := range c.Capabilities {
		if _, err := ParseCapability(name); err != nil {
			add("capabilities", name, "any of "+strings.Join(CapabilityNames(), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		if !PlainWord(name) {
			add("labels", name, WantWord)
		}
		if len(c.Labels[name]) == 0 {
			add("labels."+name, "[]", "at least one value")
		}
		for _, v := range c.Labels[name] {
			if !PlainWord(v) {
				add("labels."+name, v, WantWord)
			}
		}
	}
}

// WantWord completes "want ..." where PlainWord is false.
const WantWord = "1 to 128 bytes without '=', ',' and control characters"

// PlainWord reports whether s can be the name or a value of a label:
// x-penstock-require separates with = and comma.
func PlainWord(s string) bool {
	return s != "" && len(s) <= maxLabelBytes && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '=' || r == ',' || unicode.IsControl(r) })
}

// urlFaults lists what is wrong with an engine's URL, with the URL's password
// left out of the values. The key is filled in by the caller.
func urlFaults(raw string) []Fault {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		if strings.Contains(raw, "@") {
			raw = "(not shown: it may hold a password)"
		}
		return []Fault{{Value: raw, Want: wantURL}}
	}
	shown := raw
	if u.User != nil {
		shown = u.Redacted()
	}
	var faults []Fault
	check := func(bad bool, want string) {
		if bad {
			faults = append(faults, Fault{Value: shown, Want: want})
		}
	}
	check(u.Scheme != "https" && u.Scheme != "http", wantURL)
	check(u.Hostname() == "", "a host, as in http://10.0.0.1:8000")
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.ParseUint(port, 10, 16)
		check(err != nil || n == 0, "a port from 1 to 65535")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		check(DeniedAddress(ip), "an address that is not link-local: those belong to the machine and its metadata service")
	}
	check(u.User != nil, "no user and password in the URL")
	check(u.RawQuery != "" || u.ForceQuery, "no query")
	check(u.Fragment != "" || strings.Contains(raw, "#"), "no fragment")
	check(strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1"), "the engine's root, without /v1")
	return faults
}
