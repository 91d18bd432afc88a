package main

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"time"
)

const (
	// noticeWatch is how long an engine is given to hear that a client left.
	noticeWatch = 3 * time.Second
	// noticeWanted is the median that is wanted of a proxy.
	noticeWanted = 2 * time.Millisecond
)

// departures are the rows about clients that leave.
func departures() []*row {
	return []*row{
		{
			name: "client leaves in mid-stream: engine knows after (median of 20)", wanted: "<= 2 ms",
			pace: alone,
			run: func(t *trial) (observation, error) {
				t.pair.setPlay(silentAfter(1))
				return leaving(t, true)
			},
			say: saysNotice, right: noticed,
		},
		{
			name: "client leaves before the headers: engine knows after (median of 20)", wanted: "<= 2 ms",
			pace: alone,
			run: func(t *trial) (observation, error) {
				t.pair.setPlay(silent)
				return leaving(t, false)
			},
			say: saysNotice, right: noticed,
		},
		{
			name: "64 clients leave at once: later requests ok of 40, engine requests that run on", wanted: "40 of 40, 0 run on",
			run:   leavingAtOnce,
			say:   func(f folded) string { return fmt.Sprintf("%s of 40, %s run on", f.numbers[0], f.numbers[1]) },
			right: func(f folded, _ limits) bool { return f.numbers[0].low == 40 && f.numbers[1].high == 0 },
		},
	}
}

func saysNotice(f folded) string {
	if f.numbers[1].high > 0 {
		return fmt.Sprintf("%s of %s never", f.numbers[1], f.numbers[2])
	}
	return fmt.Sprintf("%s ms", f.numbers[0])
}

func noticed(f folded, l limits) bool {
	return f.numbers[1].high == 0 && f.numbers[0].mid <= l.quick(noticeWanted.Seconds()*1000)
}

// leaving lets 20 clients leave, one after the other. Numbers: median
// milliseconds to the end of the engine's connection, departures that it never
// heard of, clients.
func leaving(t *trial, streaming bool) (observation, error) {
	var took []time.Duration
	clients, missed := 0, 0
	for clients < 20 && missed < 3 {
		clients++
		c, err := t.begin(streaming)
		if err != nil {
			return observation{}, err
		}
		left := time.Now()
		c.conn.Close()
		if !t.await(noticeWatch, func() bool { return !c.delivery.ended().IsZero() }) {
			missed++
			continue
		}
		took = append(took, c.delivery.ended().Sub(left))
	}
	median := noticeWatch
	if slices.Sort(took); len(took) > 0 {
		median = took[len(took)/2]
	}
	return observation{"", []float64{median.Seconds() * 1000, float64(missed), float64(clients)}}, nil
}

// begun is a client in the middle of a request.
type begun struct {
	conn     net.Conn
	delivery delivery
}

// begin sends a request and waits until an engine has it and, for a streaming
// one, until the client has its first content.
func (t *trial) begin(streaming bool) (begun, error) {
	prompt := t.prompt()
	conn, err := rawRequest(t.host(), chatBody(prompt, true), "Accept", "text/event-stream")
	if err != nil {
		return begun{}, err
	}
	if streaming {
		if err := readUntil(conn, `"token0 "`); err != nil {
			conn.Close()
			return begun{}, fmt.Errorf("the first content did not come: %w", err)
		}
	}
	var list []delivery
	if !t.await(noticeWatch, func() bool { list = t.pair.carrying(prompt); return len(list) > 0 }) {
		conn.Close()
		return begun{}, fmt.Errorf("the request did not reach an engine")
	}
	return begun{conn, list[0]}, nil
}

// readUntil reads a response until that text has come.
func readUntil(conn net.Conn, text string) error {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var got []byte
	for buf := make([]byte, 4096); !bytes.Contains(got, []byte(text)); {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return fmt.Errorf("%w after %.200q", err, got)
		}
	}
	return nil
}

// leavingAtOnce lets 32 streams and 32 requests without an answer go at the
// same time. Numbers: later requests that are served, of 40; requests that
// the engines still work on a second later.
func leavingAtOnce(t *trial) (observation, error) {
	var clients []begun
	defer func() {
		for _, c := range clients {
			c.conn.Close()
		}
	}()
	for i := range 64 {
		streaming := i < 32
		if i == 0 {
			t.pair.setPlay(silentAfter(1))
		} else if i == 32 {
			t.pair.setPlay(silent)
		}
		c, err := t.begin(streaming)
		if err != nil {
			return observation{}, err
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		c.conn.Close()
	}
	runOn := func() (n int) {
		for _, c := range clients {
			if c.delivery.ended().IsZero() {
				n++
			}
		}
		return n
	}
	t.await(time.Second, func() bool { return runOn() == 0 })
	left := runOn()
	for _, e := range t.pair {
		e.setPlay(answerAs(e.name))
	}
	return observation{"", []float64{40 - t.failures(40), float64(left)}}, nil
}
