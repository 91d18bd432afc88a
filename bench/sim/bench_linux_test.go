package sim

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkRun is a fleet of six engines under each kind of policy; the metric
// is requests per minute of one core, of all processor time, garbage collection
// included.
func BenchmarkRun(b *testing.B) {
	f := threeRegions(b)
	for _, name := range []string{"optimal", "least-request", "cache-aware"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n, begun := 0, cpuTime()
			for b.Loop() {
				n += runOf(b, f, name, chat(20_000, 40, 1), 1).Requests
			}
			b.ReportMetric(float64(n)/(cpuTime()-begun).Minutes(), "requests/cpu-min")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkMemory is what a run keeps when it is over, and what it allocated on
// the way: records, the last turns of conversations, and the traffic's own blocks.
func BenchmarkMemory(b *testing.B) {
	f := threeRegions(b)
	p, err := ParsePolicies("optimal")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, err := Run(Options{Fleet: f, Policy: p[0], Seed: 1}, chat(100_000, 40, 1))
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)*10/(1<<20), "MiB-kept/million")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/100_000, "B/request")
		b.ReportMetric(0, "ns/op")
		runtime.KeepAlive(r)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
