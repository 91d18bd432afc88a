//go:build !linux

package main

import "time"

// cpuTime and machineTime are not known here.
func cpuTime(int) time.Duration { return 0 }

func machineTime() (busy, all time.Duration) { return 0, 0 }
