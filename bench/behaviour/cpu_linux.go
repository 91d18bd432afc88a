package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTime is the CPU time of a process and its descendants so far, in
// nanoseconds of the scheduler. The time of a thread that has ended is lost;
// proxies keep theirs.
func cpuTime(pid int) (total time.Duration, err error) {
	tree, err := family(pid)
	if err != nil {
		return 0, err
	}
	for _, id := range tree {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", id))
		if err != nil {
			return 0, err
		}
		if id == pid && len(threads) == 0 {
			return 0, errors.New("no /proc/PID/task/TID/schedstat")
		}
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				continue // ended in between
			}
			if err != nil {
				return 0, err
			}
			ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ns)
		}
	}
	return total, nil
}

// family is a process and its descendants.
func family(pid int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended in between
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], id)
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}

// residentBytes is the memory of a process and its descendants, 0 where it cannot be read.
func residentBytes(pid int) (total int64) {
	tree, err := family(pid)
	if err != nil {
		return 0
	}
	for _, id := range tree {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", id))
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			total += pages * int64(os.Getpagesize())
		}
	}
	return total
}
