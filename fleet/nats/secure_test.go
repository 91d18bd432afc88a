package nats

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"penstock/engine/enginetest"
	"penstock/fleet"
	"penstock/route"
)

// The seed and the public part of an NKey that is used here alone.
const (
	testSeed = "SUAK2S2X4RU2ISVFNF5Z266NVOBPGBAZ4BFFHYQPKRHIJUPS3VUONXAZ5E"
	testUser = "UCMXB6F6MP6VRY7BNP56TMGVJTCNYEABUDQZ45BNSGKTEKONLXYNFHUZ"
)

// A server that asks for a certificate and an NKey is joined with both, and
// with neither of them wrong.
func TestMutualTLSAndNKey(t *testing.T) {
	t.Parallel()
	authority, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	secure, err := authority.Server(nil, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	secure.ClientAuth, secure.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		TLSConfig: secure, TLS: true, TLSVerify: true, TLSTimeout: 5, Nkeys: []*server.NkeyUser{{Nkey: testUser}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	dir := t.TempDir()
	cert, key, err := authority.Issue(time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "gw-1")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	whole := fleet.Config{URL: "tls://localhost:" + port, NKey: file("gw.nk", []byte(testSeed)), TLSCA: file("ca.pem", authority.PEM),
		TLSCert: file("tls.crt", cert), TLSKey: file("tls.key", key)}
	noCert, noKey, noTrust := whole, whole, whole
	noCert.TLSCert, noCert.TLSKey = "", ""
	noKey.NKey = ""
	noTrust.TLSCA = ""
	for _, c := range []struct {
		name   string
		config fleet.Config
		joins  bool
	}{{"whole", whole, true}, {"no certificate", noCert, false}, {"no NKey", noKey, false}, {"no trust", noTrust, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log logBook
			m, err := New(Options{Name: "gw-1", Source: "s", Config: c.config, Timing: quick, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- m.Run(ctx) }()
			m.Tell(&route.Demand{Gateway: "gw-1", Source: "s", Replicas: 1, At: time.Now()})
			leads := func() bool { _, leads := m.Leads(); return leads }
			if c.joins {
				await(t, "it to lead", nil, leads)
			} else {
				await(t, "the log to say why", nil, func() bool { return strings.Contains(log.String(), "fleet store not reached") })
				time.Sleep(2500 * time.Millisecond) // in which the first one leads
				if leads() || m.Status().Store != "not reached" {
					t.Errorf("it has joined: %+v", m.Status())
				}
			}
			cancel()
			<-ended
		})
	}
}
