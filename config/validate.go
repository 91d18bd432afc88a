package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"penstock/balancer"
	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/fleet"
	"penstock/proxy"
)

// gatewayName also fits what names become elsewhere: metric labels and parts
// of subjects.
var gatewayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// check joins every package's own rules under its table's name with those that
// span tables. A value that could not be decoded has its fault already.
func (d *decoder) check(f *File) {
	d.gateway(f)
	d.listeners(f)
	d.fleet(f)
	if f.Routing.HashKey == "" && d.given("routing.hash_key") {
		d.wrong(place{path: "routing.hash_key", key: "routing.hash_key", secret: true}, `""`, "want a text that is not empty, or no key")
	}
	if f.Routing.Period < balancer.MinPeriod || f.Routing.Period > balancer.MaxPeriod {
		d.wrong(place{}.member("routing").member("period"), quote(f.Routing.Period.String()), "want "+balancer.MinPeriod.String()+" to "+balancer.MaxPeriod.String())
	}
	for _, fault := range f.Limits.Validate() {
		d.wrong(place{}.member("limits").member(fault.Key), fault.Value, "want "+fault.Want)
	}
	d.engines(f)
	d.network(f)
	for _, fault := range f.Discovery.Validate() {
		d.wrong(keyWithin(place{}.member("discovery"), fault), fault.Value, "want "+fault.Want)
	}
	d.explicit(place{}.member("discovery").member("engine"), &f.Discovery.Engine)
	d.tenants(f)
	d.aliases(f)
}

// given reports whether the file has the path.
func (d *decoder) given(path string) bool { _, ok := d.lines.at[path]; return ok }

// wrong is a fault of a decoded value.
func (d *decoder) wrong(p place, shown, reason string) {
	for at := p.path; at != ""; at = holder(at) {
		if d.bad[at] {
			return
		}
	}
	d.add(p, printable(shown), reason)
}

func (d *decoder) gateway(f *File) {
	d.stateDir(f.Gateway.StateDir)
	if n := f.Gateway.Replicas; n < 1 || n > maxGateways {
		d.wrong(place{}.member("gateway").member("replicas"), strconv.Itoa(n), fmt.Sprintf("want 1 to %d", maxGateways))
	}
	for _, k := range []struct{ key, value string }{{"name", f.Gateway.Name}, {"source", f.Gateway.Source}} {
		if !gatewayName.MatchString(k.value) {
			d.wrong(place{}.member("gateway").member(k.key), quote(k.value), "want 1 to 128 of the characters A-Z a-z 0-9 . _ -")
		}
	}
}

// fleet checks what joins a fleet, the files that it names included.
func (d *decoder) fleet(f *File) {
	at := place{}.member("fleet")
	whole := true
	for _, fault := range f.Fleet.Validate() {
		where := at.member(fault.Key)
		if fault.Key == "key" && !d.given(where.path) && d.given(where.path+"_file") {
			where = at.member("key_file")
		}
		d.wrong(where, fault.Value, "want "+fault.Want)
		whole = false
	}
	if !whole {
		return
	}
	for _, k := range []struct{ key, path string }{{"credentials", f.Fleet.Credentials}, {"nkey", f.Fleet.NKey}, {"tls_ca", f.Fleet.TLSCA}} {
		if k.path == "" {
			continue
		}
		if _, err := ReadSecret(k.path); err != nil {
			d.wrong(at.member(k.key), quote(k.path), err.Error())
		}
	}
	if f.Fleet.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(f.Fleet.TLSCert, f.Fleet.TLSKey); err != nil {
			d.wrong(at.member("tls_cert"), quote(f.Fleet.TLSCert), "want PEM files of a certificate and its key: "+unwrapPath(err).Error())
		}
	}
}

// stateDir wants a directory that can be written, as is found by doing so: a
// gateway that cannot save would tell only at its next restart.
func (d *decoder) stateDir(dir string) {
	if dir == "" {
		return
	}
	at := place{}.member("gateway").member("state_dir")
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		d.wrong(at, quote(dir), "want a directory that exists: "+errors.Unwrap(err).Error())
		return
	case !info.IsDir():
		d.wrong(at, quote(dir), "want a directory, this is a file")
		return
	}
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		d.wrong(at, quote(dir), "want a directory in which this user can write: "+errors.Unwrap(err).Error())
		return
	}
	f.Close()
	os.Remove(f.Name())
}

func (d *decoder) listeners(f *File) {
	listen, admin := place{}.member("listen"), place{}.member("admin")
	if n := f.Listen.MaxStreams; n < 1 || n > 1<<16 {
		d.wrong(listen.member("max_streams"), strconv.Itoa(n), "want 1 to 65536")
	}
	d.certificate(f.Listen)
	opened := []listener{
		{at: listen.member("address"), name: "[listen]", address: f.Listen.Address},
		{at: admin.member("address"), name: "[admin]", address: f.Admin.Address, loopback: true},
	}
	if at := admin.member("metrics_address"); f.Admin.MetricsAddress != "" || d.given(at.path) {
		opened = append(opened, listener{at: at, name: at.key, address: f.Admin.MetricsAddress})
	}
	if _, _, err := splitAddress(f.Fleet.Listen); err == nil && f.Fleet.URL == fleet.Embedded {
		opened = append(opened, listener{at: place{}.member("fleet").member("listen"), name: "fleet.listen", address: f.Fleet.Listen})
	}
	for i := range opened {
		l := &opened[i]
		if l.host, l.port, l.err = splitAddress(l.address); l.err == nil && l.loopback && !isLoopback(l.host) {
			l.err = errors.New("want a loopback address such as 127.0.0.1:8081: the admin listener has no authentication")
		}
		for _, other := range opened[:i] {
			if l.err == nil && other.err == nil && collide(*l, other) {
				l.err = errors.New("want an address other than that of " + other.name + ", " + quote(other.address))
				if !d.given(l.at.path) && d.given(other.at.path) { // the file is to blame, not a default
					l.at, l.address = other.at, other.address
					l.err = errors.New("want an address other than that of " + l.name + ", which is " + quote(net.JoinHostPort(l.host, strconv.Itoa(int(l.port)))) + " where nothing else is set")
				}
			}
		}
		if l.err != nil {
			d.wrong(l.at, quote(l.address), l.err.Error())
		}
	}
}

// listener is one address that the gateway opens.
type listener struct {
	at       place
	name     string // what other faults call it
	address  string
	loopback bool // nothing else is allowed
	host     string
	port     uint16
	err      error
}

// certificate checks that both files are named and fit together.
func (d *decoder) certificate(l Listen) {
	at := place{}.member("listen")
	cert, key := at.member("tls_cert"), at.member("tls_key")
	hasCert, hasKey := d.given(cert.path), d.given(key.path)
	switch {
	case !hasCert && !hasKey:
	case !hasCert:
		d.wrong(key, quote(l.TLSKey), "want listen.tls_cert beside it, or neither")
	case !hasKey:
		d.wrong(cert, quote(l.TLSCert), "want listen.tls_key beside it, or neither")
	case l.TLSCert == "":
		d.wrong(cert, `""`, "want the path of a PEM file, or neither tls_cert nor tls_key")
	case l.TLSKey == "":
		d.wrong(key, `""`, "want the path of a PEM file, or neither tls_cert nor tls_key")
	default:
		if fault := proxy.CheckCertificate(l.TLSCert, l.TLSKey); fault != nil && fault.Key {
			d.wrong(key, quote(l.TLSKey), fault.Error())
		} else if fault != nil {
			d.wrong(cert, quote(l.TLSCert), fault.Error())
		}
	}
}

// splitAddress reads host:port with a numeric port; the host may be empty.
func splitAddress(address string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("want HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("want a port from 0 to 65535")
	}
	if strings.ContainsAny(host, " \t\r\n/@") {
		return "", 0, fmt.Errorf("want HOST:PORT, such as 127.0.0.1:8080")
	}
	return host, uint16(n), nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// collide reports whether two listeners could not be open at once: the same
// port on the same address, or on one that takes in all.
func collide(a, b listener) bool {
	everywhere := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.IsUnspecified()
	}
	named := func(host string) string {
		if strings.EqualFold(host, "localhost") {
			return "127.0.0.1"
		}
		return host
	}
	return a.port == b.port && a.port != 0 && (everywhere(a.host) || everywhere(b.host) || named(a.host) == named(b.host))
}

// maxGateways is more than any front of load balancers spreads over.
const maxGateways = 1000

// network checks the round trips. A cluster that nothing is in would be a
// mistyped one; where engines are still to be found, nobody can say.
func (d *decoder) network(f *File) {
	table := place{}.member("network").member("rtt_ms")
	clusters := []string{f.Gateway.Source}
	for _, e := range f.Engines {
		clusters = append(clusters, e.Cluster)
	}
	for source := range f.Network.RTT {
		clusters = append(clusters, source)
	}
	found := len(f.Discovery.DNS)+len(f.Discovery.FileSD) > 0
	for _, source := range slices.Sorted(maps.Keys(f.Network.RTT)) {
		at := table.member(source)
		if !gatewayName.MatchString(source) {
			d.wrong(at, "", "want a source of 1 to 128 of the characters A-Z a-z 0-9 . _ -")
		}
		row := f.Network.RTT[source]
		for _, cluster := range slices.Sorted(maps.Keys(row)) {
			switch ms := row[cluster]; {
			case !found && !slices.Contains(clusters, cluster), !engine.PlainWord(cluster):
				d.wrong(at.member(cluster), "", "want the cluster of an engine, or a source")
			case !balancer.GoodRTT(ms):
				d.wrong(at.member(cluster), strconv.FormatFloat(ms, 'g', -1, 64), "want "+balancer.WantRTT)
			}
		}
	}
}

// engines gives each engine its cluster, then joins the engines' own faults
// with what only the whole list shows.
func (d *decoder) engines(f *File) {
	list := place{}.member("engine")
	if len(f.Engines) == 0 && len(f.Discovery.DNS)+len(f.Discovery.FileSD) == 0 {
		d.wrong(list, "", "want at least one [[engine]], with a name and a url, or a [discovery] that finds some")
	}
	first := map[string]int{}
	for i := range f.Engines {
		e, at := &f.Engines[i], list.element(i)
		if e.Cluster == "" && !d.given(at.member("cluster").path) {
			e.Cluster = f.Gateway.Source
		}
		for _, fault := range e.Validate() {
			d.wrong(keyWithin(at, fault), fault.Value, "want "+fault.Want)
		}
		d.explicit(at, e)
		if e.Profile == nil && !d.given(at.member("profile").path) {
			e.Profile = profile.Match(e.Models, e.Labels)
		}
		if line, twice := first[e.Name]; twice && e.Name != "" {
			d.wrong(at.member("name"), quote(e.Name), fmt.Sprintf("want a name of its own: the engine on line %d has this one", line))
		} else {
			first[e.Name] = d.lines.line(at.path)
		}
	}
}

// tenants joins the tenants' own faults with what only the whole list shows.
// Faults about keys never quote them.
func (d *decoder) tenants(f *File) {
	list := place{}.member("tenant")
	names, keys := map[string]int{}, map[proxy.KeyHash]int{}
	for i := range f.Tenants {
		t, at := &f.Tenants[i], list.element(i)
		line := d.lines.line(at.path)
		for _, fault := range t.Validate() {
			if fault.Key == "" && d.bad[at.member("key_file").path] {
				continue // there is a key, and it has its fault
			}
			d.wrong(keyWithin(at, fault), fault.Value, "want "+fault.Want)
		}
		if p := at.member("priority"); t.Priority == "" && d.given(p.path) {
			d.wrong(p, `""`, "want critical, standard or sheddable; leave it out for standard")
		}
		if before, twice := names[t.Name]; twice && t.Name != "" {
			d.wrong(at.member("name"), quote(t.Name), fmt.Sprintf("want a name of its own: the tenant on line %d has this one", before))
		} else {
			names[t.Name] = line
		}
		d.keysOfTheirOwn(at, t, keys)
		t.HideKey()
	}
}

// keysOfTheirOwn refuses a key that opens two tenants. keys holds the lines of
// those before.
func (d *decoder) keysOfTheirOwn(at place, t *proxy.TenantConfig, keys map[proxy.KeyHash]int) {
	p := at.member("key_hash")
	p.secret = true
	if t.Key.Path != "" {
		p = at.member("key_file")
	}
	for i, hash := range t.Hashes() {
		if hash == (proxy.KeyHash{}) {
			continue // could not be read: has its fault
		}
		one := p
		if e := p.element(i); d.given(e.path) {
			one = e
		}
		if before, twice := keys[hash]; twice {
			d.wrong(one, quote(t.Key.Path), fmt.Sprintf("want a key of its own: line %d has the same one", before))
		} else {
			keys[hash] = d.lines.line(one.path)
		}
	}
}

// aliases joins their own faults with what only the whole file shows: an alias
// names a model, which no other alias and no engine calls by the alias's name.
func (d *decoder) aliases(f *File) {
	list := place{}.member("alias")
	first := map[string]int{}
	for i := range slices.Backward(f.Aliases) {
		first[f.Aliases[i].Name] = i
	}
	for i, a := range f.Aliases {
		at := list.element(i)
		for _, fault := range a.Validate() {
			d.wrong(at.member(fault.Key), fault.Value, "want "+fault.Want)
		}
		if n := first[a.Name]; n != i && a.Name != "" {
			d.wrong(at.member("name"), quote(a.Name), fmt.Sprintf("want a name of its own: the alias on line %d has this one", d.lines.line(list.element(n).path)))
		}
		if n, chained := first[a.Model]; chained && a.Model != a.Name && a.Model != "" {
			d.wrong(at.member("model"), quote(a.Model), fmt.Sprintf("want a model: this is the alias on line %d, and an alias cannot stand for another", d.lines.line(list.element(n).path)))
		}
		for _, e := range f.Engines {
			if slices.Contains(e.Models, a.Name) && a.Name != "" {
				d.wrong(at.member("name"), quote(a.Name), "want a name that no model has: engine "+e.Name+" serves one of this name")
				break
			}
		}
	}
}

// explicit refuses values that an engine.Config takes for absent: whoever
// writes a 0 or an empty text means something else by it than nothing.
func (d *decoder) explicit(at place, e *engine.Config) {
	if p := at.member("max_in_flight"); e.MaxInFlight == 0 && d.given(p.path) {
		d.wrong(p, "0", "want 1 or more; leave it out to have it learned, or set capacity = 0 to take the engine out")
	}
	if p := at.member("replicas"); e.Replicas == 0 && d.given(p.path) {
		d.wrong(p, "0", "want 1 or more; leave it out for one")
	}
	if p := at.member("cluster"); e.Cluster == "" && d.given(p.path) {
		d.wrong(p, `""`, "want the name of a cluster; leave it out for the gateway's own")
	}
	if p := at.member("dialect"); e.Dialect == "" && d.given(p.path) {
		d.wrong(p, `""`, `want a dialect; "auto", or leave it out, to find out`)
	}
}

// keyWithin is the place of a table's own fault, whose key is one name, labels
// with the label's name behind it, or nothing for the table as a whole; for
// [discovery] engine before it.
func keyWithin(at place, fault engine.Fault) place {
	rest := fault.Key
	if rest == "" {
		return at
	}
	if inner, found := strings.CutPrefix(rest, "engine."); found {
		at, rest = at.member("engine"), inner
	}
	key, label, isLabel := strings.Cut(rest, ".")
	p := at.member(key)
	if isLabel {
		p = p.member(label)
	}
	return p
}
