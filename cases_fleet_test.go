package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
	"penstock/fleet/nats"
	"penstock/route"
)

// Two gateways of one source have the same slots without a word about slots,
// add up what is asked for, and do not take each other's requests for a
// stranger's.
func TestGatewaysOfOneSourceAgree(t *testing.T) {
	t.Parallel()
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	_, a := startSim(t, enginetest.Config{Name: "a1", Models: []string{"m"}, Slots: 8, TTFT: 10 * time.Millisecond, TBOT: time.Millisecond})
	_, b := startSim(t, enginetest.Config{Name: "b1", Models: []string{"m"}, Slots: 8, TTFT: 10 * time.Millisecond, TBOT: time.Millisecond})
	text := func(name string) string {
		return fmt.Sprintf("[gateway]\nname = %q\nsource = \"here\"\n[fleet]\nurl = \"nats://%s\"\n", name, address) + engineTOML("a1", a) + engineTOML("b1", b)
	}
	one := startGateway(t, text("gw-1"), "a1", "b1")
	two := startGateway(t, text("gw-2"), "a1", "b1")
	class := func(r *running) (*route.Table, *route.Class) {
		table := r.tables.Load()
		return table, table.Classes[route.ClassKey{Model: "m"}]
	}
	slots := func(r *running) string {
		_, c := class(r)
		if c == nil || !c.HasSlots() {
			return ""
		}
		var text strings.Builder
		for i := range uint64(4096) {
			text.WriteString(c.Candidates[c.Slot(i<<52).Engine].Engine.Name)
		}
		return text.String()
	}
	awaitCond(t, "both to follow one plan, with slots that others make too", func() bool {
		x, _ := class(one)
		y, _ := class(two)
		return x.Plan != nil && y.Plan != nil && x.Plan.Epoch > 0 && x.Plan.Epoch == y.Plan.Epoch && x.Plan.Version == y.Plan.Version && x.Shared && y.Shared
	})
	awaitCond(t, "both to have the same slots", func() bool { s := slots(one); return s != "" && s == slots(two) })
	c := client(t)
	for range 6 {
		for _, r := range []*running{one, two} {
			if a := r.post(c, "/v1/chat/completions", chatBody("m", "hello", false)); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		}
	}
	leader := one
	if _, leads := two.member.Leads(); leads {
		leader = two
	}
	awaitCond(t, "the leader to know what both are asked for", func() bool {
		asked := 0
		for _, d := range leader.member.Demands() {
			for _, row := range d.Rows {
				if row.Rate > 0 && d.Source == "here" {
					asked++
				}
			}
		}
		return asked == 2
	})
	if st := one.member.Who(t.Context()); len(st.Gateways) != 2 || st.Leader != leader.member.Status().Leader {
		t.Errorf("the fleet is %+v", st)
	}
}

// A gateway whose store is not there starts and serves as any other does.
func TestGatewayStartsWithoutItsStore(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
	_, a := startSim(t, enginetest.Config{Name: "a1", Models: []string{"m"}, Slots: 8, TTFT: 10 * time.Millisecond, TBOT: time.Millisecond})
	r := startGateway(t, fmt.Sprintf("[fleet]\nurl = \"nats://%s\"\n", nobody)+engineTOML("a1", a), "a1")
	if a := r.post(client(t), "/v1/chat/completions", chatBody("m", "hello", false)); a.status != 200 {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if st := r.member.Status(); st.Leader != "" || st.Store != "not reached" {
		t.Errorf("the fleet is %+v", st)
	}
}
