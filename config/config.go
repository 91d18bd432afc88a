package config

import (
	"os"
	"strconv"

	"penstock/engine"
	"penstock/proxy"
	"penstock/telemetry"
)

// File is the configuration file. Each package owns its table; the tables
// here without a package are those only the wiring reads.
type File struct {
	Gateway Gateway          `toml:"gateway"`
	Listen  Listen           `toml:"listen"`
	Admin   Admin            `toml:"admin"`
	Routing Routing          `toml:"routing"`
	Engines []engine.Config  `toml:"engine"`
	Limits  proxy.Config     `toml:"limits"`
	Log     telemetry.Config `toml:"log"`
}

// Gateway says who and where this process is.
type Gateway struct {
	Name   string `toml:"name"`   // default: the host's name
	Source string `toml:"source"` // the cluster in which requests enter here
}

// Listen is the listener for clients.
type Listen struct {
	Address    string `toml:"address"`     // host:port; port 0: any free one
	MaxStreams int    `toml:"max_streams"` // at once on one HTTP/2 connection
}

// Admin is the listener for operators. It has no authentication and so is
// always on loopback.
type Admin struct {
	Address string `toml:"address"` // host:port; port 0: any free one
}

// Routing is how requests find their engine.
type Routing struct {
	HashKey Secret `toml:"hash_key,secret"` // of the affinity hash; empty: a fixed one
}

// Secret is a configured text that no log, fault or dump shows. string(s) is
// the text itself.
type Secret string

func (Secret) String() string               { return hidden }
func (Secret) GoString() string             { return hidden }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(hidden)), nil }

const hidden = "(hidden)"

// Default is the file with nothing in it but the engines, which have no default.
func Default() *File {
	return &File{
		Gateway: Gateway{Name: hostName(), Source: "local"},
		Listen:  Listen{Address: "127.0.0.1:8080", MaxStreams: 256},
		Admin:   Admin{Address: "127.0.0.1:8081"},
		Limits:  proxy.DefaultConfig(),
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
		{"listen.address", f.Listen.Address != next.Listen.Address},
		{"listen.max_streams", f.Listen.MaxStreams != next.Listen.MaxStreams},
		{"admin.address", f.Admin.Address != next.Admin.Address},
		{"limits.idle", f.Limits.Idle != next.Limits.Idle},
	} {
		if k.differs {
			keys = append(keys, k.key)
		}
	}
	return keys
}
