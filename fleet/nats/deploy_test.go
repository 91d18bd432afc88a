package nats

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"penstock/engine/enginetest"
	"penstock/fleet"
)

// The permissions of deploy/fleet let a gateway do all that it has to, and
// speak for itself alone.
func TestDeployedPermissions(t *testing.T) {
	t.Setenv("PENSTOCK_NATS_PASSWORD", "a-password-for-this-test")
	authority, err := enginetest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.pem": authority.PEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("NATS_TLS_CERT", filepath.Join(dir, "tls.crt"))
	t.Setenv("NATS_TLS_KEY", filepath.Join(dir, "tls.key"))
	o, err := server.ProcessConfigFile("../../deploy/fleet/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.SyncAlways {
		t.Error("writes are not synced before they are answered")
	}
	o.Host, o.Port, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, t.TempDir(), true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	url := func(name string) string { return "tls://" + name + ":a-password-for-this-test@localhost:" + port }
	start := func(name, source string) *node {
		return startNodeAs(t, fleet.Config{URL: url(name), TLSCA: filepath.Join(dir, "ca.pem")}, name, source)
	}
	nodes := []*node{start("gw-us-east-1", "us-east"), start("gw-eu-west-1", "eu-west"), start("gw-ap-south-1", "ap-south")}
	var leader *node
	await(t, "one to lead", nodes, func() bool { leader = leaderOf(nodes); return leader != nil && len(leader.Demands()) == 3 })
	if st := without(nodes, leader)[0].Who(t.Context()); st.Partial || len(st.Gateways) != 3 {
		t.Errorf("a gateway that does not lead knows %+v", st)
	}
	leader.stop()
	left := without(nodes, leader)
	await(t, "another to lead", left, func() bool { return leaderOf(left) != nil })
	for _, n := range nodes {
		if log := n.log.String(); strings.Contains(log, "ermissions") {
			t.Errorf("%s lacks a permission:\n%s", n.me.Name, log)
		}
	}
	denied := make(chan error, 4)
	conn, err := natsgo.Connect(url("gw-us-east-1"), natsgo.RootCAs(filepath.Join(dir, "ca.pem")), natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{demandSubject("eu-west", "gw-eu-west-1"), tableSubject("gw-eu-west-1"), "$JS.API.STREAM.DELETE.KV_penstock"} {
		if err := conn.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = conn.Flush()
		select {
		case err := <-denied:
			if !strings.Contains(err.Error(), "ermissions") {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("a gateway may publish on %s", subject)
		}
	}
}
