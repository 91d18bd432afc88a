package config

import (
	"os"
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/fleet"
	"penstock/proxy"
	"penstock/telemetry"
)

// File is the configuration file. Each package owns its table; the tables
// here without a package are those only the wiring reads.
type File struct {
	Gateway Gateway                `toml:"gateway"`
	Listen  Listen                 `toml:"listen"`
	Admin   Admin                  `toml:"admin"`
	Routing Routing                `toml:"routing"`
	Network balancer.NetworkConfig `toml:"network"`
	Engines []engine.Config        `toml:"engine"`
	Aliases []proxy.Alias          `toml:"alias"`
	Tenants []proxy.TenantConfig   `toml:"tenant"`
	Limits  proxy.Config           `toml:"limits"`
	Log     telemetry.Config       `toml:"log"`

	Discovery engine.DiscoveryConfig `toml:"discovery"`
	Fleet     fleet.Config           `toml:"fleet"`
}

// Gateway says who and where this process is.
type Gateway struct {
	Name   string `toml:"name"`   // default: the host's name
	Source string `toml:"source"` // the cluster in which requests enter here
	// Replicas is how many gateways like this one, itself included, are in front
	// of the same engines without a store between them.
	Replicas int `toml:"replicas"`
	// StateDir is a directory for what outlives the process; empty: nothing does.
	StateDir string `toml:"state_dir,path"`
}

// Listen is the listener for clients.
type Listen struct {
	Address    string `toml:"address"`     // host:port; port 0: any free one
	MaxStreams int    `toml:"max_streams"` // at once on one HTTP/2 connection
	TLSCert    string `toml:"tls_cert,path"`
	TLSKey     string `toml:"tls_key,path"`
}

// TLS reports whether clients speak TLS.
func (l Listen) TLS() bool { return l.TLSCert != "" }

// Admin is the listener for operators. It has no authentication and so is
// always on loopback.
type Admin struct {
	Address        string `toml:"address"`         // host:port; port 0: any free one
	MetricsAddress string `toml:"metrics_address"` // of a second one, for scrapers and probes; empty: none
}

// Routing is how requests find their engine.
type Routing struct {
	HashKey Secret          `toml:"hash_key,secret"` // of the affinity hash; empty: a fixed one
	Policy  balancer.Policy `toml:"policy"`          // that decides weights
	Period  time.Duration   `toml:"period"`          // of the control cycle
}

// Secret is a configured text that no log, fault or dump shows.
type Secret = engine.Secret

const hidden = "(hidden)"

// Default is the file with nothing in it but the engines, which have no default.
func Default() *File {
	return &File{
		Gateway: Gateway{Name: hostName(), Source: "local", Replicas: 1},
		Listen:  Listen{Address: "127.0.0.1:8080", MaxStreams: 256},
		Admin:   Admin{Address: "127.0.0.1:8081"},
		Routing: Routing{Policy: balancer.DefaultPolicy, Period: balancer.DefaultPeriod},
		Limits:  proxy.DefaultConfig(),
		Fleet:   fleet.DefaultConfig(),
	}
}

// hostName is the host's name where it can be a gateway's, else "gateway".
func hostName() string {
	if name, err := os.Hostname(); err == nil && gatewayName.MatchString(name) {
		return name
	}
	return "gateway"
}

// NeedsRestart lists the keys in which next differs from f and that a running
// gateway cannot take over: who it is, and what its listeners were opened with.
func (f *File) NeedsRestart(next *File) []string {
	var keys []string
	for _, k := range []struct {
		key     string
		differs bool
	}{
		{"gateway.name", f.Gateway.Name != next.Gateway.Name},
		{"gateway.source", f.Gateway.Source != next.Gateway.Source},
		{"gateway.replicas", f.Gateway.Replicas != next.Gateway.Replicas},
		{"gateway.state_dir", f.Gateway.StateDir != next.Gateway.StateDir},
		{"listen.address", f.Listen.Address != next.Listen.Address},
		{"listen.max_streams", f.Listen.MaxStreams != next.Listen.MaxStreams},
		{"listen.tls_cert", f.Listen.TLS() != next.Listen.TLS()},
		{"admin.address", f.Admin.Address != next.Admin.Address},
		{"admin.metrics_address", f.Admin.MetricsAddress != next.Admin.MetricsAddress},
		{"limits.idle", f.Limits.Idle != next.Limits.Idle},
		{"fleet", f.Fleet != next.Fleet},
	} {
		if k.differs {
			keys = append(keys, k.key)
		}
	}
	return keys
}
