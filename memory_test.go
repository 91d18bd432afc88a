package main

import (
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func files(pairs ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestCgroupLimit(t *testing.T) {
	const self, unlimitedV1 = "proc/self/cgroup", "9223372036854771712\n"
	for name, c := range map[string]struct {
		root fs.FS
		want int64
	}{
		"nothing at all":    {files(), 0},
		"container, v2":     {files(self, "0::/\n", "sys/fs/cgroup/memory.max", "1073741824\n"), 1 << 30},
		"no limit, v2":      {files(self, "0::/\n", "sys/fs/cgroup/memory.max", "max\n"), 0},
		"throttled sooner":  {files(self, "0::/\n", "sys/fs/cgroup/memory.max", "2147483648\n", "sys/fs/cgroup/memory.high", "1073741824\n"), 1 << 30},
		"service, v2":       {files(self, "0::/system.slice/penstock.service\n", "sys/fs/cgroup/system.slice/penstock.service/memory.max", "536870912\n", "sys/fs/cgroup/system.slice/memory.max", "max\n"), 512 << 20},
		"slice is tighter":  {files(self, "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/b.service/memory.max", "536870912\n", "sys/fs/cgroup/a.slice/memory.max", "268435456\n"), 256 << 20},
		"container, v1":     {files(self, "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"), 1 << 30},
		"service, v1":       {files(self, "4:memory:/system.slice/p.service\n", "sys/fs/cgroup/memory/system.slice/p.service/memory.limit_in_bytes", "1073741824\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", unlimitedV1), 1 << 30},
		"no limit, v1":      {files(self, "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", unlimitedV1), 0},
		"hybrid":            {files(self, "4:memory:/x\n0::/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n"), 1 << 30},
		"no /proc":          {files("sys/fs/cgroup/memory.max", "1073741824\n"), 1 << 30},
		"not a number":      {files(self, "0::/\n", "sys/fs/cgroup/memory.max", "lots\n"), 0},
		"lines of no sense": {files(self, "x\n\n0::/../..\n", "sys/fs/cgroup/memory.max", "1073741824\n"), 1 << 30},
	} {
		if got := cgroupLimit(c.root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Not parallel: the limit is the process's.
func TestMemoryLimitOfTheRuntime(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	root := files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "10737418240\n")
	set := func(environment string, limit int64) {
		t.Helper()
		t.Setenv("GOMEMLIMIT", environment)
		debug.SetMemoryLimit(limit) // what the runtime made of it at start
	}
	want := func(bytes int64, from string, runtime, all int64) {
		t.Helper()
		gotBytes, gotFrom := setMemoryLimit(root)
		if got := debug.SetMemoryLimit(-1); gotBytes != bytes || gotFrom != from || got != runtime {
			t.Errorf("%d from %s, the runtime has %d; want %d from %s, %d", gotBytes, gotFrom, got, bytes, from, runtime)
		}
		if got := memoryLimit(root); got != all {
			t.Errorf("the limit for all is %d, want %d", got, all)
		}
	}
	const nine = 9 << 30
	set("", math.MaxInt64)
	want(nine, "cgroup", nine, nine)
	set("5GiB", 5<<30)
	want(5<<30, "GOMEMLIMIT", 5<<30, 5<<30)
	set("off", math.MaxInt64)
	want(0, "GOMEMLIMIT", math.MaxInt64, 10<<30)
	set("", math.MaxInt64)
	root = files("proc/meminfo", "MemTotal:  8 kB\n")
	want(0, "none", math.MaxInt64, 8<<10)
	if n := memoryLimit(os.DirFS("/")); n < 64<<20 {
		t.Errorf("this machine has %d bytes", n)
	}
}
