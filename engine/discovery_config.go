package engine

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// DiscoveryConfig is the [discovery] table: where engines are found beside
// those of the file.
type DiscoveryConfig struct {
	DNS    []string `toml:"dns"`     // HOST:PORT for A and AAAA, _SERVICE._tcp.NAME for SRV
	FileSD []string `toml:"file_sd"` // paths; the last part may be a pattern
	// Engine is what every engine found starts with; a file's labels stand
	// before it. It has neither name nor url.
	Engine Config `toml:"engine"`
}

// Validate reports every fault of the table.
func (c DiscoveryConfig) Validate() []Fault {
	var faults []Fault
	for i, text := range c.DNS {
		if _, want := parseDNSEntry(text); want != "" {
			faults = append(faults, Fault{"dns", strconv.Quote(text), want})
		} else if slices.Contains(c.DNS[:i], text) {
			faults = append(faults, Fault{"dns", strconv.Quote(text), "each name once"})
		}
	}
	for i, text := range c.FileSD {
		if want := patternFault(text); want != "" {
			faults = append(faults, Fault{"file_sd", strconv.Quote(text), want})
		} else if slices.Contains(c.FileSD[:i], text) {
			faults = append(faults, Fault{"file_sd", strconv.Quote(text), "each pattern once"})
		}
	}
	e := c.Engine
	for key, value := range map[string]string{"engine.name": e.Name, "engine.url": e.URL} {
		if value != "" {
			faults = append(faults, Fault{key, strconv.Quote(value), "no " + key[len("engine."):] + ": every engine found has its own"})
		}
	}
	e.Name, e.URL = "any", "https://any"
	for _, f := range e.Validate() {
		f.Key = "engine." + f.Key
		faults = append(faults, f)
	}
	return faults
}

// dnsEntry is one name of discovery.dns.
type dnsEntry struct {
	name string // to look up
	port string // of all its addresses; "": the name is of SRV records, which have the ports
	tls  bool   // SRV of _https
}

const wantDNS = "HOST:PORT for address records, or _SERVICE._tcp.NAME for SRV records"

var (
	dnsName    = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)
	srvService = regexp.MustCompile(`^_[A-Za-z0-9-]+\._tcp\.`)
)

// parseDNSEntry reads a name; want says what would be right, "" if it is.
func parseDNSEntry(text string) (e dnsEntry, want string) {
	if strings.Contains(text, "://") {
		return e, wantDNS + ", without http://"
	}
	if !strings.Contains(text, ":") {
		if !srvService.MatchString(text) || !dnsName.MatchString(text) || len(text) > 253 {
			return e, wantDNS
		}
		service, _, _ := strings.Cut(text, ".")
		return dnsEntry{name: text, tls: strings.EqualFold(service, "_https")}, ""
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return e, wantDNS
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return e, "a name: an address needs no looking up, make it an [[engine]]"
	}
	if !dnsName.MatchString(host) || len(host) > 253 {
		return e, wantDNS
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return e, "a port from 1 to 65535"
	}
	return dnsEntry{name: host, port: port}, ""
}

// fileSDEndings are how names of files end that are read, as Prometheus has it.
var fileSDEndings = []string{".json", ".yml", ".yaml"}

// patternFault says what would be right, "" if the pattern is. Directories are
// watched by name, so only the last part may be a pattern.
func patternFault(text string) string {
	dir, last := filepath.Split(text)
	switch _, err := filepath.Match(last, ""); {
	case !slices.Contains(fileSDEndings, filepath.Ext(last)):
		return "a path that ends in " + strings.Join(fileSDEndings, ", ")
	case strings.ContainsAny(dir, "*?["):
		return "a directory by its name; * ? [ only in the last part of the path"
	case err != nil:
		return "a pattern with * ? [a-z] in the last part of the path"
	}
	return ""
}

// maxName is the length of an engine's name.
const maxName = 63

// nameOf derives an engine's name from where it is: the same place has the
// same name, whoever finds it. It is readable, and so not always unique.
func nameOf(place string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, strings.NewReplacer("[", "", "]", "").Replace(place))
	name = strings.Trim(name, "-")
	if len(name) > maxName {
		name = name[:maxName-9] + fmt.Sprintf("-%08x", uint32(xxhash.Sum64String(place)))
	}
	return name
}
