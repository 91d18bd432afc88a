package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"penstock/fleet"
	"penstock/route"
)

// recorded waits for a message on a subject.
func recorded(t *testing.T, conn *natsgo.Conn, subject string) []byte {
	t.Helper()
	sub, err := conn.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	msg, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return msg.Data
}

// Whatever strangers send, nobody's plan changes and nobody's demand counts that
// is not there; it is counted, and the log names who sent it.
func TestStrangersChangeNothing(t *testing.T) {
	t.Parallel()
	url := startStore(t)
	nodes := []*node{startNodeTimed(t, fleet.Config{URL: url}, "a", "source-a", steady), startNodeTimed(t, fleet.Config{URL: url}, "b", "source-b", steady)}
	var leader *node
	await(t, "a leader", nodes, func() bool { leader = leaderOf(nodes); return leader != nil && len(leader.Demands()) == 2 })
	follower := without(nodes, leader)[0]
	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key, stranger := follower.key, fleet.NewKey("of another fleet")
	mallory := fleet.Identity{Name: "mallory", Instance: 1}
	from := follower.me
	epoch, _ := leader.Leads()
	evil := &route.Plan{Version: 1 << 40, Rows: []route.PlanRow{{Source: "evil", Weights: []route.PlanWeight{{Engine: "x", Weight: 1}}}}}
	table := func(k *fleet.Key, from fleet.Identity, epoch uint64) []byte {
		m, err := k.SealSnapshot(fleet.Header{From: from, Epoch: epoch, Seq: 1 << 40}, &fleet.Snapshot{Version: 1 << 40, Plan: evil}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	report := func(k *fleet.Key, from fleet.Identity, source string) []byte {
		m, err := k.SealReport(fleet.Header{From: from, Seq: 1 << 40}, &fleet.Report{Demand: &route.Demand{Source: source, Replicas: 1,
			Rows: []route.DemandRow{{Class: route.ClassKey{Model: "m"}, Rate: 1e6}}}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	sealed := func(kind fleet.Kind, from fleet.Identity, body []byte) []byte {
		m, err := key.Seal(fleet.Header{Kind: kind, From: from, Epoch: epoch + 1, Seq: 1 << 40}, body)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	forged := func(m []byte) []byte { m[len(m)-1] ^= 1; return m }
	source := follower.o.Source
	oldTable, oldReport := recorded(t, conn, tableSubject(leader.me.Name)), recorded(t, conn, demandSubject(source, from.Name))
	recorded(t, conn, tableSubject(leader.me.Name)) // they are old by now
	recorded(t, conn, demandSubject(source, from.Name))
	bomb := make([]byte, 16<<20+1)
	for _, c := range []struct {
		name    string
		to      *node
		a       about
		subject string
		message []byte
		why     fleet.Refusal
		sender  string // in the log; "": the message names none, the subject does
	}{
		{"table with a wrong key", follower, aboutTable, tableSubject("mallory"), table(stranger, mallory, epoch+1), fleet.WrongKey, "mallory"},
		{"forged table", follower, aboutTable, tableSubject("mallory"), forged(table(key, mallory, epoch+1)), fleet.Forged, "mallory"},
		{"table on another's subject", follower, aboutTable, tableSubject(leader.me.Name), table(key, mallory, epoch+1), fleet.WrongSender, "mallory"},
		{"table of a second leader", follower, aboutTable, tableSubject("mallory"), table(key, mallory, epoch), fleet.TwoLeaders, "mallory"},
		{"table of an epoch that is over", follower, aboutTable, tableSubject("mallory"), table(key, mallory, epoch-1), fleet.Older, "mallory"},
		{"replayed table", follower, aboutTable, tableSubject(leader.me.Name), oldTable, fleet.Replayed, leader.me.Name},
		{"truncated table", follower, aboutTable, tableSubject("mallory"), oldTable[:30], fleet.Truncated, ""},
		{"table cut in its body", follower, aboutTable, tableSubject(leader.me.Name), oldTable[:len(oldTable)-20], fleet.Forged, leader.me.Name},
		{"table of another release", follower, aboutTable, tableSubject("mallory"), []byte(strings.Repeat("x", 5000)), fleet.UnknownVersion, ""},
		{"oversized table", follower, aboutTable, tableSubject("mallory"), sealed(fleet.KindSnapshot, mallory, bomb), fleet.Oversized, "mallory"},
		{"table that says nothing", follower, aboutTable, tableSubject("mallory"), sealed(fleet.KindSnapshot, mallory, []byte{1, 2, 3}), fleet.Unreadable, "mallory"},
		{"report as a table", follower, aboutTable, tableSubject("mallory"), report(key, mallory, source), fleet.Forged, "mallory"},

		{"report with a wrong key", leader, aboutReport, demandSubject(source, from.Name), report(stranger, from, source), fleet.WrongKey, from.Name},
		{"forged report", leader, aboutReport, demandSubject(source, from.Name), forged(report(key, from, source)), fleet.Forged, from.Name},
		{"report of another source", leader, aboutReport, demandSubject("elsewhere", from.Name), report(key, from, source), fleet.WrongSender, from.Name},
		{"report on another's subject", leader, aboutReport, demandSubject(source, from.Name), report(key, mallory, source), fleet.WrongSender, "mallory"},
		{"replayed report", leader, aboutReport, demandSubject(source, from.Name), oldReport, fleet.Replayed, from.Name},
		{"truncated report", leader, aboutReport, demandSubject(source, from.Name), oldReport[:40], fleet.Truncated, ""},
		{"report cut in its body", leader, aboutReport, demandSubject(source, from.Name), oldReport[:len(oldReport)-9], fleet.Forged, from.Name},
		{"report of another release", leader, aboutReport, demandSubject(source, from.Name), []byte(strings.Repeat("x", 5000)), fleet.UnknownVersion, ""},
		{"oversized report", leader, aboutReport, demandSubject(source, from.Name), sealed(fleet.KindReport, from, bomb), fleet.Oversized, from.Name},
		{"report that says nothing", leader, aboutReport, demandSubject(source, from.Name), sealed(fleet.KindReport, from, []byte{0}), fleet.Unreadable, from.Name},
		{"another process of a gateway's name", leader, aboutReport, demandSubject(source, from.Name), report(key, fleet.Identity{Name: from.Name, Instance: 99}, source), fleet.NameTaken, from.Name},
		{"another process of the leader's name", leader, aboutReport, demandSubject(leader.o.Source, leader.me.Name), report(key, fleet.Identity{Name: leader.me.Name, Instance: 99}, leader.o.Source), fleet.NameTaken, leader.me.Name},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.to.counts.refused[c.a][c.why].Load()
			if err := conn.Publish(c.subject, c.message); err != nil {
				t.Fatal(err)
			}
			await(t, c.why.String()+" to be counted", nodes, func() bool { return c.to.counts.refused[c.a][c.why].Load() > before })
			await(t, "a line of the log to say so", nodes, func() bool {
				for line := range strings.Lines(c.to.log.String()) {
					if strings.Contains(line, fmt.Sprintf("msg=\"%s refused\" why=%s sender=%s", c.a, c.why, c.sender)) && strings.Contains(line, "subject="+c.subject+" ") {
						return true
					}
				}
				return false
			})
			for _, d := range leader.Demands() {
				for _, row := range d.Rows {
					if row.Rate > 1 {
						t.Errorf("the leader believes that %s is asked for %g requests/s", d.Gateway, row.Rate)
					}
				}
			}
		})
	}
	if err := conn.Publish(tableSubject("mallory"), make([]byte, fleet.MaxMessage+1)); !errors.Is(err, natsgo.ErrMaxPayload) {
		t.Errorf("more than a message may have: %v", err)
	}
	await(t, "the leader to go on", nodes, func() bool { return leaderOf(nodes) == leader })
	if now, _ := leader.Leads(); now != epoch {
		t.Errorf("epoch %d after %d", now, epoch)
	}
	for _, n := range nodes {
		for _, p := range n.plans() {
			if p.Rows[0].Source == "evil" {
				t.Errorf("%s took a stranger's plan", n.me.Name)
			}
		}
	}
}

// A store that says yes and forgets gives the lease to whoever asks: each time in
// a new epoch, so that no two lead in one, and plans only grow. Once it
// remembers again, one leads for good.
func TestStoreThatAcceptsAndForgets(t *testing.T) {
	url := startStore(t)
	nodes := []*node{startNode(t, url, "a", "source-a"), startNode(t, url, "b", "source-b"), startNode(t, url, "c", "source-c")}
	await(t, "a leader", nodes, func() bool { return leaderOf(nodes) != nil })
	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), bucketName)
	if err != nil {
		t.Fatal(err)
	}
	forgets, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for rest(forgets, 50*time.Millisecond) {
			_ = kv.Purge(forgets, leaseKey)
		}
	}()
	forgotten := func() (n uint64) {
		for _, m := range nodes {
			n += m.counts.forgotten.Load()
		}
		return n
	}
	await(t, "it to be noticed", nodes, func() bool { return forgotten() >= 5 })
	stop()
	<-ended
	await(t, "one to lead for good", nodes, func() bool { return leaderOf(nodes) != nil })
	increasing(t, nodes)
	await(t, "a log to say so", nodes, func() bool {
		return slices.ContainsFunc(nodes, func(n *node) bool {
			return strings.Contains(n.log.String(), `msg="the fleet's store has forgotten a lease that it had accepted" server=penstock`)
		})
	})
}
