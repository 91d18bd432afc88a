package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/proxy"
)

const (
	keyA = "sk-a-canary-0123456789abcdef"
	keyB = "sk-b-canary-0123456789abcdef"
)

func hashOf(key string) string { return proxy.HashKey(key).String() }

// keyDir is a directory with files of keys in it, and a configuration's place.
func keyDir(t *testing.T, files map[string]string) (config string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "p.toml")
}

func TestTenants(t *testing.T) {
	path := keyDir(t, map[string]string{"b.key": keyB + "\n", "engine.key": "ek-canary\r\n"})
	text := fmt.Sprintf(`
[[tenant]]
name = "a"
key_hash = "${HASH}"
priority = "critical"
require = { residency = "eu", gpu = ["h100", "x"] }
rate = 0.5
tokens_per_minute = 200_000
[[tenant]]
name = "b"
key_file = "b.key"
[[tenant]]
name = "c"
key_hash = [%q, "${HASH}x"]
[[engine]]
name = "a1"
url = "http://127.0.0.1:8001"
key_file = "engine.key"
pass_credentials = true
pass_headers = ["x-team-*", "x-trace-id"]
`, hashOf(keyB+"2"))
	text = strings.Replace(text, `"${HASH}x"`, fmt.Sprintf("%q", hashOf(keyB+"3")), 1)
	f, err := Parse(path, []byte(text), env("HASH", hashOf(keyA)))
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := f.Tenants[0], f.Tenants[1], f.Tenants[2]
	if a.Name != "a" || !slices.Equal(a.KeyHash, []proxy.KeyHash{proxy.HashKey(keyA)}) || a.Priority != "critical" || *a.Rate != 0.5 ||
		*a.TokensPerMinute != 200_000 || a.Require["residency"][0] != "eu" || len(a.Require["gpu"]) != 2 {
		t.Errorf("%+v", a)
	}
	if !slices.Equal(b.KeyHash, []proxy.KeyHash{proxy.HashKey(keyB)}) || b.Key.Text != "" || b.Key.Path != filepath.Join(filepath.Dir(path), "b.key") || b.Rate != nil || b.TokensPerMinute != nil {
		t.Errorf("%+v", b)
	}
	if len(c.KeyHash) != 2 {
		t.Errorf("%+v", c)
	}
	e := f.Engines[0]
	if string(e.Key.Text) != "ek-canary" || !e.PassCredentials || len(e.PassHeaders) != 2 {
		t.Errorf("%+v", e)
	}
	if shown := fmt.Sprintf("%+v %#v", f, f); strings.Contains(shown, "canary") {
		t.Errorf("a key is shown in %s", shown)
	}
}

func TestTenantFaults(t *testing.T) {
	hash := hashOf(keyA)
	path := keyDir(t, map[string]string{"short": "sk-canary", "spaced": "sk canary 0123456789abcdefghij", "a": keyA, "again": keyA + "\n", "two": keyA + "\n" + keyB, "engine": "ek canary"})
	tenant := func(lines ...string) string { return "[[tenant]]\nname = \"t\"\n" + strings.Join(lines, "\n") }
	withHash := func(lines ...string) string {
		return tenant(append([]string{fmt.Sprintf("key_hash = %q", hash)}, lines...)...)
	}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"no key", tenant(), []string{
			"p.toml:1: tenant: want key_hash (`penstock hash-key` prints it) or key_file: a tenant without a key cannot come in"}},
		{"both keys", withHash(`key_file = "a"`), []string{`p.toml:4: tenant.key_file = "DIR/a": want either tenant.key_hash or tenant.key_file`}},
		{"the key itself", tenant(`key = "`+keyA+`"`, `key_hash = "`+hash+`"`), []string{
			`p.toml:3: tenant.key = (hidden): unknown key; the nearest is tenant.key_file`}},
		{"the key where the hash belongs", tenant(`key_hash = "` + keyA + `"`), []string{
			"p.toml:3: tenant.key_hash = (hidden): want what `penstock hash-key` prints for the key: hmac-sha256: and 43 characters"}},
		{"a hash of another kind", tenant(`key_hash = "sha256:` + strings.Repeat("0", 64) + `"`), []string{
			"p.toml:3: tenant.key_hash = (hidden): want what `penstock hash-key` prints for the key: hmac-sha256: and 43 characters"}},
		{"no text", tenant(`key_hash = 7`), []string{`p.toml:3: tenant.key_hash = (hidden): want a text in quotes`}},
		{"a list with a fault", tenant(`key_hash = [`, `  "`+hash+`",`, `  "`+keyB+`",`, `]`), []string{
			"p.toml:5: tenant.key_hash = (hidden): want what `penstock hash-key` prints for the key: hmac-sha256: and 43 characters"}},
		{"an empty list", tenant(`key_hash = []`), []string{`p.toml:3: tenant.key_hash = []: want at least one hash`}},
		{"key file missing", tenant(`key_file = "none"`), []string{`p.toml:3: tenant.key_file = "none": want a readable file: no such file or directory`}},
		{"key file not a text", tenant(`key_file = 3`), []string{`p.toml:3: tenant.key_file = 3: want a text in quotes`}},
		{"key file with a short key", tenant(`key_file = "short"`), []string{`p.toml:3: tenant.key_file = "DIR/short": want a key of 20 to 512 characters, got 9`}},
		{"key file with a spaced key", tenant(`key_file = "spaced"`), []string{
			`p.toml:3: tenant.key_file = "DIR/spaced": want a key of visible ASCII characters, without spaces: it is sent in a header`}},
		{"key file with two keys", tenant(`key_file = "two"`), []string{
			`p.toml:3: tenant.key_file = "DIR/two": want a key of visible ASCII characters, without spaces: it is sent in a header`}},
		{"same name twice", withHash() + "\n[[tenant]]\nname = \"t\"\nkey_file = \"a\"\n", []string{
			`p.toml:5: tenant.name = "t": want a name of its own: the tenant on line 1 has this one`,
			`p.toml:6: tenant.key_file = "DIR/a": want a key of its own: line 3 has the same one`}},
		{"same key twice", withHash() + "\n[[tenant]]\nname = \"u\"\nkey_hash = \"" + hash + "\"\n", []string{
			`p.toml:6: tenant.key_hash = (hidden): want a key of its own: line 3 has the same one`}},
		{"same key in one list", tenant(`key_hash = [`, `  "`+hash+`",`, `  "`+hash+`",`, `]`), []string{
			`p.toml:5: tenant.key_hash = (hidden): want a key of its own: line 4 has the same one`}},
		{"same key in two files", tenant(`key_file = "a"`) + "\n[[tenant]]\nname = \"u\"\nkey_file = \"again\"\n", []string{
			`p.toml:6: tenant.key_file = "DIR/again": want a key of its own: line 3 has the same one`}},
		{"names", strings.ReplaceAll(withHash(), `"t"`, `"a b"`), []string{`p.toml:2: tenant.name = "a b": want 1 to 63 of the characters A-Z a-z 0-9 . _ -`}},
		{"reserved name", strings.ReplaceAll(withHash(), `"t"`, `"other"`), []string{
			`p.toml:2: tenant.name = "other": want another name: metrics use this one for what belongs to no tenant or to many`}},
		{"no name", "[[tenant]]\nkey_hash = \"" + hash + "\"\n", []string{`p.toml:1: tenant.name = "": want 1 to 63 of the characters A-Z a-z 0-9 . _ -`}},
		{"priority", withHash(`priority = "high"`), []string{`p.toml:4: tenant.priority = "high": want critical, standard or sheddable`}},
		{"empty priority", withHash(`priority = ""`), []string{`p.toml:4: tenant.priority = "": want critical, standard or sheddable; leave it out for standard`}},
		{"limits", withHash(`rate = 0`, `tokens_per_minute = -5`), []string{
			`p.toml:4: tenant.rate = 0: want a number above 0 and at most 268435456; leave it out for no limit`,
			`p.toml:5: tenant.tokens_per_minute = -5: want a number above 0 and at most 16106127360; leave it out for no limit`}},
		{"limits that are none", withHash(`rate = "50"`, `tokens_per_minute = inf`), []string{
			`p.toml:4: tenant.rate = "50": want a number, without quotes`,
			`p.toml:5: tenant.tokens_per_minute = +Inf: want a number above 0 and at most 16106127360; leave it out for no limit`}},
		{"not a number", withHash(`rate = nan`), []string{`p.toml:4: tenant.rate = NaN: want a number above 0 and at most 268435456; leave it out for no limit`}},
		{"require", withHash(`require = { residency = "eu,us", "a=b" = "x", gpu = [], n = 3 }`), []string{
			`p.toml:4: tenant.require = "a=b": want 1 to 128 bytes without '=', ',' and control characters`,
			`p.toml:4: tenant.require.gpu = []: want at least one value`,
			`p.toml:4: tenant.require.n = 3: want a text in quotes, or a list of them`,
			`p.toml:4: tenant.require.residency = "eu,us": want 1 to 128 bytes without '=', ',' and control characters`}},
		{"one bracket", "[tenant]\nname = \"a\"", []string{`p.toml:1: tenant = {...}: want [[tenant]], with two brackets, one for each tenant`}},
		{"unknown key", withHash(`tokens_per_second = 5`), []string{
			`p.toml:4: tenant.tokens_per_second = (hidden): unknown key; the nearest is tenant.tokens_per_minute`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(path, []byte(c.text+anEngine), noEnv)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("%v", err)
			}
			got := strings.Split(strings.ReplaceAll(strings.ReplaceAll(faults.Error(), path, "p.toml"), filepath.Dir(path), "DIR"), "\n")
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
			if strings.Contains(faults.Error(), keyA) || strings.Contains(faults.Error(), "sk-canary") || strings.Contains(faults.Error(), "sk canary") {
				t.Error("a key is shown")
			}
		})
	}
}

func TestEngineKeyFaults(t *testing.T) {
	path := keyDir(t, map[string]string{"spaced": "ek canary", "empty": "\n"})
	_, err := Parse(path, []byte(strings.TrimSpace(anEngine)+`
key_file = "spaced"
pass_credentials = "yes"
pass_headers = ["x-team-*", "authorization", "*"]
key = "ek-canary"
[[engine]]
name = "b1"
url = "http://h"
key_file = "empty"
pass_headers = "x-team-*"
`), noEnv)
	want := `p.toml:4: engine.key_file = "DIR/spaced": want a file with one key in it, of at most 8 KiB and visible ASCII characters: it is sent in a header
p.toml:5: engine.pass_credentials = "yes": want true or false, without quotes
p.toml:6: engine.pass_headers = "authorization": want no header with credentials; pass_credentials = true hands on the client's
p.toml:6: engine.pass_headers = "*": want header names such as "x-trace-id", or the beginning of names such as "x-team-*"
p.toml:7: engine.key = (hidden): unknown key; the nearest is engine.key_file
p.toml:11: engine.key_file = "empty": want a file of 1 byte to 64 KiB, one value in it
p.toml:12: engine.pass_headers = "x-team-*": want a list of texts like ["a", "b"]`
	if err == nil {
		t.Fatal("no fault")
	}
	got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), path, "p.toml"), filepath.Dir(path), "DIR")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A fleet's worth of tenants is read in the time that a reload has.
func TestTenThousandTenantsAreRead(t *testing.T) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "[[tenant]]\nname = \"t%d\"\nkey_hash = %q\nrequire = { residency = \"eu\" }\nrate = 50\ntokens_per_minute = 200000\n", i, hashOf(fmt.Sprintf("sk-%020d", i)))
	}
	began := time.Now()
	f, err := Parse("p.toml", []byte(text.String()+anEngine), noEnv)
	if err != nil || len(f.Tenants) != 10_000 {
		t.Fatal(err)
	}
	t.Logf("%d bytes read in %v", text.Len(), time.Since(began))
}
