package fleet

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Config is the [fleet] table of the configuration file. Without URL a gateway
// is on its own.
type Config struct {
	// URL is where the fleet's NATS servers are, several by commas, or Embedded.
	// It may hold a password.
	URL         string `toml:"url,hidden"`
	Listen      string `toml:"listen"`           // host:port of the embedded server
	Key         string `toml:"key,secret"`       // that all gateways of the fleet have; empty: a fixed one, on loopback only
	Credentials string `toml:"credentials,path"` // a .creds file: JWT and NKey
	NKey        string `toml:"nkey,path"`        // a file with an NKey's seed
	TLSCA       string `toml:"tls_ca,path"`
	TLSCert     string `toml:"tls_cert,path"`
	TLSKey      string `toml:"tls_key,path"`
}

// Embedded as a URL is a server in this process.
const Embedded = "embedded"

// DefaultConfig is what holds where the file says nothing.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:4222"} }

// Joined reports whether there is a fleet.
func (c *Config) Joined() bool { return c.URL != "" }

// URLs are the servers to connect to.
func (c *Config) URLs() []string {
	if c.URL == Embedded {
		return []string{"nats://" + c.Listen}
	}
	var all []string
	for u := range strings.SplitSeq(c.URL, ",") {
		all = append(all, strings.TrimSpace(u))
	}
	return all
}

// KeyFault is a value that cannot be.
type KeyFault struct{ Key, Value, Want string }

// leastKey is the length of a fleet's key that nobody guesses.
const leastKey = 32

// Validate returns every fault, keyed relative to [fleet]. No value of it is a
// secret.
func (c *Config) Validate() (faults []KeyFault) {
	fault := func(key, value, want string) { faults = append(faults, KeyFault{key, value, want}) }
	host, port, err := net.SplitHostPort(c.Listen)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 && c.URL == Embedded {
		fault("listen", strconv.Quote(c.Listen), `HOST:PORT with a port from 1 to 65535, such as "127.0.0.1:4222"`)
	}
	if c.Key != "" && len(c.Key) < leastKey {
		fault("key", "(hidden)", "a text of at least 32 characters, the same for all gateways of the fleet (openssl rand -hex 32), or no key where all is on loopback")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls_cert", strconv.Quote(c.TLSCert), "both tls_cert and tls_key, or neither")
	}
	if c.Credentials != "" && c.NKey != "" {
		fault("nkey", strconv.Quote(c.NKey), "credentials or nkey, not both")
	}
	if !c.Joined() {
		for _, k := range []struct{ key, value string }{{"key", c.Key}, {"credentials", c.Credentials}, {"nkey", c.NKey}, {"tls_ca", c.TLSCA}, {"tls_cert", c.TLSCert}} {
			if k.value != "" {
				fault(k.key, "(set)", `fleet.url beside it: "nats://HOST:4222", or "embedded"`)
			}
		}
		return faults
	}
	local := true
	for _, text := range c.URLs() {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || !oneOf(u.Scheme, "nats", "tls", "ws", "wss") || u.Path != "" && u.Path != "/" {
			fault("url", "(hidden)", `"nats://HOST:4222", several by commas, tls:// for TLS at once, or "embedded"`)
			return faults
		}
		local = local && isLoopback(u.Hostname())
	}
	if c.Key == "" && !local {
		fault("key", "(not set)", "a key where the fleet's server is not on loopback: without it whoever reaches the server could plan for this gateway (fleet.key_file; openssl rand -hex 32)")
	}
	return faults
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func oneOf(s string, all ...string) bool {
	for _, v := range all {
		if s == v {
			return true
		}
	}
	return false
}
