package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/balancer"
	"penstock/engine/enginetest"
)

func noEnv(string) (string, bool) { return "", false }

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

const anEngine = "\n[[engine]]\nname = \"a1\"\nurl = \"http://127.0.0.1:8001\"\n"

// faultsOf parses text plus one good engine and returns the faults as printed.
func faultsOf(t *testing.T, text string, env func(string) (string, bool)) []string {
	t.Helper()
	_, err := Parse("p.toml", []byte(text), env)
	if err == nil {
		return nil
	}
	var faults Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("error %v is not Faults", err)
	}
	return strings.Split(faults.Error(), "\n")
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"duration without unit", "[limits]\nstall = 250", []string{
			`p.toml:2: limits.stall = 250: a duration needs its unit: write "250ms" or "250s"`}},
		{"duration without unit in quotes", "[limits]\nstall = \"250\"", []string{
			`p.toml:2: limits.stall = "250": a duration needs its unit: write "250ms" or "250s"`}},
		{"no duration", "[limits]\nstall = \"abc\"\nidle = true\nwrite = \"1d\"", []string{
			`p.toml:2: limits.stall = "abc": want a duration like "30s"`,
			`p.toml:3: limits.idle = true: want a duration like "30s"`,
			`p.toml:4: limits.write = "1d": want a duration like "30s"`}},
		{"durations out of range", "[limits]\nstall = \"10us\"\nidle = \"-3s\"\nwrite = \"48h\"\nbody_read = \"0\"", []string{
			`p.toml:2: limits.stall = "10µs": want a duration from "1ms" to "24h"`,
			`p.toml:3: limits.idle = "-3s": want a duration from "1ms" to "24h"`,
			`p.toml:4: limits.write = "48h0m0s": want a duration from "1ms" to "24h"`,
			`p.toml:5: limits.body_read = "0s": want a duration from "1ms" to "24h"`}},
		{"size slips", "limits.body = \"64MB\"", []string{`p.toml:1: limits.body = "64MB": want a size as in "64MiB"`}},
		{"aliases", "[[alias]]\nname = \"a\"\nmodel = \"b\"\n[[alias]]\nname = \"b\"\nmodel = \"c\"\n[[alias]]\nname = \"a\"\nmodel = \"m\"", []string{
			`p.toml:3: alias.model = "b": want a model: this is the alias on line 4, and an alias cannot stand for another`,
			`p.toml:8: alias.name = "a": want a name of its own: the alias on line 1 has this one`}},
		{"aliases in a circle", "[[alias]]\nname = \"a\"\nmodel = \"b\"\n[[alias]]\nname = \"b\"\nmodel = \"a\"\n[[alias]]\nname = \"c\"\nmodel = \"c\"", []string{
			`p.toml:3: alias.model = "b": want a model: this is the alias on line 4, and an alias cannot stand for another`,
			`p.toml:6: alias.model = "a": want a model: this is the alias on line 1, and an alias cannot stand for another`,
			`p.toml:9: alias.model = "c": want a name other than the alias has itself`}},
		{"aliases without names", "[[alias]]\nname = \"\"\n[[alias]]\nmodel = \"m\\u0007\"\nmodels = \"x\"", []string{
			`p.toml:1: alias.model = "": want a model's name, 1 to 512 bytes without control characters`,
			`p.toml:2: alias.name = "": want a model's name, 1 to 512 bytes without control characters`,
			`p.toml:3: alias.name = "": want a model's name, 1 to 512 bytes without control characters`,
			`p.toml:4: alias.model = "m\a": want a model's name, 1 to 512 bytes without control characters`,
			`p.toml:5: alias.models = "x": unknown key; the nearest is engine.models`}},
		{"an alias that is a model", "[[alias]]\nname = \"x\"\nmodel = \"m\"\n[[engine]]\nname = \"b1\"\nurl = \"http://127.0.0.1:8002\"\nmodels = [\"m\", \"x\"]", []string{
			`p.toml:2: alias.name = "x": want a name that no model has: engine b1 serves one of this name`}},
		{"size with a space", "limits.body = \"64 MiB\"", []string{`p.toml:1: limits.body = "64 MiB": want a size as in "64MiB"`}},
		{"size without unit", "limits.body = \"64\"", []string{
			`p.toml:1: limits.body = "64": a size in quotes needs its unit: write "64MiB", or 64 without quotes for bytes`}},
		{"size meant in MiB", "limits.body = 64", []string{
			`p.toml:1: limits.body = 64: want a size from "1KiB" to "4GiB"; a bare number counts bytes`}},
		{"size overflow", "limits.body = \"9999999999999GiB\"", []string{
			`p.toml:1: limits.body = "9999999999999GiB": more bytes than can be counted`}},
		{"no size", "limits.body = \"big\"", []string{
			`p.toml:1: limits.body = "big": want a size like "64MiB" ("KiB", "MiB", "GiB") or a number of bytes`}},
		{"unknown keys", "[limits]\nstal = \"3s\"\nmax-in-flight = 3\n[limit]\nx = 1\n[log]\nLEVEL = \"info\"", []string{
			`p.toml:2: limits.stal = "3s": unknown key; the nearest is limits.stall`,
			`p.toml:3: limits.max-in-flight = 3: unknown key; the nearest is engine.max_in_flight`,
			`p.toml:4: limit: unknown key; the nearest is limits`,
			`p.toml:7: log.LEVEL = "info": unknown key; the nearest is log.level`}},
		{"key near one that is not built", "[flet]\nurl = \"x\"", []string{
			`p.toml:1: flet: unknown key; the nearest is fleet`}},
		{"policy and period", "[routing]\npolcy = \"optimal\"\npolicy = 3\nperiod = \"1ms\"", []string{
			`p.toml:2: routing.polcy = "optimal": unknown key; the nearest is routing.policy`,
			`p.toml:3: routing.policy = 3: want a text in quotes`,
			`p.toml:4: routing.period = "1ms": want 100ms to 1m0s`}},
		{"discovery", "[discovery]\ndns = [\"10.0.0.1:80\", \"vllm\", \"_http._udp.x\", \"a:0\", \"http://a:80\", \"b:80\", \"b:80\"]\nfile_sd = [\"a/*/b.json\", \"a.txt\", \"[.json\", \"ok/*.yml\"]\n" +
			"[discovery.engine]\nname = \"x\"\nlabels = { gpu = \"\" }\nmax_in_flight = 0\ndialct = \"vllm\"\n", []string{
			`p.toml:2: discovery.dns = "10.0.0.1:80": want a name: an address needs no looking up, make it an [[engine]]`,
			`p.toml:2: discovery.dns = "vllm": want HOST:PORT for address records, or _SERVICE._tcp.NAME for SRV records`,
			`p.toml:2: discovery.dns = "_http._udp.x": want HOST:PORT for address records, or _SERVICE._tcp.NAME for SRV records`,
			`p.toml:2: discovery.dns = "a:0": want a port from 1 to 65535`,
			`p.toml:2: discovery.dns = "http://a:80": want HOST:PORT for address records, or _SERVICE._tcp.NAME for SRV records, without http://`,
			`p.toml:2: discovery.dns = "b:80": want each name once`,
			`p.toml:3: discovery.file_sd = "a/*/b.json": want a directory by its name; * ? [ only in the last part of the path`,
			`p.toml:3: discovery.file_sd = "a.txt": want a path that ends in .json, .yml, .yaml`,
			`p.toml:3: discovery.file_sd = "[.json": want a pattern with * ? [a-z] in the last part of the path`,
			`p.toml:5: discovery.engine.name = "x": want no name: every engine found has its own`,
			`p.toml:6: discovery.engine.labels.gpu = "": want 1 to 128 bytes without '=', ',' and control characters`,
			`p.toml:7: discovery.engine.max_in_flight = 0: want 1 or more; leave it out to have it learned, or set capacity = 0 to take the engine out`,
			`p.toml:8: discovery.engine.dialct = "vllm": unknown key; the nearest is discovery.engine.dialect`}},
		{"fleet that cannot be joined", "[fleet]\nurl = \"http://10.0.0.1:4222\"\nkey = \"short\"\ntls_cert = \"a.pem\"\nlisten = \"4222\"", []string{
			`p.toml:2: fleet.url = (hidden): want "nats://HOST:4222", several by commas, tls:// for TLS at once, or "embedded"`,
			`p.toml:3: fleet.key = (hidden): want a text of at least 32 characters, the same for all gateways of the fleet (openssl rand -hex 32), or no key where all is on loopback`,
			`p.toml:4: fleet.tls_cert = "a.pem": want both tls_cert and tls_key, or neither`,
			`p.toml:5: fleet.listen = "4222": want HOST:PORT with a port from 1 to 65535, such as "127.0.0.1:4222"`}},
		{"fleet elsewhere without a key", "[fleet]\nurl = \"nats://10.0.0.1:4222, nats://localhost:4222\"", []string{
			`p.toml:1: fleet.key = (not set): want a key where the fleet's server is not on loopback: without it whoever reaches the server could plan for this gateway (fleet.key_file; openssl rand -hex 32)`}},
		{"key of no fleet", "[fleet]\nnkey = \"gone.nk\"", []string{
			`p.toml:2: fleet.nkey = (set): want fleet.url beside it: "nats://HOST:4222", or "embedded"`}},
		{"secret under a wrong name", "[routing]\nhash_kye = \"s3cret\"\napi_token = \"s3cret\"", []string{
			`p.toml:2: routing.hash_kye = (hidden): unknown key; the nearest is routing.hash_key`,
			`p.toml:3: routing.api_token = (hidden): unknown key; [routing] has hash_key, hash_key_file, policy, period`}},
		{"keys of other gateways", strings.Replace(anEngine, "a1", "z1", 1) + "weight = 3\ntimeout = \"5s\"\napi_key = \"x\"\nfrobnicate = 1\n[listen]\nport = 80\n[server]\nx = 1", []string{
			`p.toml:5: engine.weight = 3: unknown key; what is meant may be engine.capacity`,
			`p.toml:6: engine.timeout = "5s": unknown key; what is meant may be limits.first_content or limits.stall`,
			`p.toml:7: engine.api_key = (hidden): unknown key; what is meant may be engine.key_file, the path of a file with the key`,
			`p.toml:8: engine.frobnicate = 1: unknown key; [engine] has name, url, cluster, dialect, models, labels, capabilities, capacity, max_in_flight, replicas, profile, key_file, pass_credentials, pass_headers, ca_file, tls_server_name`,
			`p.toml:10: listen.port = 80: unknown key; what is meant may be listen.address`,
			`p.toml:11: server: unknown key; what is meant may be listen`}},
		{"numbers beyond counting", "[limits]\nwrite = \"9999999h\"\n" + strings.Replace(anEngine, "a1", "z1", 1) + "max_in_flight = 9999999999", []string{
			`p.toml:2: limits.write = "9999999h": a duration that is too long to count`,
			`p.toml:7: engine.max_in_flight = 9999999999: want a whole number of at most 2147483647`}},
		{"listen on the default of admin", "[listen]\naddress = \"127.0.0.1:8081\"", []string{
			`p.toml:2: listen.address = "127.0.0.1:8081": want an address other than that of [admin], which is "127.0.0.1:8081" where nothing else is set`}},
		{"secret of the wrong type", "[routing]\nhash_key = 123456", []string{
			`p.toml:2: routing.hash_key = (hidden): want a text in quotes`}},
		{"secret that is not TOML", "[routing]\nhash_key = 0123456789", []string{
			`p.toml:2: routing.hash_key: not TOML: a value that cannot be read; a text needs quotes`}},
		{"empty secret", "[routing]\nhash_key = \"\"", []string{
			`p.toml:2: routing.hash_key = (hidden): want a text that is not empty, or no key`}},
		{"wrong types", "gateway = 1\n[[listen]]\naddress = \":1\"\n[log]\nlevel = 3", []string{
			`p.toml:1: gateway = 1: want one table [gateway]`,
			`p.toml:2: listen = [...]: want one table [listen]`,
			`p.toml:5: log.level = 3: want a text in quotes`}},
		{"log level", "[log]\nlevel = \"INFO\"", []string{
			`p.toml:2: log.level = "INFO": want debug, info, warn or error`}},
		{"gateway names", "[gateway]\nname = \"a b\"\nsource = \"\"", []string{
			`p.toml:2: gateway.name = "a b": want 1 to 128 of the characters A-Z a-z 0-9 . _ -`,
			`p.toml:3: gateway.source = "": want 1 to 128 of the characters A-Z a-z 0-9 . _ -`}},
		{"max_streams", "listen.max_streams = 0", []string{`p.toml:1: listen.max_streams = 0: want 1 to 65536`}},
		{"max_streams is whole", "listen.max_streams = 1.5", []string{
			`p.toml:1: listen.max_streams = 1.5: want a whole number, without quotes`}},
		{"addresses", "[listen]\naddress = \"8080\"\n[admin]\naddress = \"127.0.0.1:70000\"", []string{
			`p.toml:2: listen.address = "8080": want HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080`,
			`p.toml:4: admin.address = "127.0.0.1:70000": want a port from 0 to 65535`}},
		{"admin beyond loopback", "[admin]\naddress = \"0.0.0.0:8081\"", []string{
			`p.toml:2: admin.address = "0.0.0.0:8081": want a loopback address such as 127.0.0.1:8081: the admin listener has no authentication`}},
		{"admin on all interfaces", "[admin]\naddress = \":8081\"", []string{
			`p.toml:2: admin.address = ":8081": want a loopback address such as 127.0.0.1:8081: the admin listener has no authentication`}},
		{"admin and listen the same", "[listen]\naddress = \"0.0.0.0:9000\"\n[admin]\naddress = \"localhost:9000\"", []string{
			`p.toml:4: admin.address = "localhost:9000": want an address other than that of [listen], "0.0.0.0:9000"`}},
		{"listeners the same", "[listen]\naddress = \":9000\"\n[admin]\nmetrics_address = \"10.0.0.1:9000\"", []string{
			`p.toml:4: admin.metrics_address = "10.0.0.1:9000": want an address other than that of [listen], ":9000"`}},
		{"metrics and admin the same", "[admin]\naddress = \"127.0.0.1:9000\"\nmetrics_address = \"0.0.0.0:9000\"", []string{
			`p.toml:3: admin.metrics_address = "0.0.0.0:9000": want an address other than that of [admin], "127.0.0.1:9000"`}},
		{"the fleet's server and listen the same", "[listen]\naddress = \":4222\"\n[fleet]\nurl = \"embedded\"", []string{
			`p.toml:2: listen.address = ":4222": want an address other than that of fleet.listen, which is "127.0.0.1:4222" where nothing else is set`}},
		{"metrics address", "[admin]\nmetrics_address = \"9464\"", []string{
			`p.toml:2: admin.metrics_address = "9464": want HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080`}},
		{"empty metrics address", "[admin]\nmetrics_address = \"\"", []string{
			`p.toml:2: admin.metrics_address = "": want HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080`}},
		{"certificate without key", "[listen]\ntls_cert = \"tls.crt\"", []string{
			`p.toml:2: listen.tls_cert = "tls.crt": want listen.tls_key beside it, or neither`}},
		{"key without certificate", "[listen]\ntls_key = \"tls.key\"", []string{
			`p.toml:2: listen.tls_key = "tls.key": want listen.tls_cert beside it, or neither`}},
		{"certificate from an empty variable", "[listen]\ntls_cert = \"${NONE:-}\"\ntls_key = \"tls.key\"", []string{
			`p.toml:2: listen.tls_cert = "": want the path of a PEM file, or neither tls_cert nor tls_key`}},
		{"certificate missing", "[listen]\ntls_cert = \"/nonexistent/tls.crt\"\ntls_key = \"/nonexistent/tls.key\"", []string{
			`p.toml:2: listen.tls_cert = "/nonexistent/tls.crt": want a readable PEM file: no such file or directory`}},
		{"variable not set", "[gateway]\nname = \"${NOPE}\"\nsource = \"${1X}\"\n[log]\nlevel = \"${\"", []string{
			`p.toml:2: gateway.name = "${NOPE}": the environment variable NOPE is not set; ${NOPE:-default} has a default`,
			`p.toml:3: gateway.source = "${1X}": want ${VARIABLE} or ${VARIABLE:-default}; write "$${" for the text itself`,
			`p.toml:5: log.level = "${": "${" without its "}"; write "$${" for the text itself`}},
		{"hash key twice", "[routing]\nhash_key = \"a\"\nhash_key_file = \"/b\"", []string{
			`p.toml:3: routing.hash_key_file: want either routing.hash_key or routing.hash_key_file`}},
		{"hash key file missing", "[routing]\nhash_key_file = \"/nonexistent/key\"", []string{
			`p.toml:2: routing.hash_key_file = "/nonexistent/key": want a readable file: no such file or directory`}},
		{"state_dir missing", "[gateway]\nstate_dir = \"/nonexistent/state\"", []string{
			`p.toml:2: gateway.state_dir = "/nonexistent/state": want a directory that exists: no such file or directory`}},
		{"state_dir is a file", "[gateway]\nstate_dir = \"/dev/null\"", []string{
			`p.toml:2: gateway.state_dir = "/dev/null": want a directory, this is a file`}},
		{"state_dir cannot be written", "[gateway]\nstate_dir = \"/proc\"", []string{
			`p.toml:2: gateway.state_dir = "/proc": want a directory in which this user can write: no such file or directory`}},
		{"hash key from a directory", "[routing]\nhash_key_file = \"/\"", []string{
			`p.toml:2: routing.hash_key_file = "/": want a readable file: it is not a regular file`}},
		{"syntax", "[limits]\nstall = \n", []string{
			`p.toml:2: limits.stall: not TOML: expected value but found '\n' instead`}},
		{"nesting", "x = " + strings.Repeat("[", 100), []string{`p.toml:1: nested deeper than 32 levels`}},
		{"dots", strings.Repeat("a.", 100) + "a = 1", []string{`p.toml:1: nested deeper than 32 levels`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := faultsOf(t, c.text+anEngine, noEnv); !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

func TestEngineFaults(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"no engine", "[log]\nlevel = \"info\"", []string{
			`p.toml:1: engine: want at least one [[engine]], with a name and a url, or a [discovery] that finds some`}},
		{"empty list", "\nengine = []", []string{
			`p.toml:2: engine: want at least one [[engine]], with a name and a url, or a [discovery] that finds some`}},
		{"one bracket", "[engine]\nname = \"a\"", []string{
			`p.toml:1: engine = {...}: want [[engine]], with two brackets, one for each engine`}},
		{"list of something else", "engine = [\n1,\n{name=\"a\", url=\"http://h\"}]", []string{
			`p.toml:2: engine = 1: want a table [[engine]]`}},
		{"same name twice", anEngine + anEngine, []string{
			`p.toml:7: engine.name = "a1": want a name of its own: the engine on line 2 has this one`}},
		{"round trips and replicas", anEngine + `
[gateway]
source = "us"
replicas = 0
[network]
rtt_ms = { us = { us = -1, eu = 10, de = 20_000, fr = "x", "a=b" = 1 }, eu = 3, "b r" = {}, de = { us = nan } }
rtt = 4
`, []string{
			`p.toml:8: gateway.replicas = 0: want 1 to 1000`,
			`p.toml:10: network.rtt_ms."b r": want a source of 1 to 128 of the characters A-Z a-z 0-9 . _ -`,
			`p.toml:10: network.rtt_ms.de.us = NaN: want 0 to 10000 milliseconds`,
			`p.toml:10: network.rtt_ms.eu = 3: want a table of tables like { us-east = { us-east = 1, eu-west = 82 } }`,
			`p.toml:10: network.rtt_ms.us."a=b": want the cluster of an engine, or a source`,
			`p.toml:10: network.rtt_ms.us.de = 20000: want 0 to 10000 milliseconds`,
			`p.toml:10: network.rtt_ms.us.eu: want the cluster of an engine, or a source`,
			`p.toml:10: network.rtt_ms.us.fr = "x": want a number, without quotes`,
			`p.toml:10: network.rtt_ms.us.us = -1: want 0 to 10000 milliseconds`,
			`p.toml:11: network.rtt = 4: unknown key; the nearest is network.rtt_ms`}},
		{"every fault of every engine", strings.TrimSpace(anEngine) + `
capacity = -1
max_in_flight = 0
labels = { residency = ["eu", 3], "a=b" = "x", gpu = 7 }
capabilities = ["tools", "flying"]
cluster = ""
[[engine]]
url = "https://user:s3cret@h:1/v1"
models = "m"
capacity = "40"
profile = { base_ms = 0 }
replicas = 0
[[engine]]
name = "c1"
url = 8001
models = [
  "m",
  4,
]
dialect = ""
labels = []
`, []string{
			`p.toml:4: engine.capacity = -1: want a finite number of requests/s, 0 or more`,
			`p.toml:5: engine.max_in_flight = 0: want 1 or more; leave it out to have it learned, or set capacity = 0 to take the engine out`,
			`p.toml:6: engine.labels = "a=b": want 1 to 128 bytes without '=', ',' and control characters`,
			`p.toml:6: engine.labels.gpu = 7: want a text in quotes, or a list of them`,
			`p.toml:6: engine.labels.residency = 3: want a text in quotes`,
			`p.toml:7: engine.capabilities = "flying": want any of tools, vision, audio, structured_output, embeddings`,
			`p.toml:8: engine.cluster = "": want the name of a cluster; leave it out for the gateway's own`,
			`p.toml:9: engine.name = "": want 1 to 63 of the characters A-Z a-z 0-9 . _ -`,
			`p.toml:10: engine.url = "https://user:xxxxx@h:1/v1": want no user and password in the URL`,
			`p.toml:10: engine.url = "https://user:xxxxx@h:1/v1": want the engine's root, without /v1`,
			`p.toml:11: engine.models = "m": want a list of texts like ["a", "b"]`,
			`p.toml:12: engine.capacity = "40": want a number, without quotes`,
			`p.toml:13: engine.profile: want either base_ms, slope_ms and limit, or points, or step_ms, per_seq_ms and per_token_ms`,
			`p.toml:14: engine.replicas = 0: want 1 or more; leave it out for one`,
			`p.toml:17: engine.url = 8001: want a text in quotes`,
			`p.toml:20: engine.models = 4: want a text in quotes`,
			`p.toml:22: engine.dialect = "": want a dialect; "auto", or leave it out, to find out`,
			`p.toml:23: engine.labels = [...]: want a table like { residency = "eu", gpu = ["h100", "h200"] }`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := faultsOf(t, c.text, noEnv); !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

// A documented key either works or is refused as one that is still to come: it
// is never unknown, and never read without being kept.
func TestEveryDocumentedKeyIsKnown(t *testing.T) {
	text, err := os.ReadFile("testdata/every_key.toml")
	if err != nil {
		t.Fatal(err)
	}
	key, err := filepath.Abs("testdata/engine.key")
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "testdata/engine.key", key))
	text = bytes.Replace(text, []byte(`"optimal"`), []byte(`"`+balancer.DefaultPolicy.String()+`"`), 1)
	t.Chdir(tlsFiles(t))
	for _, line := range faultsOf(t, strings.Replace(string(text), "/var/lib/penstock", t.TempDir(), 1), noEnv) {
		t.Errorf("a documented key is refused: %s", line)
	}
}

// tlsFiles is a directory with a certificate, its key and the authority.
func tlsFiles(t testing.TB) string {
	t.Helper()
	authority, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.pem": authority.PEM, "engines-ca.pem": authority.PEM,
		"fleet.key": []byte("a key of a fleet that nobody else has\n"), "fleet.creds": []byte("a JWT and a seed")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Files are named from the configuration's directory, and both sides of TLS
// read them.
func TestTLSFiles(t *testing.T) {
	dir := tlsFiles(t)
	parse := func(text string) (*File, string) {
		f, err := Parse(filepath.Join(dir, "p.toml"), []byte(text), noEnv)
		if err != nil {
			return nil, strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		return f, ""
	}
	f, faults := parse("[listen]\ntls_cert = \"tls.crt\"\ntls_key = \"" + dir + "/tls.key\"\n[[engine]]\nname = \"a\"\nurl = \"https://10.0.0.1:8000\"\nca_file = \"ca.pem\"\ntls_server_name = \"a.internal\"")
	if faults != "" {
		t.Fatal(faults)
	}
	if want := (Listen{Address: "127.0.0.1:8080", MaxStreams: 256, TLSCert: filepath.Join(dir, "tls.crt"), TLSKey: filepath.Join(dir, "tls.key")}); f.Listen != want || !f.Listen.TLS() {
		t.Errorf("%+v", f.Listen)
	}
	if e := f.Engines[0]; e.CAFile != filepath.Join(dir, "ca.pem") || e.TLSServerName != "a.internal" {
		t.Errorf("%+v", e)
	}
	for text, want := range map[string]string{
		"[listen]\ntls_cert = \"ca.pem\"\ntls_key = \"tls.key\"" + anEngine:       `p.toml:3: listen.tls_key = "tls.key": want the private key of the certificate in tls_cert: tls: private key does not match public key`,
		anEngine + "ca_file = \"ca.pem\"":                                         `p.toml:5: engine.ca_file = "ca.pem": want no such key beside an http:// url: nothing would be checked`,
		strings.Replace(anEngine, "http:", "https:", 1) + "ca_file = \"tls.key\"": `p.toml:5: engine.ca_file = "tls.key": want a readable file of PEM certificates: no certificate in it`,
		strings.Replace(anEngine, "http:", "https:", 1) + "ca_file = \"none\"":    `p.toml:5: engine.ca_file = "none": want a readable file of PEM certificates: no such file or directory`,
	} {
		if _, got := parse(text); got != want {
			t.Errorf("got\n\t%s\nwant\n\t%s", got, want)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const canary = "canary-7f3a"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"[routing]\nhash_key = [\"" + canary + "\"]",
		"[routing]\nhash_key = \"" + canary + "${NOPE}\"",
		"[routing]\nhash_key = \"" + canary,
		"[routing]\nhash_key = " + canary,
		"[routing]\nhash_key = \"\\q" + canary + "\"",
		"[routing]\nhash_key = \"${KEY}\"\n[log]\nlevel = 1",
		"[routing]\nhash_key_file = \"key\"\n[log]\nlevel = 1",
		"[routing]\nhashkey = \"" + canary + "\"",
		"[log]\nlevel = \"http://me:" + canary + "@host/\"",
	} {
		_, err := Parse(filepath.Join(dir, "p.toml"), []byte(text+anEngine), env("KEY", canary))
		if err == nil {
			t.Errorf("no fault in %q", text)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("shown in %s", err)
		}
	}
}

func TestFaultsStayOneLineEach(t *testing.T) {
	long := strings.Repeat("ü", 500)
	for _, text := range []string{
		"[limits]\n\"a\\nb\" = \"c\\nd\"",
		"[limits]\n" + `"` + long + `" = "` + long + `"`,
		"[gateway]\nname = \"\\u001b[31m\\n" + long + "\"",
		"[[engine]]\nname = \"\\n\"\nurl = \"\\n\"",
		"x = \x01",
	} {
		for _, line := range faultsOf(t, text+anEngine, noEnv) {
			if !strings.HasPrefix(line, "p.toml:") || len(line) > 800 || strings.ContainsAny(line, "\x1b\x01\r") {
				t.Errorf("%q gives %q", text, line)
			}
		}
	}
}

func TestFileTooLarge(t *testing.T) {
	text := anEngine + "#" + strings.Repeat("x", maxFile)
	if got := faultsOf(t, text, noEnv); len(got) != 1 || got[0] != "p.toml:1: want a file of at most 4 MiB" {
		t.Errorf("got %q", got)
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error that says the file does not exist", err)
	}
}
