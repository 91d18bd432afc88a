package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc, 1/100 s on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime is the CPU time of a process so far, 0 where it cannot be read.
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}

// machineTime is how long all processors together were busy so far, and how
// long they could have been.
func machineTime() (busy, all time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseInt(field, 10, 64)
		if i >= 8 {
			break // guest time is in user time already
		}
		all += time.Duration(n) * clockTick
		if i != 3 && i != 4 { // idle, waiting for disks
			busy += time.Duration(n) * clockTick
		}
	}
	return busy, all
}
