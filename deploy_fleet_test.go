package main

import (
	"os"
	"strings"
	"testing"

	"penstock/config"
)

// The files of deploy/fleet are ones that serve takes, with the environment that
// they name.
func TestFleetExamples(t *testing.T) {
	t.Parallel()
	for path, env := range map[string]map[string]string{
		"deploy/fleet/two-gateways.toml": {"NAME": "gw-1", "FLEET": "embedded"},
		"deploy/fleet/gateway.toml": {"NAME": "gw-eu-west-1", "CLUSTER": "eu-west", "STATE_DIR": t.TempDir(),
			"PENSTOCK_NATS_PASSWORD": "p", "PENSTOCK_FLEET_KEY": strings.Repeat("k", 64)},
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := config.Parse(path, text, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if !file.Fleet.Joined() || file.Gateway.Name != env["NAME"] || len(file.Engines) < 2 {
			t.Errorf("%s: %+v", path, file.Gateway)
		}
	}
}
