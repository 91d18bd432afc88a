package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// overTLS makes every gateway of this process speak TLS with its clients:
// TestCasesOverTLS runs the test binary once more with it.
var overTLS = os.Getenv("PENSTOCK_TEST_TLS") != ""

// What holds on a plain port holds on one with TLS, over HTTP/1.1 and HTTP/2:
// the cases about streams, limits, headers and clients that leave run again.
func TestCasesOverTLS(t *testing.T) {
	t.Parallel()
	if overTLS {
		t.Skip("this is the run with TLS")
	}
	cases := `^(TestC0[1234]_.*|TestC30_.*|TestC38_.*|TestC39_.*|TestC41_.*|TestC42_.*|TestC47_StreamsOnOneConnection|TestC53_BigBodies.*|TestLeavingWhileSending|TestSlowClients.*)$`
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+cases, "-test.v", "-test.timeout=10m", "-test.parallel=4")
	cmd.Env = append(os.Environ(), "PENSTOCK_TEST_TLS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := regexp.MustCompile(`(?m)^--- PASS: (\S+)`).FindAllSubmatch(out, -1)
	if len(passed) < 15 || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("only %d cases ran\n%s", len(passed), out)
	}
}

// authority issues the certificates of all tests of this package.
var authority = sync.OnceValue(func() *enginetest.Authority {
	a, err := enginetest.NewAuthority()
	if err != nil {
		panic(err)
	}
	return a
})

// trusting is the TLS side of a client of the tests.
func trusting() *tls.Config { return &tls.Config{RootCAs: authority().Pool()} }

// http2Only is HTTP/2, with TLS and without.
func http2Only() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// writePair writes a certificate for names of this machine, valid for the
// given time from an hour ago, and returns the paths of it and its key.
func writePair(t testing.TB, dir string, valid time.Duration) (cert, key string) {
	t.Helper()
	from := time.Now().Add(-time.Hour)
	c, k, err := authority().Issue(from, from.Add(valid), "127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	swapFile(t, cert, c)
	swapFile(t, key, k)
	return cert, key
}

// swapFile replaces a file as careful programs do: by a rename.
func swapFile(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// tlsKeys are lines for [listen] that make it speak TLS.
func tlsKeys(t testing.TB) string {
	cert, key := writePair(t, t.TempDir(), 24*time.Hour)
	return fmt.Sprintf("tls_cert = %q\ntls_key = %q\n", cert, key)
}

// tlsWire is a raw client over TLS.
type tlsWire struct {
	*tls.Conn
	tcp   *net.TCPConn
	reset bool
}

func dialTLSWire(t testing.TB, tcp *net.TCPConn, protocols ...string) *tlsWire {
	t.Helper()
	config := trusting()
	config.ServerName = "localhost"
	config.NextProtos = protocols
	c := tls.Client(tcp, config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return &tlsWire{Conn: c, tcp: tcp}
}

// CloseWrite ends our side, of TLS and of the connection.
func (w *tlsWire) CloseWrite() error {
	if err := w.Conn.CloseWrite(); err != nil {
		return err
	}
	return w.tcp.CloseWrite()
}

// SetLinger(0) makes Close a RST with nothing before it.
func (w *tlsWire) SetLinger(seconds int) error {
	w.reset = seconds == 0
	return w.tcp.SetLinger(seconds)
}

func (w *tlsWire) Close() error {
	if w.reset {
		return w.tcp.Close()
	}
	return w.Conn.Close()
}

func (w *tlsWire) SetReadBuffer(bytes int) error { return w.tcp.SetReadBuffer(bytes) }
