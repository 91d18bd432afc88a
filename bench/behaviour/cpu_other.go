//go:build !linux

package main

import (
	"errors"
	"time"
)

func cpuTime(int) (time.Duration, error) { return 0, errors.New("needs /proc of Linux") }

func residentBytes(int) int64 { return 0 }
