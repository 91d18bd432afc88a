package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"penstock/proxy"
)

// hashKeyCommand runs `penstock hash-key` with the given standard input.
func hashKeyCommand(t *testing.T, in io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand(&out, &errs)
	root.SetIn(in)
	root.SetArgs(append([]string{"hash-key"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestHashKeyPrintsTheHashAlone(t *testing.T) {
	const key = "an-example-of-a-tenant-key"
	want := "hmac-sha256:H20IhwrAcj1301wbMrFXAmOztXYzH2wab2ONGV78a10\n"
	for _, in := range []string{key, key + "\n", key + "\r\n", key + "\n\n"} {
		if out, errs, err := hashKeyCommand(t, strings.NewReader(in)); out != want || errs != "" || err != nil {
			t.Errorf("%q: %q, %q, %v", in, out, errs, err)
		}
	}
	if out, _, err := hashKeyCommand(t, iotest.OneByteReader(strings.NewReader(key+"\n"))); out != want || err != nil {
		t.Errorf("a slow pipe: %q, %v", out, err)
	}
	for _, n := range []int{20, 512} {
		long := strings.Repeat("k", n)
		if out, _, err := hashKeyCommand(t, strings.NewReader(long+"\r\n")); err != nil || out != proxy.HashKey(long).String()+"\n" {
			t.Errorf("%d characters: %q, %v", n, out, err)
		}
	}
}

func TestHashKeyRefuses(t *testing.T) {
	const canary = "c4n4ry"
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"nothing":           {strings.NewReader(""), "no key"},
		"a line end":        {strings.NewReader("\n"), "no key"},
		"19 characters":     {strings.NewReader(canary + strings.Repeat("k", 13)), "20 to 512 characters, got 19"},
		"513 characters":    {strings.NewReader(canary + strings.Repeat("k", 507)), "20 to 512 characters, got 513"},
		"a file":            {strings.NewReader(strings.Repeat(canary, 100_000)), "20 to 512 characters"},
		"a space":           {strings.NewReader(canary + " 0123456789abcdefghij"), "visible ASCII"},
		"a control code":    {strings.NewReader(canary + "\x1b0123456789abcdefghij"), "visible ASCII"},
		"another script":    {strings.NewReader(canary + "ключключключключ"), "visible ASCII"},
		"two lines":         {strings.NewReader(canary + "0123456789abcdefghij\n0123456789abcdefghij\n"), "several lines"},
		"a read that fails": {io.MultiReader(strings.NewReader(canary), iotest.ErrReader(errors.New("broken pipe"))), "broken pipe"},
	} {
		out, errs, err := hashKeyCommand(t, c.in)
		if err == nil || out != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q", name, out, err, c.want)
		} else if strings.Contains(errs+err.Error(), canary) {
			t.Errorf("%s: the key is shown in %v", name, err)
		}
	}
	if code, _, stderr := penstock(t, "hash-key", "sk-in-the-process-list"); code != exitUsage || !strings.Contains(stderr, "want no argument") {
		t.Errorf("a key as an argument: %d %q", code, stderr)
	}
}

// What the command prints is what serve takes, and check counts.
func TestHashedKeyOpensTheGateway(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	out, _, err := hashKeyCommand(t, strings.NewReader(keyOf("made")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	text := engineTOML("e1", e.URL()) + fmt.Sprintf("[[tenant]]\nname = \"made\"\nkey_hash = %q\nrequire = { site = [\"a\", \"b\"] }\nrate = 2.5\n", strings.TrimSpace(out)) +
		tenantTOML("plain", keyOf("plain"), `priority = "critical"`, "tokens_per_minute = 200_000")
	g := startGateway(t, strings.Replace(text, "require = { site = [\"a\", \"b\"] }", "", 1), "e1")
	g.chat(client(t), chatBody("m", "hello", true), as("made")...)

	path := filepath.Join(t.TempDir(), "penstock.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := penstock(t, "check", "--config", path)
	want := `
TENANT  KEYS  PRIORITY  REQUIRES  REQUESTS   TOKENS
made    1     standard  site=a+b  2.5/s      unlimited
plain   1     critical  nothing   unlimited  200000/min
`
	if code != exitDone || !strings.HasSuffix(stdout, want) {
		t.Errorf("exit %d\n%s\nwant at its end\n%s", code, stdout, want)
	}
	code, stdout, _ = penstock(t, "check", "--config", path, "--json")
	if code != exitDone || !strings.Contains(stdout, `"tokens_per_minute"`) || strings.Contains(stdout, "hmac-") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}
