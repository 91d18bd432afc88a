package nats

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// The short form of suite O: members that reach the store over lines of their
// own, and faults of lines and store. bench/fleet has the long one, with real
// gateways. PENSTOCK_FLEET_EVENTS is for more of them.
func TestFaultsBetweenMembersAndStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	events := 14
	if n, err := strconv.Atoi(os.Getenv("PENSTOCK_FLEET_EVENTS")); err == nil {
		events = n
	}
	dir := t.TempDir()
	stop, address, err := StartServer("127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop() }()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var nodes []*node
	var lines []*enginetest.Line
	for i := range 3 {
		l, err := enginetest.NewLine(address)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = l.Run(ctx) })
		lines = append(lines, l)
		nodes = append(nodes, startNode(t, "nats://"+l.Addr(), fmt.Sprint("gw-", i), fmt.Sprint("source-", i)))
	}
	agree := func(what string) {
		t.Helper()
		await(t, what, nodes, func() bool { return leaderOf(nodes) != nil })
	}
	agree("one to lead")
	dice := rand.New(rand.NewPCG(1, 8))
	restart := func(wipe bool) {
		stop()
		if wipe {
			if err := os.RemoveAll(dir + "/fleet"); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "the store to come back", nodes, func() bool {
			again, _, err := StartServer(address, dir)
			if err == nil {
				stop = again
			}
			return err == nil
		})
	}
	for n := range events {
		l := lines[dice.IntN(len(lines))]
		pause := time.Duration(100+dice.IntN(900)) * time.Millisecond
		switch n % 7 {
		case 0, 1:
			l.Cut(true)
			time.Sleep(pause)
			l.Cut(false)
		case 2, 3:
			l.Freeze(true)
			time.Sleep(2 * pause)
			l.Freeze(false)
		case 4:
			l.Slow(200 * time.Millisecond)
			time.Sleep(2 * pause)
			l.Slow(0)
		case 5:
			restart(false)
		case 6:
			restart(true)
		}
	}
	agree("one to lead after the last fault")
	increasing(t, nodes)
	for _, n := range nodes {
		if len(n.plans()) < 2 {
			t.Errorf("%s had %d plans", n.me.Name, len(n.plans()))
		}
	}
}

// A leader whose way to the store swallows everything is followed by another in
// time, and falls silent before; what it says late is refused.
func TestFrozenLeaderIsFollowed(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(startStore(t), "nats://")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var nodes []*node
	lines := map[*node]*enginetest.Line{}
	for i := range 3 {
		l, err := enginetest.NewLine(address)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = l.Run(ctx) })
		n := startNode(t, "nats://"+l.Addr(), fmt.Sprint("gw-", i), fmt.Sprint("source-", i))
		nodes, lines[n] = append(nodes, n), l
	}
	var leader *node
	await(t, "one to lead", nodes, func() bool { leader = leaderOf(nodes); return leader != nil })
	first, _ := leader.Leads()
	lines[leader].Freeze(true)
	left := without(nodes, leader)
	var next *node
	await(t, "another to lead", nodes, func() bool {
		for _, n := range left {
			if n.leads() {
				next = n
			}
		}
		if next != nil && leader.leads() {
			t.Fatalf("%s and %s lead at once", next.me.Name, leader.me.Name)
		}
		return next != nil
	})
	lines[leader].Freeze(false)
	await(t, "the first to follow", nodes, func() bool { return leaderOf(nodes) == next })
	if second, _ := next.Leads(); second <= first {
		t.Errorf("epoch %d after %d", second, first)
	}
	increasing(t, nodes)
}
