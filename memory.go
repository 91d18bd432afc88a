package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// bodyShare of the memory limit may be held in request bodies at once.
const bodyShare = 4

// gcPercent lets the heap grow to four times what is live before it is
// collected. What is live is a few tens of MiB of records and remembered
// conversations, which each collection walks; what requests allocate is
// short-lived. The memory limit, where there is one, still holds.
const gcPercent = 300

// setCollector applies gcPercent unless the environment says otherwise.
func setCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// bodyMemory bounds the request bodies of all requests together, in bytes.
func bodyMemory() int64 { return memoryLimit() / bodyShare }

// memoryLimit is what this process may use: GOMEMLIMIT where it is set, else
// the cgroup's limit, else the machine's memory.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// Version 1 writes an absurdly large number for "no limit".
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < 1<<50 {
			return n
		}
	}
	return machineMemory()
}

// machineMemory reads MemTotal; 4 GiB where there is no /proc.
func machineMemory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return 4 << 30
}
