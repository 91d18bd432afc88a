package nats

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
)

// The permissions of deploy/fleet let a gateway do all that it has to, and
// speak for itself alone.
func TestDeployedPermissions(t *testing.T) {
	t.Setenv("PENSTOCK_NATS_PASSWORD", "a-password-for-this-test")
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
	url := func(name string) string { return "nats://" + name + ":a-password-for-this-test@" + s.Addr().String() }
	nodes := []*node{startNode(t, url("gw-us-east-1"), "gw-us-east-1", "us-east"), startNode(t, url("gw-eu-west-1"), "gw-eu-west-1", "eu-west"),
		startNode(t, url("gw-ap-south-1"), "gw-ap-south-1", "ap-south")}
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
	conn, err := natsgo.Connect(url("gw-us-east-1"), natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { denied <- err }))
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
