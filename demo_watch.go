package main

import (
	"context"
	"net"
	"time"
)

const (
	redrawEvery = time.Second     // on a terminal
	lineEvery   = 5 * time.Second // elsewhere
)

// watch shows how the policies stand until the time is over.
func (t *tour) watch(over context.Context, c *comparison) {
	s := t.screen
	t.heading("5. The clusters' own clients: the same requests under each policy")
	s.printf("\n%s\n\n", s.dim("Times as clients measure them, from request to last word; load: what an engine\ngets over what it carries; moved: turns on another engine than the turn before."))
	s.printf("%s explain --table --admin %s\n\n", ownCommand(), c.shown().home().adminAddress())
	every := lineEvery
	if s.tty {
		every = redrawEvery
	}
	for rest(over, every) {
		if s.tty {
			s.redraw(c.table() + "\nCtrl-C ends it.\n")
		} else {
			s.printf("%s\n", c.line())
		}
	}
}

// farewell is the end: how it stood, and the last line.
func (t *tour) farewell(c *comparison) {
	s := t.screen
	all := reportOf(append(c.tallies(), t.client.seen))
	if c.begun() {
		if s.tty {
			s.redraw(c.table())
		} else {
			s.printf("\n%s", c.table())
		}
	}
	s.printf("\n%d requests, %d errors. The demo has ended.\n", all.Requests, all.Errors)
}

// listening reports whether somebody accepts connections at an address.
func listening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
