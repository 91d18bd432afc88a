package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"penstock/engine"
)

// gatewayName also fits what names become elsewhere: metric labels and parts
// of subjects.
var gatewayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// check joins every package's own rules under its table's name with those that
// span tables. A value that could not be decoded has its fault already.
func (d *decoder) check(f *File) {
	d.gateway(f)
	d.listeners(f)
	if f.Routing.HashKey == "" && d.given("routing.hash_key") {
		d.wrong(place{path: "routing.hash_key", key: "routing.hash_key", secret: true}, `""`, "want a text that is not empty, or no key")
	}
	for _, fault := range f.Limits.Validate() {
		d.wrong(place{}.member("limits").member(fault.Key), fault.Value, "want "+fault.Want)
	}
	d.engines(f)
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
	for _, k := range []struct{ key, value string }{{"name", f.Gateway.Name}, {"source", f.Gateway.Source}} {
		if !gatewayName.MatchString(k.value) {
			d.wrong(place{}.member("gateway").member(k.key), quote(k.value), "want 1 to 128 of the characters A-Z a-z 0-9 . _ -")
		}
	}
}

func (d *decoder) listeners(f *File) {
	listen, admin := place{}.member("listen"), place{}.member("admin")
	if n := f.Listen.MaxStreams; n < 1 || n > 1<<16 {
		d.wrong(listen.member("max_streams"), strconv.Itoa(n), "want 1 to 65536")
	}
	host, port, err := splitAddress(f.Listen.Address)
	if err != nil {
		d.wrong(listen.member("address"), quote(f.Listen.Address), err.Error())
	}
	adminHost, adminPort, adminErr := splitAddress(f.Admin.Address)
	switch {
	case adminErr != nil:
		d.wrong(admin.member("address"), quote(f.Admin.Address), adminErr.Error())
	case !isLoopback(adminHost):
		d.wrong(admin.member("address"), quote(f.Admin.Address),
			"want a loopback address such as 127.0.0.1:8081: the admin listener has no authentication")
	case err == nil && port == adminPort && port != 0 && collide(host, adminHost):
		d.wrong(admin.member("address"), quote(f.Admin.Address), "want an address other than that of [listen], "+quote(f.Listen.Address))
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

// collide reports whether a loopback listener could not open its port beside
// one on host: the same address, or one that takes in all.
func collide(host, loopback string) bool {
	ip, err := netip.ParseAddr(host)
	if host == "" || err == nil && ip.IsUnspecified() {
		return true
	}
	named := func(h string) string {
		if strings.EqualFold(h, "localhost") {
			return "127.0.0.1"
		}
		return h
	}
	return named(host) == named(loopback)
}

// engines gives each engine its cluster, then joins the engines' own faults
// with what only the whole list shows.
func (d *decoder) engines(f *File) {
	list := place{}.member("engine")
	if len(f.Engines) == 0 {
		d.wrong(list, "", "want at least one [[engine]], with a name and a url")
	}
	first := map[string]int{}
	for i := range f.Engines {
		e, at := &f.Engines[i], list.element(i)
		if e.Cluster == "" && !d.given(at.member("cluster").path) {
			e.Cluster = f.Gateway.Source
		}
		for _, fault := range e.Validate() {
			d.wrong(engineKey(at, fault), fault.Value, "want "+fault.Want)
		}
		d.explicit(at, e)
		if line, twice := first[e.Name]; twice && e.Name != "" {
			d.wrong(at.member("name"), quote(e.Name), fmt.Sprintf("want a name of its own: the engine on line %d has this one", line))
		} else {
			first[e.Name] = d.lines.line(at.path)
		}
	}
}

// explicit refuses values that an engine.Config takes for absent: whoever
// writes a 0 or an empty text means something else by it than nothing.
func (d *decoder) explicit(at place, e *engine.Config) {
	if p := at.member("max_in_flight"); e.MaxInFlight == 0 && d.given(p.path) {
		d.wrong(p, "0", "want 1 or more; leave it out to have it learned, or set capacity = 0 to take the engine out")
	}
	if p := at.member("cluster"); e.Cluster == "" && d.given(p.path) {
		d.wrong(p, `""`, "want the name of a cluster; leave it out for the gateway's own")
	}
	if p := at.member("dialect"); e.Dialect == "" && d.given(p.path) {
		d.wrong(p, `""`, `want a dialect; "auto", or leave it out, to find out`)
	}
}

// engineKey is the place of an engine's own fault, whose key is one name or
// labels with the label's name behind it.
func engineKey(at place, fault engine.Fault) place {
	key, label, isLabel := strings.Cut(fault.Key, ".")
	p := at.member(key)
	if isLabel {
		p = p.member(label)
	}
	return p
}
