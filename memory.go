package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
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

// heapTenths of a cgroup's limit is what the Go runtime may use:
// the rest is for what the kernel counts as well, such as socket buffers.
const heapTenths = 9

// setMemoryLimit lets the Go runtime know the cgroup's limit, so that it
// collects before the kernel kills. A GOMEMLIMIT of the operator's stands,
// "off" too. It returns the limit, 0 for none, and where it came from.
func setMemoryLimit(root fs.FS) (bytes int64, from string) {
	if os.Getenv("GOMEMLIMIT") != "" {
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			return limit, "GOMEMLIMIT"
		}
		return 0, "GOMEMLIMIT"
	}
	limit := cgroupLimit(root)
	if limit == 0 {
		return 0, "none"
	}
	limit = limit / 10 * heapTenths
	debug.SetMemoryLimit(limit)
	return limit, "cgroup"
}

// bodyMemory bounds the request bodies of all requests together, in bytes.
func bodyMemory() int64 { return processMemory() / bodyShare }

// processMemory is what this process may use, as far as is known.
func processMemory() int64 { return memoryLimit(os.DirFS("/")) }

// memoryLimit is what this process may use: the Go runtime's limit where it
// has one, else the cgroup's, else the machine's memory.
func memoryLimit(root fs.FS) int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	if limit := cgroupLimit(root); limit > 0 {
		return limit
	}
	return machineMemory(root)
}

// cgroupLimit is the least limit of this process's cgroup and those around
// it, 0 for none. A container sees its own cgroup as the root, whatever
// /proc/self/cgroup says, so a path that is not there is looked for upwards.
func cgroupLimit(root fs.FS) (least int64) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		text = []byte("0::/")
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		base, files := "sys/fs/cgroup", []string{"memory.max", "memory.high"}
		switch {
		case parts[0] == "0": // version 2
		case slices.Contains(strings.Split(parts[1], ","), "memory"): // version 1
			base, files = "sys/fs/cgroup/memory", []string{"memory.limit_in_bytes"}
		default:
			continue
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			for _, file := range files {
				if n := readLimit(root, path.Join(base, at, file)); n > 0 && (least == 0 || n < least) {
					least = n
				}
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// readLimit reads one limit in bytes, 0 for none: "max" in version 2, an
// absurdly large number in version 1.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n < 0 || n >= 1<<50 {
		return 0
	}
	return n
}

// machineMemory reads MemTotal; 4 GiB where there is no /proc.
func machineMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return 4 << 30
}
