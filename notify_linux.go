package main

import "golang.org/x/sys/unix"

// monotonicMicros is CLOCK_MONOTONIC, by which systemd orders reloads.
func monotonicMicros() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano() / 1000
}
